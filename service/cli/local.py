"""Commands on local files, without a server.

A file is ingested as the server would do it, into a temporary folder (below TMPDIR).
"""

# ruff: noqa: PLC0415 - only these commands need the service, which is slow to import

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from tracedock.errors import ApiError

from service.cli.output import atomic, check_target, refuse_to_replace
from service.cli.progress import Stages, stages
from service.cli.report import note, say
from service.cli.summary import damage, defects

if TYPE_CHECKING:
    from tracedock.client import ReportForm

    from service.cli.selection import Json
    from service.cutting.source import Source
    from service.store.export import Order
    from service.store.step_traces import StepTrace
    from service.streaming.source import Progress
    from service.trace.piece import Align, By

_UNPROCESSABLE = 422  # status of the API for faults in a trace or a selection


def split(file: Path, folder: Path, *, selection: Json | None, by: By | None, value: int | None, force: bool) -> Json:
    """Write a file for each piece that has events. Return the pieces as `plan` does, with the `file` of each.

    The `size` of a piece is that of its file, not an estimate.
    """
    from service.cutting.children import write_children
    from service.cutting.pieces import split_into_pieces
    from service.formats.names import child_name
    from service.store.catalog import new_trace_id
    from service.store.export import document, packed
    from service.trace.selection import Selection

    with _workspace() as work:
        with _ingested([file], work) as (progress, [source]):
            planned = split_into_pieces(source.columns, source.summary, Selection.parsed(selection or {}), by, value)
            for piece in planned:
                refuse_to_replace(folder / child_name(file.name, piece.suffix), force=force)  # before the long work
            on_written = work.reporting(progress.making(f"split {file.name}"))
            children = write_children(
                source, work.folder / "pieces", planned, new_id=new_trace_id, on_written=on_written
            )
            folder.mkdir(parents=True, exist_ok=True)
            for child in children:
                content = work.interruptible(packed(document(work.folder / "pieces" / child.id)))
                write(content, folder / child.name, progress)
        written = [
            {
                "file": str(folder / child.name),
                "name": child.name,
                "selection": None if child.selection is None else child.selection.as_dict(),
                "events": child.summary.kept_events,
                "counts": child.summary.counts,
                "size": (folder / child.name).stat().st_size,
            }
            for child in children
        ]
    return {"pieces": written, "events": sum(piece["events"] for piece in written)}


def plan(file: Path, *, selection: Json | None, by: By | None, value: int | None) -> Json:
    """Return the plan of a split, as the API does, without writing the pieces."""
    from service.jobs.children.tasks.derive import PlanTask
    from service.trace.selection import Selection

    with _workspace() as work, _ingested([file], work) as (_, [source]):
        plan = PlanTask(source, Selection.parsed(selection or {}), by, value).run()
    return {"pieces": [piece.as_dict() for piece in plan.pieces], "events": sum(piece.events for piece in plan.pieces)}


def overlay(file: Path, output: Path | None, *, selection: Json | None, force: bool) -> Path:
    """Write a trace with its critical path as a track, and return its file."""
    from service.formats.names import child_name
    from service.jobs.overlay import write_critical_path
    from service.store.export import document, packed
    from service.trace.selection import Selection

    target = output or Path(child_name(file.name, "critical-path"))
    check_target(target, force=force)
    parsed = Selection.parsed(selection or {})
    with _workspace() as work, _ingested([file], work) as (progress, [source]):
        columns, spill = work.folder / "overlay", work.folder / "spill"
        on_written = work.reporting(progress.making(f"critical path of {file.name}"))
        write_critical_path(source, columns, parsed, spill=spill, on_written=on_written)
        chunks = document(columns)
        write(work.interruptible(chunks if is_plain(target) else packed(chunks)), target, progress)
    return target


def merge(
    files: Sequence[Path], output: Path, *, align: Align, ranks: Sequence[int] | None, cycle: int | None
) -> list[Json]:
    """Merge traces, or those of a cycle, into one file, and return the clock alignment of each rank."""
    from service.cutting.merge import merge as merge_sources
    from service.jobs.mergeable import mergeable
    from service.store.export import document, packed
    from service.trace.errors import CannotMerge

    with _workspace() as work, _ingested(files, work, ranks) as (progress, sources):
        if len({source.source for source in sources}) < len(sources):
            raise CannotMerge("A trace can't be merged with itself; two of these files have the same bytes.")
        chosen = mergeable(sources, cycle, lambda source: source)
        on_written = work.reporting(progress.making(f"merge {len(chosen)} traces"))
        merged = merge_sources(chosen, work.folder / "merged", name=output.name, align=align, on_written=on_written)
        chunks = document(work.folder / "merged")
        write(work.interruptible(chunks if is_plain(output) else packed(chunks)), output, progress)
        return [{**rank} for rank in merged.summary.ranks]


def analysis(  # noqa: PLR0913 - one parameter for each option
    files: Sequence[Path],
    name: str | None,
    *,
    base: Sequence[Path] = (),
    base_selection: Json | None = None,
    cycle: int | None = None,
    base_cycle: int | None = None,
    parameters: Mapping[str, str],
    selection: Json | None,
    form: str,
    table: str | None,
    on_tables: Callable[[list[str]], None] = lambda _: None,
) -> bytes:
    """Return the result of a built-in analysis, as the API does; without a name, the analyses of the first file.

    `base` lists the files to compare `files` with, and `base_selection` selects their events, if it differs from
    `selection`; `cycle` and `base_cycle` keep only the files of these cycles; `on_tables` receives the names of the
    tables.
    """
    from service.analysis.answers import answer_question, applicable
    from service.analysis.catalogue import question_of
    from service.analysis.question import parameters_of
    from service.analysis.reading_cache import AnalysisInput, ReadingCache
    from service.trace.cycles import of_cycles
    from service.trace.errors import BadAnalysisRequest
    from service.trace.selection import Selection

    with _workspace() as work:
        question = question_of(name) if name else None
        values = parameters_of(question, parameters) if question else None
        if base and not (question and question.compare_sides):
            raise BadAnalysisRequest(f"{name} does not compare two sides; it takes no base.")
        if base or not (question and question.compare_sides):  # otherwise, each file is a side
            files, base = _distinct(files), _distinct(base)
        if base_selection is not None and not base:
            raise BadAnalysisRequest("The selection of the base needs a base.")
        of_files = None if selection is None else Selection.parsed(selection)
        of_base = of_files if base_selection is None else Selection.parsed(base_selection)
        sides = [*((file, of_files, False) for file in files), *((file, of_base, True) for file in base)]
        with _ingested([file for file, *_ in sides], work) as (_, sources):
            traces = [
                AnalysisInput(
                    source.columns,
                    source.summary,
                    selected,
                    source.name,
                    is_base=is_base,
                    step_traces=_step_traces(source, sources),
                )
                for source, (_, selected, is_base) in zip(sources, sides, strict=True)
            ]
            readings = ReadingCache(work.folder / "spill")
            if question is None or values is None:
                return orjson.dumps(applicable(traces[0], readings))
            others = [trace for trace in traces if not trace.is_base]
            bases = [trace for trace in traces if trace.is_base]
            chosen, chosen_base = of_cycles(others, bases, cycle, base_cycle, lambda trace: trace.summary)
            on_tables([*question.tables])
            tables = [table] if table else []
            return answer_question(question, values, [*chosen, *chosen_base], readings, tables).form(form, tables)


def _distinct(files: Sequence[Path]) -> list[Path]:
    """Return the files, each once."""
    return [*{file.resolve(): file for file in files}.values()]


def _step_traces(snapshot: Source, sources: Sequence[Source]) -> tuple[StepTrace, ...]:
    """Return those of the traces that may have the steps of a memory snapshot; a file's id is empty."""
    from service.store.step_traces import may_have_steps, step_trace

    if not snapshot.summary.is_memory_history:
        return ()
    of_rank = [source for source in sources if source.summary.rank == snapshot.summary.rank]
    return tuple(
        step_trace("", source.name, source.columns, source.summary)
        for source in of_rank
        if may_have_steps(source.summary)
    )


def report(files: Sequence[Path], *, selection: Json | None, form: ReportForm, cycle: int | None) -> str:
    """Return the report on a trace or, of several files, on a cycle of a run, as the API does."""
    from service.analysis.answers import answer_question
    from service.analysis.catalogue import question_of
    from service.analysis.question import parameters_of
    from service.analysis.reading_cache import AnalysisInput, ReadingCache
    from service.report.answers import Answer, NotKnown
    from service.report.compose import RUN_ANALYSES, TRACE_ANALYSES, reported_cycle, run_report, trace_report
    from service.report.html import as_html
    from service.report.markdown import as_markdown
    from service.trace.errors import NotApplicable
    from service.trace.selection import Selection

    parsed = None if selection is None else Selection.parsed(selection)
    files = _distinct(files)
    with _workspace() as work, _ingested(files, work) as (_, sources):
        traces = [
            AnalysisInput(
                source.columns, source.summary, parsed, source.name, step_traces=_step_traces(source, sources)
            )
            for source in sources
        ]
        reported, cycle_facts = reported_cycle(traces, cycle, lambda trace: trace.summary)
        readings = ReadingCache(work.folder / "spill")

        def answer(name: str) -> Answer | NotKnown:
            question = question_of(name)
            try:
                result = answer_question(question, parameters_of(question, {}), reported.traces, readings)
                return Answer.parsed(result.form("json"))
            except NotApplicable as error:
                return NotKnown(str(error))

        answers = {name: answer(name) for name in (TRACE_ANALYSES if len(files) == 1 else RUN_ANALYSES)}
    text = "" if selection is None else json.dumps(selection)
    if len(files) == 1:
        [source] = sources
        call_of = _calls(files, text)
        content = trace_report(source.name, source.summary, answers, call_of, selection=text)
    else:
        named = [(trace.name, trace.summary) for trace in reported.traces]
        call_of = _calls(files, text, reported.number if cycle_facts else None)
        content = run_report(f"{len(files)} traces", named, answers, call_of, cycle_facts=cycle_facts, selection=text)
    return as_markdown(content) if form == "markdown" else as_html(content)


def _calls(files: Sequence[Path], selection: str, cycle: int | None = None) -> Callable[[str], str]:
    """Return a function that returns the command for the whole answer of an analysis."""
    first, *others = map(shlex.quote, map(str, files))
    options = [
        *(f"--with {other}" for other in others),
        *([] if cycle is None else [f"--cycle {cycle}"]),
        *([f"--selection {shlex.quote(selection)}"] if selection else []),
    ]
    return lambda name: " ".join(["tracedock analyze", first, name, *options])


@contextmanager
def converted(
    file: Path, *, selection: Json | None, order: Order, redact: bool, form: str
) -> Iterator[tuple[Iterator[bytes], Stages]]:
    """Yield a trace or a selection in chunks, and the progress.

    `form` is ``json`` or ``pftrace``, with ``.gz`` if it is compressed.
    """
    from service.cutting.cut import cut_document
    from service.rendering.pftrace.document import pftrace
    from service.store.export import document, packed
    from service.trace.selection import Selection

    with _workspace() as work, _ingested([file], work) as (progress, [source]):
        parsed = None if selection is None else Selection.parsed(selection)
        if form.startswith("pftrace"):
            chunks = pftrace(source.columns, source.summary, selection=parsed, source=source.source, redact=redact)
        elif parsed is None:
            chunks = document(source.columns, order=order, redact=redact)
        else:
            chunks = cut_document(source.columns, parsed, source.summary, source=source.source, redact=redact)
        yield work.interruptible(packed(chunks) if form.endswith(".gz") else chunks), progress


def name_of(name: str, suffix: str, *, form: str = "json.gz") -> str:
    """Return the name of a derived trace in a format."""
    from service.formats.names import child_name

    return f"{child_name(name, suffix).removesuffix('.json.gz')}.{form}"


def is_plain(output: Path) -> bool:
    """Return whether a file of that name is written uncompressed."""
    return output.suffix.lower() == ".json"


class _Workspace:
    """Temporary folder, with deferred handling of signals.

    Compiled code calls back into Python, where an exception would be lost or end the process. So a signal is recorded,
    and takes effect at the next safe point; a second one takes effect at once.
    """

    folder: Path

    def __init__(self) -> None:
        self._signal = 0

    def on_signal(self, number: int, _: object) -> None:
        """Record a signal."""
        if self._signal:
            self.check()
        self._signal = number

    def check(self) -> None:
        """Exit if a signal was recorded."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal:
            sys.exit(128 + self._signal)

    def reporting(self, report: Callable[..., object]) -> Callable[..., None]:
        """Wrap a progress callback with the check for signals."""

        def checked(*progress: object) -> None:
            self.check()
            report(*progress)

        return checked

    def interruptible(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks of a document, with the check for signals before each."""
        for chunk in chunks:
            self.check()
            yield chunk


@contextmanager
def _workspace() -> Iterator[_Workspace]:
    """Create a workspace; errors of the domain become an `ApiError`.

    Signals that would end the process at once end it after the folder is deleted.
    """
    from service.trace.errors import DiskFull, TracedockError

    work = _Workspace()
    defaults = {
        signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL,
    }  # fmt: skip
    caught = {number: default for number, default in defaults.items() if signal.getsignal(number) is default}
    for number in caught:
        signal.signal(number, work.on_signal)
    try:
        with tempfile.TemporaryDirectory(prefix="tracedock-") as folder:
            work.folder = Path(folder)
            yield work
            work.check()
    except DiskFull as error:
        detail = f"There is no space left in {work.folder.parent}; set TMPDIR to another folder."
        raise ApiError(error.code, error.title, detail, _UNPROCESSABLE) from error
    except TracedockError as error:
        raise ApiError.of_problem(error.as_dict(), _UNPROCESSABLE) from error
    finally:
        for number, default in caught.items():
            signal.signal(number, default)


@contextmanager
def _ingested(
    files: Sequence[Path], work: _Workspace, ranks: Sequence[int] | None = None
) -> Iterator[tuple[Stages, list[Source]]]:
    """Ingest files, and yield progress and their traces; at the end, print notes on refused and repaired events."""
    sources: list[Source] = []
    try:
        for at, file in enumerate(files):
            try:
                with stages(keep=False) as progress:  # one bar at a time
                    sources.append(_ingest(file, work, ranks[at] if ranks else None, progress))
            except Exception:
                if len(files) > 1:
                    say(f"{file}:")  # the error does not contain the name of the file
                raise
        with stages(keep=False) as progress:
            yield progress, sources
    finally:
        for source in sources:
            summary = source.summary.as_dict()
            if report := damage(summary):
                note("\n  ".join([f"{source.name}: {report}", *defects(summary)]))


def _ingest(file: Path, work: _Workspace, rank: int | None, progress: Stages) -> Source:
    from service.cutting.source import Source
    from service.jobs.ingest import ingest

    watch = work.reporting(progress.ingesting(file.name))
    with file.open("rb") as original:
        size = os.fstat(original.fileno()).st_size
        digest = hashlib.file_digest(original, "sha256").hexdigest()
        original.seek(0)

        def on_progress(current: Progress) -> None:
            watch({"progress": {"bytes": current.bytes, "bytes_total": size, "events": current.events}})

        columns = work.folder / digest
        summary = ingest(original, columns, file.name, on_progress)
        work.check()
    return Source(columns, file.name, summary, digest, rank)


def write(chunks: Iterable[bytes], target: Path, progress: Stages) -> None:
    """Write a file atomically, with progress."""
    on_bytes, done = progress.writing(target.name), 0
    with atomic(target) as file:
        for chunk in chunks:
            file.write(chunk)
            done += len(chunk)
            on_bytes(done, 0)

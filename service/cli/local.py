"""Traces that are files here: split, merged and cut without a server.

A file is read as the server would read it, into a folder that is gone afterwards (below TMPDIR), and takes room there.
"""

# ruff: noqa: PLC0415 - this alone needs the service, which takes long to import: `ls` must not pay for it

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from service.cli.client import Json
from service.cli.errors import ApiError
from service.cli.output import refuse_to_replace, whole
from service.cli.progress import Stages, stages
from service.cli.report import note
from service.cli.summary import damage, lost

if TYPE_CHECKING:
    from service.cutting.source import Source
    from service.store.export import Order
    from service.streaming.source import Progress
    from service.trace.piece import Align, By

_UNREADABLE = 422  # what the API answers for what lies in a trace or a selection


def split(file: Path, folder: Path, *, selection: Json | None, by: By | None, value: int | None, force: bool) -> Json:
    """Write a file for each piece of a trace that has events, and tell of them as `plan` does, each with its `file`."""
    from service.cutting.children import write_children
    from service.cutting.pieces import pieces
    from service.store.catalog import new_trace_id
    from service.store.export import document, packed
    from service.trace.piece import child_name
    from service.trace.selection import Selection

    with _workplace() as work:
        with _reading([file], work) as (shown, [source]):
            found = pieces(source.columns, source.summary, Selection.parsed(selection or {}), by, value)
            for piece in found:
                refuse_to_replace(folder / child_name(file.name, piece.suffix), force=force)  # before it takes long
            making = work.minding(shown.making(f"split {file.name}"))
            children = write_children(source, work.folder / "pieces", found, new_id=new_trace_id, on_written=making)
            folder.mkdir(parents=True, exist_ok=True)
            for child in children:
                content = work.heeding(packed(document(work.folder / "pieces" / child.id)))
                write(content, folder / child.name, shown)
        told = [
            {
                "file": str(folder / child.name),
                "name": child.name,
                "selection": child.selection,
                "events": child.summary["events"]["kept"],
                "counts": child.summary["counts"],
                "size": (folder / child.name).stat().st_size,
            }
            for child in children
        ]
    return {"pieces": told, "events": sum(one["events"] for one in told)}


def plan(file: Path, *, selection: Json | None, by: By | None, value: int | None) -> Json:
    """What `split` would make, as the API tells it."""
    from service.jobs.children.tasks.derive import PlanTask
    from service.trace.selection import Selection

    with _workplace() as work, _reading([file], work) as (_, [source]):
        plan = PlanTask(source, Selection.parsed(selection or {}), by, value).run()
    return {"pieces": [asdict(piece) for piece in plan.pieces], "events": sum(piece.events for piece in plan.pieces)}


def overlay(file: Path, output: Path | None, *, selection: Json | None, force: bool) -> Path:
    """Write a trace with its critical path as a track of its own; the file that was written."""
    from service.jobs.overlay import write_critical_path
    from service.store.export import document, packed
    from service.trace.piece import child_name
    from service.trace.selection import Selection

    target = output or Path(child_name(file.name, "critical-path"))
    refuse_to_replace(target, force=force)
    chosen = Selection.parsed(selection or {})
    with _workplace() as work, _reading([file], work) as (shown, [source]):
        made, spill = work.folder / "overlay", work.folder / "spill"
        making = work.minding(shown.making(f"critical path of {file.name}"))
        write_critical_path(source, made, chosen, spill=spill, on_written=making)
        pieces = document(made)
        write(work.heeding(pieces if is_plain(target) else packed(pieces)), target, shown)
    return target


def merge(files: Sequence[Path], output: Path, *, align: Align, ranks: Sequence[int] | None) -> list[Json]:
    """Write one trace of several, and tell how each rank was put onto the common clock."""
    from service.cutting.merge import merge as merged
    from service.store.export import document, packed
    from service.trace.errors import CannotMerge

    with _workplace() as work, _reading(files, work, ranks) as (shown, sources):
        if len({source.source for source in sources}) < len(sources):
            raise CannotMerge("A trace can't be merged with itself, and two of these files have the same bytes.")
        making = work.minding(shown.making(f"merge {len(files)} traces"))
        made = merged(sources, work.folder / "merged", name=output.name, align=align, on_written=making)
        pieces = document(work.folder / "merged")
        write(work.heeding(pieces if is_plain(output) else packed(pieces)), output, shown)
        found: list[Json] = made.summary["ranks"]
        return found


def analysis(  # noqa: PLR0913 - as many options
    files: Sequence[Path],
    name: str | None,
    *,
    base: Sequence[Path] = (),
    parameters: Mapping[str, str],
    selection: Json | None,
    form: str,
    table: str | None,
    on_tables: Callable[[list[str]], None] = lambda _: None,
) -> bytes:
    """An answer to what is often asked, as the API gives it; without a name, what can be asked of the first file.

    The files of `base` are those that the others are compared with; `on_tables` hears which tables there are.
    """
    from service.analysis.answers import answered, applicable, parameters_of, question_of
    from service.analysis.readings import Asked, Readings
    from service.trace.errors import BadQuestion
    from service.trace.selection import Selection

    with _workplace() as work:
        question = question_of(name) if name else None
        asked = parameters_of(question, parameters) if question else None
        if base and not (question and question.compared):
            raise BadQuestion(f"{name} is not about two sides, and takes no base.")
        chosen = None if selection is None else Selection.parsed(selection)
        with _reading([*files, *base], work) as (_, sources):
            traces = [
                Asked(source.columns, source.summary, chosen, source.name, is_base=place >= len(files))
                for place, source in enumerate(sources)
            ]
            readings = Readings(work.folder / "spill")
            if question is None or asked is None:
                return orjson.dumps(applicable(traces[0], readings))
            on_tables([*question.tables])
            return answered(question, asked, traces, readings).form(form, table)


@contextmanager
def written_anew(
    file: Path, *, selection: Json | None, order: Order, redact: bool, plain: bool
) -> Iterator[tuple[Iterator[bytes], Stages]]:
    """The document of a trace, or of a selection of it; packed unless `plain`."""
    from service.cutting.cut import cut_document
    from service.store.export import document, packed
    from service.trace.selection import Selection

    with _workplace() as work, _reading([file], work) as (shown, [source]):
        if selection is None:
            pieces = document(source.columns, order=order, redact=redact)
        else:
            chosen = Selection.parsed(selection)
            pieces = cut_document(source.columns, chosen, source.summary, source=source.source, redact=redact)
        yield work.heeding(pieces if plain else packed(pieces)), shown


def name_of(name: str, suffix: str, *, plain: bool = False) -> str:
    """What a trace that is made of another is called."""
    from service.trace.piece import child_name

    made = child_name(name, suffix)
    return made.removesuffix(".gz") if plain else made


def is_plain(output: Path) -> bool:
    """Whether a file of that name is not packed."""
    return output.suffix.lower() == ".json"


class _Work:
    """A folder for what is read, until a signal says that nobody wants it any more.

    What it is for runs compiled code that calls Python: an exception raised there is lost, or ends the process. So a
    signal is only noted, and heeded where it is safe; if it comes again, at once.
    """

    folder: Path

    def __init__(self) -> None:
        self._signal = 0

    def end(self, number: int, _: object) -> None:
        """A signal has come."""
        if self._signal:
            self.check()
        self._signal = number

    def check(self) -> None:
        """End if a signal has come."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal:
            sys.exit(128 + self._signal)

    def minding(self, report: Callable[..., object]) -> Callable[..., None]:
        """What reports progress, and so is called again and again, with that check."""

        def told(*facts: object) -> None:
            self.check()
            report(*facts)

        return told

    def heeding(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a document, with that check."""
        for piece in pieces:
            self.check()
            yield piece


@contextmanager
def _workplace() -> Iterator[_Work]:
    """Where something is read; an error of the domain within becomes one in the API's words.

    Signals that would end this process at once, and leave gigabytes behind, end it in order.
    """
    from service.trace.errors import DiskFull, TracedockError

    work = _Work()
    defaults = {
        signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL,
    }  # fmt: skip
    caught = {number: default for number, default in defaults.items() if signal.getsignal(number) is default}
    for number in caught:
        signal.signal(number, work.end)
    try:
        with tempfile.TemporaryDirectory(prefix="tracedock-") as folder:
            work.folder = Path(folder)
            yield work
            work.check()
    except DiskFull as error:
        detail = f"There is no room in {work.folder.parent} for what is read; TMPDIR names another folder."
        raise ApiError(error.code, error.title, detail, _UNREADABLE) from error
    except TracedockError as error:
        raise ApiError.of_problem(error.as_dict(), _UNREADABLE) from error
    finally:
        for number, default in caught.items():
            signal.signal(number, default)


@contextmanager
def _reading(
    files: Sequence[Path], work: _Work, ranks: Sequence[int] | None = None
) -> Iterator[tuple[Stages, list[Source]]]:
    """The traces of the files, with progress; afterwards it says what was repaired."""
    sources: list[Source] = []
    try:
        for at, file in enumerate(files):
            try:
                with stages(keep=False) as shown:  # of many files, only the bar of one is seen
                    sources.append(_read(file, work, ranks[at] if ranks else None, shown))
            except Exception:
                if len(files) > 1:
                    note(f"{file}:")  # the error tells of a place in a file, but not of which
                raise
        with stages(keep=False) as shown:
            yield shown, sources
    finally:
        for source in sources:
            if said := damage(source.summary):
                note("\n  ".join([f"{source.name}: {said}", *lost(source.summary)]))


def _read(file: Path, work: _Work, rank: int | None, shown: Stages) -> Source:
    from service.cutting.source import Source
    from service.jobs.ingest import ingest

    watch = work.minding(shown.ingesting(file.name))
    with file.open("rb") as original:
        size = os.fstat(original.fileno()).st_size
        digest = hashlib.file_digest(original, "sha256").hexdigest()
        original.seek(0)

        def on_progress(now: Progress) -> None:
            watch({"progress": {"bytes": now.bytes, "bytes_total": size, "events": now.events}})

        columns = work.folder / digest
        summary = asdict(ingest(original, columns, file.name, on_progress))
        work.check()
    return Source(columns, file.name, summary, digest, rank)


def write(pieces: Iterable[bytes], target: Path, shown: Stages) -> None:
    """Write a file whole, with progress."""
    writing, done = shown.writing(target.name), 0
    with whole(target) as file:
        for piece in pieces:
            file.write(piece)
            done += len(piece)
            writing(done, 0)

"""The command group `tracedock fleet`: the traces of a whole cluster as one dataset, without a server."""

# ruff: noqa: PLC0415 - only these commands need the service and Dask, which are slow to import

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tracedock.errors import ApiError

from service.cli import local
from service.cli.analyze import Format, parameters_of, write_tables
from service.cli.output import STDOUT, Force, OutputFile, check_target, destination
from service.cli.progress import stages
from service.cli.quantities import duration, grouped, size
from service.cli.render import Column, dashed, print_json, print_table
from service.cli.report import note, say
from service.cli.selection import Json, selecting
from service.cli.split_merge import BaseCycleOption, CycleOption
from service.cli.sql import chosen_format, write_bytes
from service.cli.traces import AsJson
from service.cli.worker_options import WorkerOptions, working

if TYPE_CHECKING:
    from service.fleet.ingesting import IngestProgress, RunState
    from service.fleet.questions.question import FleetQuestion
    from service.fleet.record import Record

app = typer.Typer(help="Read the traces of a whole cluster into one dataset, and ask it.")

_UNPROCESSABLE = 422  # status of the API for faults in what was asked for
_FAILURES_NAMED = 20

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Folder or bucket of the dataset: a path, or s3://, gs:// or az://.")
]


RunOption = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Name of the run; it may be left out if there is only one.")
]
ValuesOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the question (repeatable).")
]
TableOption = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="Print only this table; csv and arrow have one, by default the first."),
]
FormatOption = Annotated[
    Format,
    typer.Option("--format", "-f", help="A table is tab-separated when piped, each of several after `# NAME`."),
]


@app.command()
@working
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE…", help="Files, folders or patterns with `*` and `**`; also s3://, gs:// and az://."
        ),
    ],
    store: Annotated[
        str, typer.Option("--to", metavar="STORE", help="Folder or bucket of the dataset, which is created.")
    ],
    options: WorkerOptions,
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run, by default that of the sources' folder.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Also read files again that could not be read as traces.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read traces into a dataset: their columns, and tables of facts about each rank.

    Run it again after it was stopped, or when there are more files: it reads what is new, and what failed for a reason
    that may pass. The exit code is 1 if a source failed.
    """
    with _errors(), stages(keep=False) as progress:
        from service.fleet.dataset import Dataset
        from service.fleet.ingesting import ingest_sources, run_states
        from service.fleet.record import current_records
        from service.fleet.sources import find_sources
        from service.fleet.workers.start import workers_of

        dataset = Dataset.create(store)
        found = find_sources(sources, run, dataset.location.url)
        show = progress.reading_sources(dataset.location.url)
        reached: list[IngestProgress] = []

        def on_progress(state: IngestProgress, _: Record | None) -> None:
            reached[:] = [state]
            show(state.size_bytes - state.left_bytes, state.size_bytes, _described(state))

        def on_waiting(reason: str) -> None:
            state = reached[0]
            show(state.size_bytes - state.left_bytes, state.size_bytes, reason)

        with workers_of(options.request(on_waiting)) as workers:
            state = ingest_sources(dataset, found, workers, retry=retry, on_progress=on_progress)
        keys = {source.key for source in found}
        records = [record for record in dataset.records().values() if record.key in keys]
        failed = [record for record in current_records(records) if record.state == "failed"]
        states = run_states(current_records(records))
    if as_json:
        print_json({"store": dataset.location.url, **_counts(state), "runs": [*map(_run_values, states)]})
    else:
        _print_runs(states)
    _name_failures(failed)
    if failed:
        raise typer.Exit(1)


@app.command()
def status(store: StoreArgument, as_json: AsJson = False) -> None:
    """List the runs of a dataset: what is done, and what failed and why."""
    with _errors():
        from service.fleet.dataset import Dataset
        from service.fleet.ingesting import run_states
        from service.fleet.record import current_records

        records = current_records(Dataset.open(store).records().values())
    states = run_states(records)
    if as_json:
        print_json({"store": store, "runs": [*map(_run_values, states)]})
        return
    _print_runs(states)
    _name_failures([record for state in states for record in state.failed])


@app.command()
@selecting
@working
def analyze(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    store: StoreArgument,
    name: Annotated[str, typer.Argument(metavar="ANALYSIS", help="Name of the analysis, as for `tracedock analyze`.")],
    selection: Json | None,
    options: WorkerOptions,
    run: RunOption = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="For comparisons: the run to compare with."),
    ] = None,
    cycle: CycleOption = None,
    base_cycle: BaseCycleOption = None,
    values: ValuesOption = None,
    table: TableOption = None,
    form: FormatOption = Format.table,
    output: OutputFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run a built-in analysis over all ranks of a run. Workers answer for single ranks."""
    form = chosen_format(form, Format.table, Format.json, as_json=as_json)
    output = destination(output, force=force)
    parameters = parameters_of(values)
    with _errors():
        from service.fleet.asking import AnalysisRequest, analyze, traces_of_run
        from service.fleet.dataset import Dataset
        from service.fleet.workers.start import workers_of
        from service.trace.selection import Selection

        dataset = Dataset.open(store)
        records = [*dataset.records().values()]
        asked = AnalysisRequest(
            name, parameters, None if selection is None else Selection.parsed(selection), traces_of_run(records, run),
            traces_of_run(records, base) if base else (), cycle, base_cycle,
        )  # fmt: skip
        with stages(keep=False) as progress, workers_of(options.request()) as workers:
            answer = analyze(dataset, asked, workers, progress.answering(name))
        requested = Format.json if form is Format.table else form
        content = answer.form(requested.value, [table] if table and form is not Format.table else [])
    if form is Format.table:
        write_tables(json.loads(content), table, output)
    else:
        write_bytes([content], output)


_QUESTION_COLUMNS = (Column("name"), Column("answers", wrap=True), Column("parameters", wrap=True))


@app.command()
def ask(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    store: StoreArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="Name of the question; without it, the questions are listed."),
    ] = None,
    run: RunOption = None,
    values: ValuesOption = None,
    table: TableOption = None,
    form: FormatOption = Format.table,
    output: OutputFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Ask about the ranks, hosts and steps of a run: what is slow, and where. It reads facts, no events."""
    form = chosen_format(form, Format.table, Format.json, as_json=as_json)
    output = destination(output, force=force)
    with _errors():
        from service.fleet.dataset import Dataset
        from service.fleet.questions.catalogue import QUESTIONS, question_of
        from service.fleet.questions.facts_database import FactsDatabase
        from service.fleet.questions.question import ask

        if name is None:
            listed = [(each.name, each.short_question, _parameters_of(each)) for each in QUESTIONS.values()]
            if as_json:
                print_json([dict(zip(("name", "answers", "parameters"), each, strict=True)) for each in listed])
            else:
                print_table(_QUESTION_COLUMNS, listed)
            return
        question = question_of(name)
        with FactsDatabase.of(Dataset.open(store)) as facts:
            answer = ask(question, facts, run, parameters_of(values))
        only = [] if table is None or form is Format.table else [table]
        content = answer.form((Format.json if form is Format.table else form).value, only)
    if form is Format.table:
        write_tables(json.loads(content), table, output)
    else:
        write_bytes([content], output)


@app.command()
@selecting
def window(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    store: StoreArgument,
    selection: Json | None,
    run: RunOption = None,
    rank: Annotated[
        int | None, typer.Option(metavar="RANK", help="The rank; it may be left out if the run has only one trace.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="File name of the trace, if the rank has several.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file, by default under the trace's name in this folder; `-` is the standard output. One that "
            "ends in .json is not compressed.",
        ),
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Hide secrets.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Cut a part out of the trace of one rank. Of a bucket, only what the part needs is read.

    The file is that of `tracedock download` for the original with the same selection. Prints its name.
    """
    if selection is None:
        raise typer.BadParameter("name a part of the trace, for example --steps 7 or --window 1s..2s")
    if output == STDOUT and as_json:
        raise typer.BadParameter("the trace itself goes to the standard output", param_hint="--json")
    if output and output != STDOUT and not output.is_dir():
        check_target(output, force=force)
    with _errors():
        from service.fleet.dataset import Dataset
        from service.fleet.windows import WindowRequest, window_of
        from service.store.export import packed
        from service.trace.selection import Selection

        dataset = Dataset.open(store)
        request = WindowRequest(Selection.parsed(selection), run, rank, trace, redact)
        with window_of(dataset, request) as cut, stages(keep=False) as progress:
            form = "json" if output is not None and local.is_plain(output) else "json.gz"
            target = output or Path()
            if target != STDOUT and target.is_dir():
                target /= local.name_of(cut.record.name, "cut.redacted" if redact else "cut", form=form)
                check_target(target, force=force)
            chunks = cut.chunks if form == "json" else packed(cut.chunks)
            if target == STDOUT:
                sys.stdout.buffer.writelines(chunks)
            else:
                local.write(chunks, target, progress)
    read_bytes = dataset.location.meter.size
    if as_json:
        counts = {"read_bytes": read_bytes, "size_bytes": cut.size_bytes}
        print_json({"file": str(target), "size": target.stat().st_size, "rank": cut.record.rank, **counts})
    elif target != STDOUT:
        print(target)
    percent = 100 * read_bytes / cut.size_bytes if cut.size_bytes else None
    share = "" if percent is None else f" ({percent:.{2 if percent < 100 else 3}g} %)"
    note(f"{size(read_bytes)} read, of {size(cut.size_bytes)} of files{share}")


def _parameters_of(question: FleetQuestion) -> str:
    """Describe the parameters of a question: their names and defaults."""
    fields = question.parameters.model_fields.items()
    return ", ".join(f"{name}={'…' if field.default is None else field.default}" for name, field in fields)


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors of the domain into an `ApiError`; SIGTERM ends the work like an interrupt, and closes the cluster."""
    from service.trace.errors import TracedockError

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except TracedockError as error:
        raise ApiError.of_problem(error.as_dict(), _UNPROCESSABLE) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _described(state: IngestProgress) -> str:
    """Describe progress: 12 of 64 done, 1 failed, 120.5 MB/s, 45 s left."""
    parts = [f"{grouped(state.present + state.done)} of {grouped(state.sources)} done"]
    if state.failed:
        parts.append(f"{grouped(state.failed)} failed")
    if state.bytes_per_s is not None and state.left_s is not None:
        parts += [f"{size(state.bytes_per_s)}/s", f"{duration(state.left_s * 1e9)} left"]
    return ", ".join(parts)


def _counts(state: IngestProgress) -> Json:
    return {
        "sources": state.sources, "done": state.present + state.done, "read": state.done, "failed": state.failed,
        "size_bytes": state.size_bytes, "read_bytes": state.read_bytes, "seconds": round(state.seconds, 3),
    }  # fmt: skip


_RUN_COLUMNS = (
    Column("run", cut=True),
    Column("done", right=True, person=grouped),
    Column("failed", right=True, person=grouped),
    Column("ranks", right=True, person=grouped),
    Column("world_size", right=True, person=dashed),
    Column("size", right=True, person=size),
    Column("events", right=True, person=grouped),
)


def _print_runs(states: list[RunState]) -> None:
    rows = [
        (state.run, state.done, len(state.failed), state.ranks, state.world_size, state.size_bytes, state.events)
        for state in states
    ]
    print_table(_RUN_COLUMNS, rows)


def _run_values(state: RunState) -> Json:
    failed = [
        {"source": record.source, "attempts": record.attempts, "worker": record.worker, "error": record.error}
        for record in state.failed
    ]
    return {**dataclasses.asdict(state), "failed": failed}


def _name_failures(failed: list[Record]) -> None:
    for record in failed[:_FAILURES_NAMED]:
        error = record.error or {}
        say(f"{record.source}: {error.get('title')} ({error.get('code')}): {error.get('detail')}")
    if len(failed) > _FAILURES_NAMED:
        note(f"{grouped(len(failed) - _FAILURES_NAMED)} further sources failed; --json lists all.")

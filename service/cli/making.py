"""The commands `split` and `merge`: traces made of traces, on the server or, of files here, without one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli import local
from service.cli.arguments import file_of
from service.cli.client import Client, Json
from service.cli.errors import ApiError
from service.cli.output import check_target
from service.cli.progress import stages
from service.cli.render import Column, dashed, grouped, on_terminal, print_json, print_table, size
from service.cli.report import note, note_table
from service.cli.selection import as_text, numbers, selecting
from service.cli.traces import AsJson
from service.cli.units import byte_count, nanoseconds

LocalArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="Id, start of an id, name, or `latest`; or a file here: ./NAME, or NAME if the server has no such trace.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]

_PLANNED = (
    Column("name"),
    Column("events", right=True, person=grouped),
    Column("size", right=True, person=size),
    Column("selection"),
)
_CHILDREN = (
    Column("id"),
    Column("events", right=True, person=grouped),
    Column("size", right=True, person=size),
    Column("name"),
)
_FILES = (Column("file"), *_CHILDREN[1:3])
_RANKS = (
    Column("rank", right=True),
    Column("shift ns", right=True, person=grouped),
    Column("collectives", right=True, person=grouped),
    Column("residual ns: median", right=True, person=grouped),
    Column("p95", right=True, person=grouped),
    Column("max", right=True, person=grouped),
    Column("name", person=dashed),
)


class By(StrEnum):
    """What makes a piece."""

    step = "step"
    stream = "stream"
    device = "device"
    rank = "rank"
    duration = "duration"
    parts = "parts"
    size = "size"


class Align(StrEnum):
    """How the clocks of ranks become one."""

    none = "none"
    base = "base"
    collectives = "collectives"


_VALUES: dict[By, Callable[[str], int]] = {By.duration: nanoseconds, By.parts: int, By.size: byte_count}


@selecting
def split(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: LocalArgument,
    selection: Json | None,
    by: Annotated[By | None, typer.Option(help="What makes a piece; without it, a single one is made.")] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Of duration: the time of each piece (10ms). Of parts: how many. Of size: the most that the JSON of "
            "a piece may have (100MB).",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which pieces it would make.")] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            file_okay=False,
            metavar="DIR",
            help="Of a file: where to write the pieces, by default here.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Cut a trace into traces. Prints their ids, or of a file here the names of the files."""
    count = _value(by, value)
    file = file_of(ctx.obj, trace)
    if file is None:
        if output or force:
            raise typer.BadParameter(
                "this is for a file here; the pieces of a trace on the server are kept there, see `tracedock download`",
                param_hint="--output" if output else "--force",
            )
        _split_on_server(ctx.obj, trace, selection, by, count, dry_run=dry_run, as_json=as_json)
    elif dry_run:
        _print_plan(local.plan(file, selection=selection, by=_plain(by), value=count), as_json=as_json)
    else:
        made = local.split(file, output or Path(), selection=selection, by=_plain(by), value=count, force=force)
        if as_json:
            print_json(made)
        elif on_terminal():
            print_table(_FILES, [(one["file"], one["events"], one["size"]) for one in made["pieces"]])
        else:
            print(*(one["file"] for one in made["pieces"]), sep="\n")


def merge(
    ctx: typer.Context,
    traces: Annotated[
        list[str],
        typer.Argument(metavar="TRACE...", help="Ids, names, or `latest`; or files here, all or none: ./NAME."),
    ],
    align: Annotated[
        Align,
        typer.Option(help="How clocks become one: not at all, by what traces tell of theirs, or also by collectives."),
    ] = Align.collectives,
    ranks: Annotated[
        str | None, typer.Option(metavar="N,…", help="The rank of each, where the traces do not tell it.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the trace that is made on the server.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Of files: where to write it; .json is not packed."),
    ] = None,
    force: Force = False,
) -> None:
    """Make one trace of the ranks of a run, or of parts of one trace. Prints its id, or of files here its file."""
    if len(traces) < 2:
        raise typer.BadParameter("name at least two traces", param_hint="TRACE...")
    told = None if ranks is None else list(numbers("--ranks", ranks))
    if told is not None and len(told) != len(traces):
        raise typer.BadParameter(f"{len(told)} ranks for {len(traces)} traces", param_hint="--ranks")
    paths = [file_of(ctx.obj, one) for one in traces]
    files = [path for path in paths if path]
    if not files:
        if output or force:
            raise typer.BadParameter(
                "this is for files here; what is merged on the server is kept there, see `tracedock download`",
                param_hint="--output" if output else "--force",
            )
        _merge_on_server(ctx.obj, traces, align, told, name)
        return
    if len(files) < len(traces):
        missing = traces[paths.index(None)]
        raise typer.BadParameter(f"{files[0]} is a file here, and {missing} is not: upload it", param_hint="TRACE...")
    if name is not None:
        raise typer.BadParameter("a merge of files is named by --output", param_hint="--name")
    target = output or Path()
    if target.is_dir():
        target /= f"merged-{len(files)}.pt.trace.json.gz"
    check_target(target, force=force)
    aligned = local.merge(files, target, align=align.value, ranks=told)
    print(target)
    _tell_ranks(aligned, align)


def _split_on_server(
    client: Client,
    trace: str,
    selection: Json | None,
    by: By | None,
    value: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    found = client.find(trace)
    if dry_run:
        _print_plan(client.plan(found["id"], selection=selection, by=by, value=value), as_json=as_json)
        return
    job = done(
        client,
        f"split {found['name']}",
        lambda: client.split(found["id"], selection=selection, by=by, value=value),
    )
    ids = job["result"]["traces"]
    if as_json:
        print_json(job)
    elif on_terminal():
        made = {one["id"]: one for one in client.traces(parent=found["id"])}
        rows = [(one["id"], one["events"]["kept"], one["size"], one["name"]) for one in map(made.get, ids) if one]
        print_table(_CHILDREN, rows)
    else:
        print(*ids, sep="\n")


def _merge_on_server(
    client: Client, traces: Sequence[str], align: Align, ranks: list[int] | None, name: str | None
) -> None:
    ids = [client.find(one)["id"] for one in traces]
    job = done(client, f"merge {len(ids)} traces", lambda: client.merge(ids, align=align, ranks=ranks, name=name))
    (made,) = job["result"]["traces"]
    print(made, flush=True)
    _tell_ranks(client.trace(made)["ranks"], align)


def done(client: Client, what: str, ask: Callable[[], Json]) -> Json:
    """A job that is begun, followed and done; Ctrl-C cancels it."""
    job = _begun(client, ask)
    try:
        with stages(keep=False) as shown:
            job = client.follow_job(job["id"], shown.following(what))
    except KeyboardInterrupt:
        _cancel(client, job["id"])
        raise
    if job["state"] == "failed":
        raise ApiError.of_problem(job["error"] or {}, 200)
    if job["state"] != "done":
        raise ApiError("cancelled", "The job was cancelled", f"Somebody cancelled the job {job['id']}.", 200)
    return job


def _begun(client: Client, ask: Callable[[], Json]) -> Json:
    """A job that is begun. The server may take seconds to tell its id, without which nobody can cancel it.

    So Ctrl-C waits for that; a second one does not.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return ask()
    pressed = False

    def press(*_: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        note("The job is cancelled as soon as the server tells its id; Ctrl-C again leaves it alone.")

    signal.signal(signal.SIGINT, press)
    try:
        job = ask()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        _cancel(client, job["id"])
        raise KeyboardInterrupt
    return job


def _cancel(client: Client, job_id: str) -> None:
    ended = client.cancel(job_id)
    made = ", ".join((ended["result"] or {}).get("traces", []))
    note(f"The job {job_id} was done already: {made}." if made else f"The job {job_id} is cancelled.")


def _value(by: By | None, text: str | None) -> int | None:
    needed = by in _VALUES
    if needed != (text is not None):
        what = f"--by {by.value}" if by else "a single piece"
        raise typer.BadParameter(f"{what} takes {'a' if needed else 'no'} --value", param_hint="--value")
    if by is None or text is None:
        return None
    try:
        value = _VALUES[by](text)
    except ValueError as error:
        why = f"{text!r} is no number" if by is By.parts else str(error)
        raise typer.BadParameter(why, param_hint="--value") from error
    if not 1 <= value < 1 << 63:
        raise typer.BadParameter(f"{text!r} is out of range", param_hint="--value")
    return value


def _plain(by: By | None) -> Any:
    return by.value if by else None


def _print_plan(plan: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
    else:
        rows = [(one["name"], one["events"], one["size"], as_text(one["selection"])) for one in plan["pieces"]]
        print_table(_PLANNED, rows)


def _tell_ranks(ranks: Sequence[Json], align: Align) -> None:
    """How each rank was put onto the common clock, as far as a person wants to know."""
    sys.stdout.flush()  # what was made comes first, also where both streams are one file
    rows = []
    for one in ranks:
        apart = one["residual_ns"] or {}
        residual = (apart.get("median"), apart.get("p95"), apart.get("max"))
        rows.append((one["rank"], one["shift_ns"], one["collectives"], *residual, one["name"]))
    if rows:
        note_table(_RANKS, rows)
    if align is Align.collectives and (alone := [str(one["rank"]) for one in ranks if not one["collectives"]]):
        some = ", ".join(alone[:10]) + (", …" if len(alone) > 10 else "")
        note(f"No collective is shared by rank {some}: only what the traces tell of their clocks could align them.")

"""The commands `split` and `merge`, for traces on the server, or for local files without a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import local
from service.cli.arguments import file_of
from service.cli.jobs import run_job
from service.cli.output import Force, check_target
from service.cli.quantities import duration, grouped, size
from service.cli.render import Column, dashed, print_json, print_table
from service.cli.report import note, note_table
from service.cli.selection import Json, as_text, numbers, selecting
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson
from service.cli.units import byte_count, nanoseconds
from service.trace.piece import Align, By, merged_name

if TYPE_CHECKING:
    from tracedock.client import Client

LocalArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE|FILE",
        help="Id, start of an id, name, or `latest`; or a local file: ./NAME, or NAME if the server has no such trace.",
    ),
]
TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE|GROUP|FILE",
        help="Id, start of an id, name, or `latest`; the id or the name of a group, for all its ranks; or a local file:"
        " ./NAME, or NAME if the server has nothing of that name.",
    ),
]
CycleOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Only the traces of this cycle; the first is 0.")
]
BaseCycleOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="For comparisons: the cycle of the base; by default as --cycle."),
]


def _duration(ns: int | None) -> str:
    return "-" if ns is None else duration(ns)


_PLANNED = (
    Column("name", cut=True),
    Column("events", right=True, person=grouped),
    Column("size", right=True, person=size),
    Column("selection", cut=True),
)
_CHILDREN = (
    Column("id"),
    Column("events", right=True, person=grouped),
    Column("size", right=True, person=size),
    Column("name", cut=True),
)
_FILES = (Column("file", cut=True), *_CHILDREN[1:3])
_RANKS = (
    Column("rank", right=True),
    Column("shift", right=True, person=_duration),
    Column("collectives", right=True, person=grouped),
    Column("residual: median", right=True, person=_duration),
    Column("p95", right=True, person=_duration),
    Column("max", right=True, person=_duration),
    Column("name", person=dashed, cut=True),
)


_VALUE_PARSERS: dict[str, Callable[[str], int]] = {"duration": nanoseconds, "parts": int, "size": byte_count}


@selecting
def split(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: LocalArgument,
    selection: Json | None,
    by: Annotated[By | None, typer.Option(help="Criterion of the split; without it, a single piece is made.")] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="For duration: the time of each piece (10ms). For parts: their number. For size: the maximum size of "
            "a piece's JSON (100MB).",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the pieces.")] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            file_okay=False,
            metavar="DIR",
            help="For a local file: folder of the pieces, by default the current one.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Split a trace into traces. Prints their ids, or for a local file the names of the new files."""
    count = _value(by, value)
    file = file_of(ctx.obj, trace)
    if file is None:
        if output or force:
            raise typer.BadParameter(
                "only for a local file; the pieces of a trace on the server stay there, see `tracedock download`",
                param_hint="--output" if output else "--force",
            )
        _split_on_server(ctx.obj, trace, selection, by, count, dry_run=dry_run, as_json=as_json)
    elif dry_run:
        _print_plan(local.plan(file, selection=selection, by=by, value=count), as_json=as_json)
    else:
        written = local.split(file, output or Path(), selection=selection, by=by, value=count, force=force)
        if as_json:
            print_json(written)
        elif on_terminal():
            print_table(_FILES, [(piece["file"], piece["events"], piece["size"]) for piece in written["pieces"]])
        else:
            print(*(piece["file"] for piece in written["pieces"]), sep="\n")


def merge(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    traces: Annotated[
        list[str],
        typer.Argument(metavar="TRACE|FILE…", help="Ids, names, or `latest`; or only local files: ./NAME."),
    ],
    align: Annotated[
        Align,
        typer.Option(help="Clock alignment: none, by the traces' base times, or also by the ends of collectives."),
    ] = "collectives",
    ranks: Annotated[
        str | None, typer.Option(metavar="N,…", help="The rank of each trace, if the traces do not contain it.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the merged trace on the server.")] = None,
    cycle: CycleOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="For local files: output file; .json is not compressed."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Merge the ranks of a run, or parts of one trace, into one trace. Prints its id, or for local files its file."""
    if len(traces) < 2:
        raise typer.BadParameter("name at least two traces", param_hint="TRACE|FILE…")
    rank_numbers = None if ranks is None else list(numbers("--ranks", ranks))
    if rank_numbers is not None and len(rank_numbers) != len(traces):
        raise typer.BadParameter(f"{len(rank_numbers)} ranks for {len(traces)} traces", param_hint="--ranks")
    paths = [file_of(ctx.obj, trace) for trace in traces]
    files = [path for path in paths if path]
    if not files:
        if output or force:
            raise typer.BadParameter(
                "only for local files; a trace that is merged on the server stays there, see `tracedock download`",
                param_hint="--output" if output else "--force",
            )
        _merge_on_server(ctx.obj, traces, align, rank_numbers, name, cycle, as_json=as_json)
        return
    if len(files) < len(traces):
        missing = traces[paths.index(None)]
        raise typer.BadParameter(
            f"{files[0]} is a local file, {missing} is not; upload the file, or download the trace",
            param_hint="TRACE|FILE…",
        )
    if name is not None:
        raise typer.BadParameter("--output names a merge of local files", param_hint="--name")
    target = output or Path()
    if target.is_dir():
        target /= merged_name(len(files), cycle)
    check_target(target, force=force)
    alignments = local.merge(files, target, align=align, ranks=rank_numbers, cycle=cycle)
    if as_json:
        print_json({"file": str(target), "size": target.stat().st_size, "ranks": alignments})
        return
    print(target)
    _note_alignments(alignments, align)


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
    source = client.find(trace)
    if dry_run:
        _print_plan(client.plan(source["id"], selection=selection, by=by, value=value), as_json=as_json)
        return
    job = run_job(
        client,
        f"split {source['name']}",
        lambda: client.split(source["id"], selection=selection, by=by, value=value),
    )
    ids = job["result"]["traces"]
    if as_json:
        print_json(job)
    elif on_terminal():
        children = {child["id"]: child for child in client.traces(parent=source["id"])}
        rows = [
            (child["id"], child["events"]["kept"], child["size"], child["name"])
            for child in map(children.get, ids)
            if child
        ]
        print_table(_CHILDREN, rows)
    else:
        print(*ids, sep="\n")


def _merge_on_server(
    client: Client,
    traces: Sequence[str],
    align: Align,
    ranks: list[int] | None,
    name: str | None,
    cycle: int | None,
    *,
    as_json: bool,
) -> None:
    ids = [client.find(trace)["id"] for trace in traces]
    job = run_job(
        client,
        f"merge {len(ids)} traces",
        lambda: client.merge(ids, align=align, ranks=ranks, name=name, cycle=cycle),
    )
    (merged,) = job["result"]["traces"]
    if as_json:
        print_json(job)
        return
    print(merged, flush=True)
    _note_alignments(client.trace(merged)["ranks"], align)


def _value(by: By | None, text: str | None) -> int | None:
    needed = by in _VALUE_PARSERS
    if needed != (text is not None):
        criterion = f"--by {by}" if by else "a single piece"
        raise typer.BadParameter(f"{criterion} takes {'a' if needed else 'no'} --value", param_hint="--value")
    if by is None or text is None:
        return None
    try:
        value = _VALUE_PARSERS[by](text)
    except ValueError as error:
        reason = f"{text!r} is not a number" if by == "parts" else str(error)
        raise typer.BadParameter(reason, param_hint="--value") from error
    if not 1 <= value < 1 << 63:
        raise typer.BadParameter(f"{text!r} is out of range", param_hint="--value")
    return value


def _print_plan(plan: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
    else:
        rows = [
            (piece["name"], piece["events"], piece["size"], as_text(piece["selection"])) for piece in plan["pieces"]
        ]
        print_table(_PLANNED, rows)


def _note_alignments(ranks: Sequence[Json], align: Align) -> None:
    """Print notes on the clock alignment of each rank."""
    sys.stdout.flush()  # the result comes first, even if both streams go to one file
    rows = []
    for rank in ranks:
        residual = rank["residual_ns"] or {}
        distances = (residual.get("median"), residual.get("p95"), residual.get("max"))
        rows.append((rank["rank"], rank["shift_ns"], rank["collectives"], *distances, rank["name"]))
        for beside in rank.get("beside", ()):
            name = f"{beside['name']} ({beside['kind'].replace('_', ' ')})"
            rows.append((rank["rank"], beside["shift_ns"], None, None, None, None, name))
    if rows:
        note_table(_RANKS, rows)
    if align == "collectives" and (alone := [str(rank["rank"]) for rank in ranks if not rank["collectives"]]):
        listed = ", ".join(alone[:10]) + (", …" if len(alone) > 10 else "")
        note(f"Aligned by base times only, without a common collective: rank {listed}.")

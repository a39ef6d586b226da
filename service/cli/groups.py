"""The command group `tracedock groups`: list, merge and delete the ranks of a run together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.jobs import run_job
from service.cli.quantities import grouped, size
from service.cli.render import Column, dashed, moment, print_json, print_table, visible
from service.cli.report import confirm, note
from service.cli.split_merge import CycleOption
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson
from service.trace.piece import Align

if TYPE_CHECKING:
    from tracedock.client import Client

    from service.cli.selection import Json

app = typer.Typer(help="List groups of traces, like the ranks of a run.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Id or name of the group.")]

_GROUP_COLUMNS = (
    Column("id"),
    Column("traces", right=True, person=grouped),
    Column("size", right=True, person=size),
    Column("created", person=moment),
    Column("run_id", cut=True),
    Column("name", cut=True),
)
_RANK_COLUMNS = (
    Column("rank", right=True, person=dashed),
    Column("trace"),
    Column("state"),
    Column("size", right=True, person=size),
    Column("events", right=True, person=grouped),
    Column("name", cut=True),
)
_CYCLE = Column("cycle", right=True, person=dashed)


@app.callback(invoke_without_command=True)
def list_groups(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the groups, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    groups = list(client.groups())
    if as_json:
        print_json(groups)
    else:
        print_table(_GROUP_COLUMNS, map(_row, groups))


@app.command()
def show(ctx: typer.Context, group: GroupArgument, as_json: AsJson = False) -> None:
    """List the ranks of a group."""
    client: Client = ctx.obj
    details = client.group(group)
    if as_json:
        print_json(details)
        return
    has_several_cycles = len(details["cycles"]) > 1
    columns = (_RANK_COLUMNS[0], _CYCLE, *_RANK_COLUMNS[1:]) if has_several_cycles else _RANK_COLUMNS
    print_table(columns, [tuple(rank[column.title] for column in columns) for rank in details["ranks"]])
    for cycle in details["cycles"]:
        if cycle["missing"]:
            missing = [str(rank) for rank in cycle["missing"]]
            numbers = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
            where = f" in cycle {cycle['cycle']}" if has_several_cycles else ""
            note(f"Missing ranks{where}: {numbers} of {details['world_size']}.")


@app.command()
def merge(
    ctx: typer.Context,
    group: GroupArgument,
    align: Annotated[Align, typer.Option(help="Clock alignment; see `tracedock merge`.")] = "collectives",
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the merged trace.")] = None,
    cycle: CycleOption = None,
    as_json: AsJson = False,
) -> None:
    """Merge all ranks of a group, or of one of its cycles, into one trace. Prints its id."""
    client: Client = ctx.obj
    details = client.group(group)
    job = run_job(
        client,
        f"merge {details['name']}",
        lambda: client.merge_group(details["id"], align=align, name=name, cycle=cycle),
    )
    if as_json:
        print_json(job)
    else:
        print(*job["result"]["traces"])


@app.command()
def rm(
    ctx: typer.Context,
    group: GroupArgument,
    traces: Annotated[bool, typer.Option("--traces", help="Also delete the traces of the group.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a group, and with --traces its traces."""
    client: Client = ctx.obj
    details = client.group(group)
    if traces and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("confirmation requires a terminal; add --yes", param_hint="--yes")
        confirm(f"Delete {details['name']} and its {details['traces']} traces?")
    client.delete_group(details["id"], traces=traces)
    if as_json:
        print_json({"id": details["id"], "name": details["name"]})
    else:
        print(f"deleted {details['id']}  {visible(details['name'])}" if on_terminal() else details["id"])


def _row(group: Json) -> tuple[Any, ...]:
    return tuple(group[key] for key in ("id", "traces", "size", "created_at", "run_id", "name"))

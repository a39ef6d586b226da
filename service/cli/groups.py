"""The command `groups`: the ranks of a run, listed, merged and deleted together."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from service.cli.client import Client, Json
from service.cli.making import Align, done
from service.cli.render import Column, dashed, grouped, on_terminal, print_json, print_table, size, visible
from service.cli.report import note
from service.cli.traces import AsJson

app = typer.Typer(help="List the groups of traces: the ranks of a run that belong together.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Its id or its name.")]

_LISTED = (
    Column("id"),
    Column("traces", right=True, person=grouped),
    Column("size", right=True, person=size),
    Column("created"),
    Column("run_id"),
    Column("name"),
)
_RANKS = (
    Column("rank", right=True, person=dashed),
    Column("trace"),
    Column("state"),
    Column("size", right=True, person=size),
    Column("events", right=True, person=grouped),
    Column("name"),
)
_CYCLE = Column("cycle", right=True, person=dashed)


@app.callback(invoke_without_command=True)
def list_groups(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the groups, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    found = list(client.groups())
    if as_json:
        print_json(found)
    else:
        print_table(_LISTED, map(_listed, found))


@app.command()
def show(ctx: typer.Context, group: GroupArgument, as_json: AsJson = False) -> None:
    """List the ranks of a group."""
    client: Client = ctx.obj
    found = client.group(group)
    if as_json:
        print_json(found)
        return
    several = len(found["cycles"]) > 1
    columns = (_RANKS[0], _CYCLE, *_RANKS[1:]) if several else _RANKS
    print_table(columns, [tuple(rank[column.title] for column in columns) for rank in found["ranks"]])
    for cycle in found["cycles"]:
        if cycle["missing"]:
            missing = [str(rank) for rank in cycle["missing"]]
            some = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
            where = f"Of cycle {cycle['cycle']}, of" if several else "Of"
            note(f"{where} {found['world_size']} ranks there is none of {some}.")


@app.command()
def merge(
    ctx: typer.Context,
    group: GroupArgument,
    align: Annotated[Align, typer.Option(help="How clocks become one; see `tracedock merge`.")] = Align.collectives,
    name: Annotated[str | None, typer.Option(help="Of the trace that is made.")] = None,
) -> None:
    """Make one trace of all ranks of a group. Prints its id."""
    client: Client = ctx.obj
    found = client.group(group)
    job = done(client, f"merge {found['name']}", lambda: client.merge_group(found["id"], align=align.value, name=name))
    print(*job["result"]["traces"])


@app.command()
def rm(
    ctx: typer.Context,
    group: GroupArgument,
    traces: Annotated[bool, typer.Option("--traces", help="Delete its traces, too; else they stay.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Dissolve a group, or delete it with its traces."""
    client: Client = ctx.obj
    found = client.group(group)
    if traces and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody is there to ask; add --yes", param_hint="--yes")
        typer.confirm(f"Delete {found['name']} and its {found['traces']} traces?", abort=True, err=True)
    client.delete_group(found["id"], traces=traces)
    print(f"deleted {found['id']}  {visible(found['name'])}" if on_terminal() else found["id"])


def _listed(group: Json) -> tuple[Any, ...]:
    return tuple(group[key] for key in ("id", "traces", "size", "created_at", "run_id", "name"))

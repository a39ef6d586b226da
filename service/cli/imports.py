"""The commands `import` and `imports`: traces of files that the server's own disk has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from service.cli.client import Client, Json
from service.cli.making import done
from service.cli.render import Column, grouped, on_terminal, print_json, print_table, visible
from service.cli.report import note
from service.cli.traces import AsJson

app = typer.Typer(help="List the imports that watch for new files, or end one.")

_LISTED = (
    Column("id"),
    Column("mode"),
    Column("taken", right=True, person=grouped),
    Column("skipped", right=True, person=grouped),
    Column("created"),
    Column("group"),
    Column("path"),
)
_TAKEN = (Column("trace"), Column("file"))


class Mode(StrEnum):
    """How a file becomes a trace's."""

    auto = "auto"
    link = "link"
    copy = "copy"
    reference = "reference"


def import_files(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="On the server: a file, a folder, a quoted pattern with * and **, or a tar of traces.",
        ),
    ],
    mode: Annotated[
        Mode, typer.Option(help="A second name for each file, a copy, or only where it lies; auto avoids copies.")
    ] = Mode.auto,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The group that they belong to.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the trace, instead of the file's.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Take new files, too, until `tracedock imports end`.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have the server take files of its own disk, below its TRACEDOCK_IMPORT_ROOTS. Prints the ids of their traces."""
    client: Client = ctx.obj
    asked = {"path": path, "mode": mode.value, "group": group, "name": name, "watch": watch}
    job = done(client, f"import {path}", lambda: client.import_files(asked))
    result = job["result"]
    if as_json:
        print_json(job)
    else:
        _print_taken(result)
    for one in result["files"]:
        if one["why"]:
            note(f"{one['path']}: {one['why']}")
    if watch:
        note(f"The import {result['import']} takes new files; `tracedock imports end {result['import']}` ends it.")
    elif not result["traces"]:
        raise typer.Exit(1)


@app.callback(invoke_without_command=True)
def list_imports(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the imports that watch for new files."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    found = client.imports()
    if as_json:
        print_json(found)
    else:
        print_table(_LISTED, map(_listed, found))


@app.command()
def end(ctx: typer.Context, order: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Take no more files; what was taken stays."""
    client: Client = ctx.obj
    ended = client.end_import(order)
    taken = f"{ended['taken']} files were taken"
    print(f"ended {order}  {taken}" if on_terminal() else order)


def _print_taken(result: Json) -> None:
    """A pipe gets the ids alone."""
    if on_terminal():
        print_table(_TAKEN, [(one["trace"], visible(one["path"])) for one in result["files"] if one["trace"]])
    else:
        print(*result["traces"], sep="\n", end="\n" if result["traces"] else "")


def _listed(order: Json) -> tuple[Any, ...]:
    return tuple(order[key] for key in ("id", "mode", "taken", "skipped", "created_at", "group", "path"))

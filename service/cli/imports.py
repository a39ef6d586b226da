"""The commands `import` and `imports`: traces from files on the server's disk and objects in buckets."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.jobs import run_job
from service.cli.quantities import grouped
from service.cli.render import Column, moment, print_json, print_table, visible
from service.cli.report import note
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson

if TYPE_CHECKING:
    from tracedock.client import Client

    from service.cli.selection import Json

app = typer.Typer(help="List imports that watch for new files, or end one.")

_LISTED = (
    Column("id"),
    Column("mode"),
    Column("taken", right=True, person=grouped),
    Column("skipped", right=True, person=grouped),
    Column("created", person=moment),
    Column("group", cut=True),
    Column("path", cut=True),
)
_IMPORTED = (Column("trace"), Column("file", cut=True))


class Mode(StrEnum):
    """Ways to store an imported file."""

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
            help="On the server: a file, a folder, a quoted pattern with * and **, or a tar of traces; or the URL of"
            " such in a bucket.",
        ),
    ],
    mode: Annotated[
        Mode, typer.Option(help="Hard-link each file, copy it, or only refer to it; auto avoids copies.")
    ] = Mode.auto,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Name of their group.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the trace, instead of the file's.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Import new files, too, until `tracedock imports end`.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import files from the server's disk, below its TRACEDOCK_IMPORT_ROOTS. Prints the ids of their traces."""
    client: Client = ctx.obj
    request = {"path": path, "mode": mode.value, "group": group, "name": name, "watch": watch}
    job = run_job(client, f"import {path}", lambda: client.import_files(request))
    result = job["result"]
    if as_json:
        print_json(job)
    else:
        _print_imported(result)
    for file in result["files"]:
        if file["why"]:
            note(f"{file['path']}: {file['why']}")
    if watch:
        note(
            f"The import {result['import']} watches for new files; `tracedock imports end {result['import']}` ends it."
        )
    elif not result["traces"]:
        raise typer.Exit(1)


@app.callback(invoke_without_command=True)
def list_imports(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the imports that watch for new files."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    listed = client.imports()
    if as_json:
        print_json(listed)
    else:
        print_table(_LISTED, map(_row, listed))


@app.command()
def end(
    ctx: typer.Context,
    import_id: Annotated[
        str, typer.Argument(metavar="IMPORT", help="Id of the import, as `tracedock imports` lists it.")
    ],
    as_json: AsJson = False,
) -> None:
    """End an import; its traces stay."""
    client: Client = ctx.obj
    ended = client.end_import(import_id)
    if as_json:
        print_json(ended)
        return
    print(f"ended {import_id}  {ended['taken']} files imported" if on_terminal() else import_id)


def _print_imported(result: Json) -> None:
    """Print the new traces; a pipe receives only their ids."""
    if on_terminal():
        print_table(_IMPORTED, [(file["trace"], visible(file["path"])) for file in result["files"] if file["trace"]])
    else:
        print(*result["traces"], sep="\n", end="\n" if result["traces"] else "")


def _row(listed: Json) -> tuple[Any, ...]:
    return tuple(listed[key] for key in ("id", "mode", "taken", "skipped", "created_at", "group", "path"))

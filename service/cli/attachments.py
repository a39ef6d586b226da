"""The commands `tracedock attach` and `tracedock detach`: files beside a trace or a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tracedock.errors import ApiError

from service.cli.quantities import size
from service.cli.render import Column, moment, print_json, print_table, visible
from service.cli.report import report, say
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson

if TYPE_CHECKING:
    from tracedock.client import Client

    from service.cli.selection import Json

_COLUMNS = (
    Column("id"),
    Column("kind"),
    Column("size", right=True, person=size),
    Column("created", person=moment),
    Column("trace"),
    Column("name", cut=True),
)


def attach(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TRACE|GROUP", help="The trace or the group.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE…", help="Files to attach; without one, the attachments are listed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep files beside a trace or a run: execution traces, and reports of profilers. Prints the ids."""
    client: Client = ctx.obj
    if missing := next((file for file in files or () if not file.is_file()), None):
        reason = "this is a folder" if missing.is_dir() else "no such file"
        raise typer.BadParameter(f"{missing}: {reason}", param_hint="FILE…")
    kind, owner = client.target(target)
    if not files:
        _print_list(list(client.attachments(owner["id"], of=kind)), as_json)
        return
    attached: list[Json] = []
    refused = False
    for file in files:
        try:
            attachment = client.attach(owner["id"], file, of=kind)
        except (ApiError, OSError) as error:
            say(f"{file}:")  # continue with the other files
            report(error)
            refused = True
            continue
        attached.append(attachment)
        if not as_json:
            columns = (attachment["id"], attachment["kind"], visible(attachment["name"]))
            print("  ".join(columns) if on_terminal() else attachment["id"])
    if as_json:
        print_json(attached)
    if refused:
        raise typer.Exit(1)


def detach(
    ctx: typer.Context,
    attachments: Annotated[list[str], typer.Argument(metavar="ATTACHMENT…", help="Ids of attachments.")],
    as_json: AsJson = False,
) -> None:
    """Delete attachments; the traces and runs stay."""
    client: Client = ctx.obj
    for attachment in attachments:
        client.delete_attachment(attachment)
        if not as_json:
            print(f"deleted {attachment}" if on_terminal() else attachment)
    if as_json:
        print_json([{"id": attachment} for attachment in attachments])


def _print_list(attachments: list[Json], as_json: bool) -> None:
    if as_json:
        print_json(attachments)
        return
    rows: list[tuple[Any, ...]] = [
        tuple(attachment[key] for key in ("id", "kind", "size", "created_at", "trace", "name"))
        for attachment in attachments
    ]
    print_table(_COLUMNS, rows)

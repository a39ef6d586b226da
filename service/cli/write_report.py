"""The command `report`: what the analyses say about a trace or a run, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli import local
from service.cli.arguments import file_of
from service.cli.output import Force, OutputFile, destination
from service.cli.selection import Json, selecting
from service.cli.split_merge import CycleOption, TargetArgument
from service.cli.sql import write_bytes
from service.cli.terminal import on_terminal

_MARKDOWN_SUFFIXES = (".md", ".markdown")


@selecting
def write_report(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: TargetArgument,
    selection: Json | None,
    others: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE", help="Of local files: a further rank of the run (repeatable)."),
    ] = None,
    cycle: CycleOption = None,
    form: Annotated[
        Literal["html", "markdown"] | None,
        typer.Option("--format", "-f", help="By default that of the suffix of --output, else markdown."),
    ] = None,
    output: OutputFile = None,
    force: Force = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=3600, help="Wait for traces that are not ready.")
    ] = 0,
) -> None:
    """Report where the time goes, what to try first, and the largest costs.

    TRACE may also be the id or the name of a group, for a report on the run. Local files need no server. HTML is one
    file that needs no network; Markdown has at most ten rows of each table. Of a run of several cycles, the report is
    on one of them, by default the first.
    """
    output = destination(output, force=force)
    form = form or ("html" if output and output.suffix.lower() not in _MARKDOWN_SUFFIXES else "markdown")
    if form == "html" and output is None and on_terminal():
        raise typer.BadParameter("html is for a browser; pipe it, or name a file with --output", param_hint="--format")
    if file := file_of(ctx.obj, trace, groups=True):
        text = local.report([file, *(others or ())], selection=selection, form=form, cycle=cycle)
    elif others:
        raise typer.BadParameter(
            "only for local files; a run on the server is a group, whose name or id is TRACE", param_hint="--with"
        )
    else:
        kind, target = ctx.obj.target(trace)
        if cycle is not None and kind == "trace":
            raise typer.BadParameter("only for a run", param_hint="--cycle")
        text = ctx.obj.report(target["id"], of=kind, form=form, selection=selection, cycle=cycle, wait=wait)
    write_bytes([text.encode()], output)

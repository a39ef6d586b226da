"""The command `download`: a trace back, or a part of it; of a file here, without a server."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.cli import local
from service.cli.arguments import file_of
from service.cli.client import Client, Download, Json
from service.cli.making import LocalArgument
from service.cli.output import STDOUT, check_target, whole
from service.cli.progress import stages
from service.cli.selection import selecting


class Format(StrEnum):
    """The forms of a trace."""

    original = "original"
    json = "json"
    json_gz = "json.gz"
    parquet = "parquet"


class Order(StrEnum):
    """The orders of its events."""

    time = "time"
    original = "original"


@selecting
def download(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: LocalArgument,
    selection: Json | None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write here, by default under its name in this folder; `-` is the standard output. "
            "The file appears when it is whole.",
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="The file that was uploaded, or its events in another form; by default the first, and json.gz of a "
            "part, of a trace that was made here, and of a file (json, where --output ends so).",
        ),
    ] = None,
    order: Annotated[Order, typer.Option(help="Of the events in json and json.gz.")] = Order.time,
    redact: Annotated[bool, typer.Option("--redact", help="Leave out secrets; json and json.gz only.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Fetch a trace, or the part of it that is selected. Prints the name of the file."""
    if output and not output.is_dir():
        check_target(output, force=force)  # before anything is asked
    if selection and order is Order.original:
        raise typer.BadParameter("a part of a trace is written by time", param_hint="--order")
    if selection and form in (Format.original, Format.parquet):
        raise typer.BadParameter("a part of a trace is written as json or json.gz", param_hint="--format")
    file = file_of(ctx.obj, trace)
    if file:
        written = _write_file(file, selection, output, form, order, redact=redact, force=force)
    else:
        written = _fetch(ctx.obj, trace, selection, output, form, order, redact=redact, force=force)
    if written:
        print(written)


def _fetch(  # noqa: PLR0913 - as many options
    client: Client,
    trace: str,
    selection: Json | None,
    output: Path | None,
    form: Format | None,
    order: Order,
    *,
    redact: bool,
    force: bool,
) -> Path | None:
    found = client.find(trace)
    with client.download(found["id"], form=form, order=order, redact=redact, selection=selection) as coming:
        if output == STDOUT:
            coming.write_to(sys.stdout.buffer)
            return None
        target = output or Path()
        if target.is_dir():
            target /= coming.name
            check_target(target, force=force)
        _write(coming, target)
    return target


def _write(coming: Download, target: Path) -> None:
    with stages() as shown, whole(target) as file:
        coming.write_to(file, shown.downloading(target.name))


def _write_file(
    file: Path,
    selection: Json | None,
    output: Path | None,
    form: Format | None,
    order: Order,
    *,
    redact: bool,
    force: bool,
) -> Path | None:
    if form in (Format.original, Format.parquet):
        raise typer.BadParameter("a file here is written as json or json.gz", param_hint="--format")
    plain = form is Format.json or (form is None and output is not None and local.is_plain(output))
    target = output or Path()
    if target != STDOUT and target.is_dir():
        what = [word for word, is_so in (("cut", selection), ("redacted", redact)) if is_so]
        target /= local.name_of(file.name, ".".join(what) or "copy", plain=plain)
        check_target(target, force=force)
    with local.written_anew(file, selection=selection, order=order.value, redact=redact, plain=plain) as (
        pieces,
        shown,
    ):
        if target == STDOUT:
            sys.stdout.buffer.writelines(pieces)
            return None
        local.write(pieces, target, shown)
    return target

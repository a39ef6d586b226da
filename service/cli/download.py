"""The command `download`: a trace back, as it came or written anew."""

from __future__ import annotations

import errno
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.cli.client import Client, Download
from service.cli.output import whole
from service.cli.progress import stages
from service.cli.traces import TraceArgument

_STDOUT = Path("-")


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


def download(
    ctx: typer.Context,
    trace: TraceArgument,
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
        Format, typer.Option("--format", "-f", help="The file that was uploaded, or its events in another form.")
    ] = Format.original,
    order: Annotated[Order, typer.Option(help="Of the events in json and json.gz.")] = Order.time,
    redact: Annotated[bool, typer.Option("--redact", help="Leave out secrets; json and json.gz only.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Fetch a trace. Prints the name of the file."""
    if output and not output.is_dir():
        _refuse_to_replace(output, force=force)  # before anything is asked
    client: Client = ctx.obj
    found = client.find(trace)
    with client.download(found["id"], form=form, order=order, redact=redact) as coming:
        if output == _STDOUT:
            coming.write_to(sys.stdout.buffer)
            return
        target = output or Path()
        if target.is_dir():
            target /= coming.name
            _refuse_to_replace(target, force=force)
        _write(coming, target)
    print(target)


def _write(coming: Download, target: Path) -> None:
    with stages() as shown, whole(target) as file:
        coming.write_to(file, shown.downloading(target.name))


def _refuse_to_replace(target: Path, *, force: bool) -> None:
    if target.is_file() and not force:
        raise FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; --force replaces it", str(target))

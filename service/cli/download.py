"""The command `download`: a trace or a selection of it as a file; for a local file without a server."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import local
from service.cli.arguments import file_of
from service.cli.output import STDOUT, Force, atomic, check_target
from service.cli.progress import stages
from service.cli.render import print_json
from service.cli.selection import Json, selecting
from service.cli.split_merge import LocalArgument
from service.cli.traces import AsJson

if TYPE_CHECKING:
    from tracedock.client import Client, Download


class Format(StrEnum):
    """Formats of a trace."""

    original = "original"
    json = "json"
    json_gz = "json.gz"
    pftrace = "pftrace"
    pftrace_gz = "pftrace.gz"
    parquet = "parquet"


_UNCHANGED = (Format.original, Format.parquet)
_WRITTEN = "json, json.gz, pftrace or pftrace.gz"


class Order(StrEnum):
    """Orders of events."""

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
            metavar="FILE",
            help="Output file, by default under the trace's name in this folder; `-` is the standard output. "
            "The file appears when it is complete.",
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="The uploaded file (original), or its events as json, json.gz, pftrace, pftrace.gz or parquet. The "
            "default is original for an uploaded trace and json.gz for a selection or a derived trace. For a local "
            "file the suffix of --output decides, and json.gz is the default.",
        ),
    ] = None,
    order: Annotated[Order, typer.Option(help="Order of the events in json and json.gz.")] = Order.time,
    redact: Annotated[bool, typer.Option("--redact", help="Hide secrets; not in original and parquet.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Download a trace, or a selection of it. Prints the name of the file."""
    if output == STDOUT and as_json:
        raise typer.BadParameter("the trace itself goes to the standard output", param_hint="--json")
    if output and output != STDOUT and not output.is_dir():
        check_target(output, force=force)  # before any request
    if selection and order is Order.original:
        raise typer.BadParameter("a selection is always written by time", param_hint="--order")
    if selection and form in _UNCHANGED:
        raise typer.BadParameter(f"a selection is written as {_WRITTEN}", param_hint="--format")
    if order is Order.original and form in (Format.pftrace, Format.pftrace_gz):
        raise typer.BadParameter("a Perfetto trace is always written by time", param_hint="--order")
    file = file_of(ctx.obj, trace)
    if file:
        written = _write_file(file, selection, output, form, order, redact=redact, force=force)
    else:
        written = _fetch(ctx.obj, trace, selection, output, form, order, redact=redact, force=force)
    if written and as_json:
        print_json({"file": str(written), "size": written.stat().st_size})
    elif written:
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
    source = client.find(trace)
    with client.download(source["id"], form=form, order=order, redact=redact, selection=selection) as transfer:
        if output == STDOUT:
            transfer.write_to(sys.stdout.buffer)
            return None
        target = output or Path()
        if target.is_dir():
            target /= transfer.name
            check_target(target, force=force)
        _write(transfer, target)
    return target


def _write(transfer: Download, target: Path) -> None:
    with stages() as progress, atomic(target) as file:
        transfer.write_to(file, progress.downloading(target.name))


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
    if form in _UNCHANGED:
        raise typer.BadParameter(f"a local file is written as {_WRITTEN}", param_hint="--format")
    written = (form or _form_of(output)).value
    target = output or Path()
    if target != STDOUT and target.is_dir():
        changes = [word for word, applies in (("cut", selection), ("redacted", redact)) if applies]
        target /= local.name_of(file.name, ".".join(changes) or "copy", form=written)
        check_target(target, force=force)
    with local.converted(file, selection=selection, order=order.value, redact=redact, form=written) as (
        pieces,
        progress,
    ):
        if target == STDOUT:
            sys.stdout.buffer.writelines(pieces)
            return None
        local.write(pieces, target, progress)
    return target


def _form_of(output: Path | None) -> Format:
    """Return the format that a file's suffix names; `json.gz` by default."""
    name = output.name.lower() if output else ""
    forms = (Format.json, Format.pftrace, Format.pftrace_gz)
    return next((form for form in forms if name.endswith(f".{form.value}")), Format.json_gz)

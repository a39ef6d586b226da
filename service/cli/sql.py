"""The command `query`: SQL on a trace's engine."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from service.cli.output import Force, OutputFile, atomic, destination
from service.cli.progress import stages
from service.cli.quantities import grouped
from service.cli.render import print_result, write_lines
from service.cli.report import note
from service.cli.selection import ArgsOption, Json, SourceOption, selecting
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson, TraceArgument

if TYPE_CHECKING:
    from tracedock.client import Client

_ROWS_ON_TERMINAL = 1000
DEFAULT_LIMIT, DEFAULT_TIMEOUT_S = 100_000, 60.0
"""Those of `tracedock.client`, which is slow to import."""


_Form = TypeVar("_Form", bound=StrEnum)


class Format(StrEnum):
    """Formats of a result."""

    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    arrow = "arrow"


_ACCEPT = {
    Format.json: "application/json",
    Format.ndjson: "application/x-ndjson",
    Format.csv: "text/csv",
    Format.arrow: "application/vnd.apache.arrow.stream",
}


@selecting
def query(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: TraceArgument,
    selection: Json | None,
    sql: Annotated[
        str | None, typer.Argument(metavar="SQL", help="The query; `-` reads it from the standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Read the query from this file.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="A table is tab-separated when piped.")] = Format.table,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Maximum number of rows; 0 for all. The default is 1000 for a table on a terminal, 100000 for a piped "
            "table or JSON, which report truncation, and all for the other formats.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Timeout of the query; 0 for none.")
    ] = DEFAULT_TIMEOUT_S,
    output: OutputFile = None,
    force: Force = False,
    as_json: AsJson = False,
    args: ArgsOption = "all",
    source: SourceOption = None,
) -> None:
    """Run SQL on a trace, on a selection of it, or on its original."""
    text = _sql(sql, file)
    form = chosen_format(form, Format.table, Format.json, as_json=as_json)
    output = destination(output, force=force)
    if form is Format.arrow and output is None and on_terminal():
        raise typer.BadParameter("arrow is binary; pipe it, or name a file with --output", param_hint="--format")
    rows = _default_limit(form, output) if limit is None else limit or None
    client: Client = ctx.obj
    resolved = client.find(trace)
    with stages(keep=False) as progress:
        options: dict[str, Any] = {
            "selection": selection,
            "args": args,
            "source": source,
            "limit": rows,
            "timeout_s": timeout or None,
            "on_loading": progress.loading(resolved["name"]),
        }
        if form is Format.table:
            table = client.query(resolved["id"], text, **options)
        else:
            chunks = client.export(resolved["id"], text, _ACCEPT[form], **options)
            first = next(chunks, b"")  # the progress bar must end before the rows begin
    if form is Format.table:
        write_table(table, output)
    else:
        write_bytes(chain([first], chunks, [b"\n"] if form is Format.json else []), output)


def chosen_format(form: _Form, default: _Form, json: _Form, *, as_json: bool) -> _Form:
    """Return the format of --format, or JSON for --json.

    Raises:
        typer.BadParameter: both options are given, and differ.
    """
    if as_json and form not in {default, json}:
        raise typer.BadParameter(f"it is --format json, not {form}", param_hint="--json")
    return json if as_json else form


def _sql(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise typer.BadParameter("give either the query or --file", param_hint="SQL")
    text = file.read_text(encoding="utf-8") if file else sys.stdin.read() if sql == "-" else sql
    if not text or not text.strip():
        raise typer.BadParameter("the query is empty", param_hint="SQL")
    return text


def _default_limit(form: Format, output: Path | None) -> int | None:
    """Return the default limit; None for formats that can't report truncation."""
    if form in (Format.ndjson, Format.csv, Format.arrow):
        return None
    is_drawn = form is Format.table and output is None and on_terminal()
    return _ROWS_ON_TERMINAL if is_drawn else DEFAULT_LIMIT


def write_table(table: dict[str, Any], output: Path | None) -> None:
    """Write a table tab-separated into a file, or to the standard output as `print_result` does."""
    if output is None:
        print_result(table)
    else:
        with atomic(output) as file, TextIOWrapper(file, "utf-8", newline="") as text:
            write_lines(text, [column["name"] for column in table["columns"]], table["rows"])
    if table["truncated"]:
        note(f"Truncated after {grouped(len(table['rows']))} rows; see --limit.")


def write_bytes(chunks: Iterable[bytes], output: Path | None) -> None:
    """Write the bytes of a result into a file, or to the standard output."""
    if output is None:
        sys.stdout.buffer.writelines(chunks)
        sys.stdout.buffer.flush()
    else:
        with atomic(output) as file:
            file.writelines(chunks)

"""The command `query`: SQL to a trace's engine, rows back in the shape that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.client import DEFAULT_LIMIT, DEFAULT_TIMEOUT_S, Client, Json
from service.cli.output import whole
from service.cli.progress import stages
from service.cli.render import on_terminal, print_result, write_lines
from service.cli.report import note
from service.cli.selection import ArgsOption, selecting
from service.cli.traces import TraceArgument

_ROWS_A_PERSON_READS = 1000


class Format(StrEnum):
    """The shapes of an answer."""

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
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the query from this file.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="A table is tab-separated when piped.")] = Format.table,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="At most so many rows; 0 for all. By default 1000 in a table on a terminal, 100000 in a "
            "piped table or JSON, which say that they were cut; all in the other formats.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="0 for as long as it takes.")
    ] = DEFAULT_TIMEOUT_S,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here; the file appears when it is whole.")
    ] = None,
    args: ArgsOption = "all",
) -> None:
    """Ask SQL of a trace, or of the part of it that is selected."""
    text = _sql(sql, file)
    if form is Format.arrow and output is None and on_terminal():
        raise typer.BadParameter("arrow is binary; pipe it, or name a file with --output", param_hint="--format")
    rows = _default_limit(form, output) if limit is None else limit or None
    client: Client = ctx.obj
    found = client.find(trace)
    with stages(keep=False) as shown:
        ask: dict[str, Any] = {
            "selection": selection,
            "args": args,
            "limit": rows,
            "timeout_s": timeout or None,
            "on_loading": shown.loading(found["name"]),
        }
        if form is Format.table:
            table = client.query(found["id"], text, **ask)
        else:
            chunks = client.export(found["id"], text, _ACCEPT[form], **ask)
            first = next(chunks, b"")  # the bar has to go before the rows come
    if form is Format.table:
        write_table(table, output)
    else:
        write_bytes(chain([first], chunks, [b"\n"] if form is Format.json else []), output)


def _sql(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise typer.BadParameter("give the query, or --file, and not both", param_hint="SQL")
    text = file.read_text(encoding="utf-8") if file else sys.stdin.read() if sql == "-" else sql
    if not text or not text.strip():
        raise typer.BadParameter("the query is empty", param_hint="SQL")
    return text


def _default_limit(form: Format, output: Path | None) -> int | None:
    """No limit where the shape has no place to say that rows are missing."""
    if form in (Format.ndjson, Format.csv, Format.arrow):
        return None
    a_person_reads = form is Format.table and output is None and on_terminal()
    return _ROWS_A_PERSON_READS if a_person_reads else DEFAULT_LIMIT


def write_table(table: dict[str, Any], output: Path | None) -> None:
    """Write a table's rows, tab-separated into a file, as `print_result` does where none is named."""
    if output is None:
        print_result(table)
    else:
        with whole(output) as file, TextIOWrapper(file, "utf-8", newline="") as text:
            write_lines(text, [column["name"] for column in table["columns"]], table["rows"])
    if table["truncated"]:
        note(f"Cut after {len(table['rows'])} rows; there are more (--limit).")


def write_bytes(chunks: Iterable[bytes], output: Path | None) -> None:
    """Write an answer as it came, into a file if one is named."""
    if output is None:
        sys.stdout.buffer.writelines(chunks)
        sys.stdout.buffer.flush()
    else:
        with whole(output) as file:
            file.writelines(chunks)

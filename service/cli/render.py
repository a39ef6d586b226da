"""Output of values: drawn tables on a terminal; exact tab-separated lines without ANSI in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_WIDEST_CELL = 80
_WIDEST_TABLE = 1_000_000


def on_terminal() -> bool:
    """Return whether the standard output is a terminal."""
    return sys.stdout.isatty()


def visible(text: str) -> str:
    """Return the text with unprintable characters (ESC, newlines, lone surrogates) escaped.

    Names in a trace are untrusted: they must not move the cursor of a terminal or forge a line.
    """
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)


def plain(value: object) -> str:
    r"""Format a field of a tab-separated line: NULL is `\N`, a backslash is doubled, floats round-trip."""
    if value is None:
        return r"\N"
    if isinstance(value, str):
        return visible(value.replace("\\", "\\\\"))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def shown(value: object) -> str:
    """Format a cell of a drawn table."""
    return visible(value) if isinstance(value, str) else plain(value)


def dashed(value: object) -> str:
    """Format a cell like `shown`, with a dash for None and empty text."""
    return "-" if value is None or value == "" else shown(value)


def size(count: int) -> str:
    """Format bytes in decimal units: 816.5 kB."""
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {' kMGT'[power]}B"


def grouped(count: int | None) -> str:
    """Format an integer with thousands separators."""
    return "-" if count is None else f"{count:,}"


def seconds(ns: int) -> str:
    """Format nanoseconds as exact seconds: 1.000000001 s."""
    whole, rest = divmod(abs(ns), 1_000_000_000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:09d} s"


@dataclass(frozen=True)
class Column:
    """Column of a table: its title, and its format on a terminal; a pipe receives raw values."""

    title: str
    right: bool = False
    person: Callable[[Any], str] = dashed


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows on the standard output, drawn or tab-separated."""
    if on_terminal():
        draw_table(columns, rows, sys.stdout)
    else:
        write_lines(sys.stdout, [column.title for column in columns], rows)


def draw_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], to: TextIO) -> None:
    """Draw rows for a terminal."""
    _draw(columns, ([column.person(v) for column, v in zip(columns, row, strict=True)] for row in rows), to)


def print_facts(facts: Iterable[tuple[str, Any, str]]) -> None:
    """Print named values, one per line: (name, the value for a pipe, the text for a terminal)."""
    if not on_terminal():
        for name, value, _ in facts:
            print(name, plain(value), sep="\t")
        return
    listed = list(facts)
    width = max(len(name) for name, _, _ in listed)
    for name, _, text in listed:
        print(f"{name.replace('_', ' '):{width}}  {text}")


def print_result(table: dict[str, Any]) -> None:
    """Print the result of a query: `{"columns", "rows", …}`."""
    names = [column["name"] for column in table["columns"]]
    if not on_terminal():
        write_lines(sys.stdout, names, table["rows"])
        return
    numbers = [column["type"] in ("int", "double") for column in table["columns"]]
    columns = [Column(visible(name), right) for name, right in zip(names, numbers, strict=True)]
    _draw(columns, ([_cell(value) for value in row] for row in table["rows"]), sys.stdout)


def print_json(document: object) -> None:
    """Print a document as ASCII, so that any name survives any pipe; indented on a terminal."""
    json.dump(document, sys.stdout, indent=2 if on_terminal() else None)
    print()


def write_lines(to: TextIO, names: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a line of names, then a line per row, tab-separated (see `plain`)."""
    to.write("\t".join(map(plain, names)) + "\n")
    to.writelines("\t".join(map(plain, row)) + "\n" for row in rows)


def _cell(value: object) -> str | Text:
    return Text("NULL", style="dim italic") if value is None else shown(value)


def _draw(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], to: TextIO) -> None:
    """Draw a table as wide as its cells: the terminal may wrap lines, but no digit is truncated."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            max_width=_WIDEST_CELL,
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console = Console(file=to, width=_WIDEST_TABLE, highlight=False)
    console.width = max(1, Measurement.get(console, console.options, table).maximum)
    console.print(table)

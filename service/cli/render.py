"""Output of values: drawn tables on a terminal; exact tab-separated lines without ANSI in a pipe."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

from service.cli import layout
from service.cli.quantities import Quantity, quantity
from service.cli.terminal import has_color, on_terminal, preferences, width

_BOLD, _DIM_ITALIC, _RESET = "\x1b[1m", "\x1b[2;3m", "\x1b[0m"


class _Null(str):
    """The text of a NULL, which a terminal tells from a string by its style."""

    __slots__ = ()


NULL = _Null("NULL")


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


def moment(time: str | None) -> str:
    """Format a time of the API to the minute, in UTC: 2026-11-22 23:39."""
    return "-" if not time else visible(time[:16].replace("T", " "))


@dataclass(frozen=True)
class Column:
    """Column of a table.

    Attributes:
        title: its name.
        right: whether a terminal shows it on the right, as numbers are.
        person: its format on a terminal; a pipe receives raw values.
        cut: whether a narrow terminal shows `…` in the middle of its long values.
        wrap: whether a narrow terminal shows its long values on several lines.
    """

    title: str
    right: bool = False
    person: Callable[[Any], str] = dashed
    cut: bool = False
    wrap: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows on the standard output, drawn or tab-separated."""
    if on_terminal():
        draw_table(columns, rows, sys.stdout)
    else:
        write_lines(sys.stdout, [column.title for column in columns], rows)


def draw_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], to: TextIO) -> None:
    """Draw rows for a terminal."""
    _draw(columns, [[column.person(v) for column, v in zip(columns, row, strict=True)] for row in rows], to)


def print_facts(facts: Iterable[tuple[str, Any, str]]) -> None:
    """Print named values, one per line: (name, the value for a pipe, the text for a terminal)."""
    if not on_terminal():
        for name, value, _ in facts:
            print(name, plain(value), sep="\t")
        return
    listed = [(_label(name), text) for name, _, text in facts]
    indent = max((len(label) for label, _ in listed), default=0) + layout.GAP
    for label, text in listed:
        lines = [text] if preferences.wide else _wrapped(text, width() - indent)
        for line, part in enumerate(lines):
            print(f"{'' if line else label:{indent}}{part}")


def print_result(table: dict[str, Any], null: str = NULL) -> None:
    """Print the result of a query or a table of an analysis: `{"columns", "rows", …}`; a terminal shows `null`."""
    names = [column["name"] for column in table["columns"]]
    if not on_terminal():
        write_lines(sys.stdout, names, table["rows"])
        return
    columns = _result_columns(table["columns"], null)
    _draw(columns, [[column.person(v) for column, v in zip(columns, row, strict=True)] for row in table["rows"]],
          sys.stdout)  # fmt: skip


def print_json(document: object) -> None:
    """Print a document as ASCII, so that any name survives any pipe; indented on a terminal."""
    json.dump(document, sys.stdout, indent=2 if on_terminal() else None)
    print(flush=True)


def write_lines(to: TextIO, names: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a line of names, then a line per row, tab-separated (see `plain`)."""
    to.write("\t".join(map(plain, names)) + "\n")
    to.writelines("\t".join(map(plain, row)) + "\n" for row in rows)


def _wrapped(text: str, space: int) -> list[str]:
    """Split a text at its spaces into lines of at most `space` columns, if it has such spaces."""
    return textwrap.wrap(text, max(space, 20), break_long_words=False, break_on_hyphens=False) or [text]


def _label(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_at").replace("_", " ")


def _result_columns(declared: Sequence[dict[str, Any]], null: str) -> list[Column]:
    """Return the columns of a result, with the unit in the values instead of the title, where titles stay distinct."""
    quantities = [quantity(column["name"], column["type"], column["unit"]) for column in declared]
    titles = [q.title if q else column["name"] for q, column in zip(quantities, declared, strict=True)]
    names = Counter([*titles, *(column["name"] for column in declared if column["name"] not in titles)])
    return [
        Column(
            visible(_distinct(title, column) if names[title] > 1 else title),
            right=q is not None,
            person=_cell(q, null),
            cut=q is None,
        )
        for title, q, column in zip(titles, quantities, declared, strict=True)
    ]


def _distinct(title: str, column: dict[str, Any]) -> str:
    """Return the title of a column of which another has the same stem, as `time_ns` and `time_pct` have."""
    name: str = column["name"]
    return {"_ns": title, "_pct": f"{title} %"}.get(name.removeprefix(title), name)


def _cell(shown_as: Quantity | None, null: str) -> Callable[[Any], str]:
    def text(value: object) -> str:
        if value is None:
            return null
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return shown_as.text(value) if shown_as and is_number else shown(value)

    return text


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], to: TextIO) -> None:
    """Draw a table. If the terminal is too narrow, long names are cut, and further columns follow below.

    No number is cut: a table that is still too wide becomes several, below each other.
    """
    titles = [column.title for column in columns]
    widths = [max(map(layout.cell_width, values)) for values in zip(titles, *rows, strict=True)]
    color = has_color(to)
    for place, part in enumerate(_parts(columns, widths)):
        if place:
            to.write("\n")
        for number, row in enumerate((titles, *rows)):
            fields = [_lines(columns[at], row[at], space) for at, space in part.items()]
            for line in zip_longest(*fields, fillvalue=""):
                cells = zip(part.items(), line, strict=True)
                texts = [_padded(text, space, columns[at], bold=color and number == 0, color=color)
                         for (at, space), text in cells]  # fmt: skip
                to.write((" " * layout.GAP).join(texts).rstrip() + "\n")


def _parts(columns: Sequence[Column], widths: Sequence[int]) -> list[dict[int, int]]:
    """Return the columns of each part of a table, with their widths."""
    if preferences.wide:
        return [dict(enumerate(widths))]
    shrinks, available = [column.cut or column.wrap for column in columns], width()
    fitting = layout.fitted(widths, shrinks, available)
    keys = layout.keys(fitting, [c.title for c in columns], [not c.right for c in columns], available)
    parts = layout.parts_of(fitting, keys, available)
    if len(parts) == 1:
        return [dict(enumerate(fitting))]
    return [dict(zip(part, layout.fitted([widths[at] for at in part], [shrinks[at] for at in part], available),
                     strict=True)) for part in parts]  # fmt: skip


def _lines(column: Column, text: str, space: int) -> list[str]:
    """Return the lines of a cell, each of at most `space` columns."""
    if column.wrap and layout.cell_width(text) > space:
        return textwrap.wrap(text, space)
    return [layout.cut_middle(text, space) if column.cut else text]


def _padded(text: str, space: int, column: Column, *, bold: bool, color: bool) -> str:
    padding = " " * (space - layout.cell_width(text))
    style = _BOLD if bold else _DIM_ITALIC if color and isinstance(text, _Null) else ""
    styled = f"{style}{text}{_RESET}" if style else text
    return padding + styled if column.right else styled + padding

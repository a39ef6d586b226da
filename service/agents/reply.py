"""Replies of tools: text within budgets, which says what it leaves out and how to get it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

BYTES_MIN, BYTES_MAX = 1_000, 100_000
ROWS_MAX = 1_000
_TITLE_MAX = 300
"""Bytes that are set aside for the title of a table, which says what is left out."""
_CUT = "\n[cut here: max_bytes]\n"
_SUFFIXES = {"%": "pct", "µs": "us", "GB/s": "gb_per_s"}
"""Units as the names of columns end with them, where that is not the unit itself."""
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Arguments(BaseModel):
    """The arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class Budgets(Arguments):
    """Arguments that bound a reply."""

    max_rows: int = Field(20, ge=0, le=ROWS_MAX, description="maximum rows of each table")
    max_bytes: int = Field(5_000, ge=BYTES_MIN, le=BYTES_MAX, description="maximum size of the reply")
    max_chars: int = Field(200, ge=10, le=20_000, description="longer texts in cells are cut")


@dataclass(frozen=True)
class Table:
    """A table of a reply.

    Attributes:
        name: the title.
        columns: the names of the columns, with their units.
        rows: the rows; those beyond the budgets are left out.
        total: number of all rows, of which `rows` are the ones from `offset` on; None if more exist, but not how many.
        offset: number of rows before `rows`.
        rest: how to get the rows that are left out; `{offset}` is the number of the first of them.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int | None
    offset: int = 0
    rest: str = "offset={offset} continues"


class Reply:
    """Composes a reply of lines and tables. Lines come first in the budget, then tables in their order.

    Args:
        budgets: the bounds.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._parts: list[str | Table] = []

    def line(self, text: str) -> None:
        """Add a line of text."""
        self._parts.append(" ".join(text.split()))

    def table(self, table: Table) -> None:
        """Add a table."""
        self._parts.append(table)

    def text(self) -> str:
        """Return the reply, of at most `max_bytes` bytes."""
        lines = sum(_TITLE_MAX if isinstance(part, Table) else _size(part) for part in self._parts)
        left = max(0, self._budgets.max_bytes - lines)
        written = []
        for part in self._parts:
            if isinstance(part, Table):
                text = _written(part, self._budgets, left)
                left -= max(0, _size(text) - _TITLE_MAX)
                written.append(text)
            else:
                written.append(part)
        return _clamped("\n".join(written) + "\n", self._budgets.max_bytes)


def _size(text: str) -> int:
    return len(text.encode()) + 1


def _clamped(text: str, limit: int) -> str:
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(_CUT)].decode(errors="ignore") + _CUT


def _written(table: Table, budgets: Budgets, limit: int) -> str:
    """Return a table as tab-separated values; its header and its rows take at most `limit` bytes."""
    cells = [[_cell(value, budgets.max_chars) for value in row] for row in table.rows[: budgets.max_rows]]
    empty = [place for place in range(len(table.columns)) if cells and all(row[place] == "null" for row in cells)]
    shown = [place for place in range(len(table.columns)) if place not in empty]
    lines = ["\t".join(table.columns[place] for place in shown)]
    left = limit - _size(lines[0])
    for row in cells:
        line = "\t".join(row[place] for place in shown)
        left -= _size(line)
        if left < 0:
            break
        lines.append(line)
    title = _title(table, len(lines) - 1, by_rows=len(lines) > len(cells))
    if empty and len(lines) > 1:
        title += f"; null in all rows: {', '.join(table.columns[place] for place in empty)}"
    return "\n".join([title[:_TITLE_MAX], *(lines if len(lines) > 1 or not cells else [])])


def _title(table: Table, count: int, *, by_rows: bool) -> str:
    """Return the line above a table: its name, the rows that follow, and how to get the others."""
    first, end = table.offset, table.offset + count
    of = "" if table.total is None else f" of {table.total}"
    title = f"# {table.name}: " + (f"rows {first + 1}-{end}{of}" if count else f"0{of} rows")
    if table.total is not None and end >= table.total:
        return title
    budget = "max_rows" if by_rows else "max_bytes"
    return f"{title}; cut by {budget}: {table.rest.format(offset=end)}"


def _cell(value: Any, limit: int) -> str:
    """Return a value as text: numbers exact, null as `null`, texts up to `limit` characters."""
    if isinstance(value, str):
        text = f'"{value}"' if value == "null" else value.translate(_ESCAPES)
        return text if len(text) <= limit else f"{text[:limit]}…[{len(text) - limit} more]"
    if value is None:
        return "null"
    return repr(value) if isinstance(value, float) else orjson.dumps(value).decode()


def titled(column: dict[str, Any]) -> str:
    """Return the name of a column of the API, with its unit if the name does not end with it."""
    name, unit = str(column["name"]), column["unit"]
    if not unit or name.lower().endswith("_" + _SUFFIXES.get(unit, unit).lower()):
        return name
    return f"{name}[{unit}]"

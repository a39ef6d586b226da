"""The statements that read a database, and the rules by which SQLite authorises them."""

import sqlite3
from collections.abc import Collection, Sequence

from service.formats.nsys.allowed import ALLOWED

BATCH_ROWS = 1 << 15
TEXT_MAX = 1 << 20
"""Largest number of characters of a text that is read; longer ones are cut."""

SCHEMA = "SELECT name, type, rootpage FROM sqlite_master WHERE name IN ({})".format(  # noqa: S608 - allowed names
    ", ".join(f"'{table}'" for table in ALLOWED)
)
"""SQL for the kinds of the allowed tables: a virtual table has no root page."""

_FUNCTIONS = frozenset({"typeof", "substr"})
_READ = {table: frozenset({"", "rowid", *map(str.lower, columns)}) for table, columns in ALLOWED.items()}
_READ |= dict.fromkeys(("sqlite_master", "sqlite_schema"), frozenset({"", "name", "type", "rootpage"}))


def authorize(action: int, first: str | None, second: str | None, _: str | None, source: str | None) -> int:
    """Authorise reads of allowed columns of allowed tables, except through a view or trigger (`source`)."""
    match action:
        case sqlite3.SQLITE_SELECT:
            is_allowed = source is None
        case sqlite3.SQLITE_READ:
            is_allowed = source is None and (second or "").lower() in _READ.get(first or "", ())
        case sqlite3.SQLITE_FUNCTION:
            is_allowed = (second or "").lower() in _FUNCTIONS
        case sqlite3.SQLITE_PRAGMA:
            is_allowed = first == "table_xinfo" and second in ALLOWED
        case _:
            is_allowed = False
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def separate(table: str, columns: Sequence[str], texts: Collection[str] = (), kinds: Collection[int] = ()) -> str:
    """Return SQL for rows as their number and values.

    A column in `texts` gives its text, or null if the value is no text. Any other column gives its integer or null; a
    value of another type gives the name of its type. With `kinds`, only rows of these event types are read. The
    parameters are a row number, after which rows are read, and the largest number of rows.
    """
    values = (_text(column) if column in texts else _integer(column) for column in columns)
    chosen = f" AND eventType IN ({', '.join(map(str, kinds))})" if kinds else ""
    return (
        f"SELECT rowid, {', '.join(values)} FROM {_quoted(table)}"  # noqa: S608 - allowed names
        f" WHERE rowid > ?{chosen} ORDER BY rowid LIMIT ?"
    )


def row_numbers(table: str) -> str:
    """Return SQL that reads nothing, and is valid only if the rows of a table have numbers."""
    return f"SELECT rowid FROM {_quoted(table)} LIMIT 0"  # noqa: S608 - an allowed name


def lookup(table: str, key: str, text: str, count: int) -> str:
    """Return SQL for the pairs of a key and its text; its parameters are `count` keys."""
    places = ", ".join("?" * count)
    return f"SELECT {_quoted(key)}, {_text(text)} FROM {_quoted(table)} WHERE {_quoted(key)} IN ({places})"  # noqa: S608 - allowed names


def _integer(column: str) -> str:
    name = _quoted(column)
    return f"CASE WHEN typeof({name}) IN ('integer', 'null') THEN {name} ELSE typeof({name}) END"


def _text(column: str) -> str:
    name = _quoted(column)
    return f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {TEXT_MAX}) END"


def _quoted(name: str) -> str:
    return f'"{name}"'

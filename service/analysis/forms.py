"""The forms of answers: JSON with several tables, and CSV or Arrow with one."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import orjson

from service.analysis.table import Columns, Page, Tables, as_arrow, as_csv, as_json, as_json_columns
from service.trace.errors import BadAnalysisRequest, TracedockError

WHOLE_FORMS = frozenset({"json", "columns"})
"""The formats that have several tables."""


class WithTables(Protocol):
    """A question whose answer has tables."""

    @property
    def name(self) -> str:
        """The question's name."""

    @property
    def tables(self) -> Mapping[str, Columns]:
        """The columns of each table, by the table's name; the main table comes first."""


def chosen_tables(
    question: WithTables, form: str, tables: Sequence[str], *, error: type[TracedockError] = BadAnalysisRequest
) -> list[str]:
    """Return the names of the tables that an answer has in a format.

    Args:
        question: the question.
        form: the format.
        tables: the wanted tables; empty for all or, in a format of one table, the first.
        error: the error to raise.

    Raises:
        TracedockError: the question has no such table, or the format has only one table.
    """
    if unknown := [name for name in tables if name not in question.tables]:
        named = ", ".join(question.tables)
        raise error(f"{question.name} has the tables {named}, and no {unknown[0]!r}.")
    if form in WHOLE_FORMS:
        return [name for name in question.tables if not tables or name in tables]
    if len(tables) > 1:
        raise error(f"{form} has one table, and {len(tables)} were named: {', '.join(tables)}.")
    return [*tables] or [next(iter(question.tables))]


def serialized(
    form: str, about: Mapping[str, object], tables: Tables, columns: Mapping[str, Columns], page: Page
) -> bytes:
    """Serialize tables as ``json`` or ``columns``, or the only table as ``csv`` or ``arrow``.

    Args:
        form: the format.
        about: members of the JSON object before its tables.
        tables: the chosen tables.
        columns: the columns of each.
        page: the rows of each.
    """
    if form not in WHOLE_FORMS:
        (table,) = tables.values()
        rows = page.of(table)
        return as_csv(rows) if form == "csv" else as_arrow(rows)
    write = as_json if form == "json" else as_json_columns
    content = b",".join(orjson.dumps(name) + b":" + write(columns[name], table, page) for name, table in tables.items())
    return orjson.dumps(about)[:-1] + b',"tables":{' + content + b"}}\n"

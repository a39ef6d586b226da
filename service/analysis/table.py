"""Tables of answers: their columns, and their forms as JSON, CSV and Arrow."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import csv

Kind = Literal["int", "double", "string"]

_TYPES = {"int": pa.int64(), "double": pa.float64(), "string": pa.string()}


@dataclass(frozen=True)
class Column:
    """A column of an answer.

    Args:
        name: the column's name; most names end with the unit, as in ``span_ns``.
        type: the type of the values.
        unit: ``ns``, ``bytes``, ``%``, …; None for values without a unit.
        description: a few words about the values.
    """

    name: str
    type: Kind
    unit: str | None
    description: str


Columns = tuple[Column, ...]

Tables = dict[str, pa.Table]
"""The tables of an answer, by name."""


def ns(name: str, description: str) -> Column:
    """Make a column of whole nanoseconds."""
    return Column(f"{name}_ns", "int", "ns", description)


def size(name: str, description: str) -> Column:
    """Make a column of whole bytes."""
    return Column(f"{name}_bytes", "int", "bytes", description)


def pct(name: str, description: str) -> Column:
    """Make a column of percentages."""
    return Column(f"{name}_pct", "double", "%", description)


def count(name: str, description: str) -> Column:
    """Make a column of whole numbers without a unit."""
    return Column(name, "int", None, description)


def word(name: str, description: str) -> Column:
    """Make a column of text."""
    return Column(name, "string", None, description)


def number(name: str, description: str, unit: str | None = None) -> Column:
    """Make a column of numbers with decimals."""
    return Column(name, "double", unit, description)


RANK = count("rank", "rank in the job; empty if the trace has none")
CYCLE = count("cycle", "cycle of the profiler's schedule in which the trace was written, from 0")
DEVICE = count("device", "number of the GPU")
SPREAD = (
    number("stddev_ns", "of a sample; 0 of a single one", "ns"),
    ns("min", "the shortest"),
    number("p25_ns", "a quarter is at most as long", "ns"),
    number("p50_ns", "half are at most as long", "ns"),
    number("p75_ns", "three quarters are at most as long", "ns"),
    ns("max", "the longest"),
)
"""Columns for the distribution of durations."""


def table_of(columns: Columns, values: Mapping[str, Any] | pa.Table) -> pa.Table:
    """Make a table of these columns, in their order.

    Args:
        columns: the columns of the table.
        values: an array or a list for each column, by the column's name; or a table that has all columns.
    """
    return pa.table(
        {column.name: _typed(values[column.name], _TYPES[column.type]) for column in columns}, schema_of(columns)
    )


def table_of_rows(columns: Columns, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Make a table of these columns from its rows."""
    return table_of(
        columns,
        dict(
            zip(
                (column.name for column in columns),
                zip(*rows, strict=True) if rows else [[]] * len(columns),
                strict=True,
            )
        ),
    )


def with_cycle(columns: Columns) -> Columns:
    """Return the columns with `CYCLE` after the rank column, or in front if there is no rank column."""
    at = next((place + 1 for place, column in enumerate(columns) if column.name == RANK.name), 0)
    return (*columns[:at], CYCLE, *columns[at:])


def codes(words: pa.ChunkedArray, known: Sequence[str]) -> Any:
    """Return a NumPy array with the index of each word in `known`, or -1 for null and other words."""
    coded = words.cast(pa.dictionary(pa.int32(), pa.string())).unify_dictionaries().combine_chunks()
    places = np.array([known.index(word) if word in known else -1 for word in coded.dictionary.to_pylist()] + [-1])
    return places[coded.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)]


def schema_of(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of columns; the metadata of each field holds its unit and description."""
    return pa.schema(
        [
            pa.field(
                column.name,
                _TYPES[column.type],
                metadata={"unit": column.unit or "", "description": column.description},
            )
            for column in columns
        ]
    )


def _typed(values: Any, type_: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        return values.cast(type_)
    return values.cast(type_) if isinstance(values, pa.Array) else pa.array(values, type_)


@dataclass(frozen=True)
class Page:
    """The rows of each table that an answer has.

    Attributes:
        limit: maximum number of rows; None for all.
        offset: number of rows to skip.
    """

    limit: int | None = None
    offset: int = 0

    def of(self, table: pa.Table) -> pa.Table:
        """Return these rows of a table."""
        return table.slice(self.offset, self.limit)


ALL = Page()


def as_json(columns: Columns, table: pa.Table, page: Page = ALL) -> bytes:
    """Write a page of a table as JSON, ``{"columns", "rows", "truncated", "total"}``.

    ``total`` is the number of rows of the whole table. ``truncated`` is true if rows follow those of the page.
    """
    shown = page.of(table)
    rows = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
    document = {"columns": [asdict(column) for column in columns], "rows": rows}
    return orjson.dumps(document | {"truncated": page.offset + len(rows) < len(table), "total": len(table)})


def as_json_columns(columns: Columns, table: pa.Table, page: Page = ALL) -> bytes:
    """Write a page of a table as JSON, ``{"columns", "values", "total"}``, with an array of values for each column."""
    values = [
        column.to_pylist() if column.null_count or column.type != pa.int64() else column.to_numpy()
        for column in page.of(table).columns
    ]
    document = {"columns": [asdict(column) for column in columns], "values": values, "total": len(table)}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def as_csv(table: pa.Table) -> bytes:
    """Write a table as CSV with a header; text is quoted, and null is empty."""
    sink = io.BytesIO()
    csv.write_csv(table, sink)
    return sink.getvalue()


def as_arrow(table: pa.Table) -> bytes:
    """Write a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()

"""Tables that answer: what their columns are, and their forms."""

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
    """What a column of an answer holds.

    Args:
        name: of the column; ends with its unit where it has one, as ``span_ns``.
        type: of its values.
        unit: ``ns``, ``bytes``, ``%``, …
        description: what it says, in a few words.
    """

    name: str
    type: Kind
    unit: str | None
    description: str


Columns = tuple[Column, ...]

Tables = dict[str, pa.Table]
"""The tables of an answer, by name."""


def ns(name: str, description: str) -> Column:
    """A column of whole nanoseconds."""
    return Column(f"{name}_ns", "int", "ns", description)


def pct(name: str, description: str) -> Column:
    """A column of percentages."""
    return Column(f"{name}_pct", "double", "%", description)


def count(name: str, description: str) -> Column:
    """A column of whole numbers of no unit."""
    return Column(name, "int", None, description)


def word(name: str, description: str) -> Column:
    """A column of text."""
    return Column(name, "string", None, description)


def number(name: str, description: str, unit: str | None = None) -> Column:
    """A column of numbers with decimals."""
    return Column(name, "double", unit, description)


RANK = count("rank", "rank in the job; empty where the trace does not tell it")
CYCLE = count("cycle", "turn of the profiler's schedule in which the trace was written, from 0")
DEVICE = count("device", "number of the GPU")
SPREAD = (
    number("stddev_ns", "of a sample; 0 of a single one", "ns"),
    ns("min", "the shortest"),
    number("p25_ns", "a quarter is at most as long", "ns"),
    number("p50_ns", "half are at most as long", "ns"),
    number("p75_ns", "three quarters are at most as long", "ns"),
    ns("max", "the longest"),
)
"""How far durations are apart."""


def made(columns: Columns, values: Mapping[str, Any] | pa.Table) -> pa.Table:
    """A table of these columns, in their order.

    Args:
        columns: what it is to have.
        values: of each column, an array or a list; or a table that has them all.
    """
    return pa.table({one.name: _typed(values[one.name], _TYPES[one.type]) for one in columns}, schema_of(columns))


def rows_made(columns: Columns, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """A table of these columns from its rows."""
    return made(
        columns,
        dict(zip((one.name for one in columns), zip(*rows, strict=True) if rows else [[]] * len(columns), strict=True)),
    )


def with_cycle(columns: Columns) -> Columns:
    """The columns, and that of the cycle beside the rank's."""
    at = next((place + 1 for place, column in enumerate(columns) if column.name == RANK.name), 0)
    return (*columns[:at], CYCLE, *columns[at:])


def codes(words: pa.ChunkedArray, known: Sequence[str]) -> Any:
    """The number of each word in a list of them, as an array of numpy; -1 for others and null."""
    coded = words.cast(pa.dictionary(pa.int32(), pa.string())).unify_dictionaries().combine_chunks()
    places = np.array([known.index(word) if word in known else -1 for word in coded.dictionary.to_pylist()] + [-1])
    return places[coded.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)]


def schema_of(columns: Columns) -> pa.Schema:
    """The Arrow schema of columns; each field's metadata tell its unit and what it says."""
    return pa.schema(
        [
            pa.field(one.name, _TYPES[one.type], metadata={"unit": one.unit or "", "description": one.description})
            for one in columns
        ]
    )


def _typed(values: Any, type_: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        return values.cast(type_)
    return values.cast(type_) if isinstance(values, pa.Array) else pa.array(values, type_)


def as_json(columns: Columns, table: pa.Table) -> bytes:
    """``{"columns", "rows"}``, the shape of each table of the API."""
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return orjson.dumps({"columns": [asdict(one) for one in columns], "rows": rows, "truncated": False})


def as_csv(table: pa.Table) -> bytes:
    """A line of names and a line for each row; text in quotation marks, and nothing where there is no value."""
    sink = io.BytesIO()
    csv.write_csv(table, sink)
    return sink.getvalue()


def as_arrow(table: pa.Table) -> bytes:
    """An Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()

"""Encoders of query results: JSON, NDJSON, CSV and Arrow IPC, each streamed from a `Result`.

JSON and Arrow state each column's type before the rows, so they start once the result is complete. NDJSON and CSV start
with the first row.

SQL has types per cell, so a column can mix types. In JSON and Arrow, a column of integers and doubles is ``double`` if
that changes no value. Any other mixture is ``string``. The description of the column states the conversion. NDJSON and
CSV keep the type of each cell.

Blobs are base64 in the text formats and in mixtures. Infinity is a string in the text formats, because JSON has no
number for it.
"""

import asyncio
import base64
import io
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from service.engine.result import BLOB, DOUBLE, INTEGER, NULL, STRING, TYPE_NAMES, Batch, Cell, Result
from service.trace.errors import TracedockError

_ARROW_TYPES = {INTEGER: pa.int64(), DOUBLE: pa.float64(), STRING: pa.string(), BLOB: pa.binary(), NULL: pa.null()}

_IN_WORDS = {INTEGER: "integers", DOUBLE: "floating-point numbers", STRING: "text", BLOB: "blobs"}
_AS_DOUBLES = "Mixes integers and floating-point numbers: all are doubles, each exact."
_AS_TEXT = "Mixes {}: all are text{}."

_CSV_QUOTED = re.compile(r'[",\r\n]')

Encoder = Callable[[Result], AsyncGenerator[bytes]]


def distinct(names: list[str]) -> list[str]:
    """Return the names, with a number appended to each repeated name: the keys of a JSON object must differ."""
    used: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        used.add(candidate)
        result.append(candidate)
    return result


def _for_text(cell: Cell) -> Any:
    """Convert a cell to a value that JSON and CSV can represent."""
    if type(cell) is bytes:
        return base64.b64encode(cell).decode()
    if type(cell) is float and math.isinf(cell):
        return "Infinity" if cell > 0 else "-Infinity"
    return cell


def _text_rows(batch: Batch) -> list[tuple[Any, ...]]:
    columns = [
        column if kinds <= {NULL, INTEGER, STRING} else [_for_text(cell) for cell in column]
        for column, kinds in zip(batch.columns(), batch.kinds(), strict=True)
    ]
    return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class Column:
    """A column, and the type that all its cells have in JSON and Arrow.

    Attributes:
        name: its name in SQL.
        kind: the type; `NULL` if the column has no values.
        description: the conversion, if the cells mix types; otherwise None.
    """

    name: str
    kind: int
    description: str | None = None

    def converted(self, cells: list[Cell]) -> list[Any]:
        """Return the cells, converted to the type if the column mixes types."""
        if self.description is None:
            return cells
        convert = float if self.kind == DOUBLE else _text_of
        return [None if cell is None else convert(cell) for cell in cells]


async def columns_of(result: Result) -> list[Column]:
    """Return the columns of a complete result.

    Only columns that mix integers and doubles are scanned, to check that doubles represent all integers exactly.
    """
    mixtures = result.column_types()
    numeric = {index for index, kinds in enumerate(mixtures) if kinds == {INTEGER, DOUBLE}}
    if numeric:
        async for batch in result.follow():
            numeric -= {index for index in numeric if not batch.integers_fit_doubles(index)}
    return [
        _column(name, kinds, exact=index in numeric)
        for index, (name, kinds) in enumerate(zip(result.names, mixtures, strict=True))
    ]


def _column(name: str, kinds: frozenset[int], *, exact: bool) -> Column:
    if len(kinds) <= 1:
        return Column(name, next(iter(kinds), NULL))
    if exact:
        return Column(name, DOUBLE, _AS_DOUBLES)
    *others, last = (_IN_WORDS[kind] for kind in sorted(kinds))
    return Column(
        name, STRING, _AS_TEXT.format(f"{', '.join(others)} and {last}", ", blobs in base64" * (BLOB in kinds))
    )


def _text_of(cell: Cell) -> str:
    return str(_for_text(cell))


def _json_rows(batch: Batch, columns: list[Column]) -> bytes:
    cells = [
        [_for_text(cell) for cell in column.converted(values)] if {DOUBLE, BLOB} & kinds else column.converted(values)
        for column, values, kinds in zip(columns, batch.columns(), batch.kinds(), strict=True)
    ]
    return orjson.dumps(list(zip(*cells, strict=True)))[1:-1]


async def as_json(result: Result) -> AsyncGenerator[bytes]:
    """Encode as one JSON object with the keys ``columns``, ``rows``, ``truncated`` and ``elapsed_ms``."""
    columns = await columns_of(result)
    header = [
        {"name": column.name, "type": TYPE_NAMES[column.kind], "unit": None, "description": column.description}
        for column in columns
    ]
    yield b'{"columns":' + orjson.dumps(header) + b',"rows":['
    separator = b""
    async for batch in result.follow():
        rows = await asyncio.to_thread(_json_rows, batch, columns)
        yield separator + rows
        separator = b","
    tail = orjson.dumps({"truncated": result.truncated, "elapsed_ms": result.elapsed_ms})
    yield b"]," + tail[1:] + b"\n"


async def as_ndjson(result: Result) -> AsyncGenerator[bytes]:
    """Encode each row as a JSON object on its own line.

    If the query fails midway, the last line is an object with the single key ``error``.
    """
    names = distinct(result.names)

    def lines(batch: Batch) -> bytes:
        return b"".join(
            orjson.dumps(dict(zip(names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE)
            for row in _text_rows(batch)
        )

    try:
        async for batch in result.follow():
            yield await asyncio.to_thread(lines, batch)
    except TracedockError as error:
        yield orjson.dumps({"error": error.as_dict()}, option=orjson.OPT_APPEND_NEWLINE)
        raise


async def as_csv(result: Result) -> AsyncGenerator[bytes]:
    """Encode as CSV with a header line (RFC 4180). NULL is an empty field, and an empty string is ``""``."""
    yield _csv_line(result.names)

    def lines(batch: Batch) -> bytes:
        return b"".join(map(_csv_line, _text_rows(batch)))

    async for batch in result.follow():
        yield await asyncio.to_thread(lines, batch)


def _csv_line(cells: Iterable[Any]) -> bytes:
    """Return a line of CSV; Python's writer distinguishes NULL from an empty string only since 3.12."""
    return (",".join(map(_csv_cell, cells)) + "\r\n").encode()


def _csv_cell(cell: Any) -> str:
    if cell is None:
        return ""
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if not text or _CSV_QUOTED.search(text) else text


async def as_arrow(result: Result) -> AsyncGenerator[bytes]:
    """Encode as an Arrow IPC stream.

    The metadata of the schema has ``truncated`` and ``elapsed_ms``. The metadata of a field that mixes types has a
    ``description`` of the conversion.
    """
    columns = await columns_of(result)
    schema = pa.schema(
        map(_field, columns),
        metadata={"truncated": str(result.truncated).lower(), "elapsed_ms": str(result.elapsed_ms)},
    )
    sink = io.BytesIO()

    def flush() -> bytes:
        data = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return data

    def encoded(batch: Batch, writer: Any) -> bytes:
        writer.write_batch(pa.record_batch(_arrow_arrays(batch, columns), schema=schema))
        return flush()

    with pa.ipc.new_stream(sink, schema) as writer:
        yield flush()
        async for batch in result.follow():
            yield await asyncio.to_thread(encoded, batch, writer)
    yield flush()


def _field(column: Column) -> Any:
    described = {"description": column.description} if column.description else None
    return pa.field(column.name, _ARROW_TYPES[column.kind], metadata=described)


def _arrow_arrays(batch: Batch, columns: list[Column]) -> list[Any]:
    """Return the columns of a batch. Only a result with columns of mixed types needs a Python object for each cell."""
    kinds = [present - {NULL} for present in batch.kinds()]
    values = {kind: _arrow_values(batch, kind) for kind in set[int]().union(*kinds)}
    places = {kind: batch.places(kind, len(of_kind)) for kind, of_kind in values.items()}
    cells = batch.columns() if any(column.description for column in columns) else []
    arrays = []
    for index, (column, present) in enumerate(zip(columns, kinds, strict=True)):
        if column.description:
            arrays.append(pa.array(column.converted(cells[index]), _ARROW_TYPES[column.kind]))
        elif present:
            arrays.append(_values_at(values[column.kind], places[column.kind][:, index]))
        else:
            arrays.append(pa.nulls(batch.rows, _ARROW_TYPES[column.kind]))
    return arrays


def _arrow_values(batch: Batch, kind: int) -> Any:
    """Return all values of a type in a batch, in the order of their cells."""
    if kind == BLOB:
        return pa.array(batch.blobs(), pa.binary())
    if kind != STRING:
        return pa.array(batch.numbers(kind))
    text = np.frombuffer(batch.text(), np.uint8)
    ends = np.flatnonzero(text == 0)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text[text != 0]))


def _values_at(values: Any, places: Any) -> Any:
    """Return the values at the indices `places`, which ascend; an index below 0 gives null."""
    absent = places < 0
    if len(places) == len(values) and not absent.any():  # all values, in order
        return values
    return values.take(pa.array(places, mask=absent))


JSON, NDJSON, CSV, ARROW = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
)
ENCODERS: dict[str, Encoder] = {JSON: as_json, NDJSON: as_ndjson, CSV: as_csv, ARROW: as_arrow}
TYPES_FIRST = frozenset({JSON, ARROW})
"""Formats that state the types of columns before the rows, and therefore need a complete result."""


def accepted(accept: str) -> str:
    """Return the media type with the highest quality in an ``Accept`` field; JSON if no format in it is supported."""
    best, best_quality = JSON, 0.0
    for part in accept.split(","):
        name, *options = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for option in options:
            if option.startswith("q="):
                try:
                    quality = float(option[2:])
                except ValueError:
                    quality = 0.0
        if name in ENCODERS and quality > best_quality:
            best, best_quality = name, quality
    return best

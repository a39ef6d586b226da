"""A table in each form that a client may accept: JSON, NDJSON, CSV and Arrow IPC, each streamed from a `Result`.

JSON and Arrow tell each column's type first, so they start once the last row is known; NDJSON and CSV start with
the first. SQL types are per cell: a column that mixes them is ``mixed``, in Arrow a dense union, so that each value
is exact in every form. Blobs are base64 in the text forms; infinity, which JSON has no number for, is a string.
"""

import asyncio
import base64
import io
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from service.engine.result import BLOB, DOUBLE, INTEGER, NULL, STRING, Batch, Cell, Result
from service.trace.errors import TracedockError

_ARROW_TYPES = {INTEGER: pa.int64(), DOUBLE: pa.float64(), STRING: pa.string(), BLOB: pa.binary()}

_CSV_QUOTED = re.compile(r'[",\r\n]')

Encoder = Callable[[Result], AsyncGenerator[bytes]]


def distinct(names: list[str]) -> list[str]:
    """The names, with a number behind those that occur again: an object can't have a key twice."""
    seen: set[str] = set()
    found = []
    for name in names:
        candidate, number = name, 1
        while candidate in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        found.append(candidate)
    return found


def _for_text(cell: Cell) -> Any:
    """A cell as JSON and CSV can hold it."""
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


def _json_rows(batch: Batch) -> bytes:
    return orjson.dumps(_text_rows(batch))[1:-1]


async def as_json(result: Result) -> AsyncGenerator[bytes]:
    """``{"columns", "rows", "truncated", "elapsed_ms"}``."""
    columns = [
        {"name": name, "type": kind, "unit": None, "description": None}
        for name, kind in zip(result.names, result.types(), strict=True)
    ]
    yield b'{"columns":' + orjson.dumps(columns) + b',"rows":['
    separator = b""
    async for batch in result.follow():
        rows = await asyncio.to_thread(_json_rows, batch)
        yield separator + rows
        separator = b","
    tail = orjson.dumps({"truncated": result.truncated, "elapsed_ms": result.elapsed_ms})
    yield b"]," + tail[1:] + b"\n"


async def as_ndjson(result: Result) -> AsyncGenerator[bytes]:
    """One object a line; a query that fails on the way ends with one of the single key ``error``."""
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
    """A line of names and a line for each row (RFC 4180); NULL is empty, an empty string is ``""``."""
    yield _csv_line(result.names)

    def lines(batch: Batch) -> bytes:
        return b"".join(map(_csv_line, _text_rows(batch)))

    async for batch in result.follow():
        yield await asyncio.to_thread(lines, batch)


def _csv_line(cells: Iterable[Any]) -> bytes:
    """A line of CSV. Python's own writer tells NULL from an empty string only since 3.12, and not in one column."""
    return (",".join(map(_csv_cell, cells)) + "\r\n").encode()


def _csv_cell(cell: Any) -> str:
    if cell is None:
        return ""
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if not text or _CSV_QUOTED.search(text) else text


async def as_arrow(result: Result) -> AsyncGenerator[bytes]:
    """An Arrow IPC stream; the metadata of its schema tell ``truncated`` and ``elapsed_ms``."""
    types = [_arrow_type(kinds) for kinds in result.mixtures()]
    schema = pa.schema(
        [pa.field(name, kind) for name, kind in zip(result.names, types, strict=True)],
        metadata={"truncated": str(result.truncated).lower(), "elapsed_ms": str(result.elapsed_ms)},
    )
    sink = io.BytesIO()

    def taken() -> bytes:
        data = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return data

    def packed(batch: Batch, writer: Any) -> bytes:
        writer.write_batch(pa.record_batch(_arrow_arrays(batch, types), schema=schema))
        return taken()

    with pa.ipc.new_stream(sink, schema) as writer:
        yield taken()
        async for batch in result.follow():
            yield await asyncio.to_thread(packed, batch, writer)
    yield taken()


def _arrow_type(kinds: frozenset[int]) -> Any:
    if not kinds:
        return pa.null()
    if len(kinds) == 1:
        return _ARROW_TYPES[next(iter(kinds))]
    return pa.dense_union([pa.field(str(_ARROW_TYPES[kind]), _ARROW_TYPES[kind]) for kind in sorted(kinds)])


def _arrow_arrays(batch: Batch, types: list[Any]) -> list[Any]:
    """The columns of a batch, made without a Python object for each cell."""
    kinds = [present - {NULL} for present in batch.kinds()]
    values = {kind: _arrow_values(batch, kind) for kind in set[int]().union(*kinds)}
    places = {kind: batch.places(kind, len(of_kind)) for kind, of_kind in values.items()}
    arrays = []
    for column, (type_, present) in enumerate(zip(types, kinds, strict=True)):
        parts = {_ARROW_TYPES[kind]: _taken(values[kind], places[kind][:, column]) for kind in present}
        arrays.append(_union(parts, type_, batch.rows) if pa.types.is_union(type_) else parts.get(type_))
    return [pa.nulls(batch.rows, type_) if of is None else of for of, type_ in zip(arrays, types, strict=True)]


def _arrow_values(batch: Batch, kind: int) -> Any:
    """All values of a type in a batch, in the order of their cells."""
    if kind == BLOB:
        return pa.array(batch.blobs(), pa.binary())
    if kind != STRING:
        return pa.array(batch.numbers(kind))
    text = np.frombuffer(batch.text(), np.uint8)
    ends = np.flatnonzero(text == 0)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text[text != 0]))


def _taken(values: Any, places: Any) -> Any:
    """The value at each of these places, which ascend, and null at those below 0."""
    absent = places < 0
    if len(places) == len(values) and not absent.any():  # each value, in order
        return values
    return values.take(pa.array(places, mask=absent))


def _union(parts: dict[Any, Any], type_: Any, rows: int) -> Any:
    """A column of several types: to each part belong the rows where it is not null, to the first the other ones too."""
    members = [type_.field(index) for index in range(type_.num_fields)]
    columns = [parts.get(member.type, pa.nulls(rows, member.type)) for member in members]
    codes, offsets = np.zeros(rows, np.int8), np.zeros(rows, np.int32)
    for code, column in enumerate(columns):
        codes[column.is_valid().to_numpy(zero_copy_only=False)] = code
    for code in range(len(columns)):
        offsets[codes == code] = np.arange(np.count_nonzero(codes == code))
    kept = [column.filter(pa.array(codes == code)) for code, column in enumerate(columns)]
    return pa.UnionArray.from_dense(pa.array(codes), pa.array(offsets), kept, [member.name for member in members])


JSON, NDJSON, CSV, ARROW = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
)
ENCODERS: dict[str, Encoder] = {JSON: as_json, NDJSON: as_ndjson, CSV: as_csv, ARROW: as_arrow}
TYPES_FIRST = frozenset({JSON, ARROW})


def accepted(accept: str) -> str:
    """The form that an ``Accept`` field asks for by its highest quality; JSON for anything else."""
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

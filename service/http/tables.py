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

from service.engine.result import BLOB, DOUBLE, INTEGER, STRING, Batch, Cell, Result
from service.trace.errors import TracedockError

_ARROW_TYPES = {INTEGER: pa.int64(), DOUBLE: pa.float64(), STRING: pa.string(), BLOB: pa.binary()}
_KIND_OF = {int: INTEGER, float: DOUBLE, str: STRING, bytes: BLOB}

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
        column if kinds <= {1, INTEGER, STRING} else [_for_text(cell) for cell in column]
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
        arrays = [_arrow_array(cells, kind) for cells, kind in zip(batch.columns(), types, strict=True)]
        writer.write_batch(pa.record_batch(arrays, schema=schema))
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


def _arrow_array(cells: list[Cell], kind: Any) -> Any:
    if not pa.types.is_union(kind):
        return pa.array(cells, kind)
    members = [kind.field(index).type for index in range(kind.num_fields)]
    codes = [members.index(_ARROW_TYPES[_KIND_OF[type(cell)]]) if cell is not None else 0 for cell in cells]
    parts = [[cell for cell, code in zip(cells, codes, strict=True) if code == index] for index in range(len(members))]
    counts = [0] * len(members)
    offsets = []
    for code in codes:
        offsets.append(counts[code])
        counts[code] += 1
    return pa.UnionArray.from_dense(
        pa.array(np.array(codes, np.int8)), pa.array(np.array(offsets, np.int32)),
        [pa.array(part, member) for part, member in zip(parts, members, strict=True)],
        [kind.field(index).name for index in range(kind.num_fields)],
    )  # fmt: skip


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

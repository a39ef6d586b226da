"""Columns of a memory snapshot's events, and the choice of those that are shown."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.formats.memory_snapshot.layout import Ints
from service.streaming.schema import SCHEMA


def lanes_of(starts: Sequence[int], ends: Sequence[int]) -> Ints:
    """Return a lane for each slice, by start, so that the slices of a lane do not overlap."""
    lanes, free, busy = [], list[int](), list[tuple[int, int]]()
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (max(end, start + 1), lane))
        lanes.append(lane)
    return np.array(lanes, np.int64)


def thinned(values: Ints, points: int) -> Ints:
    """Return the rows of all values or, if there are more than `points`, of the extremes of equal intervals."""
    if len(values) <= points:
        return np.arange(len(values))
    borders = np.linspace(0, len(values), points // 2, endpoint=False).astype(np.int64)
    rows = [len(values) - 1]
    for first, end in zip(borders.tolist(), [*borders[1:].tolist(), len(values)], strict=True):
        part = values[first:end]
        rows += (first + int(part.argmin()), first + int(part.argmax()))
    return np.unique(rows)


def word(text: str, count: int) -> pa.DictionaryArray:
    """Return a column with the same text in each row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def batch(columns: Mapping[str, Any], count: int) -> pa.RecordBatch:
    """Return a batch of `SCHEMA`; columns that are not given are empty, and times are whole µs."""
    given = {"position": np.arange(count), "verbatim": np.zeros(count, bool), **columns}
    for time, digits in (("ts_ns", "ts_digits"), ("dur_ns", "dur_digits")):
        if time in columns:
            missing: npt.NDArray[np.bool_] | None = None
            if isinstance(columns[time], pa.Array):
                missing = columns[time].is_null().to_numpy(zero_copy_only=False)
            given[digits] = pa.array(np.zeros(count, np.int8), mask=missing)
    arrays = []
    for column in SCHEMA:
        values = given.get(column.name)
        if values is None:
            arrays.append(pa.nulls(count, column.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

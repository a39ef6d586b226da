"""Batches of events in the schema of a trace, from columns of numbers and words."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.schema import SCHEMA
from service.streaming.words import word_column

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
WORD = pa.dictionary(pa.int32(), pa.string())
NANOSECONDS, MICROSECONDS = 3, 0
"""Decimals of times in µs, as an export writes them."""


def events(
    count: int,
    *,
    ph: str = "X",
    cat: str | pa.Array | None = None,
    name: str | pa.Array,
    ts: Ints | None = None,
    dur: Ints | pa.Array | None = None,
    digits: int = NANOSECONDS,
    **columns: Any,
) -> pa.RecordBatch:
    """Return a batch of events.

    Args:
        count: number of events.
        ph: their phase.
        cat: their category, or the category of each.
        name: their name, or the name of each.
        ts: start of each in ns.
        dur: duration of each in ns; null where there is none.
        digits: decimals of these times in µs.
        columns: other columns of the schema, as arrays; a single text stands for all events.
    """
    filled = columns | {
        "position": np.arange(count),
        "ph": ph,
        "cat": cat,
        "name": name,
        "verbatim": np.zeros(count, bool),
    }
    for key, times in (("ts", ts), ("dur", dur)):
        if times is not None:
            missing = times.is_null().to_numpy(zero_copy_only=False) if isinstance(times, pa.Array) else None
            filled |= {f"{key}_ns": times, f"{key}_digits": pa.array(np.full(count, digits, np.int8), mask=missing)}
    arrays = [_array(filled.get(field.name), field.type, count) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def words(codes: Ints, texts: list[str], valid: Flags | None = None) -> pa.Array:
    """Return the word of each event, given its index in `texts`, or null where it is not valid."""
    return word_column(codes, np.ones(len(codes), np.bool_) if valid is None else valid, texts)


def nullable(values: Ints, valid: Flags) -> pa.Array:
    """Return integers with null where they are not valid."""
    return pa.array(values, mask=~valid)


def _array(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str):
        if kind == WORD:
            return words(np.zeros(count, np.int32), [value])
        return pa.repeat(pa.scalar(value, kind), count)
    return value if isinstance(value, pa.Array) else pa.array(value, kind)

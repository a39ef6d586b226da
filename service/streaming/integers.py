"""Columns as arrays, and distinct values."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integer = TypeVar("Integer", bound=np.integer[Any])


def ints(column: pa.ChunkedArray, missing: int = 0) -> npt.NDArray[np.int64]:
    """Return the values of a column, with `missing` for null; most columns have no null, and are not copied."""
    numbers: npt.NDArray[np.int64] = (column.fill_null(missing) if column.null_count else column).to_numpy()
    return numbers


def valid_rows(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return flags of the rows in which a column is not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    if column.null_count == len(column):
        return np.zeros(len(column), np.bool_)
    flags = [*map(_valid, column.chunks)]
    return flags[0] if len(flags) == 1 else np.concatenate(flags)


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    # read its memory directly: pyarrow's conversion takes ten times as long
    bits = np.unpackbits(np.frombuffer(values.buffers()[0], np.uint8), bitorder="little")
    return bits[values.offset : values.offset + len(values)].view(np.bool_)


def distinct(values: npt.NDArray[Integer]) -> npt.NDArray[Integer]:
    """Return the distinct values, in order.

    For a million different numbers, `numpy.unique` takes 40 times as long: it hashes them (numpy 2.3 and 2.4).
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered

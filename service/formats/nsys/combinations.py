"""Distinct combinations of the values of several columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from service.formats.nsys.identifiers import Ints

_MIXERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))
_SHIFT = np.uint64(29)


def combinations(columns: Sequence[Ints], count: int) -> tuple[Ints, Ints]:
    """Return the first row of each combination of values, and the index of the combination of each row.

    Args:
        columns: columns of 64-bit integers.
        count: number of rows.
    """
    columns = [column for column in columns if count and (column != column[0]).any()]  # most have one value
    if not columns:
        return np.zeros(min(count, 1), np.int64), np.zeros(count, np.int64)
    mixed = np.zeros(count, np.uint64)
    for column in columns:
        mixed = (mixed ^ np.ascontiguousarray(column).view(np.uint64)) * _MIXERS[0]
        mixed ^= mixed >> _SHIFT
        mixed *= _MIXERS[1]
    places = pa.array(mixed).dictionary_encode().indices.to_numpy().astype(np.int64)
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(places), prepend=-1))  # numbers are given in order of rows
    if all(np.array_equal(column, column[firsts][places]) for column in columns):
        return firsts, places
    _, firsts, places = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return firsts, places.reshape(-1)

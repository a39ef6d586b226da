"""Arithmetic of intervals in whole nanoseconds, and of columns by group."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.integers import distinct

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def covered(starts: Ints, ends: Ints) -> int:
    """Return the time that at least one of the intervals covers, in the unit of their bounds."""
    return int(durations_of(*merge_intervals(starts, ends)).sum())


def durations_of(starts: Ints, ends: Ints) -> npt.NDArray[np.uint64]:
    """Return the duration of each interval; unsigned, so that any two times and disjoint sums fit."""
    return ends.view(np.uint64) - starts.view(np.uint64)


def clamp_int64(value: int) -> int:
    """Clamp a number to the range of 64-bit integers, which columns hold."""
    return max(-(1 << 63), min(value, (1 << 63) - 1))


def merge_intervals(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Merge intervals that overlap or touch; return the starts and ends of the merged ones, in order."""
    from service.analysis.facts.unions import union  # noqa: PLC0415 - loads numba, which the server does without

    return union(starts, ends)


def merge_both(first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Merge two lists of intervals, each of which is already merged."""
    from service.analysis.facts.unions import union_of_both  # noqa: PLC0415 - likewise

    return union_of_both(first, second)


def overlap_length(first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> int:
    """Return the time that intervals of both lists cover."""
    first, second = merge_intervals(*first), merge_intervals(*second)
    lengths = [int(durations_of(*merged).sum()) for merged in (first, second, merge_both(first, second))]
    return lengths[0] + lengths[1] - lengths[2]


def group_rows(*columns: pa.ChunkedArray) -> Iterator[tuple[tuple[int | None, ...], Any]]:
    """Yield each combination of values with an index of its rows, sorted by value: null before numbers."""
    if not len(columns[0]):
        return
    codes, encoded_columns = np.zeros(len(columns[0]), np.int64), []
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
        ranks = np.empty(len(values), np.int64)
        ranks[sorted(range(len(values)), key=lambda index: (values[index] is not None, values[index] or 0))] = (
            np.arange(len(values))
        )
        if len(values) > 1:
            codes = np.unique(codes * len(values) + ranks[encoded.indices.to_numpy()], return_inverse=True)[1]
        encoded_columns.append(encoded)
    order: Any = slice(None) if not codes.any() else np.argsort(codes, kind="stable")
    edges = [0, *np.cumsum(np.bincount(codes)).tolist()]
    for start, end in pairwise(edges):
        rows = order if isinstance(order, slice) else order[start:end]
        first = 0 if isinstance(order, slice) else int(order[start])
        yield tuple(encoded[first].as_py() for encoded in encoded_columns), rows


def outline_indices(values: npt.NDArray[Any], points: int) -> Ints:
    """Split values into equal runs, one for three points; return the indices of each run's extremes and last value.

    Drawn as steps, the values at these indices hold between the runs what all values hold there. With no more values
    than points, return the index of each value.
    """
    if len(values) <= points:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), points // 3 + 1).astype(np.int64)
    extremes = (_first_indices(values, edges, extreme) for extreme in (np.maximum, np.minimum))
    return distinct(np.concatenate([*extremes, edges[1:] - 1]))


def _first_indices(values: npt.NDArray[Any], edges: Ints, extreme: np.ufunc) -> Ints:
    """Return the index of the first value in each run that equals its largest or smallest value."""
    of_runs = extreme.reduceat(values, edges[:-1])
    candidates = np.flatnonzero(values == np.repeat(of_runs, np.diff(edges)))
    return candidates[np.searchsorted(candidates, edges[:-1])]


def quartiles(values: npt.NDArray[Any]) -> list[float]:
    """Return the quartiles of values (25 %, 50 %, 75 %), linearly interpolated."""
    positions = np.array([0.25, 0.5, 0.75]) * (len(values) - 1)
    below = positions.astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    partitioned = np.partition(values, [*below, *above])
    gaps = partitioned[above] - partitioned[below]
    interpolated: list[float] = (partitioned[below] + gaps * (positions - below)).tolist()
    return interpolated


def concat_groups(
    groups: Mapping[str, Sequence[int | str | None]], points: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Concatenate the points of all groups into columns.

    Args:
        groups: value of each group, by column.
        points: array of each group's points, by column.
    """
    rows = next(iter(points.values()))
    columns: dict[str, Any] = {name: repeat_per_row(values, rows) for name, values in groups.items()}
    return columns | {name: np.concatenate(parts) if parts else [] for name, parts in points.items()}


def repeat_per_row(values: Sequence[int | str | None], rows: Sequence[Ints]) -> pa.Array:
    """Repeat each value once for each of its rows."""
    return pa.array(values).take(np.repeat(np.arange(len(values)), [len(group) for group in rows]))


def saturating_sum(values: Ints) -> int:
    """Return the exact sum of numbers, clamped to 64-bit integers."""
    return clamp_int64((int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum()))


def percentage(part: float, whole: float) -> float | None:
    """Return a part of a whole in percent; None for an empty whole."""
    return 100 * part / whole if whole else None

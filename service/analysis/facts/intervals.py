"""Lengths of time that intervals cover, in whole nanoseconds."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


def covered(starts: Ints, ends: Ints) -> int:
    """How long at least one of some intervals lasts, in the unit of their edges."""
    united_starts, united_ends = united(starts, ends)
    return int(lasting(united_starts, united_ends).sum())


def lasting(starts: Ints, ends: Ints) -> npt.NDArray[np.uint64]:
    """From each start to its end, which is no earlier: of any two times, and with their sum where none overlap."""
    return ends.view(np.uint64) - starts.view(np.uint64)


def bounded(value: int) -> int:
    """A number, or the nearest of 64 bits, which is all that columns hold."""
    return max(-(1 << 63), min(value, (1 << 63) - 1))


def united(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Starts and ends of what intervals cover, in order; those that overlap or touch are one."""
    from service.analysis.facts.unions import union  # noqa: PLC0415 - loads numba, which the server does without

    return union(starts, ends)


def united_with(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The same of what either of two covers, which are united themselves."""
    from service.analysis.facts.unions import union_of_both  # noqa: PLC0415 - likewise

    return union_of_both(one, other)


def common(first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> int:
    """How long both some intervals and some others last."""
    one, other = united(*first), united(*second)
    return sum(int(lasting(*each).sum()) for each in (one, other)) - int(lasting(*united_with(one, other)).sum())


def groups(*columns: pa.ChunkedArray) -> Iterator[tuple[tuple[int | None, ...], Any]]:
    """Each combination of values with what takes its rows out of arrays, in their order: null before numbers."""
    if not len(columns[0]):
        return
    coded, values = np.zeros(len(columns[0]), np.int64), []
    for column in columns:
        known = column.combine_chunks().dictionary_encode(null_encoding="encode")
        found = known.dictionary.to_pylist()
        ranks = np.empty(len(found), np.int64)
        ranks[sorted(range(len(found)), key=lambda at: (found[at] is not None, found[at] or 0))] = np.arange(len(found))
        if len(found) > 1:
            coded = np.unique(coded * len(found) + ranks[known.indices.to_numpy()], return_inverse=True)[1]
        values.append(known)
    order: Any = slice(None) if not coded.any() else np.argsort(coded, kind="stable")
    edges = [0, *np.cumsum(np.bincount(coded)).tolist()]
    for start, end in pairwise(edges):
        rows = order if isinstance(order, slice) else order[start:end]
        first = 0 if isinstance(order, slice) else int(order[start])
        yield tuple(known[first].as_py() for known in values), rows


def peaks(values: npt.NDArray[Any], points: int) -> Ints:
    """The places of the largest of each of so many runs of values, or of all where there are no more."""
    if len(values) <= points:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), points + 1).astype(np.int64)[:-1]
    largest = np.maximum.reduceat(values, edges)
    places = np.flatnonzero(values == np.repeat(largest, np.diff(edges, append=len(values))))
    return places[np.searchsorted(places, edges)]


def quarters(values: npt.NDArray[Any]) -> list[float]:
    """What a quarter, half and three quarters of values are at most, between two of them in proportion."""
    places = np.array([0.25, 0.5, 0.75]) * (len(values) - 1)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    ordered = np.partition(values, [*below, *above])
    rests = ordered[above] - ordered[below]
    told: list[float] = (ordered[below] + rests * (places - below)).tolist()
    return told


def series(groups_: Mapping[str, Sequence[int | str | None]], points: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Columns of the points of groups, one group after the other.

    Args:
        groups_: by column, the value of each group.
        points: by column, the values of each group's points.
    """
    rows = next(iter(points.values()))
    told: dict[str, Any] = {name: repeated(values, rows) for name, values in groups_.items()}
    return told | {name: np.concatenate(parts) if parts else [] for name, parts in points.items()}


def repeated(values: Sequence[int | str | None], rows: Sequence[Ints]) -> pa.Array:
    """Each value as often as there are rows of it."""
    return pa.array(values).take(np.repeat(np.arange(len(values)), [len(one) for one in rows]))


def total(values: Ints) -> int:
    """The exact sum of numbers, or the largest one of 64 bits where it is beyond."""
    return bounded((int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum()))


def share(part: float, whole: float) -> float | None:
    """A part of a whole as a percentage; None of nothing."""
    return 100 * part / whole if whole else None

"""What intervals cover, as intervals that do not touch: of millions of them, in one pass. Compiled."""

import numpy as np

from service.attribution.nesting import Ints
from service.streaming.scan.compiled import compiled

Edges = tuple[Ints, Ints]
"""Starts and ends of intervals."""


def union(starts: Ints, ends: Ints) -> Edges:
    """What some intervals cover, in order."""
    firsts, lasts = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    count = _union(starts, ends, firsts, lasts)
    if count < 0:
        order = np.argsort(starts, kind="stable")
        count = _union(starts[order], ends[order], firsts, lasts)
    return _kept(firsts, lasts, count)


def union_of_both(one: Edges, other: Edges) -> Edges:
    """What either of two unions covers, in order."""
    many = len(one[0]) + len(other[0])
    firsts, lasts = np.empty(many, np.int64), np.empty(many, np.int64)
    return _kept(firsts, lasts, _union_of_both(*one, *other, firsts, lasts))


def _kept(firsts: Ints, lasts: Ints, count: int) -> Edges:
    """The first so many; as copies where that is few, for a part of an array keeps all of it."""
    few = 2 * count < len(firsts)
    firsts, lasts = firsts[:count], lasts[:count]
    return (firsts.copy(), lasts.copy()) if few else (firsts, lasts)


@compiled
def _union(starts: Ints, ends: Ints, firsts: Ints, lasts: Ints) -> int:
    """Write what is covered: how many intervals that are, or -1 where the starts are not in order."""
    count = 0
    for index in range(len(starts)):
        if index > 0 and starts[index] < starts[index - 1]:
            return -1
        if count > 0 and starts[index] <= lasts[count - 1]:
            lasts[count - 1] = max(lasts[count - 1], ends[index])
        else:
            firsts[count], lasts[count] = starts[index], ends[index]
            count += 1
    return count


@compiled
def _union_of_both(starts: Ints, ends: Ints, other_starts: Ints, other_ends: Ints, firsts: Ints, lasts: Ints) -> int:
    count, at, other = 0, 0, 0
    while at < len(starts) or other < len(other_starts):
        if other == len(other_starts) or (at < len(starts) and starts[at] <= other_starts[other]):
            start, end = starts[at], ends[at]
            at += 1
        else:
            start, end = other_starts[other], other_ends[other]
            other += 1
        if count > 0 and start <= lasts[count - 1]:
            lasts[count - 1] = max(lasts[count - 1], end)
        else:
            firsts[count], lasts[count] = start, end
            count += 1
    return count

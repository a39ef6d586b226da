"""Compiled unions of millions of intervals, in one pass; the intervals of a union do not touch."""

import numpy as np
import numpy.typing as npt

from service.attribution.nesting import Ints
from service.streaming.scan.compiled import compiled

Edges = tuple[Ints, Ints]
"""Starts and ends of intervals."""


def union(starts: Ints, ends: Ints) -> Edges:
    """Return the union of intervals, in order."""
    firsts, lasts = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    count = _union(starts, ends, firsts, lasts)
    if count < 0:
        order = np.argsort(starts, kind="stable")
        count = _union(starts[order], ends[order], firsts, lasts)
    return _trimmed(firsts, lasts, count)


def unions_of_groups(starts: Ints, ends: Ints, groups: npt.NDArray[np.int8], count: int) -> list[Edges]:
    """Return the union of the intervals of each group, in order.

    Args:
        starts: start of each interval.
        ends: end of each interval.
        groups: number of each interval's group; negative for none.
        count: number of groups.
    """
    firsts, lasts, begins, stops = _unions(starts, ends, groups, count)
    places = map(slice, begins.tolist(), stops.tolist())
    return [(firsts[place], lasts[place]) for place in places]


def lengths_of_sets(starts: Ints, ends: Ints, groups: npt.NDArray[np.int8], count: int) -> npt.NDArray[np.uint64]:
    """Return the time in which the intervals of exactly some groups last, by set of groups.

    The bits of a set's number are its groups. The times are unsigned, so that any two times fit.

    Args:
        starts: start of each interval.
        ends: end of each interval.
        groups: number of each interval's group; negative for none.
        count: number of groups.
    """
    firsts, lasts, begins, stops = _unions(starts, ends, groups, count)
    lengths = np.zeros(1 << count, np.int64)
    _add_lengths_of_sets(firsts, lasts, begins, stops, lengths)
    return lengths.view(np.uint64)


def _unions(starts: Ints, ends: Ints, groups: npt.NDArray[np.int8], count: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the intervals of all unions, and where those of each group begin and stop."""
    sizes = np.zeros(count, np.int64)
    if not _count_of_groups(starts, ends, groups, sizes, np.empty(count, np.int64)):
        order = np.argsort(starts, kind="stable")
        return _unions(starts[order], ends[order], groups[order], count)
    stops = np.cumsum(sizes)
    begins = stops - sizes
    firsts, lasts = (np.empty(int(sizes.sum()), np.int64) for _ in range(2))
    _write_groups(starts, ends, groups, begins, begins.copy(), firsts, lasts)
    return firsts, lasts, begins, stops


def union_of_both(first: Edges, second: Edges) -> Edges:
    """Return the union of two unions, in order."""
    capacity = len(first[0]) + len(second[0])
    firsts, lasts = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    return _trimmed(firsts, lasts, _union_of_both(*first, *second, firsts, lasts))


def lengths_of_groups(groups: Ints, starts: Ints, ends: Ints, count: int) -> npt.NDArray[np.uint64]:
    """Return the time that the intervals of each group cover; unsigned, so that any two times fit.

    Args:
        groups: number of each interval's group.
        starts: start of each interval.
        ends: end of each interval.
        count: number of groups.
    """
    order = np.lexsort((starts, groups))
    lengths = np.zeros(count, np.int64)
    _add_lengths(groups[order], starts[order], ends[order], lengths)
    return lengths.view(np.uint64)


def _trimmed(firsts: Ints, lasts: Ints, count: int) -> Edges:
    """Trim arrays to a count; copy if less than half is left, because a view keeps the whole array alive."""
    copy = 2 * count < len(firsts)
    firsts, lasts = firsts[:count], lasts[:count]
    return (firsts.copy(), lasts.copy()) if copy else (firsts, lasts)


@compiled
def _union(starts: Ints, ends: Ints, firsts: Ints, lasts: Ints) -> int:
    """Write the union and return its number of intervals, or -1 if the starts are not in order."""
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
def _count_of_groups(starts: Ints, ends: Ints, groups: npt.NDArray[np.int8], sizes: Ints, lasts: Ints) -> bool:
    """Count the intervals of each group's union; return False if the starts are not in order."""
    for index in range(len(starts)):
        start, end, group = starts[index], ends[index], groups[index]
        if index > 0 and start < starts[index - 1]:
            return False
        if group < 0:
            continue
        if sizes[group] > 0 and start <= lasts[group]:
            lasts[group] = max(lasts[group], end)
        else:
            lasts[group] = end
            sizes[group] += 1
    return True


@compiled
def _write_groups(
    starts: Ints, ends: Ints, groups: npt.NDArray[np.int8], begins: Ints, at: Ints, firsts: Ints, lasts: Ints
) -> None:
    """Write each group's union from where it begins; `at` are the places of the next intervals."""
    for index in range(len(starts)):
        start, end, group = starts[index], ends[index], groups[index]
        if group < 0:
            continue
        last = at[group] - 1
        if last >= begins[group] and start <= lasts[last]:
            lasts[last] = max(lasts[last], end)
        else:
            firsts[last + 1], lasts[last + 1] = start, end
            at[group] = last + 2


@compiled
def _add_lengths_of_sets(firsts: Ints, lasts: Ints, at: Ints, stops: Ints, lengths: Ints) -> None:
    """Add the time between the edges of intervals to that of the groups that last; `at` are their next intervals."""
    lasting, time = 0, 0
    while True:
        edge, group = 0, -1
        for other in range(len(at)):
            if at[other] < stops[other]:
                next_edge = lasts[at[other]] if lasting >> other & 1 else firsts[at[other]]
                if group < 0 or next_edge < edge:
                    edge, group = next_edge, other
        if group < 0:
            return
        lengths[lasting] += edge - time
        at[group] += lasting >> group & 1
        lasting ^= 1 << group
        time = edge


@compiled
def _union_of_both(starts: Ints, ends: Ints, other_starts: Ints, other_ends: Ints, firsts: Ints, lasts: Ints) -> int:
    count, index, other = 0, 0, 0
    while index < len(starts) or other < len(other_starts):
        if other == len(other_starts) or (index < len(starts) and starts[index] <= other_starts[other]):
            start, end = starts[index], ends[index]
            index += 1
        else:
            start, end = other_starts[other], other_ends[other]
            other += 1
        if count > 0 and start <= lasts[count - 1]:
            lasts[count - 1] = max(lasts[count - 1], end)
        else:
            firsts[count], lasts[count] = start, end
            count += 1
    return count


@compiled
def _add_lengths(groups: Ints, starts: Ints, ends: Ints, lengths: Ints) -> None:
    """Add the covered time to each group's length; the intervals are sorted by group and start."""
    covered_until = 0
    for index in range(len(groups)):
        start, end = starts[index], ends[index]
        if index == 0 or groups[index] != groups[index - 1]:
            covered_until = start
        start = max(start, covered_until)
        if end > start:
            lengths[groups[index]] += end - start
            covered_until = end

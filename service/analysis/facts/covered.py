"""Compiled sums of lengths of intervals between points in time."""

from typing import Any

from service.analysis.facts.intervals import Ints
from service.streaming.scan.compiled import compiled


@compiled
def lengths_between(rows: Any, contents: Ints, intervals: Any, edges: Ints, lengths: Any) -> None:
    """Write the lengths that intervals cover between each two edges.

    Args:
        rows: first row of each track, and the end of its rows.
        contents: what each row has: the second index of `lengths`.
        intervals: place of each row's first interval; starts of all intervals, ascending in each row; lengths of the
            intervals before each in its row, and at its end of the whole row.
        edges: points in time, in ascending order.
        lengths: receives the lengths by track, content, and place between edges.
    """
    firsts, ends = rows
    offsets, starts, values = intervals
    for track in range(len(firsts)):
        for row in range(firsts[track], ends[track]):
            low, before = offsets[row], 0
            for edge in range(len(edges)):
                low = _first_after(starts, low, offsets[row + 1], edges[edge])
                covered = 0
                if low > offsets[row]:
                    length = values[low + row] - values[low + row - 1]
                    covered = values[low + row - 1] + min(edges[edge] - starts[low - 1], length)
                if edge > 0:
                    lengths[track, contents[row], edge - 1] = covered - before
                before = covered


@compiled
def _first_after(starts: Ints, low: int, high: int, time: int) -> int:
    """Return the place of the first start after a time; steps double until it is passed, as the next is often near."""
    step = 1
    while low + step < high and starts[low + step] <= time:
        low += step
        step *= 2
    high = min(high, low + step)
    while low < high:
        middle = (low + high) // 2
        if starts[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return low

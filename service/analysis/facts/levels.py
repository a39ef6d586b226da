"""Reduction of a curve, such as memory over time, to a few points."""

from typing import Any

import numpy as np

from service.analysis.facts.intervals import Ints
from service.streaming.integers import distinct


def thinned(at: Ints, level: Ints, points: int) -> Ints:
    """Return the rows to keep: all, or of more than `points` the lowest, the highest and the last of equal intervals.

    Without the last one, a peak would seem to last until the next interval with a change.

    Args:
        at: time of each value, in order.
        level: the values.
        points: approximate number of rows to keep.
    """
    if len(at) <= points:
        return np.arange(len(at))
    elapsed = (at - at[0]).astype(np.float64)
    intervals = (elapsed * max(points // 3, 1) / max(elapsed[-1], 1.0)).astype(np.int64)
    firsts = np.append(0, np.flatnonzero(intervals[1:] != intervals[:-1]) + 1)
    counts = np.diff(np.append(firsts, len(at)))

    def equal_rows(extremes: Any) -> Ints:
        return np.flatnonzero(level == np.repeat(extremes, counts))

    lowest, highest = equal_rows(np.minimum.reduceat(level, firsts)), equal_rows(np.maximum.reduceat(level, firsts))
    first_of_lowest = lowest[np.searchsorted(lowest, firsts)]
    last_of_highest = highest[np.searchsorted(highest, firsts + counts) - 1]
    return distinct(np.concatenate([first_of_lowest, last_of_highest, firsts + counts - 1]))

"""Covered lengths of many windows at once, by a union of intervals."""

from typing import Self

import numpy as np

from service.analysis.facts.intervals import Ints, merge_both, merge_intervals


class Coverage:
    """The union of intervals.

    Args:
        starts: start of each interval, in whole nanoseconds.
        ends: end of each interval.
    """

    def __init__(self, starts: Ints, ends: Ints) -> None:
        self._cover(merge_intervals(starts, ends))

    def _cover(self, edges: tuple[Ints, Ints]) -> Self:
        self.starts, self.ends = edges
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.ends - self.starts)])
        return self

    @classmethod
    def none(cls) -> "Coverage":
        """Return the empty coverage."""
        return cls(*[np.zeros(0, np.int64)] * 2)

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def with_more(self, other: Self) -> "Coverage":
        """Return the union with another coverage."""
        if not (self and other):
            return self or other
        edges = merge_both((self.starts, self.ends), (other.starts, other.ends))
        return Coverage.none()._cover(edges)  # noqa: SLF001 - of the same class

    def until(self, times: Ints) -> Ints:
        """Return the covered length before each time."""
        if not self:
            return np.zeros(len(times), np.int64)
        last = np.searchsorted(self.starts, times, side="right") - 1
        return np.where(last < 0, 0, self._before[last] + np.minimum(times, self.ends[last]) - self.starts[last])

    def between(self, starts: Ints, ends: Ints) -> Ints:
        """Return the covered length of each window."""
        return self.until(np.maximum(starts, ends)) - self.until(starts)

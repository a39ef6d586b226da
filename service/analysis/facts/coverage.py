"""Covered lengths of many windows at once, by a union of intervals."""

from functools import cached_property
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
        self.starts, self.ends = merge_intervals(starts, ends)

    @cached_property
    def _before(self) -> Ints:
        """The covered length before each interval; many unions are only joined with others, and do not need it."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.ends - self.starts)])

    @classmethod
    def none(cls) -> "Coverage":
        """Return the empty coverage."""
        return cls.of_union(*[np.zeros(0, np.int64)] * 2)

    @classmethod
    def of_union(cls, starts: Ints, ends: Ints) -> "Coverage":
        """Return the coverage of intervals that are merged already."""
        coverage = cls.__new__(cls)
        coverage.starts, coverage.ends = starts, ends
        return coverage

    def bounds(self) -> list[int]:
        """Return the first start and the last end, or an empty list if there are no intervals."""
        return [int(self.starts[0]), int(self.ends[-1])] if self else []

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def with_more(self, other: Self) -> "Coverage":
        """Return the union with another coverage."""
        if not (self and other):
            return self or other
        return Coverage.of_union(*merge_both((self.starts, self.ends), (other.starts, other.ends)))

    def until(self, times: Ints) -> Ints:
        """Return the covered length before each time."""
        if not self:
            return np.zeros(len(times), np.int64)
        last = np.searchsorted(self.starts, times, side="right") - 1
        return np.where(last < 0, 0, self._before[last] + np.minimum(times, self.ends[last]) - self.starts[last])

    def between(self, starts: Ints, ends: Ints) -> Ints:
        """Return the covered length of each window."""
        return self.until(np.maximum(starts, ends)) - self.until(starts)

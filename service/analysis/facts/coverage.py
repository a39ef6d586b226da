"""How much of any window some intervals cover, told at once for many windows."""

from typing import Self

import numpy as np

from service.analysis.facts.intervals import Ints, united


class Coverage:
    """What intervals cover.

    Args:
        starts: of the intervals, in whole nanoseconds.
        ends: likewise.
    """

    def __init__(self, starts: Ints, ends: Ints) -> None:
        self.starts, self.ends = united(starts, ends)
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.ends - self.starts)])

    @classmethod
    def none(cls) -> "Coverage":
        """What nothing covers."""
        return cls(*[np.zeros(0, np.int64)] * 2)

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def with_more(self, other: Self) -> "Coverage":
        """What these or others cover."""
        if not (self and other):
            return self or other
        return Coverage(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def until(self, times: Ints) -> Ints:
        """How much is covered before each time."""
        if not self:
            return np.zeros(len(times), np.int64)
        last = np.searchsorted(self.starts, times, side="right") - 1
        return np.where(last < 0, 0, self._before[last] + np.minimum(times, self.ends[last]) - self.starts[last])

    def between(self, starts: Ints, ends: Ints) -> Ints:
        """How much of each window is covered."""
        return self.until(np.maximum(starts, ends)) - self.until(starts)

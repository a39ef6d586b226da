"""How much of any window some intervals cover, told at once for many windows."""

from typing import Self

import numpy as np

from service.analysis.facts.intervals import Ints, united, united_with


class Coverage:
    """What intervals cover.

    Args:
        starts: of the intervals, in whole nanoseconds.
        ends: likewise.
    """

    def __init__(self, starts: Ints, ends: Ints) -> None:
        self._cover(united(starts, ends))

    def _cover(self, edges: tuple[Ints, Ints]) -> Self:
        self.starts, self.ends = edges
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.ends - self.starts)])
        return self

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
        edges = united_with((self.starts, self.ends), (other.starts, other.ends))
        return Coverage.none()._cover(edges)  # noqa: SLF001 - it is one of these

    def until(self, times: Ints) -> Ints:
        """How much is covered before each time."""
        if not self:
            return np.zeros(len(times), np.int64)
        last = np.searchsorted(self.starts, times, side="right") - 1
        return np.where(last < 0, 0, self._before[last] + np.minimum(times, self.ends[last]) - self.starts[last])

    def between(self, starts: Ints, ends: Ints) -> Ints:
        """How much of each window is covered."""
        return self.until(np.maximum(starts, ends)) - self.until(starts)

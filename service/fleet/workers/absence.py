"""Measures for how long a cluster has had no worker."""

import time
from collections.abc import Callable


class Absence:
    """The time without a worker, by checks that follow one another.

    A long time between two checks says nothing about the workers: the process worked on something else, or the
    machine was suspended. So at most `counted_s` of it count.

    Args:
        counted_s: maximum number of seconds that count between two checks.
        clock: returns seconds.
    """

    def __init__(self, counted_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._counted_s = counted_s
        self._clock = clock
        self._checked = clock()
        self._absent_s = 0.0

    @property
    def since_check_s(self) -> float:
        """Seconds since the last check."""
        return self._clock() - self._checked

    def check(self, workers: int) -> float:
        """Note the number of workers now, and return for how many seconds there has been none."""
        passed_s = self.since_check_s
        self._checked += passed_s
        self._absent_s = 0.0 if workers else self._absent_s + min(passed_s, self._counted_s)
        return self._absent_s

"""Engines that died lately, by what they were on: what kills its engine again and again is left alone for a while."""

import math
import time
from collections import defaultdict, deque

from service.trace.errors import EngineFailed, TracedockError

WITHIN_S = 600.0


class Deaths:
    """The deaths of the last ten minutes.

    Args:
        most: how often an engine may die on the same within that time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._at: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=most))
        self._last: dict[str, TracedockError] = {}

    def note(self, key: str, error: TracedockError) -> None:
        """An engine on `key` ended, or could not load it."""
        self._at[key].append(time.monotonic())
        self._last[key] = error

    def count(self, key: str) -> int:
        """How many there were."""
        since = time.monotonic() - WITHIN_S
        deaths = self._at.get(key, ())
        if deaths and deaths[-1] < since:
            self.forget(key)
        return sum(at >= since for at in deaths)

    def forget(self, key: str) -> None:
        """Give it another chance."""
        self._at.pop(key, None)
        self._last.pop(key, None)

    def check(self, key: str) -> None:
        """Raise why no further engine is started on `key`, if that is so."""
        if self.count(key) < self._most:
            return
        wait_s = math.ceil(self._at[key][0] + WITHIN_S - time.monotonic())
        last = self._last[key]
        raise EngineFailed(
            f"The engine ended {self._most} times within {WITHIN_S / 60:g} minutes on this, and is not started again"
            f" before {wait_s} s have passed or its session is closed. The last time: {last.detail}",
            last=last.as_dict(),
            deaths=self._most,
            retry_after_s=wait_s,
        )

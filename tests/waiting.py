"""Waits for conditions that nothing announces."""

import time
from collections.abc import Callable

PATIENCE_S = 180
"""Seconds that a test waits for a sound server, which has less of a busy machine."""

_INTERVAL_S = 0.005
"""Seconds between two checks: a check without a pause would take the processor from the process that is awaited."""


def until(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Return once the condition holds; fails after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(_INTERVAL_S)

"""The number of processors that reading a trace may use."""

import os

THREADS_MAX = 8

_limit = THREADS_MAX


def processor_count() -> int:
    """Return the number of processors that reading a trace may use, at most `THREADS_MAX`."""
    return min(usable_processors(), _limit)


def usable_processors() -> int:
    """Return the number of processors that the system lets this process use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_processors(count: int) -> None:
    """Let this process use at most so many processors, because others share the machine."""
    global _limit  # noqa: PLW0603 - a limit of the whole process, like those of the system
    _limit = max(1, min(count, THREADS_MAX))

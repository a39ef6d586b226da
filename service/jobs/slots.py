"""Which jobs may begin beside those that run: a few at a time, and a small one always soon."""

import math
from collections.abc import Collection

from service.store.jobs import Job

SMALL_BYTES = 32 << 20
"""Jobs on files of at most so many bytes take seconds: one of them may run beside any large ones."""


def room(running: Collection[Job], at_once: int) -> float:
    """The most bytes that a job may work on to begin now; below 0 where none may.

    Beyond `at_once` jobs, a small one may run if all others are large.
    """
    if len(running) < at_once:
        return math.inf
    return -1 if any(job.cost <= SMALL_BYTES for job in running) else SMALL_BYTES

"""Slots of a queue: a few jobs run at a time, and one more small job if all of them are large."""

import math
from collections.abc import Collection

from service.store.jobs import Job

SMALL_BYTES = 32 << 20
"""Cost in bytes up to which a job is small. A small job takes seconds; one may run in addition to large ones."""


def cost_limit(running: Collection[Job], at_once: int) -> float:
    """Return the largest cost, in bytes, of a job that may begin now; below 0 if none may.

    Beyond `at_once` jobs, a small one may run if all others are large.
    """
    if len(running) < at_once:
        return math.inf
    return -1 if any(job.cost <= SMALL_BYTES for job in running) else SMALL_BYTES

"""Returns freed memory to the system.

Processes that read traces keep freed memory for reuse, see `service.jobs.children.fork_server`. The longer they read,
the more free memory lies between what is in use.
"""

import os
from pathlib import Path

import pyarrow as pa

from service.streaming.processors import processor_count

LIMIT, OF_PROCESSOR = 480_000_000, 80_000_000
ROOM = 150_000_000
_STATM = Path("/proc/self/statm")  # see proc_pid_statm(5)


class UnusedMemory:
    """The freed memory that this process keeps for reuse."""

    def __init__(self) -> None:
        self._least = LIMIT + OF_PROCESSOR * max(processor_count() - 2, 0)
        self._limit = self._least

    def return_beyond_limit(self, soon: int = 0) -> None:
        """Return it to the system if the process holds more than `LIMIT` bytes, shared ones included.

        Each processor beyond two adds `OF_PROCESSOR` to the limit, since more events are read at a time. Returned
        memory takes time when it is used again. So the process may then grow by `ROOM` in any case.

        Args:
            soon: number of further bytes that the process needs next, if it is known.
        """
        if resident_bytes() + soon > self._limit:
            pa.default_memory_pool().release_unused()  # calls malloc_trim(3) where that pool is the system's
            self._limit = max(self._least, resident_bytes() + ROOM)


def resident_bytes() -> int:
    """Return the memory of this process in bytes, shared memory included; 0 where the system has no /proc."""
    if not _STATM.exists():
        return 0
    return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")

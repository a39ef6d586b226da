"""Returns freed memory to the system.

Processes that read traces keep freed memory for reuse, see `service.jobs.children.fork_server`. The longer they read,
the more free memory lies between what is in use.
"""

import os
from pathlib import Path

import pyarrow as pa

LIMIT = 600_000_000
ROOM = 150_000_000
_STATM = Path("/proc/self/statm")  # see proc_pid_statm(5)


class UnusedMemory:
    """The freed memory that this process keeps for reuse."""

    def __init__(self) -> None:
        self._limit = LIMIT

    def return_beyond_limit(self) -> None:
        """Return it to the system if the process holds more than `LIMIT` bytes, shared ones included.

        Returned memory takes time when it is used again. So the process may then grow by `ROOM` in any case.
        """
        if resident_bytes() > self._limit:
            pa.default_memory_pool().release_unused()  # calls malloc_trim(3) where that pool is the system's
            self._limit = max(LIMIT, resident_bytes() + ROOM)


def resident_bytes() -> int:
    """Return the memory of this process in bytes, shared memory included; 0 where the system has no /proc."""
    if not _STATM.exists():
        return 0
    return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")

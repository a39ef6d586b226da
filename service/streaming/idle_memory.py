"""Returns memory that only the start of a process needed."""

import ctypes
import mmap
import re
from pathlib import Path

import pyarrow as pa

_SMAPS = Path("/proc/self/smaps")  # see proc_pid_smaps(5)
_UNCHANGED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9].*\n(?:[A-Z].*\n)*?Anonymous: +0 kB$", re.MULTILINE
)
"""A part of a file that is mapped for reading, and that was not written to."""


def return_start_memory() -> None:
    """Return freed memory, and the pages of libraries that are as in their files.

    The start of a process touches most pages of its libraries, and few of them later. If such a page is needed again,
    the system maps it from its cache of files. A forked process maps all of them anew in any case.
    """
    pa.default_memory_pool().release_unused()  # calls malloc_trim(3) where that pool is the system's
    if not _SMAPS.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    # Two looks, because a library that another thread loads meanwhile is not yet written to in the first one.
    for start, end in _unchanged() & _unchanged():
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _unchanged() -> set[tuple[int, int]]:
    """Return the first address of each unchanged part of a file, and the one after its last.

    Of other parts, the changes would be lost: the loader of libraries writes addresses, and then protects them.
    """
    return {(int(start, 16), int(end, 16)) for start, end in _UNCHANGED.findall(_SMAPS.read_text())}

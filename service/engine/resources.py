"""Memory and processor time of processes, available only on Linux, and the memory of the machine."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SIZES = re.compile(rb"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class ResourceUsage:
    """Resource usage of a process: its memory now and at its peak in bytes, its processor time in seconds."""

    resident_bytes: int
    peak_bytes: int
    cpu_s: float


def resource_usage(pid: int) -> ResourceUsage | None:
    """Return the resource usage of a process; None if the process has ended or the system has no data."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    sizes = {name: int(kilobytes) << 10 for name, kilobytes in _SIZES.findall(status)}
    if len(sizes) != 2:  # a zombie: it has ended, and its parent has not waited for it
        return None
    ticks = stat.rpartition(b")")[2].split()[11:13]  # utime and stime; see proc(5)
    return ResourceUsage(sizes[b"VmRSS"], sizes[b"VmHWM"], sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))


def machine_memory() -> int:
    """Return the memory of the machine in bytes, or the limit of the container if that is lower."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" means no limit
            sizes.append(int(Path(limit).read_text()))
    return min(sizes)

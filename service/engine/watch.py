"""What the system tells of a process and of the machine: nothing elsewhere than on Linux, which callers bear."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FINISH_FACTOR = 20
"""Times the processor time of feeding that the work after the last byte may take: for 12 M events it took five."""

ASLEEP_FACTOR, ASLEEP_CPU_S = 2, 1.0
"""A load also stands still if its engine burns next to nothing for so many times the bound, as seconds of the clock."""

_SIZES = re.compile(rb"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Reading:
    """What a process takes: memory now and at most so far, in bytes, and processor time, in seconds."""

    resident_bytes: int
    peak_bytes: int
    cpu_s: float


def reading(pid: int) -> Reading | None:
    """What that process takes; None if it has ended, or the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    sizes = {name: int(kilobytes) << 10 for name, kilobytes in _SIZES.findall(status)}
    if len(sizes) != 2:  # it has ended and waits to be noticed
        return None
    ticks = stat.rpartition(b")")[2].split()[11:13]  # utime and stime, of proc(5)
    return Reading(sizes[b"VmRSS"], sizes[b"VmHWM"], sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))


def machine_memory() -> int:
    """Bytes of memory there are: the machine's, or the container's where that may take less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" where there is none
            sizes.append(int(Path(limit).read_text()))
    return min(sizes)


class LoadWatch:
    """Tells a load that stands still from one that is slow: by the processor time it burns without progress.

    An engine that waits for its source burns none; one that burns none though it has something to do is asleep. After
    the last byte it works on what it has, for a time that grows with what it took to get there.

    Args:
        stall_s: processor seconds without progress.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._progress: tuple[int, bool] | None = None
        self._since_s = 0.0

    def stuck(self, loaded_bytes: int, cpu_s: float, *, fed: bool, waited_s: float = 0.0) -> bool:
        """Whether it stands still.

        Args:
            loaded_bytes: what the engine has taken.
            cpu_s: the processor time it has burnt.
            fed: whether that was all.
            waited_s: seconds since it got something to do.
        """
        if self._progress != (loaded_bytes, fed):
            self._progress, self._since_s = (loaded_bytes, fed), cpu_s
        finish_s = FINISH_FACTOR * self._since_s if fed else 0.0
        burnt_s = cpu_s - self._since_s
        asleep = waited_s > ASLEEP_FACTOR * self._stall_s and burnt_s < ASLEEP_CPU_S
        return asleep or burnt_s > self._stall_s + finish_s

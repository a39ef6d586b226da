"""Child processes that tests start and observe; each may end at any time."""

from contextlib import suppress
from pathlib import Path

import psutil

from service.jobs.children.fork_server import ForkServer

FORK_SERVER = ForkServer()
"""Starts the children of the tests of this process; it ends with the process."""


def living(title: str, of: int | None = None) -> list[psutil.Process]:
    """Return the living descendants of a process (default: `FORK_SERVER`) whose command line contains `title`.

    Not of this process: the servers of other tests have such descendants, too.
    """
    if of is None:
        if FORK_SERVER._running is None:
            return []
        of = FORK_SERVER._running.process.pid
    children = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if title in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                children.append(child)
    return children


def has_reaped(process: psutil.Process) -> bool:
    """Return whether a child of the process has ended: then the kernel counts its page faults (proc(5), `cminflt`)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[8]) > 0

"""Child processes that tests start and observe; each may end at any time."""

from contextlib import suppress

import psutil

from service.jobs.children.fork_server import ForkServer

FORK_SERVER = ForkServer()
"""Starts the children of the tests of this process; it ends with the process."""


def living(title: str, of: int | None = None) -> list[psutil.Process]:
    """Return the living descendants of a process (default: this one) whose command line contains `title`."""
    children = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if title in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                children.append(child)
    return children

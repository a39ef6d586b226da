"""Child processes that tests observe; each may end at any time."""

from contextlib import suppress

import psutil


def living(module: str, of: int | None = None) -> list[psutil.Process]:
    """Return the living children of a process (default: this one) whose command line contains `module`."""
    children = []
    for child in psutil.Process(of).children():
        with suppress(psutil.NoSuchProcess):
            if module in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                children.append(child)
    return children

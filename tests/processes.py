"""Processes that tests look at, any of which may end while it is looked at."""

from contextlib import suppress

import psutil


def living(module: str, of: int | None = None) -> list[psutil.Process]:
    """The children of a process, by default of this one, that run a module of Python and live."""
    found = []
    for child in psutil.Process(of).children():
        with suppress(psutil.NoSuchProcess):
            if module in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found

"""Processes that tests look at, any of which may end while it is looked at."""

from contextlib import suppress

import psutil


def living(module: str, of: int | None = None) -> list[psutil.Process]:
    """The processes below one, by default this one, that run a module of Python and live."""
    found = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if module in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found

"""The priority of children that work in the background."""

import os
from contextlib import suppress
from pathlib import Path

NICE = 10
"""Niceness of the child, in favour of requests: its threads could otherwise take all processors of a small machine."""


def lower_priority() -> None:
    """Lower the priority of this process."""
    os.nice(NICE)
    with suppress(OSError):  # where Linux shares the processor among sessions first, niceness alone has no effect
        Path("/proc/self/autogroup").write_text(str(NICE))

"""The terminal of a command: whether there is one, its width and colours, and the options of the user about it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO


@dataclass
class Preferences:
    """Options of all commands about their output.

    Attributes:
        quiet: print only results and errors.
        wide: draw a row of a table on one line, with whole names, however narrow the terminal is.
    """

    quiet: bool = False
    wide: bool = False


preferences = Preferences()
"""The options of the running command, which `service.cli.main` sets before it."""


def on_terminal() -> bool:
    """Return whether the standard output is a terminal."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the number of columns of the terminal, or of the environment's COLUMNS."""
    return shutil.get_terminal_size().columns


def has_color(stream: TextIO) -> bool:
    """Return whether a stream shows colours: a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

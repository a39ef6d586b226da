"""Files that a command writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(output: Path) -> Iterator[BinaryIO]:
    """The file to write: it takes its name only once it is whole. A pipe or a device is written as it is."""
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
        return
    target = output.resolve()  # a link stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)

"""Files that a command writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STDOUT = Path("-")


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


def refuse_to_replace(target: Path, *, force: bool) -> None:
    """Raise `FileExistsError` if there is such a file, and nobody asked to replace it."""
    if target.is_file() and not force:
        raise FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; --force replaces it", str(target))


def check_target(target: Path, *, force: bool) -> None:
    """Raise an `OSError` if such a file can't be written, before anything that takes long is done for it."""
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
    refuse_to_replace(target, force=force)

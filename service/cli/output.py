"""Output files of commands."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

STDOUT = Path("-")

OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Output file, which appears when it is complete; `-` is the standard output.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


@contextmanager
def atomic(output: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name only when it is complete; a pipe or a device is written directly."""
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
        return
    target = output.resolve()  # a symbolic link stays; the file that it points to is replaced
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def refuse_to_replace(target: Path, *, force: bool) -> None:
    """Raise `FileExistsError` if the file exists, unless `force` is set."""
    if target.is_file() and not force:
        raise FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; --force replaces it", str(target))


def destination(output: Path | None, *, force: bool) -> Path | None:
    """Return the file of the option --output, checked as in `check_target`; None for the standard output."""
    if output is None or output == STDOUT:
        return None
    check_target(output, force=force)
    return output


def check_target(target: Path, *, force: bool) -> None:
    """Check a target before long work.

    Raises:
        OSError: it is a folder, its folder is missing, or as in `refuse_to_replace`.
    """
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
    refuse_to_replace(target, force=force)

"""External files: other programs may change them, because they or hard links to them lie outside the data folder."""

import errno
import os
import stat
from pathlib import Path

from service.trace.errors import OriginalChanged

_PASS = getattr(os, "O_PATH", os.O_RDONLY)
"""Flag that opens a folder for traversal only; on Linux, no read permission is necessary."""


def mark_of(status: os.stat_result) -> str:
    """Return a mark of a file's inode, size and modification time; it changes if the file is written or replaced."""
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def open_external(path: Path) -> int:
    """Open the file at an absolute path and return its descriptor; symbolic links are not followed.

    Raises:
        OSError: the file can't be opened; with `ELOOP` or `ENOTDIR` if a part of the path is a link or no folder, and
            with `EINVAL` if it is not a regular file.
    """
    folder = os.open("/", _PASS | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.parts[1:-1]:
            inner = os.open(name, _PASS | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would block
        file = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def open_unchanged(path: Path, mark: str) -> int:
    """Open an external file like `open_external`; raises `OriginalChanged` if it has changed or is missing."""
    try:
        file = open_external(path)
    except OSError as error:
        raise OriginalChanged(f"{path.name} can't be read any more: {error.strerror}.") from error
    try:
        check_unchanged(file, mark)
    except OriginalChanged:
        os.close(file)
        raise
    return file


def check_unchanged(file: int, mark: str) -> None:
    """Raise `OriginalChanged` if an open file no longer has the mark."""
    if mark_of(os.fstat(file)) != mark:
        raise OriginalChanged("The file was changed after it became a trace.")

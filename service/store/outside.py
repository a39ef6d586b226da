"""Files of somebody else, which lie outside the data folder or have a second name there: they may change."""

import errno
import os
import stat
from pathlib import Path

from service.trace.errors import OriginalChanged

_PASS = getattr(os, "O_PATH", os.O_RDONLY)
"""How a folder is opened only to be passed through; Linux asks for no permission to read it then."""


def mark_of(status: os.stat_result) -> str:
    """What of a file is another once somebody wrote into it, or put another in its place."""
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def opened(path: Path) -> int:
    """A file descriptor of the file at an absolute path without symbolic links, of which none is followed.

    Raises:
        OSError: there is no such file; `ELOOP` or `ENOTDIR`: a part of the path is a link or no folder; `EINVAL`: it
            is no plain file.
    """
    folder = os.open("/", _PASS | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.parts[1:-1]:
            inner = os.open(name, _PASS | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait for who writes into it
        file = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return file


def opened_unchanged(path: Path, mark: str) -> int:
    """Likewise of a file that is as it was; raises `OriginalChanged` where it is not, or is gone."""
    try:
        file = opened(path)
    except OSError as error:
        raise OriginalChanged(f"{path.name} can't be read any more: {error.strerror}.") from error
    try:
        check_unchanged(file, mark)
    except OriginalChanged:
        os.close(file)
        raise
    return file


def check_unchanged(file: int, mark: str) -> None:
    """Raise `OriginalChanged` if a file is not as it was."""
    if mark_of(os.fstat(file)) != mark:
        raise OriginalChanged("The file was changed after it became a trace.")

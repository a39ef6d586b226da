"""A folder as a location."""

import errno
import io
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, cast

from service.store.folder import new_file, sync_folder
from service.store.locations.location import Entry
from service.trace.errors import DiskFull, LocationDenied, LocationUnavailable, SourceChanged, UnknownLocation

MAKING = ".making"
"""Name of the folder of unfinished results."""
_UNFINISHED_S = 24 * 3600


class FolderLocation:
    """A folder, which other machines may share; see `Location` for the methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()
        self.url = str(self.folder)

    def entries(self, below: str = "") -> Iterator[Entry]:
        """List files; see `Location`. Links are followed, but not to folders."""
        with self._errors(below):
            start = self.folder / below
            if not self.folder.is_dir():
                raise UnknownLocation(f"There is no folder {self.url}.")
            if start.is_file():
                yield self._entry(start)
            if start.is_dir():
                yield from sorted(map(self._entry, _files_below(start)))

    def _entry(self, path: Path) -> Entry:
        status = path.stat()
        return Entry(path.relative_to(self.folder).as_posix(), status.st_size, _version(status))

    def open(self, entry: Entry) -> BufferedReader:
        """Open a file; see `Location`."""
        with self._errors(entry.name):
            return cast("BufferedReader", BufferedReader(_Unchanged(self.folder / entry.name, entry)))

    def read(self, name: str) -> bytes | None:
        """Read a file; see `Location`."""
        with self._errors(name), suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file; see `Location`."""
        with self._errors(name):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as file:
                file.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a new file; see `Location`."""
        with self._errors(name), self.making() as scratch:
            made = scratch / "content"
            made.write_bytes(content)
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.hardlink_to(made)  # unlike a rename, it replaces nothing
            except FileExistsError:
                return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file; see `Location`."""
        with self._errors(name):
            (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def making(self) -> Iterator[Path]:
        """Make a folder on the same disk; see `Location`."""
        scratch = self.folder / MAKING / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        with self._errors(MAKING):
            scratch.mkdir(parents=True)
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def sweep(self) -> None:
        """Remove old folders of `making`; see `Location`. Their process may be anywhere, so that only age tells."""
        limit = time.time() - _UNFINISHED_S
        with self._errors(MAKING):
            for scratch in [*(self.folder / MAKING).glob("*")]:
                if all(path.lstat().st_mtime < limit for path in (scratch, *scratch.rglob("*"))):
                    shutil.rmtree(scratch, ignore_errors=True)

    def publish(self, made: Path, name: str, last: str) -> bool:
        """Rename a folder; see `Location`."""
        target = self.folder / name
        with self._errors(name):
            target.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(made)
            try:
                made.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (target / last).exists():
                    raise
                return False  # another process was faster
            sync_folder(target.parent)
        return True

    def fetch(self, name: str, into: Path, files: list[str]) -> Path:  # noqa: ARG002 - nothing is copied
        """Return the folder itself; see `Location`."""
        return self.folder / name

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn errors of the system into those of locations."""
        try:
            yield
        except FileNotFoundError as error:
            raise UnknownLocation(f"There is no {name or 'such folder'} in {self.url}.") from error
        except PermissionError as error:
            raise LocationDenied(f"{self.url}/{name} can't be used: {error.strerror}.") from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"The disk of {self.url} has no room: {error.strerror}.") from error
            raise LocationUnavailable(f"{self.url}/{name} can't be used: {error.strerror or error}.") from error


class _Unchanged(io.RawIOBase):
    """A file that is read; its end raises `SourceChanged` if it is another version than the listed one."""

    def __init__(self, path: Path, entry: Entry) -> None:
        self._file = FileIO(path, "rb")
        self._listed = entry

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer) or 0
        if not size and _version(os.fstat(self._file.fileno())) != self._listed.version:
            raise SourceChanged(f"{self._listed.name} was changed while it was read.")
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}"


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except those whose names, or whose folders' names, start with a dot."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for name in names if not name.startswith(".") and (path := Path(parent, name)).is_file())


def _raise(error: OSError) -> None:
    raise error

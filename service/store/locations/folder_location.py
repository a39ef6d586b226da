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
from service.store.locations.location import Entry, ReadMeter
from service.trace.errors import DiskFull, LocationDenied, LocationUnavailable, SourceChanged, UnknownLocation

MAKING = ".making"
"""Name of the folder of unfinished results."""
_UNFINISHED_S = 24 * 3600


class FolderLocation:
    """A folder, which other machines may share; see `Location` for the methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()
        self.url = str(self.folder)
        self.meter = ReadMeter()

    def entries(self, below: str = "") -> Iterator[Entry]:
        """List files; see `Location`. Links are followed, but not to folders."""
        with self._errors(below):
            start = self.folder / below
            if not self.folder.is_dir():
                raise UnknownLocation(f"There is no folder {self.url}.")
            name = start.relative_to(self.folder).as_posix()
            if start.is_file():
                yield _entry(name, start.stat())
            if start.is_dir():
                yield from sorted(_files_below(str(start), "" if start == self.folder else f"{name}/"))

    def open(self, entry: Entry) -> BufferedReader:
        """Open a file; see `Location`."""
        with self._errors(entry.name):
            return cast("BufferedReader", BufferedReader(_Unchanged(self.folder / entry.name, entry)))

    def read(self, name: str) -> bytes | None:
        """Read a file; see `Location`."""
        with self._errors(name), suppress(FileNotFoundError):
            return self.meter.counted((self.folder / name).read_bytes())
        return None

    def read_range(self, entry: Entry, start: int, end: int) -> bytes:
        """Read a part of a file; see `Location`."""
        with self._errors(entry.name), (self.folder / entry.name).open("rb", buffering=0) as file:
            if _version(os.fstat(file.fileno())) != entry.version:
                raise SourceChanged(f"{entry.name} was changed while it was read.")
            return self.meter.counted(os.pread(file.fileno(), end - start, start))

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


def _entry(name: str, status: os.stat_result) -> Entry:
    return Entry(name, status.st_size, _version(status))


def _files_below(folder: str, prefix: str) -> Iterator[Entry]:
    """Yield the files below a folder, except those whose names, or whose folders' names, start with a dot.

    Args:
        folder: path of the folder.
        prefix: what the names of its files begin with.
    """
    with os.scandir(folder) as items:
        for item in items:
            if item.name.startswith("."):
                continue
            if item.is_dir(follow_symlinks=False):
                yield from _files_below(item.path, f"{prefix}{item.name}/")
            elif item.is_file():
                with suppress(FileNotFoundError):  # it was removed or renamed just now
                    yield _entry(f"{prefix}{item.name}", item.stat())

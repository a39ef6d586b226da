"""Files of a location of which only the ranges that are needed are read, each once.

`RangedFolder` and `RangedFile` have the methods of `pathlib.Path` that reading columns needs.
"""

import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

from service.store.folder import disk_errors
from service.store.locations.location import Entry, Location
from service.trace.errors import UnknownLocation
from service.trace.selection import Interval, difference, union

GAP = 4 << 10
"""Largest number of bytes that are read though not needed, to save a request."""
_PIECE = 4 << 20  # bytes of a request
_REQUESTS = 16  # requests at a time


class RangedFolder:
    """A folder of a location, which threads may share. Leaving the ``with`` block removes local copies of its files.

    Args:
        location: the location.
        name: name of the folder.

    Attributes:
        sizes: size in bytes of each file, by name.
        scratch: a local folder for temporary files.
    """

    def __init__(self, location: Location, name: str) -> None:
        self.location = location
        self.name = name
        self._entries = {entry.name.removeprefix(f"{name}/"): entry for entry in location.entries(name)}
        self._copies: dict[str, _PartialCopy] = {}
        self._lock = Lock()
        self._scratch = tempfile.TemporaryDirectory(prefix="tracedock-")
        self.scratch = Path(self._scratch.name)
        self.sizes = {file: entry.size for file, entry in self._entries.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for copy in self._copies.values():
            copy.close()
        self._scratch.cleanup()

    def __truediv__(self, name: str) -> "RangedFile":
        """Return a file, which may be missing."""
        return RangedFile(self, name)

    def copy_of(self, name: str) -> "_PartialCopy":
        """Return the local copy of what was read of a file; raises `UnknownLocation` if there is no such file."""
        if name not in self._entries:
            raise UnknownLocation(f"There is no {self.name}/{name} in {self.location.url}.")
        with self._lock:
            if name not in self._copies:
                self._copies[name] = _PartialCopy(self.location, self._entries[name], self.scratch / name)
            return self._copies[name]


class RangedFile:
    """A file of a `RangedFolder`."""

    def __init__(self, parent: RangedFolder, name: str) -> None:
        self.parent = parent
        self.name = name

    def __str__(self) -> str:
        return f"{self.parent.location.url}/{self.parent.name}/{self.name}"

    def exists(self) -> bool:
        """Return whether the folder had such a file when it was listed."""
        return self.name in self.parent.sizes

    def read_bytes(self) -> bytes:
        """Return the whole content."""
        with self.open("rb") as file:
            return file.readall()

    def open(self, _: Literal["rb"]) -> "RangeReader":
        """Open the file for reading at any place; all readers of a file share what was read."""
        return RangeReader(self.parent.copy_of(self.name))

    def fetch(self, ranges: Iterable[Interval]) -> None:
        """Read some ranges at once, in few requests, before they are needed."""
        self.parent.copy_of(self.name).fetch(ranges)


class RangeReader(io.RawIOBase):
    """A reader of a file with a position of its own. It raises a `LocationError` if the file can't be read."""

    def __init__(self, copy: "_PartialCopy") -> None:
        self._copy = copy
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._copy.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readall(self) -> bytes:
        """Read everything from the position on, in few requests."""
        return self.read(max(0, self._copy.size - self._position)) or b""

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes: fewer than its size only at the end of the file."""
        content = self._copy.read(self._position, len(buffer))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


class _PartialCopy:
    """The ranges of a file that were read so far, in a sparse file. Threads may share it."""

    def __init__(self, location: Location, entry: Entry, path: Path) -> None:
        self._location, self._entry = location, entry
        self.size = entry.size
        with disk_errors():
            self._file = path.open("x+b", buffering=0)
        self._present: list[Interval] = []
        self._lock = Lock()

    def read(self, start: int, size: int) -> bytes:
        """Return bytes from a start; fewer at the end of the file."""
        self.fetch([(start, start + size)])
        return os.pread(self._file.fileno(), min(size, max(0, self.size - start)), start)

    def fetch(self, ranges: Iterable[Interval]) -> None:
        """Read what is missing of some ranges."""
        wanted = union((start, min(end, self.size)) for start, end in ranges)
        with self._lock:
            missing = _joined(difference(wanted, self._present))
            pieces = [*_pieces(missing)]
            if len(pieces) > 1:
                with ThreadPoolExecutor(min(len(pieces), _REQUESTS), "ranges") as threads:
                    for _ in threads.map(self._copy, pieces):
                        pass
            elif pieces:
                self._copy(pieces[0])
            self._present = union([*self._present, *missing])

    def _copy(self, piece: Interval) -> None:
        content = self._location.read_range(self._entry, *piece)
        with disk_errors():
            os.pwrite(self._file.fileno(), content, piece[0])

    def close(self) -> None:
        """Close the copy."""
        self._file.close()


def _joined(ranges: list[Interval]) -> list[Interval]:
    """Join neighbouring ranges with a gap of at most `GAP`."""
    return [(start, end - GAP) for start, end in union((start, end + GAP) for start, end in ranges)]


def _pieces(ranges: Iterable[Interval]) -> Iterator[Interval]:
    """Cut ranges into pieces of at most `_PIECE`."""
    for start, end in ranges:
        yield from ((first, min(first + _PIECE, end)) for first in range(start, end, _PIECE))

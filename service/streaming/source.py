"""A trace's bytes while they are still received, read as if they were all there."""

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_SIZE = 16
"""Bytes that a first read waits for, so that the magic bytes come in one piece."""


@dataclass
class Progress:
    """How far work has come: bytes of the original, and events, of as many as are known to come."""

    bytes: int = 0
    events: int = 0
    events_total: int = 0
    bytes_total: int = 0


class GrowingFile(io.RawIOBase):
    """The file at `path`, or an open one, which another process writes: a read waits until the bytes are there.

    It is opened once, so it may be renamed meanwhile. One thread reads, in an `io.BufferedReader` like any other
    file; another says what is there. `io.BufferedReader.read1` gives what there is, without waiting for more.
    """

    def __init__(self, path: Path | int) -> None:
        super().__init__()
        self._file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor, too; `close` closes it
        self._changed = threading.Condition()
        self._there = 0
        self._taken = 0
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether no more bytes come."""
        return self._complete

    def grow(self, to_bytes: int) -> None:
        """Say that the file has so many bytes now, and more may come."""
        with self._changed:
            self._there = max(self._there, to_bytes)
            self._changed.notify()

    def finish(self) -> None:
        """Say that the file is complete: its end is the end of the trace."""
        with self._changed:
            self._complete = True
            self._changed.notify()

    def fileno(self) -> int:
        """The descriptor of the file."""
        return self._file.fileno()

    def readable(self) -> bool:
        """It is read only."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill the buffer with what there is; blocks until that is at least a byte, or the end."""
        view = memoryview(buffer)
        with self._changed:
            self._changed.wait_for(lambda: self._complete or self._there >= max(self._taken + 1, HEAD_SIZE))
            if not self._complete:
                view = view[: self._there - self._taken]
        count = self._file.readinto(view) or 0
        self._taken += count
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

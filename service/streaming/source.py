"""A file that is read while it is still being received."""

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_SIZE = 16
"""Number of bytes that the first read waits for, so that the magic bytes arrive in one piece."""


@dataclass
class Progress:
    """Progress of a job: bytes of the original and events so far, and their totals; an unknown total is 0."""

    bytes: int = 0
    events: int = 0
    events_total: int = 0
    bytes_total: int = 0


class GrowingFile(io.RawIOBase):
    """A file that another process is writing; reads block until bytes are available.

    The file is opened once, so it may be renamed while it grows. One thread reads through an `io.BufferedReader`, whose
    `read1` returns the available bytes without waiting for more. Another thread reports the size.

    Args:
        file: path of the file, a descriptor of it, or an open stream that is complete.
    """

    def __init__(self, file: Path | int | io.BufferedReader) -> None:
        super().__init__()
        opened = open(file, "rb", buffering=0) if isinstance(file, Path | int) else file  # noqa: PTH123, SIM115 - a descriptor has no Path.open; `close` closes it
        self._file: io.FileIO | io.BufferedReader = opened
        self._changed = threading.Condition()
        self._available = 0
        self._consumed = 0
        self._complete = False

    @property
    def complete(self) -> bool:
        """True once the file is complete."""
        return self._complete

    def grow(self, to_bytes: int) -> None:
        """Report that the file now has `to_bytes` bytes, and that more may follow."""
        with self._changed:
            self._available = max(self._available, to_bytes)
            self._changed.notify()

    def finish(self) -> None:
        """Report that the file is complete: its end is the end of the trace."""
        with self._changed:
            self._complete = True
            self._changed.notify()

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._file.fileno()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill the buffer with available bytes; blocks until there is at least one, or the file is complete."""
        view = memoryview(buffer)
        with self._changed:
            self._changed.wait_for(lambda: self._complete or self._available >= max(self._consumed + 1, HEAD_SIZE))
            if not self._complete:
                view = view[: self._available - self._consumed]
        count = self._file.readinto(view) or 0
        self._consumed += count
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

"""Spools of query results. Large results are in unnamed temporary files, which share a budget of bytes on disk."""

import tempfile
from contextlib import suppress
from pathlib import Path

from service.store.folder import disk_errors
from service.store.room import Room
from service.trace.errors import DiskFull, InsufficientStorage

MEMORY_MAX = 8 << 20
"""Size in bytes of the largest result that is kept in memory."""
_RESERVE_BYTES = 4 << 20
"""Least number of bytes that a spool reserves at a time."""


class SpoolBudget:
    """The budget of bytes on disk that all results share.

    Args:
        folder: the folder for the files; the system's temporary folder by default.
        room: the limit of the data folder; without it, only `max_bytes` is enforced.
        max_bytes: the limit of all results together; by default there is none.
    """

    def __init__(self, folder: Path | None = None, room: Room | None = None, max_bytes: int | None = None) -> None:
        self.folder = folder
        self.room = room
        self._max_bytes = max_bytes
        self.reserved_bytes = 0

    def reserve(self, size: int) -> None:
        """Reserve bytes before they are written; raises `InsufficientStorage`."""
        if self._max_bytes is not None and self.reserved_bytes + size > self._max_bytes:
            raise InsufficientStorage(
                f"Query results take {self.reserved_bytes:,} of the {self._max_bytes:,} bytes that they may take on"
                f" disk, and {size:,} more are needed.",
                needed=size, used=self.reserved_bytes, quota=self._max_bytes, retry_after_s=10,
            )  # fmt: skip
        if self.room:
            self.room.hold(size)
        self.reserved_bytes += size

    def release(self, size: int) -> None:
        """Release reserved bytes."""
        if self.room:
            self.room.let_go(size)
        self.reserved_bytes -= size


class Spool:
    """A result that is appended to and read many times: in memory up to `MEMORY_MAX` bytes, then on disk.

    Args:
        budget: the budget that all spools share.
    """

    def __init__(self, budget: SpoolBudget) -> None:
        self._budget = budget
        folder = None if budget.folder is None else str(budget.folder)
        self._file = tempfile.SpooledTemporaryFile(MEMORY_MAX, dir=folder)  # noqa: SIM115 - closed by `close`
        self._reserved_bytes = 0
        self.size = 0

    def append(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            InsufficientStorage: the budget is exceeded; none of the bytes is written.
            DiskFull: the disk is full; `size` does not grow.
        """
        end = self.size + len(data)
        if end > MEMORY_MAX and end > self._reserved_bytes:
            more = max(end - self._reserved_bytes, _RESERVE_BYTES)
            self._budget.reserve(more)
            self._reserved_bytes += more
        with disk_errors():
            self._file.seek(self.size)
            self._file.write(data)
            self._file.flush()  # otherwise a full disk is noticed only at the next read
        self.size = end

    def read(self, position: int, size: int) -> bytes:
        """Return bytes that were appended; raises `DiskFull` if fewer can be read back."""
        with disk_errors():
            self._file.seek(position)
            data = self._file.read(size)
        if len(data) < size:
            raise DiskFull(f"The result can't be read back: only {len(data)} of {size} bytes are there.")
        return data

    def close(self) -> None:
        """Remove the file and release its bytes."""
        with suppress(OSError):  # closing may fail to write bytes that are no longer needed
            self._file.close()
        self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0

"""Results of queries on disk: each in a file without a name, all within one budget of bytes."""

import tempfile
from contextlib import suppress
from pathlib import Path

from service.store.folder import disk_errors
from service.store.room import Room
from service.trace.errors import DiskFull, InsufficientStorage

MEMORY_MAX = 8 << 20
"""Bytes of a result that are kept in memory."""
_RESERVE_BYTES = 4 << 20


class SpoolBudget:
    """The bytes that all results may take on disk.

    Args:
        folder: the folder of their files; the system's temporary folder by default.
        room: limits the data folder; without it, only `max_bytes` counts.
        max_bytes: limit of all results together; none by default.
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
                f"There is no room for {size:,} bytes more: results of queries take {self.reserved_bytes:,} of the"
                f" {self._max_bytes:,} that they may take on disk.",
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
    """Bytes that are written once and read often: in memory up to `MEMORY_MAX`, then on disk.

    Args:
        budget: the budget of all spools.
    """

    def __init__(self, budget: SpoolBudget) -> None:
        self._budget = budget
        folder = None if budget.folder is None else str(budget.folder)
        self._file = tempfile.SpooledTemporaryFile(MEMORY_MAX, dir=folder)  # noqa: SIM115 - closed by `close`
        self._reserved_bytes = 0
        self.size = 0

    def append(self, data: bytes) -> None:
        """Write bytes after the others.

        Raises:
            InsufficientStorage: the budget is exceeded; none of the bytes is written.
            DiskFull: the disk is full; none of the bytes counts as written.
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
        """Return bytes that were written; raises `DiskFull` if the disk has lost some."""
        with disk_errors():
            self._file.seek(position)
            data = self._file.read(size)
        if len(data) < size:
            raise DiskFull(f"The result can't be read back: of {size} bytes, {len(data)} are there.")
        return data

    def close(self) -> None:
        """Remove the file and release its bytes."""
        with suppress(OSError):  # unwritten bytes that no reader needs
            self._file.close()
        self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0

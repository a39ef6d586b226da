"""Results of queries on disk: each lies in a file without a name, and all together keep to one budget of bytes."""

import tempfile
from contextlib import suppress
from pathlib import Path

from service.store.folder import disk_errors
from service.store.room import Room
from service.trace.errors import DiskFull, InsufficientStorage

MEMORY_MAX = 8 << 20
"""Bytes of a result that are held in memory."""
_HELD_AT_ONCE = 4 << 20


class SpoolBudget:
    """The bytes that all results may take on disk.

    Args:
        folder: where their files lie; the system's folder for such by default.
        room: of the data folder; without it, only `most` counts.
        most: bytes of all together; no bound by default.
    """

    def __init__(self, folder: Path | None = None, room: Room | None = None, most: int | None = None) -> None:
        self.folder = folder
        self.room = room
        self._most = most
        self.held = 0

    def hold(self, more: int) -> None:
        """Count bytes that are to be written; raises `InsufficientStorage`."""
        if self._most is not None and self.held + more > self._most:
            raise InsufficientStorage(
                f"There is no room for {more:,} bytes more: results of queries take {self.held:,} of the {self._most:,}"
                " that they may take on disk.",
                needed=more, used=self.held, quota=self._most, retry_after_s=10,
            )  # fmt: skip
        if self.room:
            self.room.hold(more)
        self.held += more

    def release(self, held: int) -> None:
        """Count bytes no more."""
        if self.room:
            self.room.let_go(held)
        self.held -= held


class Spool:
    """Bytes that are written once and read often: in memory up to `MEMORY_MAX`, then on disk.

    Args:
        budget: of all spools.
    """

    def __init__(self, budget: SpoolBudget) -> None:
        self._budget = budget
        folder = None if budget.folder is None else str(budget.folder)
        self._file = tempfile.SpooledTemporaryFile(MEMORY_MAX, dir=folder)  # noqa: SIM115 - closed by `close`
        self._held = 0
        self.size = 0

    def append(self, data: bytes) -> None:
        """Write bytes behind the others.

        Raises:
            InsufficientStorage: there is no room on disk; none of them counts as written.
            DiskFull: the disk is full; likewise.
        """
        end = self.size + len(data)
        if end > MEMORY_MAX and end > self._held:
            more = max(end - self._held, _HELD_AT_ONCE)
            self._budget.hold(more)
            self._held += more
        with disk_errors():
            self._file.seek(self.size)
            self._file.write(data)
            self._file.flush()  # else a full disk is noticed at the next read
        self.size = end

    def read(self, position: int, size: int) -> bytes:
        """Read bytes that were written; raises `DiskFull` if the disk has lost some."""
        with disk_errors():
            self._file.seek(position)
            data = self._file.read(size)
        if len(data) < size:
            raise DiskFull(f"The result can't be read back: of {size} bytes, {len(data)} are there.")
        return data

    def close(self) -> None:
        """Give up all of it."""
        with suppress(OSError):  # for what could not be written, which nobody wants any more
            self._file.close()
        self._budget.release(self._held)
        self._held = 0

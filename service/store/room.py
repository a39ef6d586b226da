"""Disk space of the data folder: its use, its quota, and reservations."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from service.trace.errors import InsufficientStorage

COUNTED_EVERY_S = 30.0
"""Largest age in seconds of a count of the folder. Before a refusal, the folder is always counted again."""
RESERVED_FOR_S = 3600.0
"""Seconds until a reservation expires unless it is renewed, so that abandoned uploads free their space."""
_PAUSE_FACTOR = 20
"""Minimum pause between counts, as a multiple of the last count's duration."""


class Room:
    """The disk space for the data folder.

    Args:
        root: the folder.
        quota: largest size of the folder in bytes; None for no limit.
        floor: bytes on its disk that must stay free.
        free: returns the number of free bytes on the disk.
    """

    def __init__(
        self, root: Path, *, quota: int | None = None, floor: int = 0, free: Callable[[Path], int] | None = None
    ) -> None:
        self._root = root
        self._quota = quota
        self._floor = floor
        self._free = free or (lambda folder: shutil.disk_usage(folder).free)
        self._lock = threading.Lock()
        self._reserving = threading.Lock()
        self._counted = 0
        self._count_again_at = 0.0
        self._reserved: dict[str, tuple[int, float]] = {}
        self._held = 0

    def check(self, more: int = 0, *, linked: bool = False, reserved_by: str | None = None) -> None:
        """Raise `InsufficientStorage` unless there is space for more bytes. Cheap enough for each piece of an upload.

        Args:
            more: number of bytes to be written.
            linked: whether the bytes are on the disk already; then they count towards the quota but take no free space.
            reserved_by: key of the reservation that the bytes belong to.
        """
        reserved = self.reserved(excluding=reserved_by) if more else 0
        free = self._free(self._root) + (more if linked else 0)
        needed = reserved + more
        if free - needed >= self._floor and (self._quota is None or self._roughly_used() + needed <= self._quota):
            return
        used = self.used()  # exact: something may have been deleted meanwhile
        if free - needed < self._floor:
            reason = f"{free:,} are free on the disk, of which {self._floor:,} must stay free"
        elif self._quota is not None and used + needed > self._quota:
            reason = f"the data folder takes {used:,} of its quota of {self._quota:,}"
        else:
            return
        announced = f", and {reserved:,} are reserved for announced uploads" if reserved else ""
        raise InsufficientStorage(
            f"There is no room for {more:,} bytes more: {reason}{announced}.",
            needed=more, free=free, floor=self._floor, used=used, quota=self._quota, reserved=reserved,
        )  # fmt: skip

    def left(self) -> int:
        """Return the number of bytes that may still be written apart from reserved ones; at least 0."""
        free = self._free(self._root) - self._floor
        if self._quota is not None:
            free = min(free, self._quota - self._roughly_used())
        return max(free - self.reserved(), 0)

    def check_now(self) -> None:
        """Count the folder, if there is a quota; raises `InsufficientStorage` if the quota or the floor is exceeded."""
        if self._quota is not None:
            self.used()
        self.check()

    def reserve(self, key: str, size: int, *, checked: bool = False) -> None:
        """Reserve space for an upload for `RESERVED_FOR_S`, in place of its earlier reservation.

        Args:
            key: key of the upload.
            size: number of bytes still to come.
            checked: whether to raise `InsufficientStorage` if there is no space for them.
        """
        with self._reserving:
            if checked:
                self.check(size, reserved_by=key)
            self._reserved[key] = size, time.monotonic() + RESERVED_FOR_S

    def release(self, key: str) -> None:
        """End a reservation, if there is one."""
        self._reserved.pop(key, None)

    def reserved(self, *, excluding: str | None = None) -> int:
        """Return the number of reserved bytes, except those under one key."""
        now = time.monotonic()
        reservations = list(self._reserved.items())
        return sum(size for key, (size, until) in reservations if key != excluding and now < until)

    def hold(self, more: int) -> None:
        """Count bytes that will be written to an unnamed file, which no count of the folder includes.

        Raises:
            InsufficientStorage: there is no space for them; none are counted.
        """
        self.check(more)
        with self._lock:
            self._held += more

    def let_go(self, held: int) -> None:
        """Stop counting bytes that were held."""
        with self._lock:
            self._held -= held

    def grew(self, more: int) -> None:
        """Add bytes that were written since the last count of the folder."""
        with self._lock:
            self._counted += more

    def used(self) -> int:
        """Count the bytes of the data folder, each file once for all its links, and add those that are held."""
        began = time.monotonic()
        count = bytes_below(self._root)
        now = time.monotonic()
        with self._lock:
            self._counted, self._count_again_at = count, now + max(COUNTED_EVERY_S, _PAUSE_FACTOR * (now - began))
            return count + self._held

    @property
    def counted(self) -> int:
        """Bytes of the data folder at the last count, and those reported since."""
        return self._counted

    @property
    def count_is_old(self) -> bool:
        """True if the folder should be counted again."""
        return time.monotonic() >= self._count_again_at

    def _roughly_used(self) -> int:
        return self._counted + self._held if time.monotonic() < self._count_again_at else self.used()


def bytes_below(folder: Path) -> int:
    """Return the size in bytes of all files below a folder, each once; files removed meanwhile do not count."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for _, _, names, handle in os.fwalk(folder):
        for name in names:
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                continue
            key = (status.st_dev, status.st_ino)
            if status.st_nlink == 1 or key not in seen:
                seen.add(key)
                total += status.st_size
    return total

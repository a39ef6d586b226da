"""Room: how many bytes the data folder takes, and how many more it may."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from service.trace.errors import InsufficientStorage

COUNTED_EVERY_S = 30.0
"""How old a count may be, beside what was told since; what is refused is always counted anew."""
RESERVED_FOR_S = 3600.0
"""How long a reservation holds that is not renewed: what was announced and never comes keeps nothing from others."""
_REST = 20
"""How much longer than a count takes nobody counts again."""


class Room:
    """The room that there is for the data folder at `root`.

    Args:
        root: the folder.
        quota: bytes that it may take; None for all that there are.
        floor: free bytes that are left on its disk.
        free: tells how many bytes are free on the disk.
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
        """Raise `InsufficientStorage` unless there is room for more. Cheap enough for each piece of an upload.

        Args:
            more: bytes that are to be written.
            linked: whether they lie on the disk already, so that they count, but take no free space.
            reserved_by: the key of a reservation that they are part of.
        """
        reserved = self.reserved(but=reserved_by) if more else 0
        free = self._free(self._root) + (more if linked else 0)
        wanted = reserved + more
        if free - wanted >= self._floor and (self._quota is None or self._roughly_used() + wanted <= self._quota):
            return
        used = self.used()  # exact: something may have been deleted meanwhile
        if free - wanted < self._floor:
            why = f"{free:,} are free on the disk, of which {self._floor:,} are left"
        elif self._quota is not None and used + wanted > self._quota:
            why = f"the data folder takes {used:,} of the {self._quota:,} that it may"
        else:
            return
        announced = f", and {reserved:,} are reserved for announced uploads" if reserved else ""
        raise InsufficientStorage(
            f"There is no room for {more:,} bytes more: {why}{announced}.",
            needed=more, free=free, floor=self._floor, used=used, quota=self._quota, reserved=reserved,
        )  # fmt: skip

    def left(self) -> int:
        """Bytes that may still be written, beside those that are reserved; at least 0."""
        left = self._free(self._root) - self._floor
        if self._quota is not None:
            left = min(left, self._quota - self._roughly_used())
        return max(left - self.reserved(), 0)

    def check_now(self) -> None:
        """Count the folder if there is a quota; raise `InsufficientStorage` if it or the floor is exceeded."""
        if self._quota is not None:
            self.used()
        self.check()

    def reserve(self, key: str, size: int, *, checked: bool = False) -> None:
        """Set bytes aside for an upload for `RESERVED_FOR_S`, instead of those that it reserved before.

        Args:
            key: of the upload.
            size: how many bytes are still to come.
            checked: raise `InsufficientStorage` unless there is room for them.
        """
        with self._reserving:
            if checked:
                self.check(size, reserved_by=key)
            self._reserved[key] = size, time.monotonic() + RESERVED_FOR_S

    def release(self, key: str) -> None:
        """End a reservation, if there is one."""
        self._reserved.pop(key, None)

    def reserved(self, *, but: str | None = None) -> int:
        """Bytes that are reserved, but for those under one key."""
        now = time.monotonic()
        reservations = list(self._reserved.items())
        return sum(size for key, (size, until) in reservations if key != but and now < until)

    def hold(self, more: int) -> None:
        """Count bytes that are to be written to a file without a name, which no count of the folder finds.

        Raises:
            InsufficientStorage: there is no room for them; none is counted.
        """
        self.check(more)
        with self._lock:
            self._held += more

    def let_go(self, held: int) -> None:
        """Count such bytes no more."""
        with self._lock:
            self._held -= held

    def grew(self, more: int) -> None:
        """Say that so many bytes were written since, so that they count before the next count."""
        with self._lock:
            self._counted += more

    def used(self) -> int:
        """Bytes of the data folder: of each file once, however many names it has, and those that are held."""
        began = time.monotonic()
        count = bytes_below(self._root)
        now = time.monotonic()
        with self._lock:
            self._counted, self._count_again_at = count, now + max(COUNTED_EVERY_S, _REST * (now - began))
            return count + self._held

    @property
    def counted(self) -> int:
        """Bytes of the data folder when they were counted last, and what came since."""
        return self._counted

    @property
    def count_is_old(self) -> bool:
        """Whether they should be counted again."""
        return time.monotonic() >= self._count_again_at

    def _roughly_used(self) -> int:
        return self._counted + self._held if time.monotonic() < self._count_again_at else self.used()


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder, of each once; what is removed meanwhile does not count."""
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

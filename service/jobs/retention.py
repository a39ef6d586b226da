"""Retention: deletes old traces that are not pinned."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from service.store import audit
from service.store.catalog import Catalog, Trace
from service.store.groups import Groups
from service.store.room import Room
from service.trace.errors import TracedockError, UnknownTrace

log = logging.getLogger(__name__)

EVERY_S = 3600.0
"""Maximum number of seconds between two sweeps."""
_DAY_NS = 86_400 * 10**9


class Retention:
    """Deletes unpinned traces beyond an age, and the oldest unpinned traces while the data folder is too large.

    It sweeps once an hour, and after each call of `wake`.

    Args:
        catalog: the catalog of traces.
        room: the disk space of the data folder.
        remove: deletes a trace.
        in_use: returns the ids of the traces that jobs read; a sweep does not delete these.
        groups: the groups of traces; a group that has lost its last trace is deleted, too.
        days: days after which a trace is deleted; None for no limit.
        size_max: bytes that the data folder may take; None for no limit.
    """

    def __init__(
        self,
        catalog: Catalog,
        room: Room,
        remove: Callable[[str], Awaitable[object]],
        in_use: Callable[[], Collection[str]],
        groups: Groups,
        *,
        days: float | None,
        size_max: int | None,
    ) -> None:
        self._catalog = catalog
        self._room = room
        self._remove = remove
        self._in_use = in_use
        self._groups = groups
        self._days = days
        self._size_max = size_max
        self._woken = asyncio.Event()
        self._main: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sweep, if there is a limit."""
        if self._days is not None or self._size_max is not None:
            self._main = asyncio.create_task(self._sweep_repeatedly())
            self.wake()

    async def close(self) -> None:
        """Stop sweeping."""
        if self._main:
            self._main.cancel()
            await asyncio.wait([self._main])

    def wake(self) -> None:
        """Sweep soon: the data folder has grown."""
        self._woken.set()

    async def sweep(self) -> list[str]:
        """Delete the traces that are beyond a limit, and return their ids."""
        deleted: list[str] = []
        while candidate := await asyncio.to_thread(self._next):
            trace, why = candidate
            with suppress(UnknownTrace):  # a client has deleted it meanwhile
                await self._remove(trace.id)
                if trace.group_id:
                    await asyncio.to_thread(self._groups.remove_empty, trace.group_id)
                audit.note("retention", did="delete", trace=trace.id, why=why)
            deleted.append(trace.id)
        return deleted

    def _next(self) -> tuple[Trace, str] | None:
        """Return the next trace to delete, and the limit that it exceeds: ``age`` or ``size``."""
        busy = self._in_use()
        if self._days is not None:
            before = time.time_ns() - int(self._days * _DAY_NS)
            if trace := self._catalog.oldest_removable(before_ns=before, excluding=busy):
                return trace, "age"
        if self._size_max is not None and self._room.used() > self._size_max:
            trace = self._catalog.oldest_removable(before_ns=(1 << 63) - 1, excluding=busy)
            return (trace, "size") if trace else None
        return None

    async def _sweep_repeatedly(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.sweep()
            except (TracedockError, OSError):
                log.exception("old traces can't be deleted; the next sweep tries again")

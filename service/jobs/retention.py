"""Retention: old traces that nobody pinned go by themselves."""

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
_DAY_NS = 86_400 * 10**9


class Retention:
    """Removes traces beyond an age, and the oldest while all take too much; once an hour, and when it is woken.

    Args:
        catalog: of the traces.
        room: tells how much they take.
        remove: removes a trace.
        in_use: tells of which traces jobs make others: these stay for now.
        groups: of these, those go that are left without a trace.
        days: the age; None for any.
        size_max: bytes that the data folder may take; None for all.
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
        """Begin, if there is anything to look for."""
        if self._days is not None or self._size_max is not None:
            self._main = asyncio.create_task(self._keep_order())
            self.wake()

    async def close(self) -> None:
        """Stop."""
        if self._main:
            self._main.cancel()
            await asyncio.wait([self._main])

    def wake(self) -> None:
        """Say that there is more than before."""
        self._woken.set()

    async def sweep(self) -> list[str]:
        """Remove what is to go by now, and return its ids."""
        gone: list[str] = []
        while found := await asyncio.to_thread(self._next):
            trace, why = found
            with suppress(UnknownTrace):  # somebody else was faster
                await self._remove(trace.id)
                if trace.group_id:
                    await asyncio.to_thread(self._groups.remove_empty, trace.group_id)
                audit.note("retention", did="delete", trace=trace.id, why=why)
            gone.append(trace.id)
        return gone

    def _next(self) -> tuple[Trace, str] | None:
        busy = self._in_use()
        if self._days is not None:
            before = time.time_ns() - int(self._days * _DAY_NS)
            if trace := self._catalog.oldest_removable(before_ns=before, excluding=busy):
                return trace, "age"
        if self._size_max is not None and self._room.used() > self._size_max:
            trace = self._catalog.oldest_removable(before_ns=(1 << 63) - 1, excluding=busy)
            return (trace, "size") if trace else None
        return None

    async def _keep_order(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.sweep()
            except (TracedockError, OSError):
                log.exception("old traces can't be removed; the next time will do")

"""Guard of the disk space while jobs write: when space runs out, the job that started last is ended."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from service.jobs.task_runner import RunningTask
from service.store.room import Room
from service.trace.errors import InsufficientStorage

CHECK_EVERY_S = 1.0
_REST_FACTOR = 20
"""Minimum pause between checks, as a multiple of the last check's duration."""

log = logging.getLogger(__name__)


class RoomGuard:
    """Checks the disk space of the data folder while tasks write there.

    Args:
        room: the disk space of the data folder.
        writers: returns the tasks that write; the last of them is ended first.
    """

    def __init__(self, room: Room, writers: Callable[[], Sequence[RunningTask[Any]]]) -> None:
        self._room = room
        self._writers = writers
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to check."""
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop checking."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _watch(self) -> None:
        pause = CHECK_EVERY_S
        while True:
            await asyncio.sleep(pause)
            if not self._writers():
                continue
            began = time.monotonic()
            try:
                await asyncio.to_thread(self._room.check_now)
            except InsufficientStorage as error:
                for process in self._writers()[-1:]:
                    log.warning("a job is ended: %s", error.detail)
                    process.fail(error)
            pause = max(CHECK_EVERY_S, _REST_FACTOR * (time.monotonic() - began))

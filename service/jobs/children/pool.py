"""Children of one kind: the pool starts them, and keeps one warm for the next task."""

import asyncio
from contextlib import suppress

from service.jobs.children.kinds import Kind
from service.jobs.children.process import ChildProcess


class Pool:
    """Starts the children of one kind.

    Starting a child takes longer than many tasks, so one child may be kept warm: started, with its code loaded.

    Args:
        kind: the kind of children.
        arguments: further arguments of their command line.
        keep_warm: whether `prepare` starts a child.
    """

    def __init__(self, kind: Kind, *arguments: str, keep_warm: bool) -> None:
        self._kind = kind
        self._arguments = arguments
        self._keep_warm = keep_warm
        self._warm: asyncio.Task[ChildProcess] | None = None
        self._closed = False

    def prepare(self) -> None:
        """Start a child for the next task, unless there is one or none is to be kept warm."""
        if self._keep_warm and not self._closed and self._warm is None:
            self._warm = asyncio.create_task(self._start())

    async def take(self) -> ChildProcess:
        """Return the warm child, or start one; the caller must end it.

        Raises:
            OSError: the child can't be started.
        """
        warm, self._warm = self._warm, None
        if warm:
            with suppress(OSError):
                child = await warm
                if child.is_alive:
                    return child
                await child.end()
        return await self._start()

    async def close(self) -> None:
        """End the warm child, and keep none warm from now on."""
        self._closed = True
        warm, self._warm = self._warm, None
        if warm:
            with suppress(OSError):
                await (await warm).end()

    async def _start(self) -> ChildProcess:
        return await ChildProcess.start(self._kind, *self._arguments)

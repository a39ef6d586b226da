"""Children of one kind: the pool starts them, and keeps one warm for the next task."""

import asyncio
from contextlib import suppress

from service.jobs.children.kinds import Kind
from service.jobs.children.process import ChildProcess


class Pool:
    """Starts the children of one kind.

    To start one takes longer than many a task, so one may be kept warm: started, with its code loaded.

    Args:
        kind: the kind of children.
        arguments: further arguments of their command line.
        keep_warm: whether `prepare` starts one.
    """

    def __init__(self, kind: Kind, *arguments: str, keep_warm: bool) -> None:
        self._kind = kind
        self._arguments = arguments
        self._keep_warm = keep_warm
        self._warm: asyncio.Task[ChildProcess] | None = None
        self._closed = False

    def prepare(self) -> None:
        """Start a child for the next task, unless there is one."""
        if self._keep_warm and not self._closed and self._warm is None:
            self._warm = asyncio.create_task(self._start())

    async def take(self) -> ChildProcess:
        """Return the warm child, or one that is started now; the caller ends it.

        Raises:
            OSError: it can't be started.
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
        """End the warm child, and keep none from now on."""
        self._closed = True
        warm, self._warm = self._warm, None
        if warm:
            with suppress(OSError):
                await (await warm).end()

    async def _start(self) -> ChildProcess:
        return await ChildProcess.start(self._kind, *self._arguments)

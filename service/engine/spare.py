"""An engine that is started before anyone asks for it, so that no one waits for a process to start."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from service.engine.process import EngineProcess
from service.engine.watch import reading

Launch = Callable[[Path], Awaitable[EngineProcess]]


class Spare:
    """One engine without a trace.

    Args:
        launch: starts an engine.
        stop_s: grace of each step when it is stopped.
    """

    def __init__(self, launch: Launch, stop_s: float) -> None:
        self._launch = launch
        self._stop_s = stop_s
        self._starting: asyncio.Task[EngineProcess] | None = None
        self._binary: Path | None = None

    @property
    def memory_bytes(self) -> int:
        """What it takes, as far as the system tells."""
        process = self._process()
        found = reading(process.pid) if process else None
        return found.resident_bytes if found else 0

    def prepare(self, binary: Path) -> None:
        """Begin to start one, if there is none."""
        if self._starting is None:
            self._binary = binary
            self._starting = asyncio.create_task(self._started(binary))

    async def take(self, binary: Path) -> EngineProcess:
        """An engine to keep: the spare one, or a new one. Raises `EngineUnavailable`."""
        while True:
            self.prepare(binary)
            starting = self._starting
            if starting is None:
                raise RuntimeError("one was prepared")
            await asyncio.wait([starting])  # who gives up here leaves it to the next
            if self._starting is not starting:
                continue
            self._starting = None
            process = starting.result()
            if self._binary == binary and process.running:
                return process
            await process.stop(self._stop_s)

    async def close(self) -> None:
        """Stop it."""
        starting, self._starting = self._starting, None
        if starting is None:
            return
        await asyncio.wait([starting])
        if not starting.cancelled() and not starting.exception():
            await starting.result().stop(self._stop_s)

    async def _started(self, binary: Path) -> EngineProcess:
        return await self._launch(binary)

    def _process(self) -> EngineProcess | None:
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled() or starting.exception():
            return None
        return starting.result()

"""An engine that is started ahead of its first use, so that no session waits for a process to start."""

import asyncio
from pathlib import Path

from service.engine.engine import Engine, EngineDriver


class WarmEngine:
    """One engine that is running or starting, and has no trace.

    Args:
        driver: starts the engine.
        stop_s: seconds of grace for each step of stopping the engine.
    """

    def __init__(self, driver: EngineDriver, stop_s: float) -> None:
        self._driver = driver
        self._stop_s = stop_s
        self._starting: asyncio.Task[Engine] | None = None
        self._binary: Path | None = None

    @property
    def memory_bytes(self) -> int:
        """Memory of the engine in bytes; 0 if no engine is ready, or the system has no data."""
        engine = self._started()
        usage = engine.usage() if engine else None
        return usage.resident_bytes if usage else 0

    def prepare(self, binary: Path) -> None:
        """Start an engine in the background, unless one is running or starting."""
        if self._starting is None:
            self._binary = binary
            self._starting = asyncio.create_task(self._start(binary))

    async def take(self, binary: Path) -> Engine:
        """Return the warm engine, or a new one if it is missing or runs another program; raises `EngineUnavailable`."""
        while True:
            self.prepare(binary)
            starting = self._starting
            if starting is None:
                raise RuntimeError("an engine was prepared")
            await asyncio.wait([starting])  # a caller that is cancelled here leaves the engine to the next caller
            if self._starting is not starting:
                continue
            self._starting = None
            engine = starting.result()
            if self._binary == binary and engine.running:
                return engine
            await engine.stop(self._stop_s)

    async def close(self) -> None:
        """Stop the engine, if there is one."""
        starting, self._starting = self._starting, None
        if starting is None:
            return
        await asyncio.wait([starting])
        if not starting.cancelled() and not starting.exception():
            await starting.result().stop(self._stop_s)

    async def _start(self, binary: Path) -> Engine:
        return await self._driver.start(binary)

    def _started(self) -> Engine | None:
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled() or starting.exception():
            return None
        return starting.result()

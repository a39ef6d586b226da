"""One worker process, as the server sees it: what it is told, what it tells, and how it ends."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from service.store.folder import Folder
from service.streaming.source import Progress
from service.trace.errors import fate


class Ending(NamedTuple):
    """How a worker ended: its answer, which is its last line or nothing, and in words its fate."""

    answer: dict[str, dict[str, Any]]
    how: str


class WorkerProcess:
    """A process that does one job; it starts at once.

    Args:
        module: what it runs.
        arguments: the rest of its command line.
        told: the first that it is told on its input.
        on_progress: is called whenever it has told how far it is.
    """

    def __init__(
        self, module: str, *arguments: str, told: dict[str, Any], on_progress: Callable[[], object] = lambda: None
    ) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._stdin: asyncio.StreamWriter | None = None
        self._news = told
        self._on_progress = on_progress
        self.progress = Progress()
        self.ended: asyncio.Task[Ending] = asyncio.create_task(self._live())
        """Ends with the process; to cancel it kills the process."""

    @classmethod
    def reading(cls, folder: Folder, trace_id: str, name: str) -> "WorkerProcess":
        """A worker that reads a trace; it waits for bytes until it hears of them.

        Args:
            folder: where the trace lies.
            trace_id: its id.
            name: the name it was given.
        """
        paths = (folder.received(trace_id), folder.original(trace_id), folder.columns_of(trace_id))
        return cls("service.jobs.worker", *map(str, paths), name, told={"grown": 0})

    @property
    def failed(self) -> bool:
        """Whether it has ended and said nothing of the trace."""
        ended = self.ended
        return ended.done() and (ended.cancelled() or bool(ended.exception()) or "error" not in ended.result().answer)

    def grew(self, to_bytes: int) -> None:
        """Tell that so many bytes are there. A worker that does not listen is not told: the next time will do."""
        self._news = {"grown": to_bytes}
        if self._stdin and not self._stdin.transport.get_write_buffer_size():
            self._tell()

    def complete(self) -> None:
        """Tell that all bytes are there, and safe."""
        self._news = {"complete": True}
        self._tell()

    async def end(self) -> None:
        """Kill it if it lives, and return once it is gone."""
        if not self.ended.cancelling():  # a second time would interrupt the killing
            self.ended.cancel()
        await asyncio.wait({self.ended})

    def _tell(self) -> None:
        if self._stdin and not self._stdin.is_closing():
            self._stdin.write(orjson.dumps(self._news) + b"\n")

    async def _live(self) -> Ending:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=1 << 30
            )
        except OSError as error:
            return Ending({}, f"could not be started: {error}")
        try:
            self._stdin = process.stdin
            self._tell()
            answer = await self._listen(process)
            status = await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return Ending(answer, fate(status))

    async def _listen(self, process: Process) -> dict[str, dict[str, Any]]:
        answer: dict[str, dict[str, Any]] = {}
        if process.stdout is None:
            raise RuntimeError("a worker is started with a pipe for its output")
        async for line in process.stdout:
            if not line.endswith(b"\n"):  # killed in the middle of a line
                break
            told = orjson.loads(line)
            if "progress" in told:
                self.progress = Progress(**told["progress"])
                self._on_progress()
            else:
                answer = told
        return answer

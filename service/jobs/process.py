"""One worker process, as the server sees it: what it is told, what it tells, and how it ends."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from service.store.folder import Folder
from service.streaming.source import Progress
from service.trace.errors import TracedockError, describe_exit

MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""How processes that read traces get memory, unless the server's environment says otherwise: to touch new memory took
them up to a third of their time, and what they keep is given back when they end, with their job or soon after the last.

Arrow has it from the C library like all else, and all threads from the same two heaps, which keep what is freed: so one
uses again what another has done with. And numpy asks for no huge pages: in a virtual machine, to touch one first took
twice as long as small ones. See mallopt(3), https://arrow.apache.org/docs/cpp/env_vars.html and
https://numpy.org/doc/stable/reference/global_state.html.
"""


class Ending(NamedTuple):
    """How a worker ended: its answer, which is its last line or nothing, and in words its fate."""

    answer: dict[str, dict[str, Any]]
    how: str


class Ready:
    """Keeps a process ready for the next job: to start one takes longer than many a job.

    Args:
        module: what it runs; without arguments, it gets ready and hears them on its input.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._starting: asyncio.Task[Process] | None = None

    def prepare(self) -> None:
        """Start a process, if there is none."""
        if not self._starting:
            self._starting = asyncio.create_task(started(self._module))

    def take(self) -> Process | None:
        """The process, if there is one that lives."""
        if not (starting := self._starting) or not starting.done():
            return None
        self._starting = None
        return None if starting.exception() or starting.result().returncode is not None else starting.result()

    async def close(self) -> None:
        """End it."""
        starting, self._starting = self._starting, None
        with suppress(OSError):
            if starting:
                await killed(await starting)


async def started(module: str, *arguments: str, stderr: int | None = None, limit: int = 1 << 30) -> Process:
    """A process of a module, with pipes for its input and output.

    Args:
        module: what it runs.
        arguments: the rest of its command line.
        stderr: what becomes of what it says besides, as `asyncio.subprocess` has it; by default the server says it.
        limit: bytes of its output that are read ahead, and of the longest line.

    Raises:
        OSError: it can't be started.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        stdin=PIPE, stdout=PIPE, stderr=stderr, env={**MEMORY, **os.environ}, start_new_session=True, limit=limit,
    )  # fmt: skip


def kill(process: Process) -> None:
    """End a process if it lives."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


async def killed(process: Process) -> None:
    """End a process if it lives, and return once it is gone."""
    kill(process)
    await process.wait()


class WorkerProcess:
    """A process that does one job; it starts at once.

    Args:
        module: what it runs.
        arguments: the rest of its command line.
        told: the first that it is told on its input.
        on_progress: is called whenever it has told how far it is.
        ready: a process of the module that waits for its arguments.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        told: dict[str, Any],
        on_progress: Callable[[], object] = lambda: None,
        ready: Process | None = None,
    ) -> None:
        self._module = module
        self._arguments = arguments
        self._ready = ready
        self._stdin: asyncio.StreamWriter | None = None
        self._news = told
        self._process: Process | None = None
        self._failure: dict[str, Any] | None = None
        self.on_progress = on_progress
        self.progress = Progress()
        self.ended: asyncio.Task[Ending] = asyncio.create_task(self._live())
        """Ends with the process; to cancel it kills the process."""

    @classmethod
    def reading(
        cls,
        folder: Folder,
        trace_id: str,
        name: str,
        path: str | None = None,
        mark: str | None = None,
        *,
        ready: Process | None = None,
    ) -> "WorkerProcess":
        """A worker that reads a trace; it waits for bytes until it hears of them.

        Args:
            folder: where the trace lies.
            trace_id: its id.
            name: the name it was given.
            path: where its original lies, if not in the folder.
            mark: by which one sees that the original was changed, if somebody else can; see
                `service.store.external_files`.
            ready: such a worker that waits for what to read.
        """
        paths = (folder.received(trace_id), path or folder.original(trace_id), folder.columns_of(trace_id))
        return cls(
            "service.jobs.worker", *map(str, paths), name, *([mark] if mark else []), told={"grown": 0}, ready=ready
        )

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

    def fail(self, error: TracedockError) -> None:
        """Kill it if it lives; it then ends with that error as its answer."""
        self._failure = error.as_dict()
        if self._process:
            kill(self._process)

    def _tell(self) -> None:
        if self._stdin and not self._stdin.is_closing():
            self._stdin.write(orjson.dumps(self._news) + b"\n")

    async def _live(self) -> Ending:
        try:
            process = self._process = self._ready or await started(self._module, *self._arguments)
        except OSError as error:
            return Ending({}, f"could not be started: {error}")
        try:
            self._stdin = process.stdin
            if self._ready and self._stdin:
                self._stdin.write(orjson.dumps(self._arguments) + b"\n")
            self._tell()
            answer = await self._listen(process)
            status = await process.wait()
        finally:
            await killed(process)
        if self._failure and "result" not in answer:
            answer = {"failure": self._failure}
        return Ending(answer, describe_exit(status))

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
                self.on_progress()
            else:
                answer = told
        return answer

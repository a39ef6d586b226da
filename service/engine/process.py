"""One trace_processor process: started on a trace, spoken to over its pipe, interrupted, stopped."""

import asyncio
import json
import logging
import os
import re
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from service.engine import wire
from service.trace.errors import EngineFailed, EngineUnavailable, describe_exit

log = logging.getLogger(__name__)

READ_SIZE = 1 << 18
_LAUNCHER = Path(__file__).with_name("launcher.py")
_STDERR_LINES = 20
_SAID_MAX = 4000  # of the last lines, as they go into an error
_AHEAD = 2  # pieces of a trace on their way: the engine works on one while the next is made and sent
_LAST_WORDS_S = 1.0  # to end after its output has closed, and for its messages to arrive


class EngineProcess:
    """A running engine; `start` makes one.

    One request is in flight at a time: `exchange` must be read to its end before the next. Who calls it sees to that.
    """

    def __init__(self, process: Process, binary: Path) -> None:
        self.binary = binary
        self._process = process
        self._deframer = wire.Deframer()
        self._received: deque[Any] = deque()
        self._said: deque[bytes] = deque(maxlen=_STDERR_LINES)
        self._stderr = asyncio.create_task(self._read_stderr())
        self.loaded_bytes = 0
        self.fed = False
        self.loaded = False
        self._waited_since: float | None = None
        self.stopped_by: str | None = None

    @classmethod
    async def start(cls, binary: Path, *, package: Path | None = None, sandbox: bool = True) -> "EngineProcess":
        """Start the engine at `binary`, to be fed.

        Args:
            binary: the program.
            package: folder of the SQL modules that it knows as `torch`.
            sandbox: whether it is shut in (`service.engine.sandbox`); a script that starts another program can't be.

        Raises:
            EngineUnavailable: it could not be started.
        """
        read = [str(package)] if package else []
        options = json.dumps({"sandbox": sandbox, "read": read})
        command = [str(binary), "--stdiod", *([f"--add-sql-package={package}@torch"] if package else [])]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), options, *command,
                stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=READ_SIZE,
            )  # fmt: skip
        except OSError as error:
            raise EngineUnavailable(f"The engine {binary} could not be started: {error}.") from error
        return cls(process, binary)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._process.returncode is None

    @property
    def waited_s(self) -> float:
        """Seconds since the load waits for the engine; 0 while it waits for its source."""
        return time.monotonic() - self._waited_since if self._waited_since is not None else 0.0

    async def ended(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()

    def limit_memory(self, most_bytes: int) -> None:
        """Refuse it more address space than that from now on, where the system can (prlimit(2))."""
        if sys.platform == "linux":
            with suppress(ProcessLookupError, PermissionError, ValueError):
                resource.prlimit(self.pid, resource.RLIMIT_AS, (most_bytes, most_bytes))

    async def exchange(self, request: Any) -> AsyncIterator[Any]:
        """Send a request and yield its responses to the last one.

        Raises:
            EngineFailed: the engine ended, or spoke something else than its protocol.
        """
        await self._send(request)
        while True:
            message = await self._receive()
            yield message
            if wire.is_last(message):
                return

    async def ask(self, request: Any) -> Any:
        """Send a request that has one response, and return it."""
        return [message async for message in self.exchange(request)][-1]

    async def feed(self, chunks: AsyncIterable[bytes]) -> None:
        """Load a trace from its plain bytes."""
        sizes: deque[int] = deque()
        async for piece in chunks:
            with self._waiting():
                await self._send(wire.request(wire.APPEND_TRACE_DATA, append_trace_data=piece))
            sizes.append(len(piece))
            if len(sizes) == _AHEAD:
                await self._appended(sizes.popleft())
        while sizes:
            await self._appended(sizes.popleft())
        self.fed = True
        with self._waiting():
            answer = await self.ask(wire.request(wire.FINALIZE_TRACE_DATA))
        if answer.finalize_data_result.error:
            raise EngineFailed(f"The engine can't load the trace: {answer.finalize_data_result.error}")
        self.loaded = True

    async def status(self) -> Any:
        """Ask what engine it is, which it knows before it has a trace; the load waits for that."""
        with self._waiting():
            answer = await self.ask(wire.request(wire.GET_STATUS))
        return answer.status

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waited_since = time.monotonic()
        try:
            yield
        finally:
            self._waited_since = None

    async def _appended(self, size: int) -> None:
        with self._waiting():
            answer = await self._receive()
        if answer.append_result.error:
            raise EngineFailed(f"The engine can't load the trace: {answer.append_result.error}")
        self.loaded_bytes += size

    async def _send(self, request: Any) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise await self.failure()
        try:
            stdin.write(wire.frame(request))
            await stdin.drain()
        except ConnectionError as error:
            raise await self.failure() from error

    async def _receive(self) -> Any:
        stdout = self._process.stdout
        while not self._received and stdout is not None:
            data = await stdout.read(READ_SIZE)
            if not data:
                raise await self.failure()
            try:
                self._received.extend(map(wire.Rpc.FromString, self._deframer.feed(data)))
            except (wire.BadFrame, DecodeError) as error:
                raise EngineFailed(f"The engine's answer can't be read: {error}") from error
        message = self._received.popleft()
        if message.HasField("fatal_error"):
            raise EngineFailed(f"The engine reports a fatal error: {message.fatal_error}.")
        return message

    async def _read_stderr(self) -> None:
        """Remember the last lines for the time when it fails."""
        stderr, rest = self._process.stderr, b""
        while stderr is not None and (data := await stderr.read(READ_SIZE)):
            *lines, rest = re.split(rb"[\r\n]+", rest[-READ_SIZE:] + data)
            self._said.extend(filter(None, lines))
        if rest:
            self._said.append(rest)

    async def failure(self) -> EngineFailed:
        """How and why it ended; one that has not is ended."""
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                status = await self._process.wait()
        except TimeoutError:
            self.kill()  # an engine that has closed its output answers no one
            status = await self._process.wait()
        await asyncio.wait([self._stderr], timeout=_LAST_WORDS_S)
        said = b"\n".join(self._said)[-_SAID_MAX:].decode("utf-8", "replace")
        return EngineFailed(
            f"The engine {describe_exit(status)}." + (f" It said: {said}" if said else ""), exit_status=status
        )

    def interrupt(self) -> None:
        """Stop the running statement, which then answers with an error; harmless when none runs."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS says the second of a group that has ended
            os.killpg(self.pid, number)  # a group of its own: TRACEDOCK_ENGINE may be a script that starts the engine

    async def stop(self, grace_s: float) -> None:
        """End the process: by closing its input, then SIGTERM, then SIGKILL, each after `grace_s` seconds."""
        started = time.monotonic()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.interrupt()
        for name, number in (
            ("end of input", None),
            ("SIGTERM", signal.SIGTERM),
            ("SIGKILL", signal.SIGKILL),
        ):
            if number:
                self._signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s if number is not signal.SIGKILL else None):
                    await self._drained()
                self.stopped_by = name
                break
        await asyncio.wait([self._stderr], timeout=_LAST_WORDS_S)
        log.info("engine %d ended by %s in %.2f s", self.pid, self.stopped_by, time.monotonic() - started)

    async def _drained(self) -> None:
        """Wait for the end while reading on, so that an engine in the middle of an answer isn't stuck on its pipe."""
        stdout = self._process.stdout
        while stdout is not None and await stdout.read(READ_SIZE):
            pass
        await self._process.wait()

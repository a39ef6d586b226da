"""One trace_processor process: its start, requests over its pipe, interrupts, and its end."""

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

from service.engine.engine import BadFrame, EngineVersion, LoadProgress, QueryResponse
from service.engine.resources import ResourceUsage, resource_usage
from service.engine.trace_processor import wire
from service.engine.trace_processor.built_in_names import built_in_names
from service.engine.trace_processor.cells import ProtoCells
from service.trace.errors import EngineFailed, EngineUnavailable, SqlError, describe_exit

log = logging.getLogger(__name__)

READ_SIZE = 1 << 18
_LAUNCHER = Path(__file__).with_name("launcher.py")
_STDERR_LINES = 20
_STDERR_MAX = 4000  # largest size in bytes of the last lines in an error
_PIECE_BYTES = 4 << 20  # at least, of a piece of a trace: pieces of 0.2 MB take 3 % more memory in the engine
_PIECES_AHEAD = 2  # pieces of a trace in flight: the engine works on one while the next is rendered and sent
_EXIT_S = 1.0  # seconds for the process to end after it has closed its output, and for its last stderr lines
_NO_COLUMNS = "SELECT 0 WHERE 0"  # the engine runs it in place of PerfettoSQL's own statements, such as INCLUDE
_POSITION = re.compile(r'File "stdin" line (\d+) col (\d+)')


class TraceProcessor:
    """A running trace_processor; see `Engine`. `TraceProcessor.start` creates it.

    One request is in flight at a time: the caller reads all responses of `exchange` before the next request.
    """

    def __init__(self, process: Process, binary: Path) -> None:
        self.binary = binary
        self.stopped_by: str | None = None
        self._process = process
        self._deframer = wire.Deframer()
        self._received: deque[Any] = deque()
        self._stderr_lines: deque[bytes] = deque(maxlen=_STDERR_LINES)
        self._stderr = asyncio.create_task(self._read_stderr())
        self._loaded_bytes = 0
        self._is_fed = False
        self._is_loaded = False
        self._waits_since: float | None = None

    @classmethod
    async def start(cls, binary: Path, *, package: Path | None = None, sandbox: bool = True) -> "TraceProcessor":
        """Start the program, without a trace.

        Args:
            binary: the program.
            package: folder of the SQL modules that the engine offers as the package `torch`.
            sandbox: whether to run the program in a sandbox, in which it can't be a script; see the module `sandbox`.

        Raises:
            EngineUnavailable: the program could not be started.
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
        """Whether the process is running, as far as is known."""
        return self._process.returncode is None

    @property
    def progress(self) -> LoadProgress:
        """Progress of the load."""
        waited_s = time.monotonic() - self._waits_since if self._waits_since is not None else 0.0
        return LoadProgress(self._loaded_bytes, self._is_fed, self._is_loaded, waited_s)

    def usage(self) -> ResourceUsage | None:
        """Return the memory and processor time that the process uses; None if it has ended."""
        return resource_usage(self.pid)

    def built_in_names(self) -> frozenset[str]:
        """Return the names that the program itself defines; the first call reads the whole file of the program."""
        return built_in_names(self.binary)

    async def ended(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()

    def limit_memory(self, max_bytes: int) -> None:
        """Limit the process's address space from now on, if the system supports it (prlimit(2))."""
        if sys.platform == "linux":
            with suppress(ProcessLookupError, PermissionError, ValueError):
                resource.prlimit(self.pid, resource.RLIMIT_AS, (max_bytes, max_bytes))

    # -- requests ----------------------------------------------------------------------------------------------

    async def version(self) -> EngineVersion:
        """Return the engine's version; the engine reports it even before it has a trace."""
        with self._waiting():
            status = (await self.ask(wire.request(wire.GET_STATUS))).status
        return EngineVersion(
            status.human_readable_version, status.version_code, is_supported=status.api_version == wire.API_VERSION
        )

    async def query(self, sql: str) -> AsyncIterator[QueryResponse]:
        """Run SQL and yield all its responses; raises `EngineFailed`."""
        async for message in self.exchange(wire.query_request(sql)):
            result = message.query_result
            if result.error:
                yield QueryResponse(error=sql_error(result.error))
            else:
                columns = () if result.last_statement_sql == _NO_COLUMNS else tuple(result.column_names)
                yield QueryResponse(columns, list(map(ProtoCells, result.batch)))

    async def rpc(self, request: bytes) -> AsyncIterator[bytes]:
        """Forward a serialized request and yield all serialized responses; raises `EngineFailed`.

        The execution time is removed from responses: UIs before v54 don't know the field, and warn about each response.
        """
        await self._send(wire.framed(request))
        async for message in self._responses():
            message.ClearField("seq")
            if message.HasField("query_result"):
                message.query_result.ClearField("elapsed_time_ms")
            yield message.SerializeToString()

    async def exchange(self, request: Any) -> AsyncIterator[Any]:
        """Send a request and yield all its responses.

        Raises:
            EngineFailed: the engine ended, or broke its protocol.
        """
        await self._send(wire.frame(request))
        async for message in self._responses():
            yield message

    async def ask(self, request: Any) -> Any:
        """Send a request that has one response, and return the response."""
        return [message async for message in self.exchange(request)][-1]

    async def feed(self, chunks: AsyncIterable[bytes]) -> None:
        """Load a trace from the uncompressed bytes of its document; raises `EngineFailed`."""
        sizes: deque[int] = deque()
        async for piece in joined(chunks):
            with self._waiting():
                await self._send(wire.append_head(len(piece)), piece)
            sizes.append(len(piece))
            if len(sizes) == _PIECES_AHEAD:
                await self._receive_appended(sizes.popleft())
        while sizes:
            await self._receive_appended(sizes.popleft())
        self._is_fed = True
        with self._waiting():
            response = await self.ask(wire.request(wire.FINALIZE_TRACE_DATA))
        if response.finalize_data_result.error:
            raise EngineFailed(f"The engine can't load the trace: {response.finalize_data_result.error}")
        self._is_loaded = True

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Measure the time for which the load waits for the engine."""
        self._waits_since = time.monotonic()
        try:
            yield
        finally:
            self._waits_since = None

    async def _receive_appended(self, size: int) -> None:
        with self._waiting():
            response = await self._receive()
        if response.append_result.error:
            raise EngineFailed(f"The engine can't load the trace: {response.append_result.error}")
        self._loaded_bytes += size

    async def _send(self, *parts: bytes) -> None:
        """Send a frame in parts."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise await self.failure()
        try:
            for part in parts:
                stdin.write(part)
            await stdin.drain()
        except ConnectionError as error:
            raise await self.failure() from error

    async def _responses(self) -> AsyncIterator[Any]:
        while True:
            message = await self._receive()
            is_last = wire.is_last(message)
            yield message
            if is_last:
                return

    async def _receive(self) -> Any:
        stdout = self._process.stdout
        while not self._received and stdout is not None:
            data = await stdout.read(READ_SIZE)
            if not data:
                raise await self.failure()
            try:
                self._received.extend(map(wire.Rpc.FromString, self._deframer.feed(data)))
            except (BadFrame, DecodeError) as error:
                raise EngineFailed(f"The engine's answer can't be read: {error}") from error
        message = self._received.popleft()
        if message.HasField("fatal_error"):
            raise EngineFailed(f"The engine reports a fatal error: {message.fatal_error}.")
        return message

    # -- termination -------------------------------------------------------------------------------------------

    async def _read_stderr(self) -> None:
        """Keep the last lines of stderr, which `failure` reports."""
        stderr, rest = self._process.stderr, b""
        while stderr is not None and (data := await stderr.read(READ_SIZE)):
            *lines, rest = re.split(rb"[\r\n]+", rest[-READ_SIZE:] + data)
            self._stderr_lines.extend(filter(None, lines))
        if rest:
            self._stderr_lines.append(rest)

    async def failure(self) -> EngineFailed:
        """Return an error that describes how and why the process ended; a process that still runs is killed first."""
        try:
            async with asyncio.timeout(_EXIT_S):
                status = await self._process.wait()
        except TimeoutError:
            self.kill()  # a process that has closed its output serves no request
            status = await self._process.wait()
        await asyncio.wait([self._stderr], timeout=_EXIT_S)
        output = b"\n".join(self._stderr_lines)[-_STDERR_MAX:].decode("utf-8", "replace")
        return EngineFailed(
            f"The engine {describe_exit(status)}." + (f" It said: {output}" if output else ""), exit_status=status
        )

    def interrupt(self) -> None:
        """Stop the running statement, which then responds with an error; has no effect if none runs."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS raises the second for a group that has ended
            os.killpg(self.pid, number)  # its own group: TRACEDOCK_ENGINE may be a script that starts the engine

    async def stop(self, grace_s: float) -> None:
        """End the process: close its input, interrupt it, send SIGTERM, then SIGKILL, `grace_s` seconds apart."""
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
        await asyncio.wait([self._stderr], timeout=_EXIT_S)
        log.info("engine %d ended by %s in %.2f s", self.pid, self.stopped_by, time.monotonic() - started)

    async def _drained(self) -> None:
        """Read the output until the process ends, so that an engine that is responding does not block on its pipe."""
        stdout = self._process.stdout
        while stdout is not None and await stdout.read(READ_SIZE):
            pass
        await self._process.wait()


async def joined(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks together, as pieces of `_PIECE_BYTES` or more; the last one may be smaller."""
    waiting: list[bytes] = []
    size = 0
    async for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def sql_error(message: str) -> SqlError:
    """Convert the engine's message to an error with the last line and column that the message mentions."""
    positions = _POSITION.findall(message)
    where: dict[str, int] = {}
    if positions:
        where = dict(zip(("line", "column"), map(int, positions[-1]), strict=True))
    return SqlError(message.rsplit("\n", 1)[-1], message=message, **where)

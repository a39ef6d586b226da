"""One engine on one trace, shared by all who ask: requests take turns, and each can be left or run out of time."""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from service.engine import wire
from service.engine.process import EngineProcess
from service.engine.result import Result
from service.streaming.codec import Format, format_of, plain_chunks
from service.trace.errors import EngineFailed, QueryTimeout, SqlError, TracedockError

log = logging.getLogger(__name__)

Source = Path | Callable[[], AsyncGenerator[bytes]]
"""Where a trace comes from: its file, or what yields its document."""

INTERRUPT_EVERY_S = 0.2  # an interrupt that comes before the statement has begun is lost, so it is repeated
STUCK_AFTER_S = 10.0
_POSITION = re.compile(r'File "stdin" line (\d+) col (\d+)')


class SessionState(StrEnum):
    """What has become of a session."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class EngineLimits:
    """How long an engine may take, in seconds, how large a result may get, in bytes, and where a large one lies."""

    load_timeout_s: float
    stop_s: float
    max_result_bytes: int
    scratch: Path | None = None


class Exchange:
    """One request on its way: `deliver` gets each response, `on_end` the error or None, exactly once."""

    def __init__(
        self, request: Any, deliver: Callable[[Any], None], on_end: Callable[[TracedockError | None], None]
    ) -> None:
        self.request = request
        self.deliver = deliver
        self.begun = False
        self.ended = False
        self.abandoned = asyncio.Event()
        self._on_end = on_end

    def abandon(self) -> None:
        """Nobody wants the answer any more: drop the request, or stop the engine's work on it."""
        self.abandoned.set()
        if not self.begun:  # whoever waits need not wait for its turn
            self.end()

    def end(self, error: TracedockError | None = None) -> None:
        """No response comes any more."""
        if not self.ended:
            self.ended = True
            self._on_end(error)


class Session:
    """An engine on a trace.

    Args:
        trace_id: the trace.
        source: its file, or what yields its document.
        binary: the engine.
        limits: its bounds.
        selection: what of the trace it is on, where that is not all, as JSON values.
    """

    def __init__(
        self,
        trace_id: str,
        source: Source,
        binary: Path,
        limits: EngineLimits,
        selection: dict[str, Any] | None = None,
    ) -> None:
        self.trace_id = trace_id
        self.selection = selection
        self.size = 0  # bytes of the file; 0 where there is none, or nobody has looked yet
        self.state = SessionState.LOADING
        self.error: TracedockError | None = None
        self.version = ""
        self.version_code = ""
        self.load_s: float | None = None
        self.clients = 0
        self.queries = 0
        self.created: set[str] = set()  # by UI tabs, as they said it
        self._binary = binary
        self._limits = limits
        self._source = source
        self._engine: EngineProcess | None = None
        self._queue: asyncio.Queue[Exchange] = asyncio.Queue()
        self._current: Exchange | None = None
        self._settled = asyncio.Event()
        self._last_used = time.monotonic()
        self._main = asyncio.create_task(self._run())

    @property
    def pid(self) -> int | None:
        """The engine's process id."""
        return self._engine.pid if self._engine else None

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the trace that the engine has taken, as it counts them."""
        return self._engine.loaded_bytes if self._engine else 0

    @property
    def over(self) -> bool:
        """Whether it can't be used any more."""
        return self.state in (SessionState.FAILED, SessionState.CLOSED)

    @property
    def busy(self) -> bool:
        """Whether someone uses it or waits for it."""
        has_work = self._current is not None or not self._queue.empty()
        return self.state is SessionState.LOADING or self.clients > 0 or has_work

    @property
    def idle_s(self) -> float:
        """Seconds since it was last used; 0 while it is."""
        return 0.0 if self.busy else time.monotonic() - self._last_used

    async def settled(self, within_s: float | None = None) -> bool:
        """Wait until the trace is loaded; False if it is still loading after `within_s`. Raises why it is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        if self.over:
            raise self.error or EngineFailed("The engine was closed.")
        return self._settled.is_set()

    async def close(self) -> None:
        """Stop the engine; whoever waits for an answer gets an error."""
        if not self.over:
            self.state = SessionState.CLOSED
            self._release_all()
            self._main.cancel()  # once: a second time would keep it from seeing the engine to its end
        await asyncio.wait([self._main])

    # -- asking ------------------------------------------------------------------------------------------------

    def submit(self, exchange: Exchange) -> None:
        """Put a request into the queue."""
        self._last_used = time.monotonic()
        if self.over:
            exchange.end(self.error or EngineFailed("The engine was closed."))
        else:
            self._queue.put_nowait(exchange)

    def query(self, sql: str, *, limit: int | None, timeout_s: float) -> Result:
        """Start a query; its result fills as the engine answers.

        Args:
            sql: one or more statements; the last one's rows are the result.
            limit: rows to keep; the engine is stopped beyond them.
            timeout_s: seconds until it is stopped, waiting for its turn included.
        """
        self.queries += 1
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            exchange.abandon()

        def deliver(message: Any) -> None:
            if message.query_result.error:
                result.error = result.error or sql_error(message.query_result.error)
            else:
                result.take(message.query_result)

        def end(error: TracedockError | None) -> None:
            timer.cancel()
            if expired:
                result.error = None
                error = QueryTimeout(f"The query was stopped after {timeout_s:g} s.", timeout_s=timeout_s)
            elif result.truncated:
                result.error = None  # it says "interrupted", which is what we asked for
            result.finish(error or result.error)

        request = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql))
        exchange = Exchange(request, deliver, end)
        result = Result(
            limit=limit,
            max_bytes=self._limits.max_result_bytes,
            on_enough=exchange.abandon,
            scratch=self._limits.scratch,
        )
        timer = asyncio.get_running_loop().call_later(timeout_s, expire)
        self.submit(exchange)
        return result

    # -- the engine's side -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._limits.load_timeout_s):
                await self._load()
            self.state = SessionState.READY
            self._settled.set()
            while True:
                await self._answer(await self._queue.get())
        except TimeoutError:
            self._fail(EngineFailed(f"The trace was not loaded in {self._limits.load_timeout_s:g} s."))
        except TracedockError as error:
            self._fail(error)
        except OSError as error:
            self._fail(EngineFailed(f"The trace's file can't be read: {error.strerror}."))
        except Exception as error:
            log.exception("the session of trace %s broke", self.trace_id)
            self._fail(EngineFailed(f"The session broke: {error!r}."))
        finally:
            if self._engine:
                await self._engine.stop(self._limits.stop_s)

    def _fail(self, error: TracedockError) -> None:
        log.warning("session of trace %s failed: %s", self.trace_id, error.detail)
        self.state, self.error = SessionState.FAILED, error
        self._release_all()

    def _release_all(self) -> None:
        """Tell everyone who waits that no more comes, before the engine is stopped: that may take seconds."""
        self._settled.set()
        waiting = [self._current] if self._current else []
        self._current = None
        while not self._queue.empty():
            waiting.append(self._queue.get_nowait())
        for exchange in waiting:
            exchange.end(self.error or EngineFailed("The engine was closed before it answered."))

    async def _load(self) -> None:
        started = time.monotonic()
        if isinstance(self._source, Path):
            await self._load_file(self._source)
        else:
            self._engine = await EngineProcess.start(self._binary, None)
            async with aclosing(self._source()) as pieces:
                await self._engine.feed(pieces)
        if self._engine is None:
            raise RuntimeError("the engine was started")
        answer = await self._engine.ask(wire.request(wire.GET_STATUS))
        self.version, self.version_code = answer.status.human_readable_version, answer.status.version_code
        self.load_s = round(time.monotonic() - started, 3)

    async def _load_file(self, original: Path) -> None:
        with original.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            feeds = await asyncio.to_thread(format_of, file) is Format.ZSTD  # which the engine can't read
            self._engine = await EngineProcess.start(self._binary, None if feeds else original)
            if feeds:
                await self._engine.feed(_in_thread(plain_chunks(file)))

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.ended:
            return
        if self._engine is None:
            raise RuntimeError("requests are taken only once the engine runs")
        self._current, exchange.begun = exchange, True
        watch = asyncio.create_task(self._interrupt_when_abandoned(exchange, self._engine))
        try:
            async for message in self._engine.exchange(exchange.request):
                if not exchange.abandoned.is_set():
                    exchange.deliver(message)
        finally:
            watch.cancel()
        self._current = None
        self._last_used = time.monotonic()
        exchange.end()

    async def _interrupt_when_abandoned(self, exchange: Exchange, engine: EngineProcess) -> None:
        """Stop a statement that nobody waits for; an engine that doesn't heed it is killed, and so ends its session."""
        await exchange.abandoned.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_AFTER_S):
                while True:
                    engine.interrupt()
                    await asyncio.sleep(INTERRUPT_EVERY_S)
        log.error("engine %d of trace %s heeds no interrupt: killed", engine.pid, self.trace_id)
        engine.kill()


async def _in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks, each made in a thread."""
    while (piece := await asyncio.to_thread(next, chunks, None)) is not None:
        yield piece


def sql_error(message: str) -> SqlError:
    """The engine's complaint, with the line and column that it names last."""
    positions = _POSITION.findall(message)
    where: dict[str, int] = {}
    if positions:
        where = dict(zip(("line", "column"), map(int, positions[-1]), strict=True))
    return SqlError(message.rsplit("\n", 1)[-1], message=message, **where)

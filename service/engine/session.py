"""One engine on one trace, shared by all clients: requests take turns, and each can be abandoned or time out."""

import asyncio
import logging
import re
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import StrEnum

from service.engine.engine import Engine, EngineVersion, LoadProgress, QueryResponse, RpcCodec
from service.engine.load_report import ImporterIssue, LoadReport
from service.engine.names import Names
from service.engine.response_buffers import ResponseBuffers
from service.engine.result import Result
from service.engine.scheduler import AnyExchange, Exchange, RequestScheduler
from service.engine.spool import SpoolBudget
from service.engine.stall import StallDetector
from service.engine.statements import check_sql
from service.trace.errors import EngineBusy, EngineFailed, EngineOutOfMemory, EngineStalled, SqlError, TracedockError
from service.trace.selection import Selection

log = logging.getLogger(__name__)

INTERRUPT_EVERY_S = 0.2  # interrupts are repeated: one that arrives before the statement begins has no effect
INTERRUPT_TIMEOUT_S = 10.0
WATCH_EVERY_S = 0.5
RETRY_AFTER_S = 1
_EXTERNAL_KILLS = (-signal.SIGKILL, -signal.SIGTERM)  # exit statuses of an engine that another process killed
_OWN_TABLE = "no such table: _torch_"
_OUT_OF_MEMORY = re.compile("Cannot allocate memory|bad_alloc")


class SessionState(StrEnum):
    """The state of a session."""

    WAITING = "waiting"  # until evicted engines have ended
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class EngineLimits:
    """The limits of each engine.

    Args:
        load_timeout_s: seconds within which the engine must load its trace.
        stop_s: seconds of grace for each step of stopping the engine.
        max_result_bytes: size of the largest result in bytes.
        spool: the budget for all results on disk.
        stall_s: processor seconds that a load may use without progress.
        ui_timeout_s: seconds until requests without their own deadline are stopped: those of UIs and Perfetto's client.
        queue: largest number of waiting requests.
        response_buffers: the limits on responses that clients have not read.
    """

    load_timeout_s: float
    stop_s: float
    max_result_bytes: int
    spool: SpoolBudget = field(default_factory=SpoolBudget)
    stall_s: float = 30.0
    ui_timeout_s: float = 300.0
    queue: int = 256
    response_buffers: ResponseBuffers = field(default_factory=ResponseBuffers)


@dataclass(frozen=True)
class Load:
    """The trace, or the part of a trace, that an engine loads.

    Args:
        trace_id: the id of the trace.
        source: yields the document of the trace.
        selection: the selected part; None for the whole trace.
        args: which arguments of events the document has: `all`, `essential` or `none`.
        events: number of events.
        original_bytes: expected size of the document in bytes if it is the trace's original; None if it is written from
            the columns.
        after_load: called when the engine has loaded the document, before requests of clients run.
        client: the identity of the client that asked for the load.
    """

    trace_id: str
    source: Callable[[], AsyncGenerator[bytes]]
    selection: Selection | None = None
    args: str = "all"
    events: int = 0
    original_bytes: int | None = None
    after_load: "Callable[[Session], Awaitable[None]] | None" = None
    client: Hashable = None

    @property
    def is_original(self) -> bool:
        """Return whether the document is the trace's original; others are written from its columns."""
        return self.original_bytes is not None


@dataclass
class Query:
    """A request to run SQL; see `Request`."""

    sql: str

    @property
    def statement(self) -> str:
        """The SQL."""
        return self.sql

    def check(self, names: Names, client: Hashable) -> None:
        """Check the SQL, and substitute the client's names in it; raises `SqlRefused` or `SqlError`."""
        self.sql = check_sql(self.sql, names, client)

    def send(self, engine: Engine) -> AsyncIterator[QueryResponse]:
        """Run the SQL on the engine."""
        return engine.query(self.sql)


class Session:
    """A session: one engine that loads one trace and then serves requests.

    Args:
        load: the trace.
        start: starts the engine once there is room for it, and returns it.
        limits: the engine's limits.
        rpc: the protocol in which UIs speak with the engine; None if they can't.
        predicted_bytes: expected peak memory of the load.
        memory_limit_bytes: memory beyond which the engine is killed; unlimited by default.
        restarts: number of recent sessions on the same load that failed with an engine error.
        on_failed: called with the error if the session fails.
        admit: raises `TracedockError` for a request that must not run.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        load: Load,
        start: "Callable[[Session], Awaitable[Engine]]",
        limits: EngineLimits,
        *,
        rpc: RpcCodec | None = None,
        predicted_bytes: int = 0,
        memory_limit_bytes: int | None = None,
        restarts: int = 0,
        on_failed: "Callable[[Session, TracedockError], None] | None" = None,
        admit: Callable[[AnyExchange], None] = lambda _: None,
    ) -> None:
        self.load = load
        self.limits = limits
        self.rpc = rpc
        self.predicted_bytes = predicted_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self.restarts = restarts
        self.state = SessionState.LOADING
        self.error: TracedockError | None = None
        self.version = EngineVersion()
        self.load_s: float | None = None
        self.load_report: LoadReport | None = None
        self.issues: list[ImporterIssue] | None = None
        self.clients = 0
        self.queries = 0
        self.names = Names()
        self.fatal_request: AnyExchange | None = None  # the request that crashed the engine
        self._start = start
        self._on_failed = on_failed
        self._admit = admit
        self._engine: Engine | None = None
        self._kill_reason: TracedockError | None = None
        self._scheduler = RequestScheduler(limits.queue)
        self._current: AnyExchange | None = None
        self._was_leaking = False
        self._settled = asyncio.Event()
        self._version_known = asyncio.Event()
        self._waiters = 0  # callers of `settled`
        self._peak_bytes = 0
        self._loaded_memory_bytes = 0
        self._last_used = time.monotonic()
        self._main = asyncio.create_task(self._run())

    @property
    def trace_id(self) -> str:
        """The id of the trace."""
        return self.load.trace_id

    @property
    def selection(self) -> Selection | None:
        """The selected part of the trace; None for the whole trace."""
        return self.load.selection

    @property
    def pid(self) -> int | None:
        """The engine's process id."""
        return self._engine.pid if self._engine else None

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the document that the engine has processed."""
        return self._progress.loaded_bytes

    @property
    def _progress(self) -> LoadProgress:
        return self._engine.progress if self._engine else LoadProgress()

    @property
    def stalled_s(self) -> float:
        """Seconds for which the load has waited for the engine to process a piece; 0 once the engine has all pieces."""
        progress = self._progress
        return progress.waited_s if self.state is SessionState.LOADING and not progress.is_fed else 0.0

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._scheduler)

    @property
    def memory_bytes(self) -> int | None:
        """Resident memory of the engine; None if it does not run, or the system has no data."""
        usage = self._engine.usage() if self._engine and self._engine.running else None
        if usage:
            self._peak_bytes = max(self._peak_bytes, usage.peak_bytes)
        return usage.resident_bytes if usage else None

    @property
    def peak_bytes(self) -> int | None:
        """The largest memory of the engine that the system has reported; None if it has reported none."""
        _ = self.memory_bytes
        return self._peak_bytes or None

    @property
    def held_bytes(self) -> int:
        """Memory attributed to the session: that of its engine; until the trace is loaded, at least the prediction."""
        if self.gone:
            return 0
        memory = self.memory_bytes
        if memory is None:
            return self.predicted_bytes if self._engine or not self.over else 0
        return memory if self.state is SessionState.READY or self.over else max(memory, self.predicted_bytes)

    @property
    def leaks(self) -> bool:
        """Whether the engine's memory has grown more than halfway from its size after the load to its limit."""
        if self.state is not SessionState.READY or self.memory_limit_bytes is None:
            return False
        return (self.memory_bytes or 0) > self._leak_threshold_bytes

    @property
    def _leak_threshold_bytes(self) -> float:
        return (self._loaded_memory_bytes + (self.memory_limit_bytes or 0)) / 2

    @property
    def over(self) -> bool:
        """Whether the session has failed or is closed."""
        return self.state in (SessionState.FAILED, SessionState.CLOSED)

    @property
    def gone(self) -> bool:
        """Whether the session is over and its engine has ended."""
        return self._main.done()

    @property
    def ending(self) -> bool:
        """Whether the engine is being stopped; it may take memory until it has ended."""
        return not self.gone and (self.over or self._kill_reason is not None)

    @property
    def busy(self) -> bool:
        """Whether the session loads, or clients use it or wait for it."""
        if self.over:
            return False
        in_use = self.clients or self._waiters or self._current or len(self._scheduler)
        return self.state is not SessionState.READY or bool(in_use)

    @property
    def idle_s(self) -> float:
        """Seconds since the session was last used; 0 while it is busy."""
        return 0.0 if self.busy else time.monotonic() - self._last_used

    async def settled(self, within_s: float | None = None) -> bool:
        """Wait until the trace is loaded; returns False if it still loads after `within_s` seconds.

        Raises:
            TracedockError: the session is over; the error gives the reason.
        """
        self._waiters += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._settled.wait()
        finally:
            self._waiters -= 1
        if self.over:
            raise self._end_reason()
        return self._settled.is_set()

    async def version_known(self, within_s: float) -> None:
        """Wait at most `within_s` seconds for the engine's version, which it reports before it loads the trace."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._version_known.wait()

    async def close(self, reason: TracedockError | None = None) -> None:
        """Stop the engine. Current and later requests end with an error: `reason` if it is given."""
        if not self.over:
            self.state, self.error = SessionState.CLOSED, reason or self.error
            self._end_requests()
            self._main.cancel()  # only once: a second cancellation would interrupt the engine's shutdown
        await self.ended()

    async def ended(self) -> None:
        """Wait until the session is over and its engine has ended."""
        await asyncio.wait([self._main])

    # -- requests ----------------------------------------------------------------------------------------------

    def submit(self, exchange: AnyExchange, *, trusted: bool = False) -> None:
        """Put a request into the queue; if that fails, the exchange ends with the error.

        Args:
            exchange: the request.
            trusted: whether the request is the service's own, and its SQL needs no check.
        """
        self._last_used = time.monotonic()
        try:
            if self.over:
                raise self._end_reason()
            if not trusted:
                exchange.request.check(self.names, exchange.client)
            self._admit(exchange)
            self._scheduler.put(exchange)
        except TracedockError as error:
            exchange.end(error)

    def forget(self, client: Hashable) -> None:
        """Drop the tables and views of a client that has disconnected."""
        self._drop_next(self.names.left_by(client))

    def _drop_next(self, drops: dict[str, str]) -> None:
        """Run the statements one after the other, so that they take only one place in the queue."""
        if self.over or not drops:
            return
        name = next(iter(drops))

        def end(_error: TracedockError | None) -> None:
            self.names.release(name)
            self._drop_next(drops)

        try:
            self._scheduler.put(Exchange(Query(drops.pop(name)), lambda _response: None, end))
        except EngineBusy:
            log.warning("%d tables of a client that left stay in the engine of trace %s", len(drops), self.trace_id)

    def query(
        self, sql: str, *, limit: int | None, timeout_s: float, client: Hashable = None, owner: Hashable = None
    ) -> Result:
        """Start a query; its result fills as the engine responds.

        Args:
            sql: one or more statements; the last one's rows are the result.
            limit: rows to keep; the query is stopped when there are more.
            timeout_s: seconds until the query is stopped, including the time in the queue.
            client: the connection that sends the query; connections take turns.
            owner: the identity of the client; see `Exchange`.
        """
        self.queries += 1
        exchange, result = self._exchange(sql, limit, client, owner)
        exchange.set_deadline(timeout_s)
        self.submit(exchange)
        return result

    async def run(self, sql: str) -> Result:
        """Run SQL of the service itself and wait for its rows; the caller closes the result.

        While the session loads, only `Load.after_load` may call it.
        """
        exchange, result = self._exchange(sql, limit=None)
        try:
            if self.state is SessionState.LOADING:
                await self._execute(exchange)
            else:
                self.submit(exchange, trusted=True)
            await result.complete()
        except BaseException:
            result.close()
            raise
        return result

    def _explained(self, error: SqlError) -> SqlError:
        """Return an error that says why the package `torch` lacks its tables in an engine on an original."""
        if not self.load.is_original or _OWN_TABLE not in error.detail:
            return error
        detail = f"{error.detail}: the package torch reads the columns of a trace, and this is its original."
        return SqlError(detail, **error.extra)

    def _exchange(
        self, sql: str, limit: int | None, client: Hashable = None, owner: Hashable = None
    ) -> tuple[Exchange[QueryResponse], Result]:
        def deliver(response: QueryResponse) -> None:
            if response.error:
                result.error = result.error or self._explained(response.error)
            else:
                result.add(response)

        def end(error: TracedockError | None) -> None:
            if result.truncated:
                result.error = None  # the engine's error reports our own interrupt
            result.finish(error or result.error)

        exchange = Exchange(Query(sql), deliver, end, client=client, owner=owner)
        result = Result(
            limit=limit,
            max_bytes=self.limits.max_result_bytes,
            on_enough=exchange.abandon,
            budget=self.limits.spool,
        )
        return exchange, result

    # -- the engine --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        watches: list[asyncio.Task[None]] = []
        try:
            engine = self._engine = await self._start(self)
            self.state = SessionState.LOADING
            watches = [asyncio.create_task(self._watch(engine)), asyncio.create_task(self._report_end(engine))]
            async with asyncio.timeout(self.limits.load_timeout_s):
                await self._load(engine)
            self._loaded_memory_bytes = self.memory_bytes or 0
            self.state, self._last_used = SessionState.READY, time.monotonic()
            self._settled.set()
            while True:
                await self._execute(await self._scheduler.next())
        except TimeoutError:
            self._fail(EngineFailed(f"The trace was not loaded in {self.limits.load_timeout_s:g} s."))
        except TracedockError as error:
            self._fail(self._kill_reason or self._with_cause(error))
        except OSError as error:
            self._fail(EngineFailed(f"The trace's file can't be read: {error.strerror}."))
        except Exception as error:
            log.exception("the session of trace %s broke", self.trace_id)
            self._fail(EngineFailed(f"The session broke: {error!r}."))
        finally:
            for watch in watches:
                watch.cancel()
            if self._engine:
                await self._engine.stop(self.limits.stop_s)

    def kill(self, reason: TracedockError) -> None:
        """Kill the engine, which fails the session with this reason."""
        self._kill_reason = reason
        if self._engine:
            self._engine.kill()

    def _fail(self, error: TracedockError) -> None:
        log.warning("session of trace %s failed: %s", self.trace_id, error.detail)
        if self.state is SessionState.READY:  # the trace can be loaded, so the request may succeed on another engine
            error.extra.setdefault("retry_after_s", RETRY_AFTER_S)
            if self._crashed_by_current(error):
                self.fatal_request = self._current
        self.state, self.error = SessionState.FAILED, error
        self._end_requests()
        if self._on_failed:
            self._on_failed(self, error)

    def _crashed_by_current(self, error: TracedockError) -> bool:
        """Return whether the current request crashed the engine, rather than earlier requests or a foreign signal."""
        if self._current is None or self._was_leaking:
            return False
        if isinstance(error, EngineOutOfMemory) and self._kill_reason:  # killed for this limit, or for the pool's
            return bool(error.extra["memory_bytes"] > self._leak_threshold_bytes)
        return bool(self._kill_reason) or error.extra.get("exit_status") not in _EXTERNAL_KILLS

    def _with_cause(self, error: TracedockError) -> TracedockError:
        """Return the error, or `EngineOutOfMemory` if the system refused the engine more memory."""
        return self.outgrown(self.peak_bytes or 0) if _OUT_OF_MEMORY.search(error.detail) else error

    def _end_reason(self) -> TracedockError:
        """Return the error that gives the reason why the session is over."""
        return self.error or EngineFailed("The engine was closed.", retry_after_s=RETRY_AFTER_S)

    def _end_requests(self) -> None:
        """End all requests; called before the engine is stopped, since that may take seconds."""
        self._settled.set()
        self._version_known.set()
        current = [self._current] if self._current else []
        self._current = None
        for exchange in [*current, *self._scheduler.drain()]:
            exchange.end(self._end_reason())

    async def _load(self, engine: Engine) -> None:
        started = time.monotonic()
        version = await engine.version()
        self.names.protect(await asyncio.to_thread(engine.built_in_names))
        self.version = version
        self._version_known.set()
        async with aclosing(self.load.source()) as pieces:
            await engine.feed(pieces)
        if self.load.after_load:
            await self.load.after_load(self)
        self.load_s = round(time.monotonic() - started, 3)

    async def _execute(self, exchange: AnyExchange) -> None:
        if exchange.ended:
            return
        if self._engine is None:
            raise RuntimeError("requests are executed only once the engine runs")
        self._was_leaking = self.leaks  # by earlier statements, which would then be the cause of a crash
        self._current, exchange.started = exchange, True
        interrupting = asyncio.create_task(self._interrupt_when_abandoned(exchange, self._engine))
        try:
            await exchange.run(self._engine)
        finally:
            interrupting.cancel()
        self._current = None
        self._last_used = time.monotonic()
        exchange.end()

    async def _interrupt_when_abandoned(self, exchange: AnyExchange, engine: Engine) -> None:
        """Interrupt a request once it is abandoned. If the engine ignores this, kill it and so fail the session."""
        await exchange.abandoned.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(INTERRUPT_TIMEOUT_S):
                while True:
                    engine.interrupt()
                    await asyncio.sleep(INTERRUPT_EVERY_S)
        log.error("engine %s of trace %s ignores interrupts: killed", engine.pid, self.trace_id)
        self.kill(EngineFailed("The engine ignored the interrupt of a statement, and was ended."))

    async def _report_end(self, engine: Engine) -> None:
        """Fail the session when the engine ends, even if no request runs."""
        await engine.ended()
        self._scheduler.fail(await engine.failure())

    async def _watch(self, engine: Engine) -> None:
        """Kill an engine that takes too much memory, or whose load is stalled."""
        stall = StallDetector(self.limits.stall_s)
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            usage = engine.usage()
            if usage is None:
                continue
            self._peak_bytes = max(self._peak_bytes, usage.peak_bytes)
            progress = engine.progress
            if self.memory_limit_bytes is not None and usage.resident_bytes > self.memory_limit_bytes:
                self.kill(self.outgrown(usage.resident_bytes))
            elif not progress.is_loaded and stall.is_stalled(
                progress.loaded_bytes, usage.cpu_s, is_fed=progress.is_fed, waited_s=progress.waited_s
            ):
                self.kill(self.stuck(f"{self.limits.stall_s:g} s of processor time or more"))

    def stuck(self, duration: str) -> EngineStalled:
        """Return the error of a stalled load."""
        return EngineStalled(
            f"The engine made no progress for {duration} after {self.loaded_bytes} bytes of this trace, and was ended.",
            loaded_bytes=self.loaded_bytes,
            stall_s=self.limits.stall_s,
            fed=self._progress.is_fed,
        )

    def outgrown(self, memory_bytes: int) -> EngineOutOfMemory:
        """Return the error of an engine that takes too much memory."""
        return EngineOutOfMemory(
            f"The engine exceeded the {(self.memory_limit_bytes or 0) >> 20} MiB of memory that it may take for this"
            f" trace: it took {memory_bytes >> 20} MiB, and ended.",
            memory_bytes=memory_bytes,
            limit_bytes=self.memory_limit_bytes,
            predicted_bytes=self.predicted_bytes,
        )

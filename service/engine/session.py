"""One engine on one trace, shared by all who ask: requests take turns, and each can be left or run out of time."""

import asyncio
import logging
import re
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from service.engine import statements, wire
from service.engine.backlogs import Backlogs
from service.engine.names import Names, built_in_names
from service.engine.process import EngineProcess
from service.engine.result import Result
from service.engine.spool import SpoolBudget
from service.engine.turns import Exchange, Turns
from service.engine.watch import LoadWatch, reading
from service.trace.errors import EngineBusy, EngineFailed, EngineOutOfMemory, EngineStalled, SqlError, TracedockError

log = logging.getLogger(__name__)

INTERRUPT_EVERY_S = 0.2  # an interrupt that comes before the statement has begun is lost, so it is repeated
STUCK_AFTER_S = 10.0
WATCH_EVERY_S = 0.5
RETRY_AFTER_S = 1
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)  # exit statuses
_POSITION = re.compile(r'File "stdin" line (\d+) col (\d+)')
_NO_MEMORY = re.compile("Cannot allocate memory|bad_alloc")


class SessionState(StrEnum):
    """What has become of a session."""

    WAITING = "waiting"  # for engines that make room to be gone
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class EngineLimits:
    """The bounds of each engine.

    Args:
        load_timeout_s: seconds in which it must have loaded its trace.
        stop_s: grace of each step when it is stopped.
        max_result_bytes: how large a result may get.
        spool: what all results may take on disk.
        stall_s: processor seconds that it may burn on a load without coming further.
        ui_timeout_s: the deadline of requests that name none: those of UIs and of Perfetto's client.
        queue: requests that may wait for it.
        backlogs: what clients have not read, of all engines.
    """

    load_timeout_s: float
    stop_s: float
    max_result_bytes: int
    spool: SpoolBudget = field(default_factory=SpoolBudget)
    stall_s: float = 30.0
    ui_timeout_s: float = 300.0
    queue: int = 256
    backlogs: Backlogs = field(default_factory=Backlogs)


@dataclass(frozen=True)
class Load:
    """What an engine is to load.

    Args:
        trace_id: the trace.
        source: yields its document.
        selection: what of the trace it is, where that is not all, as JSON values.
        args: how much of the events' arguments it has: `all`, `essential` or `none`.
        events: how many events it has.
        after_load: is run once the engine has it, before anyone may ask.
        client: the identity of the client that it was begun for.
    """

    trace_id: str
    source: Callable[[], AsyncGenerator[bytes]]
    selection: dict[str, Any] | None = None
    args: str = "all"
    events: int = 0
    after_load: "Callable[[Session], Awaitable[None]] | None" = None
    client: Hashable = None


class Session:
    """An engine on a trace.

    Args:
        load: what it is on.
        start: gives the engine, once there is room for it.
        limits: its bounds.
        predicted_bytes: memory that the load is expected to take.
        most_bytes: memory beyond which the engine is ended; none by default.
        restarts: engines on the same that died lately.
        on_failed: is told why it failed, should it.
        admit: raises `TracedockError` for a request that is not to be run.
    """

    def __init__(  # noqa: PLR0913 - what it is made of, by name
        self,
        load: Load,
        start: "Callable[[Session], Awaitable[EngineProcess]]",
        limits: EngineLimits,
        *,
        predicted_bytes: int = 0,
        most_bytes: int | None = None,
        restarts: int = 0,
        on_failed: "Callable[[Session, TracedockError], None] | None" = None,
        admit: Callable[[Exchange], None] = lambda _: None,
    ) -> None:
        self.load = load
        self.limits = limits
        self.predicted_bytes = predicted_bytes
        self.most_bytes = most_bytes
        self.restarts = restarts
        self.state = SessionState.LOADING
        self.error: TracedockError | None = None
        self.version = ""
        self.version_code = ""
        self.load_s: float | None = None
        self.account: dict[str, Any] | None = None  # of what it has, once loaded; see `service.engine.account`
        self.clients = 0
        self.queries = 0
        self.names = Names()
        self.culprit: Exchange | None = None  # the request that the engine died of
        self._start = start
        self._on_failed = on_failed
        self._admit = admit
        self._engine: EngineProcess | None = None
        self._verdict: TracedockError | None = None  # why we ended the engine
        self._turns = Turns(limits.queue)
        self._current: Exchange | None = None
        self._bloated = False
        self._settled = asyncio.Event()
        self._introduced = asyncio.Event()
        self._expected = 0  # by how many, until it is settled
        self._peak_bytes = 0
        self._loaded_memory_bytes = 0
        self._last_used = time.monotonic()
        self._main = asyncio.create_task(self._run())

    @property
    def trace_id(self) -> str:
        """The trace."""
        return self.load.trace_id

    @property
    def selection(self) -> dict[str, Any] | None:
        """What of the trace it is on, where that is not all, as JSON values."""
        return self.load.selection

    @property
    def pid(self) -> int | None:
        """The engine's process id."""
        return self._engine.pid if self._engine else None

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the document that the engine has taken."""
        return self._engine.loaded_bytes if self._engine else 0

    @property
    def stalled_s(self) -> float:
        """Seconds for which the engine has not taken the piece of the document that it was given; 0 once it has all."""
        engine = self._engine
        return engine.waited_s if engine and self.state is SessionState.LOADING and not engine.fed else 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._turns)

    @property
    def memory_bytes(self) -> int | None:
        """Memory that the engine takes now; None where there is none, or the system does not tell."""
        found = reading(self._engine.pid) if self._engine and self._engine.running else None
        if found:
            self._peak_bytes = max(self._peak_bytes, found.peak_bytes)
        return found.resident_bytes if found else None

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that the engine has taken, as far as it was seen."""
        _ = self.memory_bytes
        return self._peak_bytes or None

    @property
    def held_bytes(self) -> int:
        """Memory to count for it: what it takes; until it has loaded, at least what that is expected to take."""
        if self.gone:
            return 0
        taken = self.memory_bytes
        if taken is None:
            return self.predicted_bytes if self._engine or not self.over else 0
        return taken if self.state is SessionState.READY or self.over else max(taken, self.predicted_bytes)

    @property
    def leaks(self) -> bool:
        """Whether the engine has grown half the way from what it took once loaded to what it may take."""
        if self.state is not SessionState.READY or self.most_bytes is None:
            return False
        return (self.memory_bytes or 0) > self._bloated_bytes

    @property
    def _bloated_bytes(self) -> float:
        """Half the way from what the engine took once loaded to what it may take."""
        return (self._loaded_memory_bytes + (self.most_bytes or 0)) / 2

    @property
    def over(self) -> bool:
        """Whether it can't be used any more."""
        return self.state in (SessionState.FAILED, SessionState.CLOSED)

    @property
    def gone(self) -> bool:
        """Whether it is over and its engine has ended."""
        return self._main.done()

    @property
    def ending(self) -> bool:
        """Whether its engine is about to end, and may take memory until then."""
        return not self.gone and (self.over or self._verdict is not None)

    @property
    def busy(self) -> bool:
        """Whether someone uses it or waits for it."""
        if self.over:
            return False
        in_use = self.clients or self._expected or self._current or len(self._turns)
        return self.state is not SessionState.READY or bool(in_use)

    @property
    def idle_s(self) -> float:
        """Seconds since it was last used; 0 while it is."""
        return 0.0 if self.busy else time.monotonic() - self._last_used

    async def settled(self, within_s: float | None = None) -> bool:
        """Wait until the trace is loaded; False if it is still loading after `within_s`. Raises why it is over."""
        self._expected += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._settled.wait()
        finally:
            self._expected -= 1
        if self.over:
            raise self._reason()
        return self._settled.is_set()

    async def introduced(self, within_s: float) -> None:
        """Wait until the engine has told its version, which it does before it loads; at most `within_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._introduced.wait()

    async def close(self, reason: TracedockError | None = None) -> None:
        """Stop the engine; whoever waits for an answer, or asks later, gets an error, `reason` if it is given."""
        if not self.over:
            self.state, self.error = SessionState.CLOSED, reason or self.error
            self._release_all()
            self._main.cancel()  # once: a second time would keep it from seeing the engine to its end
        await self.ended()

    async def ended(self) -> None:
        """Wait until it is over and its engine has ended."""
        await asyncio.wait([self._main])

    # -- asking ------------------------------------------------------------------------------------------------

    def submit(self, exchange: Exchange, *, trusted: bool = False) -> None:
        """Put a request into the queue; one that can't be there ends with the reason.

        Args:
            exchange: the request.
            trusted: whether it is the service's own, whose SQL may be any.
        """
        self._last_used = time.monotonic()
        try:
            if self.over:
                raise self._reason()
            if not trusted:
                statements.check(exchange.request, self.names, exchange.client)
            self._admit(exchange)
            self._turns.put(exchange)
        except TracedockError as error:
            exchange.end(error)

    def forget(self, client: Hashable) -> None:
        """Drop the tables and views of a client that is gone."""
        self._drop_next(self.names.left_by(client))

    def _drop_next(self, drops: dict[str, str]) -> None:
        """Have the first statement run, then the others: they take one place in the queue."""
        if self.over or not drops:
            return
        name = next(iter(drops))

        def end(_error: TracedockError | None) -> None:
            self.names.release(name)
            self._drop_next(drops)

        request = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=drops.pop(name)))
        try:
            self._turns.put(Exchange(request, lambda _message: None, end))
        except EngineBusy:
            log.warning("%d names of a client that is gone stay in the engine of trace %s", len(drops), self.trace_id)

    def query(
        self, sql: str, *, limit: int | None, timeout_s: float, client: Hashable = None, owner: Hashable = None
    ) -> Result:
        """Start a query; its result fills as the engine answers.

        Args:
            sql: one or more statements; the last one's rows are the result.
            limit: rows to keep; the engine is stopped beyond them.
            timeout_s: seconds until it is stopped, waiting for its turn included.
            client: who asks; clients take turns.
            owner: the identity of the client; see `Exchange`.
        """
        self.queries += 1
        exchange, result = self._question(sql, limit, client, owner)
        exchange.stop_after(timeout_s)
        self.submit(exchange)
        return result

    async def run(self, sql: str) -> Result:
        """Ask something of the service's own and wait for its rows; the caller closes the result.

        It works also before the session is ready, for `Load.after_load` and for no one else.
        """
        exchange, result = self._question(sql, limit=None)
        try:
            if self.state is SessionState.LOADING:
                await self._answer(exchange)
            else:
                self.submit(exchange, trusted=True)
            await result.complete()
        except BaseException:
            result.close()
            raise
        return result

    def _question(
        self, sql: str, limit: int | None, client: Hashable = None, owner: Hashable = None
    ) -> tuple[Exchange, Result]:
        def deliver(message: Any) -> None:
            if message.query_result.error:
                result.error = result.error or sql_error(message.query_result.error)
            else:
                result.take(message.query_result)

        def end(error: TracedockError | None) -> None:
            if result.truncated:
                result.error = None  # it says "interrupted", which is what we asked for
            result.finish(error or result.error)

        request = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql))
        exchange = Exchange(request, deliver, end, client=client, owner=owner)
        result = Result(
            limit=limit,
            max_bytes=self.limits.max_result_bytes,
            on_enough=exchange.abandon,
            budget=self.limits.spool,
        )
        return exchange, result

    # -- the engine's side -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        watches: list[asyncio.Task[None]] = []
        try:
            engine = self._engine = await self._start(self)
            self.state = SessionState.LOADING
            watches = [asyncio.create_task(self._watch(engine)), asyncio.create_task(self._notice_end(engine))]
            async with asyncio.timeout(self.limits.load_timeout_s):
                await self._load(engine)
            self._loaded_memory_bytes = self.memory_bytes or 0
            self.state, self._last_used = SessionState.READY, time.monotonic()
            self._settled.set()
            while True:
                await self._answer(await self._turns.next())
        except TimeoutError:
            self._fail(EngineFailed(f"The trace was not loaded in {self.limits.load_timeout_s:g} s."))
        except TracedockError as error:
            self._fail(self._verdict or self._explained(error))
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

    def condemn(self, error: TracedockError) -> None:
        """End the engine at once, and its session for this reason."""
        self._verdict = error
        if self._engine:
            self._engine.kill()

    def _fail(self, error: TracedockError) -> None:
        log.warning("session of trace %s failed: %s", self.trace_id, error.detail)
        if self.state is SessionState.READY:  # it was fine: another engine may well answer
            error.extra.setdefault("retry_after_s", RETRY_AFTER_S)
            if self._died_of_current(error):
                self.culprit = self._current
        self.state, self.error = SessionState.FAILED, error
        self._release_all()
        if self._on_failed:
            self._on_failed(self, error)

    def _died_of_current(self, error: TracedockError) -> bool:
        """Whether the engine died of the request that it worked on, and not by the hand of somebody outside."""
        if self._current is None or self._bloated:
            return False
        if isinstance(error, EngineOutOfMemory) and self._verdict:  # perhaps because all engines together took too much
            return bool(error.extra["memory_bytes"] > self._bloated_bytes)
        return bool(self._verdict) or error.extra.get("exit_status") not in _FROM_OUTSIDE

    def _explained(self, error: TracedockError) -> TracedockError:
        """The error, or what it comes from where the system refused the engine more memory."""
        return self.outgrown(self.peak_bytes or 0) if _NO_MEMORY.search(error.detail) else error

    def _reason(self) -> TracedockError:
        """Why it is over."""
        return self.error or EngineFailed("The engine was closed.", retry_after_s=RETRY_AFTER_S)

    def _release_all(self) -> None:
        """Tell everyone who waits that no more comes, before the engine is stopped: that may take seconds."""
        self._settled.set()
        self._introduced.set()
        waiting = [self._current] if self._current else []
        self._current = None
        for exchange in [*waiting, *self._turns.drain()]:
            exchange.end(self._reason())

    async def _load(self, engine: EngineProcess) -> None:
        started = time.monotonic()
        status = await engine.status()
        self.names.protect(await asyncio.to_thread(built_in_names, engine.binary))
        self.version, self.version_code = status.human_readable_version, status.version_code
        self._introduced.set()
        async with aclosing(self.load.source()) as pieces:
            await engine.feed(pieces)
        if self.load.after_load:
            await self.load.after_load(self)
        self.load_s = round(time.monotonic() - started, 3)

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.ended:
            return
        if self._engine is None:
            raise RuntimeError("requests are taken only once the engine runs")
        self._bloated = self.leaks  # by earlier statements: then this one is not to blame
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
        self.condemn(EngineFailed("The engine heeded no interrupt of a statement, and was ended."))

    async def _notice_end(self, engine: EngineProcess) -> None:
        """An engine that dies while nobody asks it anything ends the session, too."""
        await engine.ended()
        self._turns.fail(await engine.failure())

    async def _watch(self, engine: EngineProcess) -> None:
        """End an engine that takes too much memory, or whose load stands still."""
        load = LoadWatch(self.limits.stall_s)
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            found = reading(engine.pid)
            if found is None:
                continue
            self._peak_bytes = max(self._peak_bytes, found.peak_bytes)
            if self.most_bytes is not None and found.resident_bytes > self.most_bytes:
                self.condemn(self.outgrown(found.resident_bytes))
            elif not engine.loaded and load.stuck(
                engine.loaded_bytes, found.cpu_s, fed=engine.fed, waited_s=engine.waited_s
            ):
                self.condemn(self.stuck(f"{self.limits.stall_s:g} s of processor time or more"))

    def stuck(self, how_long: str) -> EngineStalled:
        """What to say of a load that stands still."""
        return EngineStalled(
            f"The engine came no further for {how_long}, after {self.loaded_bytes} bytes of this trace, and was ended.",
            loaded_bytes=self.loaded_bytes,
            stall_s=self.limits.stall_s,
            fed=bool(self._engine and self._engine.fed),
        )

    def outgrown(self, taken_bytes: int) -> EngineOutOfMemory:
        """What to say of an engine that takes too much memory."""
        return EngineOutOfMemory(
            f"The engine outgrew the {(self.most_bytes or 0) >> 20} MiB of memory that it may take for this trace,"
            f" having taken {taken_bytes >> 20} MiB, and ended.",
            memory_bytes=taken_bytes,
            limit_bytes=self.most_bytes,
            predicted_bytes=self.predicted_bytes,
        )


def sql_error(message: str) -> SqlError:
    """The engine's complaint, with the line and column that it names last."""
    positions = _POSITION.findall(message)
    where: dict[str, int] = {}
    if positions:
        where = dict(zip(("line", "column"), map(int, positions[-1]), strict=True))
    return SqlError(message.rsplit("\n", 1)[-1], message=message, **where)

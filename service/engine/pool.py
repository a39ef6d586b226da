"""The pool of engines: one for each trace or selection in use, with limits on their number and their memory."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from functools import partial
from pathlib import Path

from service.engine.breakers import CircuitBreaker, RequestBreakers, load_refused
from service.engine.engine import Engine, EngineDriver
from service.engine.memory import BASE_BYTES, MemoryModel, memory_limit
from service.engine.resources import machine_memory
from service.engine.session import EngineLimits, Load, Session, SessionState
from service.engine.spool import SpoolBudget
from service.engine.warm import WarmEngine
from service.settings import Settings
from service.store.room import Room
from service.trace.errors import EngineError, EngineOutOfMemory, EngineUnavailable, TooLargeForEngine, TracedockError
from service.trace.selection import Selection

log = logging.getLogger(__name__)

MAINTENANCE_EVERY_S = 1.0
LEAK_IDLE_S = 60.0  # since the last request; until then, a grown engine keeps the tables of its clients
SHARE_OF_MACHINE = 0.6
RETRY_AFTER_S = 10
STALL_TOLERANCE_S = 5.0
"""Seconds for which a load may stall before it makes room for other loads."""
RESTARTS_MAX = 100  # largest number of restarts that is counted


class EnginePool:
    """The sessions, by a key that identifies the trace, the selected part of it, and the loaded arguments of events.

    Args:
        driver: finds the engine's program and starts it.
        limits: the limits of each engine.
        max_engines: engines that may run at the same time.
        idle_s: seconds after which an unused engine is closed.
        memory_bytes: memory for all engines together; a share of the machine's by default.
        crashes_max: number of crashes within ten minutes after which a load, or a statement and similar ones, is
            refused.
    """

    def __init__(
        self,
        driver: EngineDriver,
        limits: EngineLimits,
        *,
        max_engines: int,
        idle_s: float,
        memory_bytes: int | None = None,
        crashes_max: int = 3,
    ) -> None:
        self._driver = driver
        self._limits = limits
        self._max = max_engines
        self._idle_s = idle_s
        self.budget_bytes = memory_bytes or int(machine_memory() * SHARE_OF_MACHINE)
        self._model = MemoryModel()
        self._load_breaker = CircuitBreaker(crashes_max)
        self._restarts = CircuitBreaker(max(crashes_max, RESTARTS_MAX))
        self._request_breakers = RequestBreakers(crashes_max)
        self._warm = WarmEngine(driver, limits.stop_s)
        self._sessions: dict[str, Session] = {}
        self._closing: dict[Session, asyncio.Task[None]] = {}
        self._maintenance: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, settings: Settings, driver: EngineDriver, scratch: Path, room: Room | None = None) -> "EnginePool":
        """Return a pool with the limits of the settings.

        Args:
            settings: the settings.
            driver: the kind of engine.
            scratch: the folder for large results.
            room: the limit of the data folder.
        """
        limits = EngineLimits(
            load_timeout_s=settings.engine_load_timeout_s,
            stop_s=settings.engine_stop_s,
            max_result_bytes=settings.max_result_bytes,
            spool=SpoolBudget(scratch, room, settings.results_bytes),
            stall_s=settings.engine_stall_s,
            ui_timeout_s=settings.ui_timeout_s,
            queue=settings.engine_queue,
        )
        return cls(
            driver,
            limits,
            max_engines=settings.max_engines,
            idle_s=settings.engine_idle_s,
            memory_bytes=settings.engine_memory_bytes,
            crashes_max=settings.engine_deaths,
        )

    def start(self) -> None:
        """Start the maintenance task and the first warm engine."""
        self._maintenance = asyncio.create_task(self._maintain())
        try:
            self._warm.prepare(self._driver.binary())
        except EngineUnavailable as error:
            log.warning("no engine yet: %s", error.detail)

    async def close(self) -> None:
        """Stop all engines."""
        if self._maintenance:
            self._maintenance.cancel()
        for session in self.sessions():
            self._close(session)
        await asyncio.gather(self._warm.close(), *self._closing.values())

    def sessions(self) -> list[Session]:
        """Return the sessions that are open, and those that failed and were not replaced."""
        return list(self._sessions.values())

    def find(self, key: str) -> Session | None:
        """Return the session with that key, if there is one."""
        return self._sessions.get(key)

    @property
    def held_bytes(self) -> int:
        """Memory of all engines, including the predicted memory of loads and the memory of engines that are ending."""
        return sum(session.held_bytes for session in self._all()) + self._warm.memory_bytes

    def open(  # noqa: PLR0913 - together they define a load
        self,
        key: str,
        trace_id: str,
        source: Callable[[], AsyncGenerator[bytes]],
        selection: Selection | None = None,
        *,
        args: str = "all",
        events: int = 0,
        events_max: int = 0,
        original_bytes: int | None = None,
        after_load: Callable[[Session], Awaitable[None]] | None = None,
        client: Hashable = None,
    ) -> Session:
        """Return the session with that key; opens a new one if there is none, or if it is over.

        Args:
            key: identifies the trace, the selected part of it, and the loaded arguments of events.
            trace_id: the trace.
            source: yields the document of the trace.
            selection: the selected part; None for the whole trace.
            args: which arguments of events the document has: `all`, `essential` or `none`.
            events: expected number of events in the document.
            events_max: upper limit of that number, if it is higher.
            original_bytes: expected size of the document in bytes if it is the trace's original.
            after_load: called when the engine has loaded the document, before requests of clients run.
            client: the identity of the client that needs the session.

        Raises:
            EngineUnavailable: no engine is installed, or those in use leave no room for another.
            TooLargeForEngine: the load would exceed the memory for all engines.
            EngineFailed: too many engines have crashed on this load.
            ClientBlocked: the client has crashed too many engines.
        """
        session = self._sessions.get(key)
        if session and not session.over:
            return session
        self._load_breaker.check(key, load_refused)
        self._request_breakers.check_client(client)
        binary = self._driver.binary()
        if original_bytes is None:
            predicted, predicted_max = self._model.predict(args, events), self._model.predict(args, events_max)
        else:
            predicted, predicted_max = self._model.predict_original(original_bytes)
        if predicted > self.budget_bytes:
            raise self._too_large(predicted, args, events, original_bytes)
        for evicted in self._evictions(predicted, client):
            log.info("the engine of trace %s makes room for trace %s", evicted.trace_id, trace_id)
            self._evict(evicted)
        if session:
            self._close(session)
        load = Load(
            trace_id, source, selection, args, events, original_bytes, partial(self._on_loaded, after_load), client
        )
        session = self._sessions[key] = Session(
            load,
            partial(self._start_engine, binary),
            self._limits,
            rpc=self._driver.rpc,
            predicted_bytes=predicted,
            memory_limit_bytes=memory_limit(max(predicted, predicted_max), self.budget_bytes),
            restarts=self._restarts.count(key),
            on_failed=partial(self._on_failed, key),
            admit=self._request_breakers.admit,
        )
        return session

    def _too_large(self, predicted: int, args: str, events: int, original_bytes: int | None) -> TooLargeForEngine:
        """Return the error of a load that takes more than all engines may."""
        what, advice = "all of this", "select less of the trace, or load it with args=essential or none"
        facts: dict[str, object] = {"args": args, "events": events}
        if original_bytes is not None:
            what = f"the {original_bytes >> 20} MiB that the original is expected to have"
            advice, facts = "its columns may take less", {"original_bytes": original_bytes}
        return TooLargeForEngine(
            f"An engine on {what} would take about {predicted >> 20} MiB of memory, and all engines may take"
            f" {self.budget_bytes >> 20} MiB: {advice}.",
            predicted_bytes=predicted,
            budget_bytes=self.budget_bytes,
            **facts,
        )

    async def close_session(self, key: str) -> None:
        """Close the session with that key, if there is one, and forget the crashes on its load."""
        self._load_breaker.reset(key)
        self._restarts.reset(key)
        if session := self._sessions.get(key):
            await asyncio.shield(self._close(session))

    async def close_trace(self, trace_id: str, reason: TracedockError | None = None) -> None:
        """Close all sessions of a trace; their requests end with the reason."""
        tasks = [self._close(session, reason) for session in self.sessions() if session.trace_id == trace_id]
        if tasks:
            await asyncio.shield(asyncio.gather(*tasks))

    # -- room --------------------------------------------------------------------------------------------------

    def _all(self) -> list[Session]:
        return [*self._sessions.values(), *self._closing]

    def _evictions(self, needed_bytes: int, client: Hashable) -> list[Session]:
        """Return the sessions to close so that there is room for a client's load; raises `EngineUnavailable`.

        Idle sessions go first, the longest idle one before the others. Next are stalled loads, then loads of a client
        that has more engines than this client would have.
        """
        running = [session for session in self._sessions.values() if not session.over]
        held, count, evicted = sum(session.held_bytes for session in running), len(running), list[Session]()
        while count >= self._max or held + needed_bytes > self.budget_bytes:
            remaining = [session for session in running if session not in evicted]
            candidate = _longest_idle(remaining) or _longest_stalled(remaining) or _load_beyond_share(remaining, client)
            if not candidate:
                raise self._no_room(running, needed_bytes)
            evicted.append(candidate)
            held -= candidate.held_bytes
            count -= 1
        return evicted

    def _evict(self, session: Session) -> None:
        """Close a session to make room for another; clients that wait for its load receive the reason."""
        if session.stalled_s > STALL_TOLERANCE_S:
            error: EngineError = session.stuck(f"{session.stalled_s:.0f} s while others waited")
            for key in [key for key, other in self._sessions.items() if other is session]:
                self._load_breaker.record(key, error)
            session.error = error
        elif session.busy:
            detail = "The load made room for another client; others load for you. Try again when they are done."
            session.error = EngineUnavailable(detail, retry_after_s=RETRY_AFTER_S)
        self._close(session)

    def _no_room(self, running: list[Session], needed_bytes: int) -> EngineUnavailable:
        if len(running) >= self._max:
            reason = f"All {self._max} engines are in use"
        else:
            reason = f"The engines in use leave less than the {needed_bytes >> 20} MiB of memory that this takes"
        return EngineUnavailable(
            f"{reason}; close one or try again.",
            in_use=[
                {
                    "trace": session.trace_id,
                    "memory_bytes": session.memory_bytes,
                    "predicted_bytes": session.predicted_bytes,
                }
                for session in running
            ],
            needed_bytes=needed_bytes,
            budget_bytes=self.budget_bytes,
            retry_after_s=RETRY_AFTER_S,
        )

    def _has_room(self) -> bool:
        """Return whether all sessions whose engines have not ended are within the limits."""
        remaining = [session for session in self._all() if not session.gone]
        held = sum(session.held_bytes for session in remaining)
        return len(remaining) <= self._max and held <= self.budget_bytes

    async def _start_engine(self, binary: Path, session: Session) -> Engine:
        """Return an engine for a session. If there is no room, wait for evicted engines to end."""
        while not self._has_room() and (ending := [other for other in self._all() if other.over and not other.gone]):
            session.state = SessionState.WAITING
            await ending[0].ended()
        engine = await self._warm.take(binary)
        if session.memory_limit_bytes is not None:
            engine.limit_memory(session.memory_limit_bytes)  # a statement that needs more fails, not the engine
        return engine

    # -- outcomes of sessions ----------------------------------------------------------------------------------

    async def _on_loaded(self, after_load: Callable[[Session], Awaitable[None]] | None, session: Session) -> None:
        if after_load:
            await after_load(session)
        if _is_counted(session):
            self._model.learn(session.load.args, session.load.events, session.peak_bytes or 0)
        if self.held_bytes + BASE_BYTES <= self.budget_bytes:
            self._warm.prepare(self._driver.binary())

    def _on_failed(self, key: str, session: Session, error: TracedockError) -> None:
        if isinstance(error, EngineError):  # other errors, such as an empty selection, are not the engine's
            self._restarts.record(key, error)
            self._record_crash(key, session, error)
        if isinstance(error, EngineOutOfMemory) and _is_counted(session):
            self._model.learn(session.load.args, session.load.events, session.peak_bytes or 0, killed=True)

    def _record_crash(self, key: str, session: Session, error: TracedockError) -> None:
        """Count a crash for its cause: the request, or the load."""
        if fatal := session.fatal_request:
            log.warning("the engine of trace %s died of a request of %s", session.trace_id, fatal.owner)
            self._request_breakers.record(fatal.request.statement, fatal.owner, error)
        elif session.load_s is None:
            self._load_breaker.record(key, error)

    def _close(self, session: Session, reason: TracedockError | None = None) -> asyncio.Task[None]:
        for key in [key for key, other in self._sessions.items() if other is session]:
            del self._sessions[key]
        task = self._closing[session] = asyncio.create_task(session.close(reason))
        task.add_done_callback(lambda _: self._closing.pop(session))
        return task

    async def _maintain(self) -> None:
        """Close engines that have been idle for too long, leaking ones earlier, and enforce the memory budget."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, MAINTENANCE_EVERY_S))
            for session in self.sessions():
                if session.idle_s > self._idle_s:
                    log.info("closing the idle engine of trace %s", session.trace_id)
                    self._close(session)
                elif session.leaks and session.idle_s > LEAK_IDLE_S:
                    log.warning("closing the idle engine of trace %s: it has grown", session.trace_id)
                    self._close(session)
            await self._keep_within_budget()

    async def _keep_within_budget(self) -> None:
        """Above the budget, close the warm engine, else an idle one, else kill that furthest above its prediction."""
        if self.held_bytes <= self.budget_bytes or self._closing or any(other.ending for other in self.sessions()):
            return  # an ending engine frees its memory only after a while; until then, close no other
        if self._warm.memory_bytes:
            await self._warm.close()
            return
        running = [session for session in self._sessions.values() if session.memory_bytes]
        if idle := [session for session in running if not session.busy]:
            self._close(max(idle, key=lambda session: session.idle_s))
        elif running:
            largest = max(running, key=lambda session: (session.memory_bytes or 0) - session.predicted_bytes)
            largest.kill(largest.outgrown(largest.memory_bytes or 0))


def _is_counted(session: Session) -> bool:
    """Return whether the number of loaded events is known: that of a selection is an estimate."""
    return session.selection is None and not session.load.is_original


def _longest_idle(sessions: list[Session]) -> Session | None:
    idle = [session for session in sessions if not session.busy]
    return max(idle, key=lambda session: session.idle_s, default=None)


def _longest_stalled(sessions: list[Session]) -> Session | None:
    stalled = [session for session in sessions if session.stalled_s > STALL_TOLERANCE_S]
    return max(stalled, key=lambda session: session.stalled_s, default=None)


def _load_beyond_share(sessions: list[Session], client: Hashable) -> Session | None:
    """Return the newest load of the client with the most engines, or None.

    After the eviction and the new load, that client must still have at least as many engines as `client`.
    """
    engines = Counter(session.load.client for session in sessions)
    loads = [session for session in sessions if session.state in (SessionState.WAITING, SessionState.LOADING)]
    surplus = [session for session in loads if engines[session.load.client] > engines[client] + 1]
    return max(reversed(surplus), key=lambda session: engines[session.load.client], default=None)

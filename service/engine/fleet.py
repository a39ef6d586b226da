"""All engines: one for each trace that is asked, no more than there is memory for, none alive that nobody needs."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any

from service.engine import provision, sql
from service.engine.deaths import Blame, Deaths, load_refused
from service.engine.memory import BASE_BYTES, MemoryModel, cap
from service.engine.process import EngineProcess
from service.engine.session import EngineLimits, Load, Session, SessionState
from service.engine.spare import Launch, Spare
from service.engine.spool import SpoolBudget
from service.engine.watch import machine_memory
from service.settings import Settings
from service.store.room import Room
from service.trace.errors import EngineError, EngineOutOfMemory, EngineUnavailable, TooLargeForEngine, TracedockError

log = logging.getLogger(__name__)

TEND_EVERY_S = 1.0
LEAK_IDLE_S = 60.0  # an engine that has grown keeps what clients made in it for so long
SHARE_OF_MACHINE = 0.6
RETRY_AFTER_S = 10
IMPATIENT_S = 5.0
"""Seconds after which a load that stands still makes room for others."""
RESTARTS_MAX = 100  # that are counted


class Fleet:
    """The sessions, by a key that tells the trace and what of it.

    Args:
        binary: finds the engine; may raise `EngineUnavailable`.
        limits: the bounds of each engine.
        max_engines: how many may be alive.
        idle_s: seconds after which an unused engine is closed.
        memory_bytes: what all engines together may take; a share of the machine's by default.
        deaths: how often within ten minutes engines may die of the load of a key, or of alike statements.
        launch: starts an engine.
    """

    def __init__(
        self,
        binary: Callable[[], Path],
        limits: EngineLimits,
        *,
        max_engines: int,
        idle_s: float,
        memory_bytes: int | None = None,
        deaths: int = 3,
        launch: Launch = EngineProcess.start,
    ) -> None:
        self._binary = binary
        self._limits = limits
        self._max = max_engines
        self._idle_s = idle_s
        self.budget_bytes = memory_bytes or int(machine_memory() * SHARE_OF_MACHINE)
        self._model = MemoryModel()
        self._deaths = Deaths(deaths)
        self._restarts = Deaths(max(deaths, RESTARTS_MAX))
        self._blame = Blame(deaths)
        self._spare = Spare(launch, limits.stop_s)
        self._sessions: dict[str, Session] = {}
        self._leaving: dict[Session, asyncio.Task[None]] = {}
        self._tending: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, settings: Settings, scratch: Path, room: Room | None = None) -> "Fleet":
        """A fleet as it is set; large results lie in `scratch`, as far as there is room."""
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
            lambda: provision.engine_path(settings), limits,
            max_engines=settings.max_engines,
            idle_s=settings.engine_idle_s,
            memory_bytes=settings.engine_memory_bytes,
            deaths=settings.engine_deaths,
            launch=partial(EngineProcess.start, package=sql.PACKAGE, sandbox=settings.engine_sandbox != "off"),
        )  # fmt: skip

    def start(self) -> None:
        """Begin to look after the engines, and start one that waits for its trace."""
        self._tending = asyncio.create_task(self._tend())
        try:
            self._spare.prepare(self._binary())
        except EngineUnavailable as error:
            log.warning("no engine yet: %s", error.detail)

    async def close(self) -> None:
        """Stop every engine."""
        if self._tending:
            self._tending.cancel()
        for session in self.sessions():
            self._retire(session)
        await asyncio.gather(self._spare.close(), *self._leaving.values())

    def sessions(self) -> list[Session]:
        """The sessions that are alive, and those that failed and have not been asked again."""
        return list(self._sessions.values())

    def find(self, key: str) -> Session | None:
        """The session of that key, if there is one."""
        return self._sessions.get(key)

    @property
    def held_bytes(self) -> int:
        """Memory that counts as taken: by all engines, those that are about to load or to end among them."""
        return sum(session.held_bytes for session in self._all()) + self._spare.memory_bytes

    def open(  # noqa: PLR0913 - all of it tells one load from another
        self,
        key: str,
        trace_id: str,
        source: Callable[[], AsyncGenerator[bytes]],
        selection: dict[str, Any] | None = None,
        *,
        args: str = "all",
        events: int = 0,
        events_max: int = 0,
        after_load: Callable[[Session], Awaitable[None]] | None = None,
        client: Hashable = None,
    ) -> Session:
        """The session of that key, begun if there is none that can be used.

        Args:
            key: what tells it from others: the trace, and what of it.
            trace_id: the trace.
            source: what yields its document.
            selection: what of the trace it is on, where that is not all, as JSON values.
            args: how much of the events' arguments the document has: `all`, `essential` or `none`.
            events: how many events the document has, as far as it is known.
            events_max: how many it has at most, where that is not the same.
            after_load: is run once the engine has the trace, before anyone may ask.
            client: the identity of the client that needs it.

        Raises:
            EngineUnavailable: no engine is installed, or those in use leave no room for another.
            TooLargeForEngine: the trace would take more memory than all engines may.
            EngineFailed: its engine has died too often lately.
            ClientBlocked: the client has ended too many engines lately.
        """
        session = self._sessions.get(key)
        if session and not session.over:
            return session
        self._deaths.check(key, load_refused)
        self._blame.check_client(client)
        binary = self._binary()
        predicted = self._model.predicted(args, events)
        if predicted > self.budget_bytes:
            raise TooLargeForEngine(
                f"An engine on all of this would take about {predicted >> 20} MiB of memory, and all engines may take"
                f" {self.budget_bytes >> 20} MiB: select less of the trace, or load it with args=essential or none.",
                predicted_bytes=predicted, budget_bytes=self.budget_bytes, args=args, events=events,
            )  # fmt: skip
        for leaving in self._to_make_room(predicted, client):
            log.info("the engine of trace %s makes room for trace %s", leaving.trace_id, trace_id)
            self._make_way(leaving)
        if session:
            self._retire(session)
        load = Load(trace_id, source, selection, args, events, partial(self._loaded, after_load), client)
        session = self._sessions[key] = Session(
            load,
            partial(self._engine, binary),
            self._limits,
            predicted_bytes=predicted,
            most_bytes=cap(self._model.predicted(args, max(events, events_max)), self.budget_bytes),
            restarts=self._restarts.count(key),
            on_failed=partial(self._failed, key),
            admit=lambda exchange: self._blame.check(exchange.request, exchange.owner),
        )
        return session

    async def shut(self, key: str) -> None:
        """Close the session of that key, if there is one; what its loads died of is forgotten."""
        self._deaths.forget(key)
        self._restarts.forget(key)
        if session := self._sessions.get(key):
            await asyncio.shield(self._retire(session))

    async def shut_all(self, trace_id: str, reason: TracedockError | None = None) -> None:
        """Close all sessions of a trace; their clients are told the reason."""
        closing = [self._retire(session, reason) for session in self.sessions() if session.trace_id == trace_id]
        if closing:
            await asyncio.shield(asyncio.gather(*closing))

    # -- room --------------------------------------------------------------------------------------------------

    def _all(self) -> list[Session]:
        return [*self._sessions.values(), *self._leaving]

    def _to_make_room(self, needed_bytes: int, client: Hashable) -> list[Session]:
        """The sessions without which there is room for a client; raises `EngineUnavailable`.

        Idle ones go first, those idle longest before others; then loads that stand still; then loads of a client that
        has more engines than this one would have.
        """
        alive = [session for session in self._sessions.values() if not session.over]
        held, count, chosen = sum(session.held_bytes for session in alive), len(alive), list[Session]()
        while count >= self._max or held + needed_bytes > self.budget_bytes:
            left = [session for session in alive if session not in chosen]
            leaving = _longest_idle(left) or _longest_stalled(left) or _load_beyond_share(left, client)
            if not leaving:
                raise self._full(alive, needed_bytes)
            chosen.append(leaving)
            held -= leaving.held_bytes
            count -= 1
        return chosen

    def _make_way(self, session: Session) -> None:
        """Close a session for another one; whoever waits for its load learns why."""
        if session.stalled_s > IMPATIENT_S:
            error: EngineError = session.stuck(f"{session.stalled_s:.0f} s while others waited")
            for key in [key for key, known in self._sessions.items() if known is session]:
                self._deaths.note(key, error)
            session.error = error
        elif session.busy:
            detail = "The load made room for another client; others load for you. Try again when they are done."
            session.error = EngineUnavailable(detail, retry_after_s=RETRY_AFTER_S)
        self._retire(session)

    def _full(self, alive: list[Session], needed_bytes: int) -> EngineUnavailable:
        if len(alive) >= self._max:
            why = f"All {self._max} engines are in use"
        else:
            why = f"The engines in use leave less than the {needed_bytes >> 20} MiB of memory that this takes"
        return EngineUnavailable(
            f"{why}; close one or try again.",
            in_use=[
                {"trace": one.trace_id, "memory_bytes": one.memory_bytes, "predicted_bytes": one.predicted_bytes}
                for one in alive
            ],
            needed_bytes=needed_bytes,
            budget_bytes=self.budget_bytes,
            retry_after_s=RETRY_AFTER_S,
        )

    def _has_room(self) -> bool:
        """Whether there is room for all that were let in, by now."""
        taking = [one for one in self._all() if not one.gone]
        held = sum(one.held_bytes for one in taking)
        return len(taking) <= self._max and held <= self.budget_bytes

    async def _engine(self, binary: Path, session: Session) -> EngineProcess:
        """An engine for a session, once those that make room for it are gone."""
        while not self._has_room() and (ending := [one for one in self._all() if one.over and not one.gone]):
            session.state = SessionState.WAITING
            await ending[0].ended()
        engine = await self._spare.take(binary)
        if session.most_bytes is not None:
            engine.limit_memory(session.most_bytes)  # a statement that asks for more fails, and the engine lives on
        return engine

    # -- what becomes of sessions ------------------------------------------------------------------------------

    async def _loaded(self, after_load: Callable[[Session], Awaitable[None]] | None, session: Session) -> None:
        if after_load:
            await after_load(session)
        if session.selection is None:  # of a selection, the events are a guess
            self._model.learn(session.load.args, session.load.events, session.peak_bytes or 0)
        if self.held_bytes + BASE_BYTES <= self.budget_bytes:
            self._spare.prepare(self._binary())

    def _failed(self, key: str, session: Session, error: TracedockError) -> None:
        if isinstance(error, EngineError):  # not a selection that the trace has nothing of
            self._restarts.note(key, error)
            self._accuse(key, session, error)
        if isinstance(error, EngineOutOfMemory) and session.selection is None:
            self._model.learn(session.load.args, session.load.events, session.peak_bytes or 0, killed=True)

    def _accuse(self, key: str, session: Session, error: TracedockError) -> None:
        """Count a death where its cause lies: in the request, or in what could not be loaded."""
        if culprit := session.culprit:
            log.warning("the engine of trace %s died of a request of %s", session.trace_id, culprit.owner)
            self._blame.note(culprit.request, culprit.owner, error)
        elif session.load_s is None:
            self._deaths.note(key, error)

    def _retire(self, session: Session, reason: TracedockError | None = None) -> asyncio.Task[None]:
        for key in [key for key, one in self._sessions.items() if one is session]:
            del self._sessions[key]
        task = self._leaving[session] = asyncio.create_task(session.close(reason))
        task.add_done_callback(lambda _: self._leaving.pop(session))
        return task

    async def _tend(self) -> None:
        """Close engines that are idle for long or leak, and keep them all within their memory."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, TEND_EVERY_S))
            for session in self.sessions():
                if session.idle_s > self._idle_s:
                    log.info("closing the idle engine of trace %s", session.trace_id)
                    self._retire(session)
                elif session.leaks and session.idle_s > LEAK_IDLE_S:
                    log.warning("closing the idle engine of trace %s: it has grown", session.trace_id)
                    self._retire(session)
            await self._keep_within_budget()

    async def _keep_within_budget(self) -> None:
        """Engines grow after they were let in: one that is idle has to go, or the one that has grown most."""
        if self.held_bytes <= self.budget_bytes or self._leaving or any(one.ending for one in self.sessions()):
            return  # to give much memory back takes a while, in which no other engine has to go
        if self._spare.memory_bytes:
            await self._spare.close()
            return
        alive = [session for session in self._sessions.values() if session.memory_bytes]
        if idle := [session for session in alive if not session.busy]:
            self._retire(max(idle, key=lambda session: session.idle_s))
        elif alive:
            grown = max(alive, key=lambda session: (session.memory_bytes or 0) - session.predicted_bytes)
            grown.condemn(grown.outgrown(grown.memory_bytes or 0))


def _longest_idle(sessions: list[Session]) -> Session | None:
    idle = [session for session in sessions if not session.busy]
    return max(idle, key=lambda session: session.idle_s, default=None)


def _longest_stalled(sessions: list[Session]) -> Session | None:
    stalled = [session for session in sessions if session.stalled_s > IMPATIENT_S]
    return max(stalled, key=lambda session: session.stalled_s, default=None)


def _load_beyond_share(sessions: list[Session], client: Hashable) -> Session | None:
    """The last load of the client with most engines, if that still has no fewer than the other one after it."""
    engines = Counter(session.load.client for session in sessions)
    loads = [session for session in sessions if session.state in (SessionState.WAITING, SessionState.LOADING)]
    spare = [session for session in loads if engines[session.load.client] > engines[client] + 1]
    return max(reversed(spare), key=lambda session: engines[session.load.client], default=None)

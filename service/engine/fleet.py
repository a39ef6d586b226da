"""All engines: one for each trace that is asked, no more at once than allowed, none alive that nobody needs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from service.engine.session import EngineLimits, Session
from service.trace.errors import EngineUnavailable

log = logging.getLogger(__name__)


class Fleet:
    """The sessions, by trace.

    Args:
        binary: finds the engine; may raise `EngineUnavailable`.
        limits: the bounds of each engine.
        max_engines: how many may be alive.
        idle_s: seconds after which an unused engine is closed.
    """

    def __init__(self, binary: Callable[[], Path], limits: EngineLimits, *, max_engines: int, idle_s: float) -> None:
        self._binary = binary
        self._limits = limits
        self._max = max_engines
        self._idle_s = idle_s
        self._sessions: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._janitor: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to close idle engines."""
        self._janitor = asyncio.create_task(self._close_idle())

    async def close(self) -> None:
        """Stop every engine."""
        if self._janitor:
            self._janitor.cancel()
        for session in self.sessions():
            self._retire(session)
        await asyncio.gather(*self._closing)

    def sessions(self) -> list[Session]:
        """The sessions that are alive, and those that failed and have not been asked again."""
        return list(self._sessions.values())

    def find(self, trace_id: str) -> Session | None:
        """The session of a trace, if it has one."""
        return self._sessions.get(trace_id)

    def open(self, trace_id: str, original: Path, prepare: Callable[[], Awaitable[object]] | None = None) -> Session:
        """The session of a trace, begun if it has none that can be used.

        Args:
            trace_id: the trace.
            original: its file.
            prepare: makes that file, if it has to be made.

        Raises:
            EngineUnavailable: no engine is installed, or all that may be alive are in use.
        """
        session = self._sessions.get(trace_id)
        if session and not session.over:
            return session
        binary = self._binary()
        if session:
            self._retire(session)
        self._make_room()
        session = self._sessions[trace_id] = Session(trace_id, original, binary, self._limits, prepare)
        return session

    async def shut(self, trace_id: str) -> None:
        """Close the session of a trace, if it has one."""
        if session := self._sessions.get(trace_id):
            await asyncio.shield(self._retire(session))

    def _make_room(self) -> None:
        alive = [session for session in self._sessions.values() if not session.over]
        if len(alive) < self._max:
            return
        idle = [session for session in alive if not session.busy]
        if not idle:
            raise EngineUnavailable(
                f"All {self._max} engines are in use; close one or try again.",
                in_use=[session.trace_id for session in alive],
                retry_after_s=10,
            )
        self._retire(max(idle, key=lambda session: session.idle_s))

    def _retire(self, session: Session) -> asyncio.Task[None]:
        if self._sessions.get(session.trace_id) is session:
            del self._sessions[session.trace_id]
        task = asyncio.create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(min(self._idle_s / 4, 30.0))
            for session in self.sessions():
                if session.idle_s > self._idle_s:
                    log.info("closing the idle engine of trace %s", session.trace_id)
                    self._retire(session)

"""All engines: one for each trace that is asked, no more at once than allowed, none alive that nobody needs."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.engine.session import EngineLimits, Session, Source
from service.trace.errors import EngineUnavailable

log = logging.getLogger(__name__)


class Fleet:
    """The sessions, by a key that tells the trace and what of it.

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

    def find(self, key: str) -> Session | None:
        """The session of that key, if there is one."""
        return self._sessions.get(key)

    def open(self, key: str, trace_id: str, source: Source, selection: dict[str, Any] | None = None) -> Session:
        """The session of that key, begun if there is none that can be used.

        Args:
            key: what tells it from others: the trace, and what of it.
            trace_id: the trace.
            source: its file, or what yields its document.
            selection: what of the trace it is on, where that is not all, as JSON values.

        Raises:
            EngineUnavailable: no engine is installed, or all that may be alive are in use.
        """
        session = self._sessions.get(key)
        if session and not session.over:
            return session
        binary = self._binary()
        if session:
            self._retire(session)
        self._make_room()
        session = self._sessions[key] = Session(trace_id, source, binary, self._limits, selection)
        return session

    async def shut(self, key: str) -> None:
        """Close the session of that key, if there is one."""
        if session := self._sessions.get(key):
            await asyncio.shield(self._retire(session))

    async def shut_all(self, trace_id: str) -> None:
        """Close all sessions of a trace."""
        closing = [self._retire(session) for session in self.sessions() if session.trace_id == trace_id]
        if closing:
            await asyncio.shield(asyncio.gather(*closing))

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
        for key in [key for key, one in self._sessions.items() if one is session]:
            del self._sessions[key]
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

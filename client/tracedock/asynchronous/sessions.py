"""Sessions, which are the engines of traces, and the listener for ui.perfetto.dev."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from tracedock.asynchronous.resource import AsyncResource
from tracedock.messages import (
    Json,
    Ref,
    SelectionLike,
    id_of,
    trace_path,
    view,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tracedock.selection import Criteria


class AsyncSessions(AsyncResource):
    """The methods of sessions and the listener."""

    async def sessions(self) -> Json:
        """Return the server's engines, `{"sessions", "memory": {"held_bytes", "budget_bytes"}}`."""
        return await self._connection.json("GET", "sessions")

    async def session(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        args: str = "all",
        source: Optional[str] = None,
        **criteria: Unpack[Criteria],
    ) -> Json:
        """Return the session of the trace, of a selection of it, or of its original (`source`)."""
        params = view(selection, criteria, args, source)
        return await self._connection.json("GET", f"{trace_path(trace)}/session", params=params)

    async def open_session(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        args: str = "all",
        source: Optional[str] = None,
        wait: float = 0,
        **criteria: Unpack[Criteria],
    ) -> Json:
        """Start the engine unless it runs, wait at most `wait` seconds until it is ready, and return its session."""
        params = view(selection, criteria, args, source)
        return await self._held("POST", f"{trace_path(trace)}/session", wait, params)

    async def close_session(
        self,
        trace: Ref,
        *,
        selection: SelectionLike = None,
        args: str = "all",
        source: Optional[str] = None,
        **criteria: Unpack[Criteria],
    ) -> None:
        """Stop the engine of the trace, of a selection of it, or of its original (`source`)."""
        params = view(selection, criteria, args, source)
        await self._connection.answer("DELETE", f"{trace_path(trace)}/session", params=params)

    async def listener(self) -> Json:
        """Return `{"enabled", "host", "port", "trace", "error"}` of the listener for ui.perfetto.dev."""
        return await self._connection.json("GET", "listener")

    async def listen(self, trace: Ref) -> Json:
        """Choose the trace that the listener serves."""
        return await self._connection.json("PUT", "listener", json={"trace": id_of(trace)})

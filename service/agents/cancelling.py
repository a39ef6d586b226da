"""Cancellation of calls over HTTP.

A client of the protocol of 2026-07-28 cancels a call by closing the response. Older clients send
``notifications/cancelled`` in a further request instead, with the id of the call. Such ids are unique only for one
client, so older clients receive a session id, which they send in each request. Nothing else belongs to a session: after
a restart, the server accepts the ids that it gave before.
"""

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any, Generic, NamedTuple, Self, TypeVar

import orjson
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

Result = TypeVar("Result")

CANCELLED = "notifications/cancelled"
_NOTIFICATION_MAX = 16 << 10
"""Maximum bytes of a notification of a cancellation."""


class CallKey(NamedTuple):
    """Identifies a call: its session, the caller's name, and the id that the client gave to the call."""

    session: str
    visitor: str
    call_id: Any

    @classmethod
    def of(cls, request: Request | None, call_id: Any) -> Self | None:
        """Return the key of a call in a request; None outside of sessions."""
        return None if request is None else cls.in_scope(request.scope, call_id)

    @classmethod
    def in_scope(cls, scope: Scope, call_id: Any) -> Self | None:
        """Return the key of a call in a request with this ASGI scope; None outside of sessions."""
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        visitor = scope.get("visitor")
        return cls(session, visitor.name if visitor else "", call_id) if session else None


class Calls(Generic[Result]):
    """The calls that are worked on."""

    def __init__(self) -> None:
        self._cancellable: dict[CallKey, asyncio.Task[Result]] = {}
        self._working: set[asyncio.Task[Result]] = set()
        """All tasks, which the event loop itself would not keep alive."""

    async def result(self, key: CallKey | None, work: Coroutine[Any, Any, Result]) -> Result | None:
        """Return the result of a call, or None if its client has cancelled it; `key` is None outside of sessions.

        If the caller is cancelled, so is the work, but only once: anyio cancels a task again and again, which would
        also interrupt the end of the work, such as the closing of its connection.
        """
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        if key:
            self._cancellable[key] = task
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            if key and self._cancellable.get(key) is task:
                del self._cancellable[key]
        return None if task.cancelled() else task.result()

    def watching(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that cancels the call which the body names, if it is a notification of a cancellation."""
        body = bytearray()

        async def receive_watched() -> Message:
            message = await receive()
            if message["type"] == "http.request" and len(body) <= _NOTIFICATION_MAX:
                body.extend(message.get("body", b""))
                if not message.get("more_body") and CANCELLED.encode() in body[:_NOTIFICATION_MAX]:
                    self._cancel(scope, bytes(body))
            return message

        return receive_watched

    def _cancel(self, scope: Scope, body: bytes) -> None:
        match _parsed(body):
            case {"method": "notifications/cancelled", "params": {"requestId": int() | str() as call_id}}:
                key = CallKey.in_scope(scope, call_id)
                if key and (task := self._cancellable.get(key)):
                    task.cancel()

    @staticmethod
    def naming(scope: Scope, send: Send) -> Send:
        """Return a `send` that gives an older client a session id, unless it has one."""
        headers = Headers(scope=scope)
        if MCP_SESSION_ID_HEADER in headers or headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            return send

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[MCP_SESSION_ID_HEADER] = secrets.token_hex(16)
            await send(message)

        return send_named


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None  # the SDK answers with the error

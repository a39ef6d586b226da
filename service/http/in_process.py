"""HTTP requests to the app from inside the process: they pass all middlewares, like those of a client."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
from starlette.types import ASGIApp, Message, Scope

log = logging.getLogger(__name__)

FORWARDED = frozenset({b"authorization", b"cookie", b"host", b"origin", b"sec-fetch-site", b"user-agent"})
"""The header fields that identify a client."""
_PIECES_MAX = 4
"""Pieces of a body that wait for their reader."""


class InProcessTransport(httpx.AsyncBaseTransport):
    """Sends requests to an ASGI app on behalf of the client of another request: by its address and its credentials.

    Bodies of responses are streamed. Closing a response before its end is a disconnect for the app.

    Args:
        app: the app.
        scope: the ASGI scope of the client's request.
    """

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._app = app
        self._scope = scope

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response once its head is there."""
        exchange = _Exchange(self._app, self._scope_of(request), await request.aread())
        try:
            start = await exchange.start()
        except BaseException:
            await exchange.aclose()
            raise
        return httpx.Response(start["status"], headers=start["headers"], stream=exchange)

    def _scope_of(self, request: httpx.Request) -> Scope:
        client_fields = [(name, value) for name, value in self._scope["headers"] if name in FORWARDED]
        own_fields = [(name.lower(), value) for name, value in request.headers.raw]
        copied = {key: self._scope.get(key) for key in ("asgi", "client", "server", "scheme", "root_path")}
        return {
            **copied,
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "headers": [*client_fields, *_without(own_fields, FORWARDED | {b"accept-encoding", b"connection"})],
        }


def client(app: ASGIApp, scope: Scope, base_url: str) -> httpx.AsyncClient:
    """Return a client that sends its requests to an ASGI app; see `InProcessTransport`."""
    return httpx.AsyncClient(transport=InProcessTransport(app, scope), base_url=base_url)


def _without(fields: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in fields if name not in names]


class _Exchange(httpx.AsyncByteStream):
    """A request that the app answers in a task of its own, and the body of the response."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._request: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._messages: asyncio.Queue[Message] = asyncio.Queue(_PIECES_MAX)
        self._closed = asyncio.Event()
        self._task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        await app(scope, self._receive, self._messages.put)

    async def start(self) -> Message:
        """Return the head of the response."""
        return await self._next()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._next()
            yield message.get("body", b"")
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        """End the request, and return once the app has ended its work on it."""
        self._closed.set()
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()):
            log.error("a request from inside the process failed", exc_info=error)

    async def _receive(self) -> Message:
        if self._request:
            return self._request.pop()
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _next(self) -> Message:
        """Return the next message of the app; raises its error, or `httpx.ReadError` if it ends without a message."""
        getting: asyncio.Task[Any] = asyncio.create_task(self._messages.get())
        try:
            await asyncio.wait([getting, self._task], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done() and self._messages.empty():
                self._task.result()
                raise httpx.ReadError("the response ended early")
            message: Message = await getting
            return message
        finally:
            getting.cancel()

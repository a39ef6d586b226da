"""The methods middleware: answers HEAD and OPTIONS on each path, and completes ``Allow`` headers."""

import asyncio
import re
from collections.abc import Callable
from functools import cached_property

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FILE_METHODS = frozenset({"GET", "HEAD"})
"""Methods of a mounted app: it serves static files."""


class MethodsMiddleware:
    """Answers HEAD and OPTIONS on paths whose routes do not, and lists all methods of a path in ``Allow``.

    Args:
        app: the app with the routes.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send_with_allow = _AllowHeader(send, scope["method"], lambda: self._allow(scope["path"]))
        declared = self._declared(scope["path"]) if scope["method"] in ("HEAD", "OPTIONS") else frozenset[str]()
        if not declared or scope["method"] in declared:
            await self._app(scope, receive, send_with_allow)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self._allow(scope["path"])})(scope, receive, send)
        elif "GET" in declared:
            await _head(self._app, scope, receive, send_with_allow)
        else:
            await self._app(scope, receive, send_with_allow)

    @cached_property
    def _routes(self) -> list[tuple[re.Pattern[str], frozenset[str]]]:
        """The path pattern and the methods of each route."""
        routes = []
        for context in iter_route_contexts(self._app.routes):
            methods = _FILE_METHODS if isinstance(context.original_route, Mount) else frozenset(context.methods or ())
            if methods:
                routes.append((context.path_regex, methods))
        return routes

    def _declared(self, path: str) -> frozenset[str]:
        """Return the methods of all routes that match the path.

        A route whose parameter matches several segments counts only if no other route matches.
        """
        matches = [(match, methods) for regex, methods in self._routes if (match := regex.match(path))]
        exact = [methods for match, methods in matches if not any("/" in value for value in match.groups())]
        return frozenset().union(*(exact or [methods for _, methods in matches]))

    def _allow(self, path: str) -> str:
        """Return the value of ``Allow`` for a path, with the methods that this middleware adds."""
        declared = self._declared(path)
        return ", ".join(sorted(declared | {"OPTIONS"} | ({"HEAD"} if "GET" in declared else set())))


class _AllowHeader:
    """Sends a response; in one to OPTIONS, and in a 405, ``Allow`` then lists all methods of the path."""

    def __init__(self, send: Send, method: str, allow: Callable[[], str]) -> None:
        self._send = send
        self._method = method
        self._allow = allow

    async def __call__(self, message: Message) -> None:
        is_head = message["type"] == "http.response.start"
        if is_head and (message["status"] == 405 or self._method == "OPTIONS"):
            MutableHeaders(scope=message)["Allow"] = self._allow()
        await self._send(message)


async def _head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Handle the request as GET, and cancel it once the head of its response is sent."""
    head_sent = asyncio.Event()
    get_scope: Scope = {**scope, "method": "GET"}

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            head_sent.set()

    async def answer() -> None:
        await app(get_scope, receive, send_head)

    answering, waiting = asyncio.create_task(answer()), asyncio.create_task(head_sent.wait())
    try:
        await asyncio.wait([answering, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, waiting):
            task.cancel()
        await asyncio.wait([answering, waiting])
        scope["route"] = get_scope.get("route")  # the metrics read it from the request's own scope
    if not answering.cancelled():
        answering.result()

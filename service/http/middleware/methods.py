"""Methods that all resources have: HEAD where there is GET, OPTIONS, and an ``Allow`` that lists all of a path."""

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

_FILES = frozenset({"GET", "HEAD"})
"""The methods of a mounted folder."""


class MethodsMiddleware:
    """Answers HEAD and OPTIONS for routes of an app that have none of their own, and completes ``Allow``.

    Args:
        app: the app.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Allowing(send, lambda: self._allow(scope["path"]))
        declared = self._declared(scope["path"]) if scope["method"] in ("HEAD", "OPTIONS") else frozenset[str]()
        if not declared or scope["method"] in declared:
            await self._app(scope, receive, answer)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self._allow(scope["path"])})(scope, receive, send)
        elif "GET" in declared:
            await _head(self._app, scope, receive, answer)
        else:
            await self._app(scope, receive, answer)

    @cached_property
    def _routes(self) -> list[tuple[re.Pattern[str], frozenset[str]]]:
        """The pattern of each path, and its methods."""
        routes = []
        for context in iter_route_contexts(self._app.routes):
            methods = _FILES if isinstance(context.original_route, Mount) else frozenset(context.methods or ())
            if methods:
                routes.append((context.path_regex, methods))
        return routes

    def _declared(self, path: str) -> frozenset[str]:
        """The methods of all routes that take the path.

        A route for any path below a folder counts only where no other takes it: a name of a file has no slash.
        """
        matches = [(found, methods) for regex, methods in self._routes if (found := regex.match(path))]
        exact = [methods for found, methods in matches if not any("/" in value for value in found.groups())]
        return frozenset().union(*(exact or [methods for _, methods in matches]))

    def _allow(self, path: str) -> str:
        declared = self._declared(path)
        return ", ".join(sorted(declared | {"OPTIONS"} | ({"HEAD"} if "GET" in declared else set())))


class _Allowing:
    """Sends an answer; a 405 with the methods that the path has."""

    def __init__(self, send: Send, allow: Callable[[], str]) -> None:
        self._send = send
        self._allow = allow

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 405:
            MutableHeaders(scope=message)["Allow"] = self._allow()
        await self._send(message)


async def _head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as to GET, up to the head; what would write the body is cancelled."""
    sent = asyncio.Event()
    asked: Scope = {**scope, "method": "GET"}

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            sent.set()

    async def answer() -> None:
        await app(asked, receive, send_head)

    answering, head = asyncio.create_task(answer()), asyncio.create_task(sent.wait())
    try:
        await asyncio.wait([answering, head], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, head):
            task.cancel()
        await asyncio.wait([answering, head])
        scope["route"] = asked.get("route")  # for the metrics
    if not answering.cancelled():
        answering.result()

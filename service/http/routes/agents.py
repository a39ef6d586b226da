"""``/mcp``: the tools for agents, by the Model Context Protocol over streamable HTTP."""

import asyncio
from importlib import import_module
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import URL
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.declarations import declares

PATH = "/mcp"
_API = "/api/v1"


class AgentEndpoint:
    """Answers the requests of agents, with the API as their tools use it.

    The tools send requests to the API of this process, with the credentials and from the address of the agent. So they
    have the same rights and limits as any client.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["method"] == "DELETE":  # an older client ends its session, to which nothing belongs
            await Response(status_code=204)(scope, receive, send)
            return
        # The first request loads the SDK, which takes about a second: neither the start nor other requests wait for it.
        server, in_process = await asyncio.to_thread(_late_modules)
        whole: ASGIApp = scope["app"].state.whole
        url = str(URL(scope=scope).replace(path=scope.get("root_path", ""), query="", fragment=""))
        async with in_process.client(whole, scope, url + _API) as http:
            await server.answer_http(http, url, scope, receive, send)


def _late_modules() -> tuple[Any, Any]:
    return import_module("service.agents.server"), import_module("service.http.in_process")


def mount(app: FastAPI) -> None:
    """Add the endpoint to the app, whose state must have the `whole` app: with all middlewares."""
    app.add_route(PATH, declares("read")(AgentEndpoint()), methods=["POST", "DELETE"], include_in_schema=False)  # type: ignore[arg-type] # Starlette takes ASGI apps, too

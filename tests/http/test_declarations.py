"""Every route declares itself, and middlewares read the declaration of the route that answers."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.routing import Mount, WebSocketRoute
from starlette.types import Receive, Scope, Send

from service.app import Application
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import (
    WEBSOCKET,
    Declaration,
    RouteTable,
    declaration_of,
    declares,
)
from service.http.hosts import SAFE
from service.http.middleware.routing import RouteMiddleware, call_of
from service.settings import Settings

AMBIGUOUS = ["merge", "import", "query", "a/b", "x/query", "x/session", "x/split", "merge/split", "x/y/split", ""]
"""Names of traces that are also parts of other paths."""

APP = Application(Settings(data=Path("unused"))).app
TABLE = RouteTable(APP.routes)


def unsafe_routes() -> Iterator[tuple[str, RouteContext]]:
    """Yield each unsafe method of each route, with the route."""
    for route in iter_route_contexts(APP.routes):
        if isinstance(route.original_route, WebSocketRoute):
            yield WEBSOCKET, route
        elif not isinstance(route.original_route, Mount):
            for method in sorted((route.methods or set()) - SAFE):
                yield method, route


UNSAFE = list(unsafe_routes())


def test_each_unsafe_route_declares_itself() -> None:
    assert len(UNSAFE) > 20
    undeclared = [(method, route.path) for method, route in UNSAFE if declaration_of(route.endpoint) is None]
    assert undeclared == []


def test_each_route_that_needs_write_scope_is_in_the_audit_log() -> None:
    audits = [
        (method, route.path, declaration.audit)
        for method, route in UNSAFE
        if (declaration := declaration_of(route.endpoint)) and declaration.scope == "write"
    ]
    assert audits
    assert [(method, path) for method, path, audit in audits if not audit] == []


def named_routes() -> list[tuple[str, RouteContext]]:
    """Return each method of each route of the API, with the route."""
    routes = [route for route in iter_route_contexts(APP.routes) if isinstance(route.original_route, APIRoute)]
    return [(method, route) for route in routes for method in sorted(route.methods or ())]


def test_no_route_is_hidden_by_an_earlier_one() -> None:
    hidden = []
    for method, route in named_routes():
        path = re.sub(r"\{\w+(:path)?\}", "name", str(route.path))
        first = next(other for name, other in named_routes() if name == method and other.path_regex.match(path))
        if first.path != route.path:
            hidden.append((method, route.path, first.path))
    assert hidden == []


def test_bodies_that_are_read_into_memory_are_bounded() -> None:
    routes = [(method, route.path, route.original_route) for method, route in named_routes()]
    with_body = [(method, path, route) for method, path, route in routes if getattr(route, "body_field", None)]
    assert with_body
    assert [(method, path) for method, path, route in with_body if not isinstance(route, SmallBodyRoute)] == []


def test_requests_that_create_something_are_idempotent() -> None:
    idempotent = {
        (method, route.path)
        for method, route in UNSAFE
        if (declaration := declaration_of(route.endpoint)) and declaration.idempotent
    }
    traces = "/api/v1/traces"
    assert idempotent == {
        *(("PUT", f"{traces}/{{filename:path}}"), ("POST", f"{traces}/merge"), ("POST", f"{traces}/import")),
        *(("POST", f"{traces}/{{trace_id}}/split"), ("POST", f"{traces}/{{trace_id}}/overlay")),
        ("POST", "/api/v1/uploads"),
        *(("POST", "/api/v1/groups"), ("POST", "/api/v1/groups/{group_id}/merge")),
    }


def declaration_and_endpoint(method: str, path: str) -> tuple[Declaration, Any]:
    """Return the declaration that middlewares read for a request, and the endpoint that handles it."""
    scopes: list[Scope] = []

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await APP(scope, receive, send)

    async def send_request() -> None:
        transport = httpx.ASGITransport(RouteMiddleware(record, TABLE))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            with suppress(Exception):  # endpoints fail because there are no services
                await client.request(method, path)

    APP.state.services = APP.state.access = MagicMock()
    asyncio.run(send_request())
    [scope] = scopes
    return call_of(scope).declaration, scope.get("endpoint")


def paths(route: RouteContext) -> list[str]:
    """Return paths that match a route; some of their parts also occur in the paths of other routes."""
    path = str(route.path)
    if "{filename:path}" in path:
        return [path.replace("{filename:path}", name) for name in AMBIGUOUS]
    return [re.sub(r"\{\w+(:path)?\}", name, path) for name in ("1", "merge", "import")]


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, route in UNSAFE if method != WEBSOCKET for path in paths(route)]
)
def test_middlewares_read_the_declaration_of_the_endpoint_that_answers(method: str, path: str) -> None:
    declaration, endpoint = declaration_and_endpoint(method, path)
    assert endpoint is not None
    assert declaration == declaration_of(endpoint)


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/nothing"), ("PATCH", "/"), ("BREW", "/api/v1/traces")])
def test_unknown_requests_need_write_scope_and_are_logged_by_their_path(method: str, path: str) -> None:
    call = TABLE.call(method, path)
    assert call.declaration == Declaration("write", audit=f"{method} {path}")
    assert not call.is_public


def test_undeclared_unsafe_routes_need_write_scope() -> None:
    app = FastAPI()

    @app.post("/undeclared")
    def undeclared() -> None: ...

    @app.post("/declared")
    @declares("read")
    def declared() -> None: ...

    table = RouteTable(app.routes)
    assert table.call("POST", "/undeclared").declaration == Declaration("write", audit="POST /undeclared")
    assert table.call("POST", "/declared").declaration == Declaration("read")


def test_public_paths_are_public_for_all_methods_and_other_paths_for_none() -> None:
    for path in ("/healthz", "/readyz", "/login", "/logout", "/static/trace.js"):
        assert all(TABLE.call(method, path).is_public for method in ("GET", "POST", "PUT", "BREW"))
    for path in ("/", "/docs", "/healthz/", "/login/", "//login", "/api/v1/traces/login", "/metrics", "/static"):
        assert not any(TABLE.call(method, path).is_public for method in ("GET", "POST", "PUT", "BREW"))

"""Declarations of routes: the scope that a request needs, its name in the audit log, and how middlewares treat it.

A route declares itself with `declares`; middlewares read the declaration of the route that will answer a request.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, WebSocketRoute

from service.http.hosts import SAFE

AccessScope = Literal["public", "read", "write"]
WEBSOCKET = "WEBSOCKET"
"""The method under which a `RouteTable` lists the routes of WebSockets."""
_TARGET_MAX = 200
"""Maximum characters of the path of an undeclared request in the audit log."""

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declaration:
    """The declaration of a route.

    Attributes:
        scope: the scope that a token needs; the path of a `public` route needs no token, whatever the method.
        audit: the action in the audit log; empty if the request changes nothing.
        unlogged_status: the status of responses that are not logged, unless they have a `Tracedock-Trace`; 0 for none.
        idempotent: whether a request with an `Idempotency-Key` is handled only once.
        receives_trace: whether the body is a trace, or a part of a trace.
    """

    scope: AccessScope = "write"
    audit: str = ""
    unlogged_status: int = 0
    idempotent: bool = False
    receives_trace: bool = False


@dataclass(frozen=True)
class Call:
    """A request resolved by its method and path.

    Attributes:
        declaration: the declaration of the route that will answer.
        is_public: whether the path needs no token.
        parameters: the values in the path.
    """

    declaration: Declaration
    is_public: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)


_DECLARATIONS: dict[Callable[..., Any], Declaration] = {}
ROUTE_PATH = "tracedock.route_path"
"""Key of the ASGI scope: the path under which metrics count a request; without it, the path of the route."""
_READ = Declaration("read")


def declares(
    scope: AccessScope = "write",
    *,
    audit: str = "",
    unlogged_status: int = 0,
    idempotent: bool = False,
    receives_trace: bool = False,
) -> Callable[[Endpoint], Endpoint]:
    """Declare an endpoint or a mounted app; see `Declaration` for the arguments."""
    declaration = Declaration(scope, audit, unlogged_status, idempotent, receives_trace)

    def declare(endpoint: Endpoint) -> Endpoint:
        _DECLARATIONS[endpoint] = declaration
        return endpoint

    return declare


def declaration_of(endpoint: Callable[..., Any] | None) -> Declaration | None:
    """Return the declaration of an endpoint or of a mounted app; None if it has none."""
    return None if endpoint is None else _DECLARATIONS.get(endpoint)


class RouteTable:
    """Finds the declaration of the route that will answer a request.

    Unsafe requests to undeclared routes, and to unknown paths, need write scope and are logged by method and path.

    Args:
        routes: the routes of the app, in the order in which it tries them.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._public: list[re.Pattern[str]] = []
        self._unsafe: dict[str, list[tuple[re.Pattern[str], Declaration | None]]] = {}
        for route in iter_route_contexts(routes):
            declaration = declaration_of(route.endpoint or getattr(route, "app", None))
            if declaration and declaration.scope == "public":
                self._public.append(route.path_regex)
            is_websocket = isinstance(route.original_route, WebSocketRoute)
            for method in {WEBSOCKET} if is_websocket else (route.methods or set()) - SAFE:
                self._unsafe.setdefault(method, []).append((route.path_regex, declaration))

    def call(self, method: str, path: str) -> Call:
        """Resolve a request. A safe method needs at most read scope, whatever its route declares.

        Args:
            method: its method, or `WEBSOCKET`.
            path: its path.
        """
        is_public = any(pattern.match(path) for pattern in self._public)
        if method in SAFE:
            return Call(_READ, is_public)
        for pattern, declaration in self._unsafe.get(method, ()):
            if match := pattern.match(path):
                return Call(declaration or _undeclared(method, path), is_public, match.groupdict())
        return Call(_undeclared(method, path), is_public)


def _undeclared(method: str, path: str) -> Declaration:
    return Declaration("write", audit=f"{method} {path[:_TARGET_MAX]}")

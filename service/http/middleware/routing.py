"""The routing middleware: resolves the route of each request once, for all inner middlewares."""

from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.declarations import WEBSOCKET, Call, RouteTable


class RouteMiddleware:
    """Stores the `Call` of each request in its ASGI scope.

    Args:
        app: the next app.
        table: the routes.
    """

    def __init__(self, app: ASGIApp, table: RouteTable) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] in ("http", "websocket"):
            scope["call"] = self._table.call(scope.get("method", WEBSOCKET), scope["path"])
        await self._app(scope, receive, send)


def call_of(scope: Scope) -> Call:
    """Return the call that `RouteMiddleware` has stored."""
    call: Call = scope["call"]
    return call

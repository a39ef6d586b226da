"""The CORS middleware: allows pages of the configured origins to read responses."""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD", "OPTIONS", "PUT", "POST", "PATCH", "DELETE")
EXPOSED = (
    *("Accept-Ranges", "Allow", "Content-Disposition", "Content-Range", "ETag", "Link", "Location", "Repr-Digest"),
    *("Retry-After", "WWW-Authenticate", "Idempotency-Replayed", "Tracedock-Left-Out", "Tracedock-Table"),
    *("Tracedock-Tables", "Tracedock-Trace"),
    *("Tus-Resumable", "Tus-Version", "Tus-Extension", "Tus-Max-Size", "Tus-Checksum-Algorithm"),
    *("Upload-Offset", "Upload-Length", "Upload-Defer-Length", "Upload-Metadata", "Upload-Expires"),
)
"""Header fields of a response that a script of an allowed origin may read."""


class CorsMiddleware:
    """Adds CORS headers for the allowed origins; requests of all other origins pass unchanged.

    Cookies are not allowed: a page of another origin authenticates by ``Authorization: Bearer TOKEN``.

    Args:
        app: the next app.
        origins: the allowed origins, in lower case.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = origins
        self._cors = CORSMiddleware(
            app, allow_origins=origins, allow_methods=METHODS, allow_headers=["*"], expose_headers=EXPOSED,
            allow_private_network=True,
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http" or not self._origins:
            await self._app(scope, receive, send)
        elif Headers(scope=scope).get("origin") in self._origins:
            await self._cors(scope, receive, send)
        else:
            await self._app(scope, receive, _varying(send))


def _varying(send: Send) -> Send:
    """Return a `send` that adds ``Vary: Origin``: caches must not serve the response to another origin."""

    async def send_varying(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).add_vary_header("Origin")
        await send(message)

    return send_varying

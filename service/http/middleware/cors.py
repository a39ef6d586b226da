"""CORS: what a browser needs to hear before a page of an allowed origin may read an answer."""

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
"""Fields of an answer that a page's script may read."""


class CorsMiddleware:
    """Tells browsers which pages may read answers; requests of all other origins pass unchanged.

    No cookies are allowed along: a page of another origin authorizes by ``Authorization: Bearer TOKEN``.

    Args:
        app: the app.
        origins: the allowed ones, in lower case.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = origins
        self._allowing = CORSMiddleware(
            app, allow_origins=origins, allow_methods=METHODS, allow_headers=["*"], expose_headers=EXPOSED,
            allow_private_network=True,
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] != "http" or not self._origins:
            await self._app(scope, receive, send)
        elif Headers(scope=scope).get("origin") in self._origins:
            await self._allowing(scope, receive, send)
        else:
            await self._app(scope, receive, _varying(send))


def _varying(send: Send) -> Send:
    """Have caches keep the answer from pages of other origins apart."""

    async def send_varying(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).add_vary_header("Origin")
        await send(message)

    return send_varying

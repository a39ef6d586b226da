"""The compression middleware: text is sent as gzip to clients that accept it."""

from functools import cached_property

from isal import isal_zlib
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipResponder, IdentityResponder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIN_BYTES = 1024
"""Minimum size of a body that is compressed, unless it is streamed."""

_TEXT = frozenset(
    {
        "application/javascript", "application/json", "application/problem+json", "application/wasm",
        "application/x-ndjson", "image/svg+xml",
    }
)  # fmt: skip
"""Media types that shrink, in addition to `text/*`. Of Arrow, Parquet and traces, little would be saved."""


class CompressionMiddleware:
    """Compresses text.

    Downloads of traces and streams of events are sent as they are: their clients need them fast, or at once.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        app = self._app
        if accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            app = (_GzipHead if scope["method"] == "HEAD" else _Gzip)(app, MIN_BYTES)
        await app(scope, receive, _varying(send))


def _varying(send: Send) -> Send:
    """Return a `send` that adds ``Vary: Accept-Encoding`` to text, also to the empty body of a response to HEAD."""

    async def send_varying(message: Message) -> None:
        if message["type"] == "http.response.start" and _is_text(message):
            headers = MutableHeaders(raw=message["headers"])
            if "accept-encoding" not in headers.get("vary", "").lower():
                headers.add_vary_header("Accept-Encoding")
        await send(message)

    return send_varying


def accepts_gzip(field: str) -> bool:
    """Return whether an `Accept-Encoding` field accepts gzip (RFC 9110, section 12.5.3)."""
    qualities: dict[str, float] = {}
    for part in field.lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
        try:
            qualities[coding] = float(quality)
        except ValueError:
            qualities[coding] = 0
    return qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0))) > 0


def _is_text(start: Message) -> bool:
    """Return whether the beginning of a response announces text that is no download and no stream of events."""
    headers = Headers(raw=start["headers"])
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if headers.get("content-disposition", "").startswith("attachment") or media_type == "text/event-stream":
        return False
    return media_type.startswith("text/") or media_type in _TEXT


class _TextOnly(IdentityResponder):
    """A responder that passes on all responses but those of text."""

    _passes = False

    async def send_with_compression(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._passes = not _is_text(message)
        await (self.send(message) if self._passes else super().send_with_compression(message))


class _GzipHead(_TextOnly):
    """Announces what `_Gzip` sends; the size is not known without the body."""

    async def send_with_compression(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] != 206 and _is_text(message):
            headers = MutableHeaders(raw=message["headers"])
            if int(headers.get("content-length", MIN_BYTES)) >= MIN_BYTES:
                del headers["content-length"]
                headers["content-encoding"] = "gzip"
                _weaken_etag(headers)
        await self.send(message)


class _Gzip(_TextOnly, GZipResponder):
    """Compresses text; the ETag becomes a weak one, for the bytes differ from those that are not compressed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_weak(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                if headers.get("content-encoding") == "gzip":
                    _weaken_etag(headers)
            await send(message)

        await super().__call__(scope, receive, send_weak)

    @cached_property
    def compressor(self) -> isal_zlib.Compress:  # type: ignore[override] # it has the methods of zlib's
        """The compressor: ISA-L compresses several times as fast as zlib."""
        return isal_zlib.compressobj(wbits=31)


def _weaken_etag(headers: MutableHeaders) -> None:
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        headers["etag"] = f"W/{etag}"

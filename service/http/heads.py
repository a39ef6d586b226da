"""Bounds on the head of a request: without them, a client could have the server keep headers without end.

The parser of HTTP has none of its own, and uvicorn sets some only with a parser that is slower.
"""

from dataclasses import dataclass
from http import HTTPStatus

import httptools
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.http.errors import problem

HEAD_MAX = 64 << 10
"""Bytes of all fields together, and of whatever else is no body."""
FIELDS_MAX = 128
TARGET_MAX = 32 << 10
"""Bytes of the path and the query: a selection in them may be long."""

_LINGER_S = 2.0
CONNECTION = "tracedock.connection"
"""The extension of an ASGI scope that holds the `ClientConnection` of its request."""


@dataclass
class ClientConnection:
    """State of one client connection, across its requests.

    Attributes:
        stays_open: whether it is kept open however long it is idle, for clients that can't connect again.
        trace: the trace that the localhost listener's client asks on it.
    """

    stays_open: bool = False
    trace: str | None = None


def client_connection(request: HTTPConnection) -> ClientConnection:
    """The state of the connection that a request came on."""
    connection: ClientConnection = request.scope.get("extensions", {}).get(CONNECTION) or ClientConnection()
    return connection


class BoundedHead(HttpToolsProtocol):
    """uvicorn's reader of requests, which answers 414 or 431 to a head beyond the bounds, and hears no more."""

    _fields_bytes = 0
    _without_body = 0  # bytes that came since a request, or a part of a body, was complete
    _status = 400
    _deaf = False
    _connection: ClientConnection | None = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection after some seconds without a request, if it is not to stay open."""
        if not (self._connection and self._connection.stays_open):
            super().timeout_keep_alive_handler()

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        if self._deaf:
            return
        self._without_body += len(data)
        super().data_received(data)
        if self._without_body > HEAD_MAX and not self._deaf:
            self._status = 431
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._fields_bytes = 0
        self._connection = self._connection or ClientConnection()
        self.scope.setdefault("extensions", {})[CONNECTION] = self._connection  # type: ignore[assignment] # not as uvicorn types it

    def on_url(self, url: bytes) -> None:
        """A part of the target came."""
        super().on_url(url)
        if len(self.url) > TARGET_MAX:
            self._refuse(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field came, or a trailer."""
        self._fields_bytes += len(name) + len(value)
        if self._fields_bytes > HEAD_MAX or len(self.headers) >= FIELDS_MAX:
            self._refuse(431)
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """A part of the body came."""
        self._without_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._without_body = 0
        super().on_message_complete()

    def _refuse(self, status: int) -> None:
        self._status = status
        raise httptools.HttpParserError  # has the parser stop, and `send_400_response` called

    def send_400_response(self, msg: str) -> None:
        """Refuse the request; what still comes of it is not kept, and not read as another one."""
        self._deaf = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an answer is on its way, into which no other can be put
            return
        status = HTTPStatus(self._status)
        code = {414: "target_too_long", 431: "head_too_large"}.get(status, "bad_request")
        detail = {
            414: f"The path and the query are longer than {TARGET_MAX} bytes.",
            431: f"The head has more than {HEAD_MAX} bytes or {FIELDS_MAX} fields.",
        }.get(status, msg)
        body = bytes(problem(status, code, status.phrase, detail).body)
        head = f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        length = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.transport.write((head + length).encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)  # who is cut off in mid-sentence reads no answer

"""uvicorn's HTTP and WebSocket protocols, with bounds on the head of a request and a minimum speed of clients.

Without bounds, a client could make the server buffer headers without limit: httptools has no bounds, and uvicorn bounds
heads only in its slower parser, h11. `service.http.server.connections` checks periodically for slow clients.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from service.http.problems import BAD_HEAD, HEAD_PROBLEMS, problem
from service.http.server.connections import connections_of
from service.http.server.inbox import MESSAGE_MAX_BYTES

HEAD_MAX = 64 << 10
"""Maximum bytes of all header fields together, and of input that neither continues a body nor ends a request."""
FIELDS_MAX = 128
TARGET_MAX = 32 << 10
"""Maximum bytes of the path and the query; the query may contain a long selection."""

_LINGER_S = 2.0
"""Seconds for which a refused connection stays open, so that its client can read the response."""
_LINGERING_MAX = 64
"""Maximum number of refused connections that stay open for `_LINGER_S`; further ones are closed at once."""
_DRAINED = 48 << 10
"""Bytes that leave the buffer of a transport between its high-water and low-water marks."""
RETRY_AFTER_S = 5
CONNECTION = "tracedock.connection"
"""Key of a request's `ClientConnection` in the ``extensions`` of its ASGI scope."""


@dataclass
class ClientConnection:
    """State of one client connection, across its requests.

    Attributes:
        stays_open: whether the connection is kept open while idle, for a client that can't reconnect.
        trace: the id of the trace that a client of the localhost listener queries; None before its first query.
    """

    stays_open: bool = False
    trace: str | None = None


def client_connection(request: HTTPConnection) -> ClientConnection:
    """Return the state of the connection of a request."""
    connection: ClientConnection = request.scope.get("extensions", {}).get(CONNECTION) or ClientConnection()
    return connection


class BoundedHead(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds.

    A head that is too large gets 414 or 431, and all further input is ignored. A head or a body that is too slow gets
    408. The connection of a client that does not read its response is aborted.
    """

    _fields_bytes = 0
    _without_body = 0  # bytes received since the last part of a body, or the end of a request
    _status = 400
    _ignores_input = False
    _lingering = 0  # number of refused connections of the process that are still open
    _in_head = False
    _connection: ClientConnection | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections_of(config)
        self._body_rate = self._connections.transfer_rate()
        self._response_rate = self._connections.transfer_rate()
        self._buffered = 0
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Count the connection, or refuse it."""
        super().connection_made(transport)
        if self._connections.enter(self):
            self._connections.idle(self)
        else:
            self._refuse_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._connections.leave(self)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._connections.leave(self)
        super().handle_websocket_upgrade()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection after uvicorn's keep-alive timeout, unless it stays open for its client."""
        if not self._stays_open():
            super().timeout_keep_alive_handler()

    def _stays_open(self) -> bool:
        """Return whether the connection is kept open while it is idle."""
        return self._connection is not None and self._connection.stays_open and not self._in_head

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client."""
        if self._ignores_input:
            return
        self._without_body += len(data)
        super().data_received(data)
        if self._without_body > HEAD_MAX and not self._ignores_input:
            self._status = 431
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._fields_bytes = 0
        self._connection = self._connection or ClientConnection()
        self.scope.setdefault("extensions", {})[CONNECTION] = self._connection  # type: ignore[assignment] # not as uvicorn types it
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        super().on_url(url)
        if len(self.url) > TARGET_MAX:
            self._refuse(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field or a trailer."""
        self._fields_bytes += len(name) + len(value)
        if self._fields_bytes > HEAD_MAX or len(self.headers) >= FIELDS_MAX:
            self._refuse(431)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Complete the head."""
        self._in_head = False
        self._connections.busy(self)
        self._body_rate = self._connections.transfer_rate()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._without_body = 0
        self._body_rate.transferred(len(body))
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Complete a response."""
        super().on_response_complete()
        if self._is_idle():
            self._idle_since = self.loop.time()
            self._connections.idle(self)

    def resume_writing(self) -> None:
        """Resume writing: the client has read."""
        self._response_rate.transferred(_DRAINED)
        super().resume_writing()

    def on_message_complete(self) -> None:
        """Complete the request."""
        self._without_body = 0
        super().on_message_complete()

    def check(self, now: float) -> None:
        """End the connection if its client is too slow."""
        size = self.transport.get_write_buffer_size()
        self._response_rate.transferred(max(0, self._buffered - size))
        self._buffered = size
        idle = self._is_idle()
        unread = self.flow.write_paused or (size > 0 and (idle or self.transport.is_closing()))
        if self._response_rate.too_slow(now, awaited=unread):
            self.transport.abort()
        elif idle:
            self._idle_since = now if size else self._idle_since
            if now - self._idle_since > self._connections.head_timeout_s and not self._stays_open():
                self.close_idle()
        elif self._body_rate.too_slow(now, awaited=self._awaits_body()):
            self._end_body()

    def close_idle(self) -> None:
        """Close the connection while no response is in progress; an incomplete head gets 408."""
        if self._in_head and not self._ignores_input:
            self._status = 408
            self.send_400_response("The head of the request was not complete in time.")
        else:
            self.transport.close()

    def _is_idle(self) -> bool:
        """Return whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _awaits_body(self) -> bool:
        """Return whether the server waits for more of a body."""
        return self.cycle.more_body and not (self.flow.read_paused or self.cycle.waiting_for_100_continue)

    def _end_body(self) -> None:
        """Refuse a request whose body is too slow; the app sees a disconnect of the client."""
        if self.cycle.response_started:
            self.transport.abort()
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._status = 408
        self._respond_and_close("The body of the request arrived too slowly; see TRACEDOCK_MIN_BYTES_PER_S.")

    def _refuse_connection(self) -> None:
        """Refuse a connection beyond the maximum number."""
        self._status = 503
        self._respond_and_close("There are too many connections; see TRACEDOCK_MAX_CONNECTIONS.")

    def _refuse(self, status: int) -> None:
        self._status = status
        raise httptools.HttpParserError  # stops the parser, and makes it call `send_400_response`

    def send_400_response(self, msg: str) -> None:
        """Refuse the request, and ignore the rest of it, so that no part is parsed as another request."""
        self._ignores_input = True
        if self._status == 400 and not self._is_idle() and self.cycle.more_body and not self.cycle.response_started:
            self.cycle.disconnected = True  # the app sees a disconnect of the client
            self.cycle.message_event.set()
        elif not self._is_idle():
            self.transport.close()  # a response is in progress, so an error response can't be sent
            return
        self._respond_and_close(msg)

    def _respond_and_close(self, msg: str) -> None:
        """Send an error response with the current status, and close the connection."""
        self._ignores_input = True
        status = HTTPStatus(self._status)
        kind = HEAD_PROBLEMS.get(status, BAD_HEAD)
        detail = {
            414: f"The path and the query are longer than {TARGET_MAX} bytes.",
            431: f"The head has more than {HEAD_MAX} bytes or {FIELDS_MAX} fields.",
        }.get(status, msg)
        body = bytes(problem(status, kind.code, kind.title, detail).body)
        head = f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        later = f"Retry-After: {RETRY_AFTER_S}\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
        length = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.transport.write((head + later + length).encode() + body)
        if BoundedHead._lingering >= _LINGERING_MAX:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        BoundedHead._lingering += 1
        self.loop.call_later(_LINGER_S, self._linger)  # a client that is cut off while sending loses the response

    def _linger(self) -> None:
        BoundedHead._lingering -= 1
        self.transport.close()


class BoundedSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol: counted like HTTP connections, and aborted if the client does not read.

    uvicorn's pings detect clients that have disappeared.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections_of(config)
        self._rate = self._connections.transfer_rate()
        self._buffered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection that the HTTP protocol has handed over, and set its maximum message size."""
        super().connection_made(transport)
        if transport.get_extra_info("sockname")[1] != self._connections.files_port:
            self.conn.max_message_size = MESSAGE_MAX_BYTES
        self._connections.resume(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._connections.leave(self)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Resume writing: the client has read."""
        self._rate.transferred(_DRAINED)
        super().resume_writing()

    def check(self, now: float) -> None:
        """Abort the connection if its client does not read."""
        size = self.transport.get_write_buffer_size()
        self._rate.transferred(max(0, self._buffered - size))
        self._buffered = size
        unread = not self.writable.is_set() or (size > 0 and self.transport.is_closing())
        if self._rate.too_slow(now, awaited=unread):
            self.transport.abort()

    def close_idle(self) -> None:
        """Stay open: a WebSocket is never idle."""

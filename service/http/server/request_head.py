"""Bounds on the head of a request: without them, a client could have the server keep headers without end.

The parser of HTTP has none of its own, and uvicorn sets some only with a parser that is slower. A client that is too
slow is ended here, too; see `service.http.server.connections`.
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

from service.http.problems import problem
from service.http.server.connections import connections_of
from service.http.server.inbox import MESSAGE_MAX

HEAD_MAX = 64 << 10
"""Bytes of all fields together, and of whatever else is no body."""
FIELDS_MAX = 128
TARGET_MAX = 32 << 10
"""Bytes of the path and the query: a selection in them may be long."""

_LINGER_S = 2.0
_LINGERING_MAX = 64
"""Refused connections that are closed gently at once; further ones are cut off."""
_DRAINED = 48 << 10
"""Bytes that leave the buffer of a transport between its marks for a pause and for going on."""
RETRY_AFTER_S = 5
_CODES = {408: "too_slow", 414: "target_too_long", 431: "head_too_large", 503: "too_many_connections"}
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
    """uvicorn's reader of requests, which answers 414 or 431 to a head beyond the bounds, and hears no more.

    A head or a body that does not come in time gets 408; a client that does not read its answer is cut off.
    """

    _fields_bytes = 0
    _without_body = 0  # bytes that came since a request, or a part of a body, was complete
    _status = 400
    _deaf = False
    _lingering = 0  # of all connections
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
        self._all = connections_of(config)
        self._body_pace = self._all.pace()
        self._answer_pace = self._all.pace()
        self._buffered = 0
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """A client connected."""
        super().connection_made(transport)
        if self._all.enter(self):
            self._all.idle(self)
        else:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        self._all.leave(self)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to the protocol of WebSockets."""
        self._all.leave(self)
        super().handle_websocket_upgrade()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection after some seconds without a request, if it is not to stay open."""
        if not self._stays_open():
            super().timeout_keep_alive_handler()

    def _stays_open(self) -> bool:
        """Whether the connection is kept while its client asks nothing."""
        return self._connection is not None and self._connection.stays_open and not self._in_head

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
        self._in_head = True

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

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._all.busy(self)
        self._body_pace = self._all.pace()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body came."""
        self._without_body = 0
        self._body_pace.moved(len(body))
        super().on_body(body)

    def on_response_complete(self) -> None:
        """An answer was given."""
        super().on_response_complete()
        if self._is_idle():
            self._idle_since = self.loop.time()
            self._all.idle(self)

    def resume_writing(self) -> None:
        """The client read what it was sent."""
        self._answer_pace.moved(_DRAINED)
        super().resume_writing()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._without_body = 0
        super().on_message_complete()

    def look(self, now: float) -> None:
        """End the connection if its client is too slow."""
        size = self.transport.get_write_buffer_size()
        self._answer_pace.moved(max(0, self._buffered - size))
        self._buffered = size
        idle = self._is_idle()
        unread = self.flow.write_paused or (size > 0 and (idle or self.transport.is_closing()))
        if self._answer_pace.too_slow(now, awaited=unread):
            self.transport.abort()
        elif idle:
            self._idle_since = now if size else self._idle_since
            if now - self._idle_since > self._all.head_timeout_s and not self._stays_open():
                self.give_way()
        elif self._body_pace.too_slow(now, awaited=self._awaits_body()):
            self._end_body()

    def give_way(self) -> None:
        """Close the connection, on which no answer is on its way."""
        if self._in_head and not self._deaf:
            self._status = 408
            self.send_400_response("The head of the request was not complete in time.")
        else:
            self.transport.close()

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _awaits_body(self) -> bool:
        """Whether the client has to send more of a body, and may."""
        return self.cycle.more_body and not (self.flow.read_paused or self.cycle.waiting_for_100_continue)

    def _end_body(self) -> None:
        """Refuse a request whose body comes too slowly; the app takes its client for gone."""
        if self.cycle.response_started:
            self.transport.abort()
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._status = 408
        self._answer_last("The body of the request came too slowly; see TRACEDOCK_MIN_BYTES_PER_S.")

    def _turn_away(self) -> None:
        """Refuse a connection beyond the bounds."""
        self._status = 503
        self._answer_last("There are too many connections; see TRACEDOCK_MAX_CONNECTIONS.")

    def _refuse(self, status: int) -> None:
        self._status = status
        raise httptools.HttpParserError  # has the parser stop, and `send_400_response` called

    def send_400_response(self, msg: str) -> None:
        """Refuse the request; what still comes of it is not kept, and not read as another one."""
        self._deaf = True
        if self._status == 400 and not self._is_idle() and self.cycle.more_body and not self.cycle.response_started:
            self.cycle.disconnected = True  # the app takes its client for gone
            self.cycle.message_event.set()
        elif not self._is_idle():
            self.transport.close()  # an answer is on its way, into which no other can be put
            return
        self._answer_last(msg)

    def _answer_last(self, msg: str) -> None:
        """Answer with the status at hand, and close the connection."""
        self._deaf = True
        status = HTTPStatus(self._status)
        code = _CODES.get(status, "bad_request")
        detail = {
            414: f"The path and the query are longer than {TARGET_MAX} bytes.",
            431: f"The head has more than {HEAD_MAX} bytes or {FIELDS_MAX} fields.",
        }.get(status, msg)
        body = bytes(problem(status, code, status.phrase, detail).body)
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
        self.loop.call_later(_LINGER_S, self._linger)  # who is cut off in mid-sentence reads no answer

    def _linger(self) -> None:
        BoundedHead._lingering -= 1
        self.transport.close()


class BoundedSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which counts among the connections, and is cut off where its client does not read.

    Pings end those whose client is gone.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections_of(config)
        self._pace = self._all.pace()
        self._buffered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection over."""
        super().connection_made(transport)
        if transport.get_extra_info("sockname")[1] != self._all.files_port:
            self.conn.max_message_size = MESSAGE_MAX
        self._all.resume(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        self._all.leave(self)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The client read what it was sent."""
        self._pace.moved(_DRAINED)
        super().resume_writing()

    def look(self, now: float) -> None:
        """Cut the connection off if its client does not read."""
        size = self.transport.get_write_buffer_size()
        self._pace.moved(max(0, self._buffered - size))
        self._buffered = size
        unread = not self.writable.is_set() or (size > 0 and self.transport.is_closing())
        if self._pace.too_slow(now, awaited=unread):
            self.transport.abort()

    def give_way(self) -> None:
        """Stay: a WebSocket is never idle."""

"""The stream of a UI that shares a session's engine: split into requests, which are scheduled and answered in order."""

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing

from service.engine.engine import RpcRequest
from service.engine.scheduler import Exchange
from service.engine.session import Session
from service.trace.errors import EngineFailed, RequestRefused, TracedockError

REQUEST_MAX = 5 << 20
"""Largest size of a request in bytes."""
FILE_PIECE_MAX = 33 << 20
"""Largest size in bytes of a request from a UI that opens a file; a piece of 32 MiB must arrive before its refusal."""


async def ask(
    session: Session, request: RpcRequest, *, client: Hashable = None, bulk: bool = True, owner: Hashable = None
) -> AsyncGenerator[bytes]:
    """Schedule a request and yield the responses; the request is abandoned when the caller closes the generator.

    An error that concerns only the request, such as a timeout, is yielded as the last response if the responses to such
    requests have a field for errors.

    Args:
        session: the session that runs the request.
        request: the request.
        client: the connection that sends the request; connections take turns.
        bulk: whether requests of UIs take precedence over this one.
        owner: the identity of the client; see `Exchange`.

    Raises:
        EngineFailed: the engine ended, or the caller reads so slowly that a limit of `ResponseBuffers` is exceeded.
        TracedockError: any other error of a request whose responses have no field for errors.
    """
    responses: asyncio.Queue[bytes | TracedockError | None] = asyncio.Queue()

    def overflow() -> None:
        exchange.abandon()
        while not responses.empty():
            responses.get_nowait()
        responses.put_nowait(EngineFailed("The client does not read its answer."))

    buffer = session.limits.response_buffers.open(overflow)

    def deliver(response: bytes) -> None:
        if buffer.add(len(response)):
            responses.put_nowait(response)

    exchange = Exchange(request, deliver, responses.put_nowait, client=client, bulk=bulk, owner=owner)
    exchange.set_deadline(session.limits.ui_timeout_s)
    session.submit(exchange)
    try:
        while (response := await responses.get()) is not None:
            if isinstance(response, bytes):
                buffer.subtract(len(response))
                yield response
                continue
            last = None if isinstance(response, EngineFailed) else request.error_response(response)
            if last is None:
                raise response
            yield last
            return
    finally:
        buffer.close()
        exchange.abandon()


class Relay:
    """Turns the bytes of one UI into framed responses, in the order of its requests.

    Args:
        session: the session that the UI shares.
        owner: the identity of the client; see `Exchange`.
        trace_name: the name of the trace in the UI's question whether to use it; if it is empty, the UI does not ask.
        resumable: whether the client may continue a stream that it began on an earlier connection.
        request_max: largest size of a request in bytes.

    Raises:
        RequestRefused: UIs can't attach to the session's engine.
    """

    def __init__(
        self,
        session: Session,
        owner: Hashable = None,
        *,
        trace_name: str = "",
        resumable: bool = True,
        request_max: int = REQUEST_MAX,
    ) -> None:
        if session.rpc is None:
            raise RequestRefused("No UI can attach to the engine of this trace.")
        self._session = session
        self._owner = owner
        self.client = object()
        self.request_max = request_max
        self._trace_name = trace_name
        self._may_continue = resumable
        self._codec = session.rpc
        self._frames = session.rpc.frame_reader(request_max)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a request whose end has not arrived."""
        return self._frames.unfinished_bytes

    async def answers(self, data: bytes) -> AsyncGenerator[bytes]:
        """Yield the response frames of each request that `data` completes.

        Raises:
            BadFrame: the client breaks the protocol.
            EngineFailed: the engine ended.
            RequestRefused: the client continues an earlier stream, which is not allowed here.
        """
        for message in self._frames.feed(data):
            request = self._codec.request(message)
            self._check_continuity(request)
            local = request.local_response(self._session.version, self._trace_name)
            if local is not None:
                yield self._codec.frame(local)
                continue
            answer = ask(self._session, request, client=self.client, bulk=False, owner=self._owner)
            async with aclosing(answer) as responses:
                async for response in responses:
                    yield self._codec.frame(response)

    def _check_continuity(self, request: RpcRequest) -> None:
        """Refuse a connection whose first request continues an earlier stream, as after a UI's reconnection."""
        if request.continues_stream and not self._may_continue:
            raise RequestRefused("The connection to the trace was lost. Reload this tab.")
        self._may_continue = True

"""The relay: splits the byte stream of a UI into requests, and answers them in order from a session's engine."""

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
"""Largest size in bytes of a request from a UI that opens a file.

The UI sends pieces of 32 MiB. A refusal is the answer to a piece, so that the whole piece must arrive first.
"""


async def ask(
    session: Session, request: RpcRequest, *, client: Hashable = None, bulk: bool = True, owner: Hashable = None
) -> AsyncGenerator[bytes]:
    """Schedule a request and yield the responses; the request is abandoned when the caller closes the generator.

    Some errors concern only the request, such as a timeout. They are yielded as the last response if responses to
    requests of this kind have a field for errors.

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
        while (item := await responses.get()) is not None:
            if isinstance(item, bytes):
                buffer.subtract(len(item))
                yield item
                continue
            error_response = None if isinstance(item, EngineFailed) else request.error_response(item)
            if error_response is None:
                raise item
            yield error_response
            return
    finally:
        buffer.close()
        exchange.abandon()


class Relay:
    """Turns the bytes of one UI into framed responses, in the order of its requests.

    Args:
        session: the session that the UI shares.
        owner: the identity of the client; see `Exchange`.
        trace_name: the name under which the UI offers the trace; if it is empty, the UI does not ask.
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
            RequestRefused: the client continues an earlier stream, although the relay is not `resumable`.
        """
        for message in self._frames.feed(data):
            request = self._codec.request(message)
            self._check_continuity(request)
            local_response = request.local_response(self._session.version, self._trace_name)
            if local_response is not None:
                yield self._codec.frame(local_response)
                continue
            engine_responses = ask(self._session, request, client=self.client, bulk=False, owner=self._owner)
            async with aclosing(engine_responses) as responses:
                async for response in responses:
                    yield self._codec.frame(response)

    def _check_continuity(self, request: RpcRequest) -> None:
        """Refuse a connection whose first request continues an earlier stream, as when a UI reconnects."""
        if request.continues_stream and not self._may_continue:
            raise RequestRefused("The connection to the trace was lost. Reload this tab.")
        self._may_continue = True

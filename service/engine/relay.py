"""One foreign client of a session: a Perfetto UI tab, whose byte stream is cut into requests that take turns.

What would change the shared trace under the others is answered here and never reaches the engine.
"""

import asyncio
import textwrap
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing
from typing import Any

from google.protobuf.message import DecodeError

from service.engine import wire
from service.engine.session import Session
from service.engine.turns import Exchange
from service.trace.errors import EngineFailed, RequestRefused, TracedockError

REQUEST_MAX = 5 << 20
"""Bytes of a request."""
FILE_PIECE_MAX = 33 << 20
"""Bytes of a request of a UI that opens a file: it sends 32 MiB at a time, and is to be told why it may not."""

_RESULTS = {
    wire.QUERY_STREAMING: "query_result",
    wire.COMPUTE_METRIC: "metric_result",
    wire.SUMMARIZE_TRACE: "trace_summary_result",
}
"""Where the answer to a request says what went wrong with it."""

_FORWARDED = {
    *(wire.QUERY_STREAMING, wire.COMPUTE_METRIC, wire.GET_METRIC_DESCRIPTORS, wire.SUMMARIZE_TRACE),
    *(wire.CREATE_SUMMARIZER, wire.UPDATE_SUMMARIZER_SPEC, wire.QUERY_SUMMARIZER, wire.DESTROY_SUMMARIZER),
    *(wire.ENABLE_METATRACE, wire.DISABLE_AND_READ_METATRACE),
}
"""What an engine is asked: it answers each once, or as `wire.is_last` tells."""

NO_OTHER_FILE = (
    "All clients of this engine share its trace, so it loads no other file. To open a file in this tab, reload the tab"
    ' and answer "NO, Use builtin WASM"; or upload the file to Tracedock.'
)
_DIALOG_WIDTH = 80
_SHOWN = f"{textwrap.fill(NO_OTHER_FILE, _DIALOG_WIDTH)}\n(ERR:ws)"
"""The UI shows an error with that mark in a dialog, lines as they are; without, it asks to file a bug."""


def status(session: Session | None, trace_name: str = "") -> Any:
    """Describe the engine as its clients ask for it; nothing of its version if there is no session.

    Args:
        session: whose engine.
        trace_name: the name under which the UI offers the trace; the UI asks nothing if it is empty.
    """
    if session is None:
        return wire.StatusResult(loaded_trace_name=trace_name, api_version=wire.API_VERSION)
    return wire.StatusResult(
        loaded_trace_name=trace_name,
        human_readable_version=session.version,
        api_version=wire.API_VERSION,
        version_code=session.version_code,
    )


async def ask(
    session: Session, request: Any, *, client: Hashable = None, bulk: bool = True, owner: Hashable = None
) -> AsyncGenerator[Any]:
    """Send a request to the engine when its turn comes, and yield the responses; a reader that leaves stops it.

    What is wrong with the request alone, its deadline among that, is told in a response where it has a place there.

    Args:
        session: whose engine.
        request: the request.
        client: who asks; clients take turns.
        bulk: whether it can wait for those that someone looks at.
        owner: the identity of the client; see `Exchange`.

    Raises:
        EngineFailed: the engine ended, or the reader fell too far behind it, as `Backlogs` tells.
        EngineError: anything else, of a request whose responses have no place for it.
    """
    responses: asyncio.Queue[Any] = asyncio.Queue()

    def give_up() -> None:
        exchange.abandon()
        while not responses.empty():
            responses.get_nowait()
        responses.put_nowait((0, EngineFailed("The client does not read its answer.")))

    backlog = session.limits.backlogs.opened(give_up)

    def deliver(message: Any) -> None:
        size = message.ByteSize()
        if backlog.grew(size):
            responses.put_nowait((size, message))

    def end(error: TracedockError | None) -> None:
        responses.put_nowait((0, error))

    exchange = Exchange(request, deliver, end, client=client, bulk=bulk, owner=owner)
    exchange.stop_after(session.limits.ui_timeout_s)
    session.submit(exchange)
    try:
        while True:
            size, message = await responses.get()
            backlog.shrank(size)
            if message is None:
                return
            if not isinstance(message, TracedockError):
                yield message
            elif isinstance(message, EngineFailed) or request.request not in _RESULTS:
                raise message
            else:
                yield told(request.request, message)
                return
    finally:
        backlog.close()
        exchange.abandon()


def told(method: int, error: TracedockError) -> Any:
    """The last response to a request, which says why it has no better one."""
    if method == wire.QUERY_STREAMING:
        result = wire.QueryResult(error=error.detail, batch=[wire.CellsBatch(is_last_batch=True)])
        return wire.Rpc(response=method, query_result=result)
    response = wire.Rpc(response=method)
    getattr(response, _RESULTS[method]).error = error.detail
    return response


def refusal(method: int) -> Any | None:
    """The response to a request that would change the shared trace; None for any other request."""
    response = wire.Rpc(response=method)
    if method == wire.APPEND_TRACE_DATA:
        response.append_result.error = _SHOWN
    elif method == wire.FINALIZE_TRACE_DATA:
        response.finalize_data_result.error = _SHOWN
    elif method == wire.RESET_TRACE_PROCESSOR:
        response.fatal_error = _SHOWN
    else:
        return None
    return response


def answer_here(session: Session, request: Any, trace_name: str = "") -> Any | None:
    """The response to a request that is none of the engine's business; None for one that is."""
    method = request.request
    if refused := refusal(method):
        return refused
    if method == wire.RESTORE_INITIAL_TABLES:  # it would drop what the other clients have created
        return wire.Rpc(response=method)
    if method == wire.GET_STATUS:
        return wire.Rpc(response=method, status=status(session, trace_name))
    if method not in _FORWARDED:  # an engine may answer it in a way that would shift all later answers
        return wire.Rpc(response=method, invalid_request=method)
    return None


def without_time(response: Any) -> Any:
    """Clear how long the engine took for a query: UIs before v54 don't know the field, and warn of each.

    Returns:
        The response itself.
    """
    if response.HasField("query_result"):
        response.query_result.ClearField("elapsed_time_ms")
    return response


class Relay:
    """Turns one client's bytes into framed answers, in the order of its requests.

    Args:
        session: the session it shares.
        owner: the identity of the client; see `Exchange`.
        trace_name: the trace's name in answers to GET_STATUS; see `status`.
        resumable: whether the client may go on with a stream that it began on a connection before this one.
        request_max: bytes of a request.
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
        self._session = session
        self._owner = owner
        self.client = object()
        self.request_max = request_max
        self._trace_name = trace_name
        self._may_go_on = resumable
        self._deframer = wire.Deframer(request_max)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a request whose end has not come."""
        return self._deframer.unfinished_bytes

    async def answers(self, data: bytes) -> AsyncGenerator[bytes]:
        """Yield the frames that answer the requests which `data` completes.

        Raises:
            BadFrame: the client doesn't speak the protocol.
            EngineFailed: the engine ended.
            RequestRefused: the client goes on with an earlier stream, and may not.
        """
        for payload in self._deframer.feed(data):
            try:
                request = wire.Rpc.FromString(payload)
            except DecodeError as error:
                raise wire.BadFrame(f"A frame holds no RPC message: {error}.") from error
            self._check_beginning(request)
            here = answer_here(self._session, request, self._trace_name)
            if here is not None:
                yield wire.frame(here)
                continue
            asked = ask(self._session, request, client=self.client, bulk=False, owner=self._owner)
            async with aclosing(asked) as responses:
                async for response in responses:
                    yield wire.frame(without_time(response))

    def _check_beginning(self, request: Any) -> None:
        """Refuse a first request that is not the first of its client: a UI numbers them from 0 and reconnects."""
        if request.seq and not self._may_go_on:
            raise RequestRefused("The connection to the trace was lost. Reload this tab.")
        self._may_go_on = True

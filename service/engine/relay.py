"""One foreign client of a session: a Perfetto UI tab, whose byte stream is cut into requests that take turns.

What would change the shared trace under the others is answered here and never reaches the engine.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing
from typing import Any

from google.protobuf.message import DecodeError

from service.engine import wire
from service.engine.session import Session
from service.engine.turns import Exchange
from service.trace.errors import EngineFailed, RequestRefused, TracedockError

REQUEST_MAX = 5 << 20

_CREATES = re.compile(r"^\s*create\b", re.IGNORECASE)
_EXISTS = re.compile(r"\balready exists\b", re.IGNORECASE)
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

_REFUSED = {
    wire.APPEND_TRACE_DATA: "load other data into it",
    wire.FINALIZE_TRACE_DATA: "load other data into it",
    wire.RESET_TRACE_PROCESSOR: "reset it",
}


def status(session: Session) -> Any:
    """What the engine is, as its clients ask; no trace name, for the UI would ask whether to use that trace."""
    return wire.StatusResult(
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


def answer_here(session: Session, request: Any) -> Any | None:
    """The response to a request that is none of the engine's business; None for one that is.

    Raises:
        RequestRefused: it would change the shared trace.
    """
    method = request.request
    if method in _REFUSED:
        raise RequestRefused(f"All clients share this trace: none can {_REFUSED[method]}.")
    if method == wire.RESTORE_INITIAL_TABLES:  # it would drop what the other clients have created
        return wire.Rpc(response=method)
    if method == wire.GET_STATUS:
        return wire.Rpc(response=method, status=status(session))
    if method not in _FORWARDED:  # an engine may answer it in a way that would shift all later answers
        return wire.Rpc(response=method, invalid_request=method)
    return None


class Relay:
    """Turns one client's bytes into framed answers, in the order of its requests.

    Args:
        session: the session it shares.
        owner: the identity of the client; see `Exchange`.
    """

    def __init__(self, session: Session, owner: Hashable = None) -> None:
        self._session = session
        self._owner = owner
        self._deframer = wire.Deframer(REQUEST_MAX)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a request whose end has not come."""
        return self._deframer.unfinished_bytes

    async def answers(self, data: bytes) -> AsyncGenerator[bytes]:
        """Yield the frames that answer the requests which `data` completes.

        Raises:
            BadFrame: the client doesn't speak the protocol.
            EngineFailed: the engine ended.
        """
        for payload in self._deframer.feed(data):
            try:
                request = wire.Rpc.FromString(payload)
            except DecodeError as error:
                raise wire.BadFrame(f"A frame holds no RPC message: {error}.") from error
            try:
                here = answer_here(self._session, request)
            except RequestRefused as error:
                here = wire.Rpc(response=request.request, fatal_error=error.detail)
            if here is not None:
                yield wire.frame(here)
                continue
            async with aclosing(ask(self._session, request, client=self, bulk=False, owner=self._owner)) as responses:
                async for response in responses:
                    yield wire.frame(self._repeatable(request, response))

    def _repeatable(self, request: Any, response: Any) -> Any:
        """The response, or success where a second tab repeats word for word what the first one has created.

        The UI creates some things under fixed names, and relies on RESTORE to find none of them.
        """
        if request.request != wire.QUERY_STREAMING:
            return response
        sql, result = request.query_args.sql_query, response.query_result
        if not _CREATES.search(sql):
            return response
        if not result.error and not result.statement_with_output_count:
            self._session.created.add(sql)
        elif _EXISTS.search(result.error) and sql in self._session.created:
            return wire.Rpc(
                response=wire.QUERY_STREAMING,
                query_result=wire.QueryResult(batch=[wire.CellsBatch(is_last_batch=True)], statement_count=1),
            )
        return response

"""Perfetto's RPC protocol for UIs: requests that reach the engine, and local responses to all others.

All clients share one engine. A request that would change the shared trace gets a local response and never reaches the
engine.
"""

import textwrap
from collections.abc import AsyncIterator, Hashable, Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from service.engine.engine import BadFrame, Engine, EngineVersion
from service.engine.names import Names
from service.engine.statements import check_part, check_sql
from service.engine.trace_processor import wire
from service.trace.errors import SqlRefused, TracedockError

_RESULTS = {
    wire.QUERY_STREAMING: "query_result",
    wire.COMPUTE_METRIC: "metric_result",
    wire.SUMMARIZE_TRACE: "trace_summary_result",
}
"""The field of a response that contains the field `error`, by method."""

_FORWARDED = {
    *(wire.QUERY_STREAMING, wire.COMPUTE_METRIC, wire.GET_METRIC_DESCRIPTORS, wire.SUMMARIZE_TRACE),
    *(wire.CREATE_SUMMARIZER, wire.UPDATE_SUMMARIZER_SPEC, wire.QUERY_SUMMARIZER, wire.DESTROY_SUMMARIZER),
    *(wire.ENABLE_METATRACE, wire.DISABLE_AND_READ_METATRACE),
}
"""Methods that reach the engine, which sends one or several responses; `wire.is_last` recognises the last one."""

NO_OTHER_FILE = (
    "All clients of this engine share its trace, so it loads no other file. To open a file in this tab, reload the tab"
    ' and answer "NO, Use builtin WASM"; or upload the file to Tracedock.'
)
_DIALOG_WIDTH = 80
_DIALOG_TEXT = f"{textwrap.fill(NO_OTHER_FILE, _DIALOG_WIDTH)}\n(ERR:ws)"
"""The mark `(ERR:ws)` makes the UI show a dialog that keeps the lines. Without it, the UI asks for a bug report."""


def status(version: EngineVersion | None, trace_name: str = "") -> Any:
    """Return the ``StatusResult`` that clients receive.

    Args:
        version: the engine's version; None if there is no engine.
        trace_name: the name under which the UI offers the trace; if it is empty, the UI does not offer it.
    """
    if version is None:
        return wire.StatusResult(loaded_trace_name=trace_name, api_version=wire.API_VERSION)
    return wire.StatusResult(
        loaded_trace_name=trace_name,
        human_readable_version=version.name,
        api_version=wire.API_VERSION,
        version_code=version.code,
    )


class PerfettoRpc:
    """Perfetto's RPC protocol; see `RpcCodec`."""

    def frame_reader(self, max_bytes: int) -> wire.Deframer:
        """Return a reader of messages of at most `max_bytes`."""
        return wire.Deframer(max_bytes)

    def frame(self, message: bytes) -> bytes:
        """Return a message as a frame of the stream."""
        return wire.framed(message)

    def request(self, message: bytes) -> "PerfettoRequest":
        """Parse a request; raises `BadFrame`."""
        try:
            return PerfettoRequest(wire.Rpc.FromString(message))
        except DecodeError as error:
            raise BadFrame(f"A frame holds no RPC message: {error}.") from error


class PerfettoRequest:
    """A request in Perfetto's RPC protocol; see `RpcRequest`.

    Args:
        message: a ``TraceProcessorRpc``; its sequence number is removed.
    """

    def __init__(self, message: Any) -> None:
        self._message = message
        self._number: int = message.seq
        message.ClearField("seq")

    @property
    def statement(self) -> str:
        """The SQL of a query; for other requests, their bytes in hexadecimal."""
        if self._message.request == wire.QUERY_STREAMING:
            return str(self._message.query_args.sql_query)
        return str(self._message.SerializeToString().hex())

    @property
    def continues_stream(self) -> bool:
        """Whether the client sent earlier requests: a UI numbers its requests from 0, also across connections."""
        return self._number > 0

    def check(self, names: Names, client: Hashable) -> None:
        """Check the SQL in the request, and substitute the client's names in it; removes unknown fields.

        Raises:
            SqlRefused: the SQL is refused; `word`, `line` and `column` locate the cause.
            SqlError: the SQL is malformed.
        """
        message = self._message
        message.DiscardUnknownFields()
        if message.request == wire.QUERY_STREAMING:
            message.query_args.sql_query = check_sql(message.query_args.sql_query, names, client)
            return
        for text in _texts(message):
            check_part(text)

    def send(self, engine: Engine) -> AsyncIterator[bytes]:
        """Send the request and yield its responses."""
        return engine.rpc(self._message.SerializeToString())

    def local_response(self, version: EngineVersion, trace_name: str) -> bytes | None:
        """Return the response to a request that must not reach the engine; None for all others."""
        response = self._local_response(version, trace_name)
        return None if response is None else _packed(response)

    def _local_response(self, version: EngineVersion, trace_name: str) -> Any | None:
        method = self._message.request
        response = wire.Rpc(response=method)
        if method == wire.APPEND_TRACE_DATA:
            response.append_result.error = _DIALOG_TEXT
        elif method == wire.FINALIZE_TRACE_DATA:
            response.finalize_data_result.error = _DIALOG_TEXT
        elif method == wire.RESET_TRACE_PROCESSOR:
            response.fatal_error = _DIALOG_TEXT
        elif method == wire.GET_STATUS:
            response.status.CopyFrom(status(version, trace_name))
        elif method == wire.RESTORE_INITIAL_TABLES:
            pass  # a success without effect: the engine would drop what the other clients have created
        elif method not in _FORWARDED:
            response.invalid_request = method  # if the engine sent several responses, all later ones would shift
        else:
            return None
        return response

    def error_response(self, error: TracedockError) -> bytes | None:
        """Return the error as the last response; None if responses to such requests have no field for errors."""
        method = self._message.request
        return _packed(error_response(method, error)) if method in _RESULTS else None


def error_response(method: int, error: TracedockError) -> Any:
    """Return the error as the last response to a request whose responses have a field for errors."""
    if method == wire.QUERY_STREAMING:
        result = wire.QueryResult(error=error.detail, batch=[wire.CellsBatch(is_last_batch=True)])
        return wire.Rpc(response=method, query_result=result)
    response = wire.Rpc(response=method)
    getattr(response, _RESULTS[method]).error = error.detail
    return response


def _packed(message: Any) -> bytes:
    packed: bytes = message.SerializeToString()
    return packed


def _texts(message: Message) -> Iterator[str]:
    """Yield all strings in a message, including those in specifications that it carries as text."""
    for field, value in message.ListFields():
        for item in [value] if isinstance(value, str | bytes | int | float | Message) else value:
            if isinstance(item, Message):
                yield from _texts(item)
            elif isinstance(item, str):
                yield from _texts(_specification(item)) if field.name == "textproto_specs" else [item]


def _specification(text: str) -> Message:
    specification: Message = wire.TraceSummarySpec()
    try:
        return text_format.Parse(text, specification)
    except text_format.ParseError as error:
        raise SqlRefused(f"The specification can't be parsed: {error}") from error

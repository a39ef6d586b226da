"""trace_processor's RPC as bytes: a `TraceProcessorRpcStream` is a sequence of messages, each framed as field 1.

Source: perfetto's protos/perfetto/trace_processor/trace_processor.proto. The message classes are built at run time
from the descriptors that the `perfetto` package ships, so they have no static types. Messages carry no sequence numbers
in either direction. The receiver then skips its check for lost messages, so that many clients can share one engine.
"""

from importlib import resources
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessages

from service.engine.engine import BadFrame

# `perfetto.trace_processor` has these classes too, but imports pandas and polars where they are installed: 0.6 s
_DESCRIPTORS = resources.files("perfetto").joinpath("trace_processor", "trace_processor.descriptor").read_bytes()
_MESSAGES: dict[str, Any] = GetMessages(FileDescriptorSet.FromString(_DESCRIPTORS).file)
Rpc = _MESSAGES["perfetto.protos.TraceProcessorRpc"]
TraceSummarySpec = _MESSAGES["perfetto.protos.TraceSummarySpec"]
QueryArgs = _MESSAGES["perfetto.protos.QueryArgs"]
QueryResult = _MESSAGES["perfetto.protos.QueryResult"]
CellsBatch: Any = type(QueryResult().batch.add())
StatusResult = _MESSAGES["perfetto.protos.StatusResult"]

APPEND_TRACE_DATA = 1
FINALIZE_TRACE_DATA = 2
QUERY_STREAMING = 3
COMPUTE_METRIC = 5
GET_METRIC_DESCRIPTORS = 6
RESTORE_INITIAL_TABLES = 7
ENABLE_METATRACE = 8
DISABLE_AND_READ_METATRACE = 9
GET_STATUS = 10
RESET_TRACE_PROCESSOR = 11
SUMMARIZE_TRACE = 15
CREATE_SUMMARIZER = 16
UPDATE_SUMMARIZER_SPEC = 17
QUERY_SUMMARIZER = 18
DESTROY_SUMMARIZER = 19
API_VERSION = 14  # the same in all engines from v52 to v58; the UI compares it with its own version

_TAG = 0x0A
_LONGEST_HEADER = 11


def varint(number: int) -> bytes:
    """Return a non-negative number as a protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def frame(message: Any) -> bytes:
    """Return an RPC message as a frame of the stream, without its sequence number."""
    message.ClearField("seq")
    payload: bytes = message.SerializeToString()
    return framed(payload)


def framed(payload: bytes) -> bytes:
    """Return a serialized RPC message as a frame of the stream."""
    return _head(len(payload)) + payload


def _head(size: int) -> bytes:
    """Return the tag and the size in bytes of a payload."""
    return b"\x0a" + varint(size)


def append_head(size: int) -> bytes:
    """Return the start of the frame that appends data to the trace; the data, of a size in bytes, are its rest."""
    start = _APPEND + varint(size)
    return _head(len(start) + size) + start


def request(method: int, **fields: Any) -> Any:
    """Return an RPC request for a method."""
    return Rpc(request=method, **fields)


_DATA = Rpc.DESCRIPTOR.fields_by_name["append_trace_data"].number
_APPEND: bytes = request(APPEND_TRACE_DATA).SerializeToString() + varint(_DATA << 3 | 2)
"""The start of a request to append data, up to their size."""


def query_request(sql: str) -> Any:
    """Return the RPC request to run SQL."""
    return request(QUERY_STREAMING, query_args=QueryArgs(sql_query=sql))


def is_last(message: Any) -> bool:
    """Return whether a response is the last one to its request."""
    if message.response != QUERY_STREAMING or message.HasField("fatal_error"):
        return True
    return any(batch.is_last_batch for batch in message.query_result.batch)


class Deframer:
    """Splits a stream of bytes into messages; see `FrameReader`.

    Args:
        max_bytes: size in bytes of the largest message to accept.
    """

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self._max = max_bytes
        self._buffer = bytearray()

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a message whose end has not arrived."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the serialized messages that these bytes complete; raises `BadFrame`."""
        self._buffer += data
        payloads, position = [], 0
        while (span := self._payload_span(position)) is not None:
            start, end = span
            if end > len(self._buffer):
                break
            payloads.append(bytes(self._buffer[start:end]))
            position = end
        del self._buffer[:position]
        return payloads

    def _payload_span(self, position: int) -> tuple[int, int] | None:
        """Return start and end of the message whose frame starts at `position`; None if the header is incomplete."""
        header = self._buffer[position : position + _LONGEST_HEADER]
        if not header:
            return None
        if header[0] != _TAG:
            raise BadFrame(f"A frame starts with the byte {header[0]:#04x} instead of {_TAG:#04x}.")
        length = 0
        for index, byte in enumerate(header[1:]):
            length |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if length > self._max:
                    raise BadFrame(f"A frame of {length} bytes is larger than the limit of {self._max}.")
                start = position + index + 2
                return start, start + length
        if len(header) == _LONGEST_HEADER:
            raise BadFrame("A frame's length has no end.")
        return None

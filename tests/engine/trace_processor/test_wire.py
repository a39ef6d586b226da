"""trace_processor's RPC as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.engine import BadFrame
from service.engine.trace_processor import wire
from service.engine.trace_processor.wire import Deframer, varint

PAYLOADS = st.lists(st.binary(max_size=300), max_size=8)


def stream_of(payloads: list[bytes]) -> bytes:
    return b"".join(b"\x0a" + varint(len(payload)) + payload for payload in payloads)


@given(PAYLOADS, st.data())
def test_stream_is_split_into_messages_regardless_of_its_pieces(payloads: list[bytes], data: st.DataObject) -> None:
    stream = stream_of(payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    deframer = Deframer()
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [payload for piece in pieces for payload in deframer.feed(piece)] == payloads


@given(PAYLOADS)
def test_stream_may_arrive_byte_by_byte(payloads: list[bytes]) -> None:
    deframer = Deframer()
    assert [payload for byte in stream_of(payloads) for payload in deframer.feed(bytes([byte]))] == payloads


@given(st.binary(max_size=20_000))
def test_data_behind_its_head_are_a_request_to_append(data: bytes) -> None:
    whole = wire.frame(wire.request(wire.APPEND_TRACE_DATA, append_trace_data=data))
    assert wire.append_head(len(data)) + data == whole


@given(PAYLOADS, st.integers(0, 255).filter(lambda byte: byte != 0x0A))
def test_frame_with_another_tag_is_refused(payloads: list[bytes], tag: int) -> None:
    with pytest.raises(BadFrame, match=f"{tag:#04x}"):
        Deframer().feed(stream_of(payloads) + bytes([tag]))


def test_length_without_an_end_is_refused() -> None:
    assert Deframer().feed(b"\x0a" + b"\xff" * 9) == []
    with pytest.raises(BadFrame, match="no end"):
        Deframer().feed(b"\x0a" + b"\xff" * 10)


def test_frame_beyond_the_limit_is_refused_by_its_header() -> None:
    assert Deframer(300).feed(b"\x0a" + varint(300) + bytes(300)) == [bytes(300)]
    with pytest.raises(BadFrame, match="301 bytes"):
        Deframer(300).feed(b"\x0a" + varint(301))


@given(st.binary(max_size=100))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    try:
        payloads = Deframer(64).feed(data)
    except BadFrame:
        return
    assert data.startswith(stream_of(payloads)) or payloads  # a length may have superfluous bytes


@given(st.integers(0, 2**64 - 1))
def test_number_is_encoded_as_by_protobuf(number: int) -> None:
    written = varint(number)
    assert sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(written)) == number
    assert [byte >> 7 for byte in written] == [1] * (len(written) - 1) + [0]


def test_framed_message_has_no_sequence_number() -> None:
    (payload,) = Deframer().feed(wire.frame(wire.Rpc(seq=7, request=wire.GET_STATUS)))
    message = wire.Rpc.FromString(payload)
    assert message.request == wire.GET_STATUS
    assert not message.HasField("seq")


def test_last_response_is_recognised() -> None:
    def rows(last: bool) -> object:
        batch = wire.CellsBatch(is_last_batch=last)
        return wire.Rpc(response=wire.QUERY_STREAMING, query_result=wire.QueryResult(batch=[batch]))

    assert not wire.is_last(rows(last=False))
    assert wire.is_last(rows(last=True))
    assert wire.is_last(wire.Rpc(response=wire.GET_STATUS))
    assert wire.is_last(wire.Rpc(response=wire.QUERY_STREAMING, fatal_error="no more"))

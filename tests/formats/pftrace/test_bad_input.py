"""Damaged, cut and hostile traces give the events that can be read, with notes, or an error; they never crash."""

import gzip
import json
import tempfile
import tracemalloc
import zlib
from collections.abc import Iterator
from io import BufferedReader, BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from service.formats.pftrace import messages, sequences
from service.formats.pftrace.reader import PerfettoReader
from service.formats.registry import open_trace
from service.trace.errors import IngestError, NotATrace, Truncated
from tests.formats.pftrace.reading import Reading, read
from tests.pftrace import (
    LAYOUTS,
    Layout,
    annotate,
    begin,
    content,
    end,
    event,
    packets,
    process_tree,
    switches,
    thread,
    training,
)

WORK = training(steps=1, launches=2)
SOUND = [thread(1, 5, 6, "main"), begin(1000, 1, "first"), end(2000, 1)]
CHANGES = 300


def read_bytes(data: bytes) -> Reading:
    """Read bytes that may not start like a trace any more."""
    with tempfile.TemporaryDirectory() as scratch:
        reader = PerfettoReader([data], Path(scratch))
        rows = [row for batch in reader.batches() for row in batch.to_pylist()]
        assert [*Path(scratch).iterdir()] == []
    notes: Any = reader.health.as_dict(refused=reader.refused)["notes"]
    codes = {note["code"]: note["count"] for note in notes}
    return Reading("", rows, {}, reader.refused, codes, {note["code"]: note["examples"] for note in notes})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_is_cut_anywhere_keeps_what_is_before_the_cut(layout: Layout) -> None:
    found = packets(WORK, layout)
    whole = content(found)
    borders = {len(content(found[:count])): count for count in range(len(found) + 1)}
    counts = []
    for size in range(1, len(whole), 7):
        try:
            trace = read_bytes(whole[:size])
        except (Truncated, NotATrace):
            counts.append(0)
            continue
        is_cut = size not in borders
        assert trace.notes.get("cut", 0) == is_cut
        if is_cut:
            assert trace.examples["cut"][0]["offset"] == max(border for border in borders if border < size)
        counts.append(len(trace.slices()))

    assert counts == sorted(counts)
    assert counts[-1] >= len(WORK) - 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_changed_bytes_give_a_trace_or_an_error(layout: Layout) -> None:
    whole, random = content(packets(WORK, layout)), Random(layout)
    kept, details = 0, list[str]()
    for _ in range(CHANGES):
        changed = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        try:
            kept += len(read_bytes(bytes(changed)).rows)
        except IngestError as error:
            details.append(error.detail)
    assert all(detail.endswith(".") for detail in details)
    assert kept > CHANGES * len(WORK) / 4


@given(st.binary(max_size=300), st.integers(0, 2))
def test_any_bytes_after_a_sound_slice_keep_the_slice(tail: bytes, kind: int) -> None:
    length = len(tail) + (kind == 1)
    framed = b"\n" + bytes([length & 0x7F | 0x80, length >> 7]) + tail if kind else tail

    trace = read_bytes(content(SOUND) + framed)

    assert trace.rows[0]["name"] == "first"


@pytest.mark.parametrize(
    ("tail", "code", "reason"),
    [
        (b"\n\xff\xff\xff\xff\x07", "cut", "within the 2147483647 bytes of the packet"),
        (b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut", "within the 18446744073709551615 bytes"),
        (b"\n" + b"\xff" * 11, "damaged_packets", "more than 64 bits"),
        (b"\x0b\x0c", "damaged_packets", "no packet starts here"),
        (b"\x00\x00", "damaged_packets", "no packet starts here"),
        (b"\n\x05\x5a\x7f\x01\x02\x03", "unreadable_event", ""),
        (b"\n\x03\x0b\x0b\x0b", "unreadable_event", ""),
        (b"\x12\x02ab", "unread_packets", "field 2 of the trace"),
        (b"\x18\x05", "unread_packets", "field 3 of the trace"),
        (b"\x21" + bytes(8), "unread_packets", "field 4 of the trace"),
    ],
    ids=["2 GB", "2^64", "endless size", "group", "zero", "size", "groups", "length", "varint", "fixed"],
)
def test_damage_is_noted_with_its_offset(tail: bytes, code: str, reason: str) -> None:
    before = content(SOUND)

    trace = read_bytes(before + tail)

    (example,) = trace.examples[code]
    assert example["offset"] == len(before)
    assert reason in example["text"]
    assert [row["name"] for row in trace.slices()] == ["first"]


def test_a_packet_above_the_limit_is_skipped_without_memory(tmp_path: Path) -> None:
    size = 300 << 20
    head = content(SOUND) + b"\n" + _varint(size)

    def chunks() -> Iterator[bytes]:
        yield head
        yield from (bytes(1 << 20) for _ in range(300))
        yield content([begin(5000, 1, "after"), end(6000, 1)])

    reader = PerfettoReader(chunks(), tmp_path)
    tracemalloc.start()
    names = [row["name"] for batch in reader.batches() for row in batch.to_pylist() if row["ph"] == "X"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert names == ["first", "after"]
    assert reader.health.count("event_too_large") == reader.refused == 1
    assert peak < 40 << 20


def test_slices_without_an_end_last_until_the_last_event_and_ends_without_a_begin_are_left_out() -> None:
    trace = read(content([thread(1, 5, 6), end(500, 1), *SOUND, begin(3000, 1, "open"), event(7000, 1, 3)]))

    assert {row["name"]: row["dur_ns"] for row in trace.slices()} == {"first": 1000, "open": 4000}
    assert (trace.notes["open_ranges"], trace.notes["unmatched_ends"], trace.refused) == (1, 1, 1)


def test_times_need_not_be_in_order() -> None:
    marks = [begin(10, 1, "outer"), begin(20, 1, "inner"), end(30, 1), end(40, 1)]
    for order in ((3, 0, 2, 1), (2, 3, 1, 0)):
        trace = read(content([thread(1, 5, 6), *(marks[at] for at in order)]))
        assert {row["name"]: row["dur_ns"] for row in trace.slices()} == {"outer": 30, "inner": 10}


def test_a_description_that_is_repeated_leaves_open_slices_open() -> None:
    described = thread(1, 5, 6, "main")
    renamed = thread(1, 5, 6, "renamed")
    trace = read(content([described, begin(10, 1, "work"), described, renamed, end(40, 1)]))

    assert [row["dur_ns"] for row in trace.slices()] == [30]
    assert "unmatched_ends" not in trace.notes


@pytest.mark.parametrize("time", [1 << 62, (1 << 64) - 1])
def test_impossible_times_are_refused(time: int) -> None:
    trace = read(content([*SOUND, begin(time, 1, "late")]))

    assert [row["name"] for row in trace.slices()] == ["first"]
    assert (trace.refused, trace.notes["unreadable_event"]) == (1, 1)


@pytest.mark.parametrize("name", ['"quotes" \\ {}', "\u2028\x00\x1f\n", "<script>", "ü𝄞", "x" * 100_000])
def test_hostile_names_stay_as_they_are(name: str) -> None:
    named = begin(1, 1, name)
    annotate(named.track_event, {name: name})
    (row,) = read(content([thread(1, 5, 6, name), named, end(2, 1)])).slices()

    assert row["name"] == name
    assert json.loads(row["args"]) == {name: name}


def test_names_that_are_not_utf8_are_replaced_with_a_note() -> None:
    sound = content([begin(1, 1, "abc"), end(2, 1)])
    trace = read_bytes(sound.replace(b"abc", b"a\xffc"))

    assert (trace.slices()[0]["name"], trace.notes["invalid_utf8"]) == ("a\ufffdc", 1)


def test_arguments_may_nest_deeply_and_hold_values_that_json_lacks() -> None:
    packet = begin(1, 1, "work", nan=float("nan"), infinite=float("-inf"), largest=-(1 << 63))
    packet.track_event.debug_annotations.add(name="json", legacy_json_value='{"a": [1, NaN]}')
    packet.track_event.debug_annotations.add(name="deep", legacy_json_value="[" * 2000 + "]" * 2000)
    packet.track_event.debug_annotations.add(name="u", uint_value=(1 << 64) - 1)
    packet.track_event.debug_annotations.add(name="pointer", pointer_value=255)
    inner = packet.track_event.debug_annotations.add(name="lists")
    for _ in range(80):
        inner = inner.array_values.add()

    (row,) = read(content([packet, end(2, 1)])).slices()

    found = json.loads(row["args"])
    assert (found["nan"], found["infinite"], found["largest"]) == ("nan", "-inf", -(1 << 63))
    assert (found["json"], found["u"], found["pointer"]) == ('{"a": [1, NaN]}', (1 << 64) - 1, "0xff")
    assert found["deep"].startswith("[[")


def field(number: int, inner: bytes) -> bytes:
    """Return a field of bytes or of a message."""
    tag = number << 3 | 2
    return b"".join(_varint(value) for value in (tag, len(inner))) + inner


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def test_an_argument_that_nests_too_deeply_is_left_out() -> None:
    annotation = b""
    for _ in range(200):
        annotation = field(12, annotation)  # array_values
    nested = begin(1, 1, "deep", sound=7).SerializeToString() + field(11, field(4, annotation))

    trace = read_bytes(field(1, nested) + content([end(5, 1)]))

    (row,) = trace.slices()
    assert (row["name"], row["dur_ns"], row["args"]) == ("deep", 4, '{"sound":7}')
    assert (trace.refused, trace.notes["unread_arguments"]) == (0, 1)


def test_other_packets_are_noted_by_kind_and_unknown_fields_are_left_out() -> None:
    ftrace = TracePacket(timestamp=5)
    unknown = field(1, begin(3000, 1, "known").SerializeToString() + field(16_000, b"x"))
    ftrace.ftrace_events.cpu = 1
    config = TracePacket()
    config.trace_config.duration_ms = 1

    trace = read_bytes(content([*SOUND, ftrace, ftrace, config]) + unknown)

    assert trace.notes["unread_packets"] == 2
    assert trace.examples["unread_packets"] == [{"offset": len(content(SOUND)), "text": "ftrace_events: 2"}]
    assert [row["name"] for row in trace.slices()] == ["first", "known"]


def test_a_trace_without_events_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(NotATrace, match="no track events"):
        read(content([thread(1, 5, 6), thread(2, 5, 7)]))


@given(st.binary(max_size=8))  # too few for a packet of a recorder
def test_bytes_that_are_no_trace_are_refused(data: bytes) -> None:
    with pytest.raises(IngestError):
        read_bytes(b"\n\x03" + data)


@pytest.mark.parametrize(
    "inner",
    [field(2, b"/host:CPU") + field(3, b"\x08\x01"), b"\x08\x01" + field(2, b"/device:GPU:0"), field(1, b"node")],
    ids=["plane", "plane with an id", "node of a graph"],
)
def test_messages_of_other_programs_in_fields_of_packets_are_refused(inner: bytes) -> None:
    with pytest.raises(NotATrace, match="no packets of other kinds"):
        read_bytes(field(1, inner) * 3)


def test_a_trace_of_other_packets_alone_has_no_events_and_names_their_kinds() -> None:
    meant = content([thread(1, 5, 6, "main"), process_tree(1), switches(range(1, 9)), switches(range(1, 9), cpu=1)])

    trace = read_bytes(meant)

    assert (trace.rows, trace.refused) == ([], 0)
    assert [example["text"] for example in trace.examples["unread_packets"]] == ["ftrace_events: 2", "process_tree: 1"]


def test_a_trace_of_other_packets_alone_may_be_cut_but_not_damaged() -> None:
    whole = content([process_tree(1), *(switches(range(at, at + 9)) for at in range(20))])

    assert read_bytes(whole[:-5]).notes == {"cut": 1, "unread_packets": 20}
    with pytest.raises(NotATrace, match="no packet starts here"):
        read_bytes(whole + b"\x0b\x0c" + whole)
    with pytest.raises(Truncated):  # trace_processor gets no bytes of it
        read(gzip.compress(whole)[:-20])
    with pytest.raises(Truncated):
        read_bytes(whole[:20])


def test_many_kinds_of_fields_are_counted_together() -> None:
    unknown = b"".join(field(1, field(20_000 + number, b"x")) for number in range(500))

    trace = read_bytes(content(SOUND) + unknown)

    assert trace.notes["unread_packets"] == 500
    assert trace.examples["unread_packets"][0]["text"] == "other fields: 436"


def test_every_field_of_a_packet_has_a_use_or_a_name() -> None:
    fields = {known.number: known.name for known in TracePacket.DESCRIPTOR.fields if known.name != "for_testing"}
    used = {known.number for known in messages.Packet.DESCRIPTOR.fields}

    assert {number: fields[number] for number in fields.keys() - used - messages.NO_DATA} == messages.KINDS


def test_compressed_packets_are_read_once_deep() -> None:
    def packed(inner: bytes) -> TracePacket:
        return TracePacket(compressed_packets=zlib.compress(inner))

    once = packed(content(SOUND))
    trace = read(content([once, packed(content([once]))]))

    assert [row["name"] for row in trace.slices()] == ["first"]
    assert trace.examples["unreadable_event"][0]["text"] == "compressed packets within compressed packets"
    damaged = read(content([*SOUND, TracePacket(compressed_packets=zlib.compress(bytes(100))[:-5])]))
    assert damaged.slices()


def test_interned_data_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "SIZE_MAX", 10_000)
    many = [thread(uuid, 5, uuid, "a thread") for uuid in range(1, 100)]

    with pytest.raises(NotATrace, match="interned texts and tracks"):
        read(content([*many, *SOUND]))


def test_tracks_that_are_their_own_ancestors_end() -> None:
    circle = [thread(1, 5, 6, parent=2), thread(2, 5, 7, parent=1)]

    assert len(read(content([*circle, begin(1, 1, "a"), end(2, 1)])).slices()) == 1


def test_a_compressed_file_that_is_cut_keeps_its_events(tmp_path: Path) -> None:
    many = (begin(at, 1, f"n{at}", key=str(Random(at).random())) for at in range(3000, 60_000))
    data = gzip.compress(content([*SOUND, *many]))
    reader, _ = open_trace(BufferedReader(BytesIO(data[: len(data) // 2])), tmp_path)

    assert sum(map(len, reader.batches())) > 1000
    assert reader.health.count("cut") == 1

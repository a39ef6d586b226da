"""The conventions of the traces that Tracedock writes do not break the reading of damaged or foreign traces."""

import json
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from service.formats.pftrace.written import MARK, described, place_described
from tests.formats.pftrace.reading import read
from tests.pftrace import begin, content, end, event, thread

FACTS = {"version": 1, "zero_ns": 100, "is_array": False}


def member(name: str, text: str) -> TracePacket:
    packet = TracePacket(trusted_packet_sequence_id=1)
    packet.chrome_events.metadata.add(name=name, json_value=text)
    return packet


def copies(text: str) -> TracePacket:
    packet = TracePacket(trusted_packet_sequence_id=1)
    packet.chrome_events.legacy_json_trace.add(data=text)
    return packet


def phase(at: int, letter: str, number: int, **more: Any) -> TracePacket:
    packet = event(at, 1, 0)
    packet.track_event.ClearField("type")
    packet.track_event.name = "arrow"
    packet.track_event.legacy_event.phase = ord(letter)
    packet.track_event.legacy_event.unscoped_id = number
    for name, value in more.items():
        setattr(packet.track_event.legacy_event, name, value)
    return packet


def test_events_as_json_that_are_damaged_cost_only_themselves() -> None:
    good = '{"ph":"M","name":"process_name","pid":1,"args":{"name":"a"}}'
    trace = read(content([
        member(MARK, json.dumps(FACTS)), thread(1, 5, 6), begin(110, 1, "a"), end(120, 1),
        copies(f"{good},\nnonsense"), copies(good),
    ]))  # fmt: skip

    assert [(row["name"], row["ts_ns"], row["dur_ns"]) for row in trace.slices()] == [("a", 10, 10)]
    assert sum(row["ph"] == "M" for row in trace.rows) == 2
    assert trace.refused >= 1


@pytest.mark.parametrize("facts", ["7", "null", '{"version": 2, "zero_ns": 0}', '{"version": 1, "zero_ns": "x"}', "{"])
def test_unknown_facts_are_noted_and_ignored(facts: str) -> None:
    trace = read(content([member(MARK, facts), thread(1, 5, 6), begin(110, 1, "a"), end(120, 1), copies("{}")]))

    assert [row["ts_ns"] for row in trace.slices()] == [110]
    assert trace.notes == {"unread_packets": 2}


def test_arrows_of_other_programs_are_read_by_their_phase() -> None:
    trace = read(content([
        thread(1, 5, 6), begin(10, 1, "a"), phase(11, "s", 7), phase(12, "f", 7, bind_to_enclosing=True),
        phase(13, "?", 7), end(20, 1),
    ]))  # fmt: skip

    arrows = [(row["ph"], row["id"], row["ts_ns"], row.get("rest")) for row in trace.rows if row["ph"] in "sf"]
    assert arrows == [("s", 7, 11, None), ("f", 7, 12, '{"bp":"e"}')]
    assert trace.notes == {"unread_packets": 1}


@pytest.mark.parametrize(
    "text",
    ["", "a thread", "In the document: {", 'In the document: {"pid": 1}', 'In the document: {"pid":true,"tid":1}'],
)
def test_other_descriptions_are_no_places(text: str) -> None:
    assert place_described(text) is None
    assert place_described(described("Spans", 1 << 63, 2).decode()) == ("Spans", 1 << 63)

"""Slices without duration come before the ends of arrows that belong to them, in engines and in Perfetto's protobuf."""

from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

from service.engine.trace_processor import provision
from service.rendering.arrow_order import with_slices_before_ends
from service.settings import Settings
from service.streaming.schema import SCHEMA
from tests.cutting.choices import text_of
from tests.cutting.test_cut import ingested
from tests.rendering.loads import load
from tests.rendering.pftrace.reading import written

FLOWS = """
SELECT a.name AS out, b.name AS at FROM flow JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in
"""
EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.sampled_from("zzfffsxi")), max_size=40)
PHASES = {"z": "X", "x": "X"}


def reordered(events: list[tuple[int, int, str]]) -> list[int]:
    """Return the positions of events, each a time, a thread and a kind, in the order of the function."""
    rows = [
        dict.fromkeys(SCHEMA.names)
        | {"position": position, "ph": PHASES.get(kind, kind), "ts_ns": ts, "pid": 1, "tid": tid, "verbatim": False}
        | ({"dur_ns": int(kind == "x")} if kind in PHASES else {})
        for position, (ts, tid, kind) in enumerate(events)
    ]
    positions: list[int] = with_slices_before_ends(pa.Table.from_pylist(rows, SCHEMA))["position"].to_pylist()
    return positions


def owners(events: list[tuple[int, int, str]]) -> dict[int, int]:
    """Return the slice without duration of each end, as the order of the file tells."""
    owned: dict[int, int] = {}
    ordered = sorted((ts, tid, position) for position, (ts, tid, kind) in enumerate(events) if kind in "zfs")
    for _, places in groupby(ordered, key=lambda place: place[:2]):
        positions = [position for *_, position in places]
        slices = [position for position in positions if events[position][2] == "z"]
        for end in sorted({*positions} - {*slices}):
            before = [place for place in slices if place < end]
            behind = [place for place in slices if place > end]
            chosen = behind[:1] or before[-1:] if events[positions[0]][2] != "z" else before[-1:]
            owned |= dict.fromkeys([end] if chosen else [], *chosen)
    return owned


@given(EVENTS.map(sorted) | EVENTS.map(lambda events: sorted(events, key=lambda event: event[0])))
def test_each_end_is_behind_its_slice(events: list[tuple[int, int, str]]) -> None:
    order = reordered(events)
    times = [events[position][0] for position in order]
    assert sorted(order) == [*range(len(events))]
    assert times == sorted(times)
    others = [position for position in order if events[position][2] != "z"]
    assert others == sorted(others)
    found = {}
    last: dict[tuple[int, int], int] = {}
    for position in order:
        ts, tid, kind = events[position]
        if kind == "z":
            last[ts, tid] = position
        elif kind in "fs" and (ts, tid) in last:
            found[position] = last[ts, tid]
    assert found == owners(events)


CASES = {
    "end before its slice": (["f1", "a"], {"f1": "a"}),
    "end behind its slice": (["a", "f1"], {"f1": "a"}),
    "ends before their slices": (["f1", "a", "f2", "b"], {"f1": "a", "f2": "b"}),
    "ends behind their slices": (["a", "f1", "b", "f2"], {"f1": "a", "f2": "b"}),
    "two ends before a slice": (["f1", "f2", "a"], {"f1": "a", "f2": "a"}),
}
"""The order of slices without duration and ends of arrows in a file, and the slice at which each arrow ends."""


def drawn(binding: dict[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Return the events of all cases, each on threads of its own, and the expected arrows."""
    events: list[dict[str, Any]] = []
    expected = []
    places = [(title, around) for title in CASES for around in (None, "ended", "outer")]
    for tid, (title, around) in enumerate(places, 10):
        items, slice_of = CASES[title]
        slices = {item: f"{item}: {title} in {around}" for item in items if item not in slice_of}
        if around:
            dur = 4 if around == "ended" else 9
            events.append({"ph": "X", "pid": 1, "tid": tid, "ts": 5, "dur": dur, "name": f"{around} {tid}"})
        for item in items:
            if item in slices:
                events.append({"ph": "X", "pid": 1, "tid": tid, "ts": 9, "dur": 0, "name": slices[item]})
                continue
            arrow = {"pid": 1, "cat": "ac2g", "name": "ac2g", "id": len(events)}
            launch = f"launch {len(events)}"
            events += [
                {"ph": "X", "pid": 1, "tid": 1, "ts": 0.1 + 0.01 * len(events), "dur": 0.005, "name": launch},
                arrow | {"ph": "s", "tid": 1, "ts": 0.1 + 0.01 * len(events)},
                arrow | {"ph": "f", "tid": tid, "ts": 9} | binding,
            ]
            expected.append((launch, slices[slice_of[item]]))
    return events, sorted(expected)


@pytest.mark.parametrize("binding", [{"bp": "e"}, {}], ids=["enclosing", "plain"])
def test_arrow_ends_at_the_slice_without_duration(binding: dict[str, Any], tmp_path: Path) -> None:
    """Neither at the slice that ends then, nor at the slice around both."""
    events, expected = drawn(binding)
    trace = ingested(text_of(*events), tmp_path / "trace")
    whole, chosen = load(trace, FLOWS), load(trace, FLOWS, selection={"processes": [1]})
    assert whole.document.startswith(b"{") == (not binding)
    assert sorted(map(tuple, whole.answers[0])) == expected
    assert sorted(map(tuple, chosen.answers[0])) == expected
    file = tmp_path / "trace.pftrace"
    file.write_bytes(written(trace))
    config = TraceProcessorConfig(bin_path=str(provision.engine_path(Settings())))
    with TraceProcessor(trace=str(file), config=config) as engine:
        assert sorted((row.out, row.at) for row in engine.query(FLOWS)) == expected

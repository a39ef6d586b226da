"""Every real trace passes through upload, ingest and engine, and each of its events is accounted for."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from service.trace.summary import TIMELESS_PHASES
from tests.conftest import DATA, SHARED, few_of
from tests.server import Server

GOLDEN = SHARED / "golden" / "exact"


def read(path: Path) -> Any:
    """The document as the standard library parses it; None if it is not JSON."""
    raw = path.read_bytes()
    try:
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=Decimal)
    except ValueError:
        return None


def candidates() -> list[Path]:
    """The well-formed traces of this repository and of the shared folder."""
    paths = {*DATA.glob("*.gz"), *SHARED.glob("*.gz"), *SHARED.glob("*/*.pt.trace.json*")}
    return sorted(paths - set(malformed()))


def malformed() -> list[Path]:
    """The shared traces that are not JSON."""
    return sorted(path for path in SHARED.glob("malformed/*") if read(path) is None)


def golden(path: Path) -> dict[str, Any] | None:
    """The counts of an independent oracle for a trace; None if it did not count that trace."""
    name, rank = path.name.removesuffix(".pt.trace.json.gz"), "0"
    if path.parent.name == "dlrm_8_ranks":
        name, rank = "dlrm_8_ranks", path.name.removeprefix("worker").split("_", 1)[0]
    file = GOLDEN / f"{name}.json"
    answer: dict[str, Any] | None = json.loads(file.read_text())[rank] if file.exists() else None
    return answer


def exact_bounds(events: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the start and end in ns of all recorded events with a time, by plain decimal arithmetic."""
    timed = [
        event for event in events if event["ph"] not in TIMELESS_PHASES and event.get("name") != "Record Window End"
    ]
    ends = [Decimal(event["ts"]) + Decimal(event.get("dur", 0)) for event in timed]
    return int(min(Decimal(event["ts"]) for event in timed) * 1000), int(max(ends) * 1000)


def slice_count(server: Server, trace_id: object) -> Any:
    """Return the number of slices that the engine read, including those that it dropped because they overlap."""
    dropped = "SELECT ifnull(sum(value), 0) FROM stats WHERE name = 'slice_drop_overlapping_complete_event'"
    return sum(int(str(server.rows(trace_id, sql)[0][0])) for sql in ("SELECT count(*) FROM slice", dropped))


def check_golden(trace: dict[str, Any], expected: dict[str, Any]) -> None:
    """Assert that the counts of a trace and the bounds of its GPU events are those of the oracle."""
    busy = [device for device in trace["devices"] if device["bounds"]]
    assert {key.removesuffix("None"): count for key, count in expected["cats"].items()} == trace["counts"]
    assert trace["events"]["in"] == expected["n_events"]
    assert sum(device["events"] for device in busy) == expected["gpu_events"]
    assert min(device["bounds"]["start_ns"] for device in busy) == expected["first_ns"]
    assert max(device["bounds"]["end_ns"] for device in busy) == expected["last_ns"]
    assert sorted(trace["streams"]) == sorted(key.replace("/stream ", "/") for key in expected["streams"])


@pytest.mark.parametrize("path", few_of(candidates()), ids=lambda path: path.name.split(".")[0])
def test_trace_becomes_ready_with_exact_counts_and_bounds_and_all_slices(server: Server, path: Path) -> None:
    events = read(path)["traceEvents"]
    trace: dict[str, Any] = server.upload(path)
    counts = Counter(f"{event['ph']}|{event.get('cat', '')}" for event in events)
    assert trace["state"] == "ready"
    assert trace["counts"] == dict(counts)
    assert trace["events"] == {"in": len(events), "kept": len(events), "refused": 0}
    assert (trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]) == exact_bounds(events)
    assert {note["kind"] for note in trace["health"]["notes"]} <= {"oddity"}

    assert slice_count(server, trace["id"]) == sum(
        count for key, count in counts.items() if key.startswith(("X|", "i|"))
    )
    if expected := golden(path):
        check_golden(trace, expected)
    server.api.delete(f"/traces/{trace['id']}").raise_for_status()


@pytest.mark.parametrize("path", malformed(), ids=lambda path: path.name.split(".")[0])
def test_malformed_trace_becomes_ready_with_a_report_and_all_slices(server: Server, path: Path) -> None:
    text = path.read_bytes()
    trace: dict[str, Any] = server.upload(path)
    assert trace["state"] == "ready"
    events = text.count(b'"ph": "')
    assert trace["events"] == {"in": events, "kept": events, "refused": 0}
    assert trace["health"]["repaired"] > 0
    for note in trace["health"]["notes"]:
        for example in note["examples"]:
            if note["kind"] == "repaired" and example["offset"] is not None:
                assert example["text"].encode() in text[max(example["offset"] - 60, 0) :]

    assert slice_count(server, trace["id"]) == text.count(b'"ph": "X"') + text.count(b'"ph": "i"')
    server.api.delete(f"/traces/{trace['id']}").raise_for_status()

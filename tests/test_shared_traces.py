"""Every real trace passes upload, ingest and engine, and each of its events is accounted for."""

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
    """Parse the whole document with the standard library; return None if it is not JSON."""
    raw = path.read_bytes()
    try:
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=Decimal)
    except ValueError:
        return None


def candidates() -> list[Path]:
    """The traces of this repository and the shared ones."""
    paths = {*DATA.glob("*.gz"), *SHARED.glob("*.gz"), *SHARED.glob("*/*.pt.trace.json*")}
    return sorted(paths - set(malformed()))


def malformed() -> list[Path]:
    """The traces that are not JSON."""
    return sorted(path for path in SHARED.glob("malformed/*") if read(path) is None)


def golden(path: Path) -> dict[str, Any] | None:
    """Return an independent oracle's counts of the trace, if there are any."""
    name, rank = path.name.removesuffix(".pt.trace.json.gz"), "0"
    if path.parent.name == "dlrm_8_ranks":
        name, rank = "dlrm_8_ranks", path.name.removeprefix("worker").split("_", 1)[0]
    file = GOLDEN / f"{name}.json"
    answer: dict[str, Any] | None = json.loads(file.read_text())[rank] if file.exists() else None
    return answer


def exact_bounds(events: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the earliest start and the latest end of all timed events in ns, by plain decimal arithmetic."""
    timed = [e for e in events if e["ph"] not in TIMELESS_PHASES]
    ends = [Decimal(e["ts"]) + Decimal(e.get("dur", 0)) for e in timed]
    return int(min(Decimal(e["ts"]) for e in timed) * 1000), int(max(ends) * 1000)


def slices(server: Server, trace_id: object) -> Any:
    """Return the number of slices that the engine read from a trace, including those that it dropped for overlaps."""
    dropped = "SELECT ifnull(sum(value), 0) FROM stats WHERE name = 'slice_drop_overlapping_complete_event'"
    return sum(int(str(server.rows(trace_id, sql)[0][0])) for sql in ("SELECT count(*) FROM slice", dropped))


def check_golden(trace: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that the counts and the bounds of GPU work equal the golden tables."""
    busy = [device for device in trace["devices"] if device["bounds"]]
    assert {key.removesuffix("None"): n for key, n in expected["cats"].items()} == trace["counts"]
    assert trace["events"]["in"] == expected["n_events"]
    assert sum(device["events"] for device in busy) == expected["gpu_events"]
    assert min(device["bounds"]["start_ns"] for device in busy) == expected["first_ns"]
    assert max(device["bounds"]["end_ns"] for device in busy) == expected["last_ns"]
    assert sorted(trace["streams"]) == sorted(key.replace("/stream ", "/") for key in expected["streams"])


@pytest.mark.parametrize("path", few_of(candidates()), ids=lambda path: path.name.split(".")[0])
def test_trace_becomes_ready_with_exact_counts_and_bounds_and_every_slice_accounted_for(
    server: Server, path: Path
) -> None:
    events = read(path)["traceEvents"]
    trace: dict[str, Any] = server.upload(path)
    counts = Counter(f"{e['ph']}|{e.get('cat', '')}" for e in events)
    assert trace["state"] == "ready"
    assert trace["counts"] == dict(counts)
    assert trace["events"] == {"in": len(events), "kept": len(events), "refused": 0}
    assert (trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]) == exact_bounds(events)
    assert {note["kind"] for note in trace["health"]["notes"]} <= {"oddity"}

    assert slices(server, trace["id"]) == sum(n for key, n in counts.items() if key.startswith(("X|", "i|")))
    if expected := golden(path):
        check_golden(trace, expected)
    server.api.delete(f"/traces/{trace['id']}").raise_for_status()


@pytest.mark.parametrize("path", malformed(), ids=lambda path: path.name.split(".")[0])
def test_malformed_trace_becomes_ready_with_a_report_and_all_its_slices(server: Server, path: Path) -> None:
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

    assert slices(server, trace["id"]) == text.count(b'"ph": "X"') + text.count(b'"ph": "i"')
    server.api.delete(f"/traces/{trace['id']}").raise_for_status()

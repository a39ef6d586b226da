"""A memory timeline becomes counters and allocations; what is wrong in it is said with its place."""

import gzip
import json
from collections.abc import Sequence
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.formats.memory_timeline.reader import CATEGORIES, COUNTER, CREATE, DESTROY, INCREMENT_VERSION, PREEXISTING
from service.formats.pftrace.format import is_perfetto_trace
from service.formats.reader import TraceReader
from service.formats.registry import open_trace
from service.trace.errors import IngestError, NotATrace, Truncated
from tests.conftest import SHARED, needs_shared

INPUTS = SHARED.parent / "inputs"
BASE = 1_696_966_047_096_061_874
Row = Sequence[int]


def read(content: bytes, folder: Path = Path()) -> tuple[list[dict[str, Any]], TraceReader]:
    reader, file_format = open_trace(BufferedReader(BytesIO(content)), folder)
    assert file_format.startswith("json")
    return pa.Table.from_batches(reader.batches()).to_pylist(), reader


def counters(events: Sequence[dict[str, Any]]) -> list[tuple[int, list[int]]]:
    """Return the time and the bytes of each category of each counter."""
    found = [event for event in events if event["name"] == COUNTER]
    assert all([*json.loads(event["args"])] == [*CATEGORIES] for event in found)
    return [(event["ts_ns"], [*json.loads(event["args"]).values()]) for event in found]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 1 << 60), st.sampled_from([CREATE, INCREMENT_VERSION, DESTROY]),
        st.integers(-(1 << 40), 1 << 40), st.integers(0, 7),
    ),
    min_size=1,
).map(sorted)  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(0, 7))), ROWS)
def test_changes_add_up(alive: list[tuple[int, int]], rows: list[Row]) -> None:
    document = [*([-1, PREEXISTING, *block] for block in alive), *map(list, rows)]
    events, reader = read(json.dumps(document).encode())
    held, last = [0] * len(CATEGORIES), dict[int, list[int]]()
    for ns, _, size, category in document:
        held[category] += size
        last[max(ns - rows[0][0], 0)] = [*held]
    found = counters(events)
    assert dict(found) == last
    changes = [event for event in events if event["ph"] == "i"]
    assert len(changes) == len(document)
    totals = [json.loads(event["args"]).get("Total Allocated") for event in changes]
    sums = [sum(row[2] for row in document[: number + 1]) for number in range(len(document))]
    assert all(total is None or total == expected for total, expected in zip(totals, sums, strict=True))
    assert reader.kept == len(events)
    assert reader.envelope()[1]["baseTimeNanoseconds"] == rows[0][0]


@given(st.lists(st.lists(st.integers(0, 1 << 50), min_size=8, max_size=8), min_size=1), st.integers(0, 1 << 50))
def test_samples_are_counters(sizes: list[list[int]], start: int) -> None:
    times = [start + 3 * number for number in range(len(sizes))]
    events, reader = read(json.dumps([times, [[0, *row] for row in sizes]]).encode())
    assert counters(events) == [(3000 * number, row) for number, row in enumerate(sizes)]
    assert reader.envelope()[1]["baseTimeNanoseconds"] == start * 1000


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_names_of_events_say_what_happened(compress: Any) -> None:
    rows = [[-1, PREEXISTING, 5, 0], [BASE, CREATE, 7, 3], [BASE + 4, INCREMENT_VERSION, -7, 3],
            [BASE + 4, INCREMENT_VERSION, 7, 4], [BASE + 9, DESTROY, -7, 4]]  # fmt: skip
    events, reader = read(compress(json.dumps(rows).encode()))
    changes = [(event["name"], event["ts_ns"], json.loads(event["args"])) for event in events if event["ph"] == "i"]
    assert changes == [
        ("[alive at start]", 0, {"Bytes": 5, "Category": "PARAMETER"}),
        ("[memory]", 0, {"Bytes": 7, "Category": "TEMPORARY", "Total Allocated": 12}),
        ("[new version]", 4, {"Bytes": -7, "Category": "TEMPORARY"}),
        ("[new version]", 4, {"Bytes": 7, "Category": "ACTIVATION"}),
        ("[memory]", 9, {"Bytes": -7, "Category": "ACTIVATION", "Total Allocated": 5}),
    ]
    assert reader.health.as_dict(refused=0)["notes"] == []


def test_changes_out_of_order_keep_their_place() -> None:
    events, reader = read(json.dumps([[BASE + 5, CREATE, 7, 3], [BASE, DESTROY, -7, 3]]).encode())
    assert [event["ts_ns"] for event in events if event["ph"] == "i"] == [0, 0]
    (note,) = reader.health.as_dict(refused=0)["notes"]
    assert note["code"] == "unordered_times"


@pytest.mark.parametrize(
    ("text", "changes", "times"),
    [
        (b"[[5, 2, 7, 3], [6, 2, 7", 1, []),
        (b"[[5, 2, 7, 3], [6, 2, 7, 3]", 2, [0]),
        (b"[[5, 2, 7, 3],", 1, []),
        (b"[[5, 6], [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1", 0, [0]),
    ],
)
def test_events_before_a_cut_are_kept(text: bytes, changes: int, times: list[int]) -> None:
    events, reader = read(text)
    assert len([event for event in events if event["ph"] == "i"]) == changes
    assert [time for time, _ in counters(events)] == times, "more changes may have come at the last time"
    (note,) = reader.health.as_dict(refused=0)["notes"]
    assert note["code"] == "cut"


@pytest.mark.parametrize("text", [b"[[5, 2, 7", b"[[5, 6, 7, 8, 9", b"[[5, 6, 7, 8, 9], [[0,"])
def test_cut_before_the_first_event_is_an_error(text: bytes) -> None:
    with pytest.raises(Truncated, match="ends where"):
        read(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'[[5, 2, 7, 3], ["a", 2, 7, 3]]', '["a"'),
        (b"[[5, 2, 7, 3], [6, 9, 7, 3]]", "[6, 9"),
        (b"[[5, 2, 7, 3], [6, 2, 7.5, 3]]", "7.5"),
        (b"[[5, 2, 7, 3], [6, 2, 7, 3, 1]]", "3, 1]"),
        (b"[[5, 2, 7, 3], [99999999999999999999, 2, 7, 3]]", "[9999"),
        (b"[[5, 6], [[0, 1, 2]]]", "[0, 1, 2]"),
        (b"[[5, 6], {}]", "{}"),
        (b"[[5, 2, 7, 3] [6, 2, 7, 3]]", "[6, 2"),
        (b"[[5, 2, 7, 3], " + b" " * 100_000 + b"[6, 2, 7, 3]]", " "),
    ],
)
def test_other_values_are_refused_with_their_place(text: bytes, found: str) -> None:
    with pytest.raises(NotATrace, match="where") as error:
        read(text)
    offset = error.value.as_dict()["offset"]
    assert found in error.value.detail
    assert isinstance(offset, int)
    assert 0 < offset < len(text)


@given(st.binary(max_size=60), st.integers(0, 200), st.sampled_from(["raw", "samples"]))
def test_damaged_text_is_an_error_or_a_trace(damage: bytes, at: int, form: str) -> None:
    rows: list[Any] = [[5, 2, 7, 3]] * 9 if form == "raw" else [[1, 2], [[0, *range(8)]] * 2]
    text = json.dumps(rows).encode()
    damaged = text[:at] + damage + text[at:]
    assume(not is_perfetto_trace(damaged))  # damage at the start can be the start of another format
    try:
        events, _ = read(damaged)
    except IngestError:
        return
    assert events


@needs_shared
@pytest.mark.parametrize("name", ["memtl_hta.raw.json.gz", "memtl_own_coalesced.json"])
def test_peak_is_that_of_the_golden(name: str, tmp_path: Path) -> None:
    golden = json.loads((INPUTS / f"{name.partition('.')[0]}.golden.json").read_text())
    events, reader = read((INPUTS / name).read_bytes(), tmp_path)
    base = reader.envelope()[1]["baseTimeNanoseconds"]
    peak_ns, sizes = max(counters(events), key=lambda counter: sum(counter[1]))
    assert sum(sizes) == golden["peak"]["bytes"]
    if "events" in golden:
        assert len([event for event in events if event["ph"] == "i"]) == golden["events"]
        assert base + peak_ns == golden["peak"]["time_ns"]
        assert sizes == [*golden["peak"]["by_category"].values()]
        assert counters(events)[-1][1] == [*golden["end_by_category"].values()]
    else:
        assert len(counters(events)) == golden["steps"]
        assert (base + peak_ns) // 1000 == golden["peak"]["time_us"]
        assert [0, *sizes] == golden["peak"]["by_column"]

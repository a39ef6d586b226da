"""A memory snapshot becomes a trace: events as PyTorch's profiler writes them, blocks, counters, and the stacks."""

import base64
import gzip
import json
import pickle
from collections.abc import Callable
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pytest

from service.formats.memory_snapshot.reader import MEMBER
from service.formats.registry import open_trace
from service.jobs.ingest import ingest
from service.store.export import document
from service.trace.errors import IngestError, NotATrace, Truncated
from service.trace.summary import Summary
from tests.conftest import SHARED, needs_shared
from tests.snapshots import BASE, MB, SMALL, START_US, block, entry, freed, pickled, segment, snapshot, write_large

INPUTS = SHARED.parent / "inputs"
PAGE = '<!DOCTYPE html>\n<script>const local_files = [{{"name": "a.pickle", "base64": "{}"}}]</script>'


def read(content: bytes, columns: Path) -> tuple[Summary, dict[str, Any]]:
    """Ingest a file; return its summary and the exported document."""
    summary = ingest(BufferedReader(BytesIO(content)), columns, "snapshot", lambda _: None)
    return summary, json.loads(b"".join(document(columns)))


def named(exported: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    return [event for event in exported["traceEvents"] if event["name"] in names]


def notes(summary: Summary) -> dict[str, int]:
    return {note["code"]: note["count"] for note in summary.health["notes"]}


def test_allocations_and_frees_are_memory_events(tmp_path: Path) -> None:
    summary, exported = read(pickled(SMALL), tmp_path / "columns")

    assert (summary.format, summary.base_ns) == ("pickle", (START_US + 1) * 1000)
    changes = named(exported, "[memory]")
    assert [(event["ts"], event["args"]["Bytes"], event["args"]["Total Allocated"]) for event in changes] == [
        (1, 3 * MB, 3 * MB),
        (3, 5 * MB, 8 * MB),
        (6, -3 * MB, 5 * MB),
    ]
    assert changes[1] == {
        "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "pid": 0, "tid": 0, "ts": 3,
        "args": {
            "Device Type": 1, "Device Id": 0, "Addr": BASE + 4 * MB, "Bytes": 5 * MB, "Total Allocated": 8 * MB,
            "Total Reserved": 20 * MB, "device": 0, "stream": 0, "Stack": changes[1]["args"]["Stack"],
            "Site": "/home/ann/model.py:12 forward",
        },
    }  # fmt: skip


def test_other_entries_are_instants_of_their_names(tmp_path: Path) -> None:
    _, exported = read(pickled(SMALL), tmp_path / "columns")

    (failure,) = named(exported, "[OutOfMemory]")
    assert (failure["args"]["Bytes"], failure["args"]["Device Free"]) == (90 * MB, 7 * MB)
    assert failure["args"]["Total Allocated"] == 5 * MB
    (reserving,) = named(exported, "segment_alloc")
    assert (reserving["cat"], reserving["args"]["Total Reserved"]) == ("memory_snapshot", 20 * MB)


def test_requested_free_is_an_event_only_if_something_is_between_it_and_the_free(tmp_path: Path) -> None:
    requested, completed = freed(BASE, 512, 3)
    between = entry("alloc", BASE + MB, 512, 3)
    segments = [segment(BASE, 2 * MB, [block(BASE + MB, 512)])]
    content = snapshot([entry("alloc", BASE, 512, 1), requested, between, completed], segments=segments)

    _, exported = read(pickled(content), tmp_path / "columns")

    (event,) = named(exported, "free_requested")
    assert event["args"]["Addr"] == BASE
    assert not named(read(pickled(SMALL), tmp_path / "other")[1], "free_requested")


def test_blocks_are_slices_that_do_not_overlap(tmp_path: Path) -> None:
    _, exported = read(pickled(SMALL), tmp_path / "columns")

    blocks = [event for event in exported["traceEvents"] if event.get("cat") == "memory_block"]
    assert [(event["ts"], event["dur"], event["tid"], event["args"]["Bytes"]) for event in blocks] == [
        (1, 5, 0, 3 * MB),
        (3, 5, 1, 5 * MB),
    ]


def test_counters_have_active_and_reserved_bytes(tmp_path: Path) -> None:
    _, exported = read(pickled(SMALL), tmp_path / "columns")

    values = [event["args"]["active bytes"] for event in exported["traceEvents"] if event["ph"] == "C"]
    assert values == [0, 0, 3 * MB, 8 * MB, 8 * MB, 5 * MB, 5 * MB]


def test_annotations_are_slices_and_unpaired_ones_instants(tmp_path: Path) -> None:
    unpaired = {"stage": "END", "name": "before", "device": 0, "time_us": START_US}
    content = SMALL | {"external_annotations": [unpaired, *SMALL["external_annotations"]]}

    _, exported = read(pickled(content), tmp_path / "columns")

    events = named(exported, "before", "step#1")
    assert [(event["ph"], event["name"], event["ts"], event.get("dur")) for event in events] == [
        ("i", "before", 0, None),
        ("X", "step#1", 1, 7),
    ]


def test_blocks_that_are_alive_at_the_start_are_events(tmp_path: Path) -> None:
    content = snapshot(freed(BASE, 512, 5), segments=[segment(BASE, MB, [block(BASE + MB, 700, requested_size=600)])])

    _, exported = read(pickled(content), tmp_path / "columns")

    alive = named(exported, "[alive at start]")
    assert [(event["ts"], event["args"]["Bytes"]) for event in alive] == [(0, 512), (0, 600)]
    assert [event["args"]["Total Allocated"] for event in named(exported, "[memory]")] == [600]


def test_document_has_stacks_segments_and_settings(tmp_path: Path) -> None:
    _, exported = read(pickled(SMALL), tmp_path / "columns")

    member = exported[MEMBER]
    (change, *_) = named(exported, "[memory]")
    frames = [member["frames"][number] for number in member["stacks"][change["args"]["Stack"]]]
    assert frames[1] == ["forward", "/home/ann/model.py", 10]
    assert member["settings"] == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}
    segments = member["segments"]
    assert (segments["total"], segments["active"], segments["largest_free"]) == ([20 * MB], [5 * MB], [11 * MB])


def test_snapshot_without_times_has_the_numbers_of_entries(tmp_path: Path) -> None:
    trace = [entry("alloc", BASE + place * MB, 512) for place in range(3)]
    blocks = [block(BASE + place * MB, 512) for place in range(3)]

    summary, exported = read(pickled(snapshot(trace, segments=[segment(BASE, 3 * MB, blocks)])), tmp_path / "columns")

    assert [event["ts"] for event in named(exported, "[memory]")] == [0, 1, 2]
    assert summary.base_ns is None
    assert notes(summary)["entry_numbers"] == 3


def test_replay_that_contradicts_itself_is_noted(tmp_path: Path) -> None:
    content = snapshot([entry("alloc", BASE, 512, 1)], segments=[segment(BASE, MB, [])])

    summary, _ = read(pickled(content), tmp_path / "columns")

    (note,) = [note for note in summary.health["notes"] if note["code"] == "replay_contradiction"]
    assert "blocks that the trace leaves alive, but no segment has: 1" in str(note["examples"])


def test_time_before_an_earlier_one_is_raised(tmp_path: Path) -> None:
    trace = [entry("alloc", BASE, 512, 9), entry("alloc", BASE + MB, 512, 4)]
    blocks = [block(BASE, 512), block(BASE + MB, 512)]

    summary, exported = read(pickled(snapshot(trace, segments=[segment(BASE, MB, blocks)])), tmp_path / "columns")

    assert [event["ts"] for event in named(exported, "[memory]")] == [5, 5]
    assert notes(summary)["unordered_times"] == 1


def test_address_beyond_63_bits_is_negative_as_in_traces_of_the_profiler(tmp_path: Path) -> None:
    address = (1 << 64) - 512
    content = snapshot([entry("alloc", address, 512, 1)], segments=[segment(address, MB, [block(address, 512)])])

    summary, exported = read(pickled(content), tmp_path / "columns")

    assert named(exported, "[memory]")[0]["args"]["Addr"] == -512
    assert "replay_contradiction" not in notes(summary)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_each_protocol_gives_the_same_events(protocol: int, tmp_path: Path) -> None:
    _, expected = read(pickled(SMALL), tmp_path / "expected")

    _, exported = read(pickled(SMALL, protocol), tmp_path / "columns")

    assert exported == expected


@pytest.mark.parametrize(
    ("packed", "name"),
    [
        (gzip.compress, "pickle.gz"),
        (lambda content: PAGE.format(base64.b64encode(content + bytes(5)).decode()).encode(), "pickle"),
    ],
)
def test_compressed_file_and_page_give_the_same_events(
    packed: Callable[[bytes], bytes], name: str, tmp_path: Path
) -> None:
    _, expected = read(pickled(SMALL), tmp_path / "expected")

    summary, exported = read(packed(pickled(SMALL)), tmp_path / "columns")

    assert exported == expected
    assert summary.format == name


@pytest.mark.parametrize(
    ("page", "error", "message"),
    [
        (b"<!doctype html><p>No snapshot</p>", NotATrace, "_dump_snapshot"),
        (PAGE.format("gASV").encode()[:-13], Truncated, "page ends"),
        (PAGE.format("!!!!").encode(), IngestError, "base64"),
    ],
)
def test_page_without_a_whole_snapshot_is_refused(
    page: bytes, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        list(open_trace(BufferedReader(BytesIO(page)), tmp_path)[0].batches())


def test_bytes_after_the_pickle_are_noted(tmp_path: Path) -> None:
    assert "envelope" in notes(read(pickled(SMALL) + b"more", tmp_path / "one")[0])
    assert "envelope" not in notes(read(pickled(SMALL) + bytes(100), tmp_path / "other")[0])


def test_exported_document_is_read_as_the_same_events(tmp_path: Path) -> None:
    _, exported = read(pickled(SMALL), tmp_path / "columns")

    _, again = read(json.dumps(exported).encode(), tmp_path / "again")

    assert again == exported


def test_large_snapshot_has_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    figures = write_large(path, 30_000, live=100)

    summary, exported = read(path.read_bytes(), tmp_path / "columns")

    totals = [event["args"]["Total Allocated"] for event in named(exported, "[memory]")]
    assert (max(totals), totals[-1]) == (figures["peak_bytes"], figures["end_bytes"])
    assert exported[MEMBER]["devices"][0]["entries"] == figures["entries"]
    assert "replay_contradiction" not in notes(summary)
    assert len(pickle.loads(path.read_bytes())["device_traces"][0]) == figures["entries"]


@needs_shared
@pytest.mark.parametrize("name", ["all_actions_p2.pickle", "all_actions_p5.pickle", "trace_plot.html"])
def test_forms_of_a_real_snapshot_give_the_same_events(name: str, tmp_path: Path) -> None:
    _, expected = read((INPUTS / "mem_own_all_actions_p4.pickle").read_bytes(), tmp_path / "expected")

    _, exported = read((INPUTS / f"mem_own_{name}").read_bytes(), tmp_path / "columns")

    assert exported == expected


@needs_shared
@pytest.mark.parametrize("name", ["mem_softmax_peak", "mem_forward_fp32", "mem_inference_user_metadata"])
def test_events_of_real_snapshots_have_their_golden_peaks(name: str, tmp_path: Path) -> None:
    golden = json.loads((INPUTS / f"{name}.golden.json").read_text())["devices"][0]

    summary, exported = read((INPUTS / f"{name}.pickle").read_bytes(), tmp_path / "columns")

    args = [event["args"] for event in named(exported, "[memory]")]
    assert max(one["Total Allocated"] for one in args) == golden["peak"]["active_bytes"]
    assert args[-1]["Total Allocated"] == golden["end"]["active_bytes_replayed"]
    assert max(one["Total Reserved"] for one in args) == golden["max_reserved"]["bytes"]
    assert "replay_contradiction" not in notes(summary)

"""Memory snapshots, compared with golden figures and with sums that are computed by hand."""

import json
from pathlib import Path

import pytest

from service.analysis.catalogue import QUESTIONS
from service.analysis.table import schema_of
from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask
from tests.conftest import DATA, SHARED, needs_shared
from tests.snapshots import (
    BASE,
    GOLDEN,
    MB,
    SMALL,
    STACKS,
    block,
    entry,
    freed,
    pickled,
    segment,
    snapshot,
    write_large,
)

INPUTS = SHARED.parent / "inputs"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.pickle"
    path.write_bytes(pickled(SMALL))
    return path


def test_tables_have_the_described_columns(small: Path, ask: Ask) -> None:
    answer, tables = ask("memory_snapshot", small), QUESTIONS["memory_snapshot"].tables

    assert [*answer] == [*tables]
    for table, columns in tables.items():
        assert answer.answer.tables[table].schema.equals(schema_of(columns), check_metadata=True)


@needs_shared
@pytest.mark.parametrize("name", GOLDEN)
def test_figures_equal_the_golden_ones(name: str, ask: Ask) -> None:
    golden = json.loads((INPUTS / f"{name}.golden.json").read_text())["devices"]
    answer = ask("memory_snapshot", INPUTS / GOLDEN[name])

    for row, expected in zip(answer["devices"], golden, strict=True):
        peak = expected["peak"]
        assert row["device"] == expected["device"]
        assert row["start_bytes"] == expected["start"]["active_bytes"]
        assert row["peak_bytes"] == peak["active_bytes"]
        assert row["end_bytes"] == expected["end"]["active_bytes_replayed"]
        assert row["segments_bytes"] == expected["end"]["reserved_from_segments"]
        assert row["ooms"] == len(expected["oom"])
        if peak["entry_index"] >= 0:
            assert row["peak_reserved_then_bytes"] == peak["reserved_bytes"]
        stacks = [held for held in answer["peak_stacks"] if held["device"] == row["device"]]
        assert sum(held["held_bytes"] for held in stacks) == peak["active_bytes"]
        assert sum(held["blocks"] for held in stacks) == peak["live_blocks"]
        failures = [failure for failure in answer["ooms"] if failure["device"] == row["device"]]
        assert [(failure["failed_bytes"], failure["device_free_bytes"]) for failure in failures] == [
            (failure["size"], failure["device_free"]) for failure in expected["oom"]
        ]


def test_figures_equal_those_of_the_allocator(ask: Ask) -> None:
    stats = json.loads((DATA / "figures/cuda_stack_memory.memory_stats.json").read_text())
    answer = ask("memory_snapshot", DATA / "figures/cuda_stack_memory.pickle.gz")
    [device] = answer["devices"]

    assert device["peak_bytes"] == stats["requested_bytes.all.peak"]
    assert device["peak_reserved_bytes"] == stats["reserved_bytes.all.peak"]
    assert device["segments_bytes"] == stats["reserved_bytes.all.current"]
    assert sum(segment["active_bytes"] for segment in answer["segments"]) == stats["active_bytes.all.current"]
    assert sum(segment["requested_bytes"] for segment in answer["segments"]) == device["end_bytes"]


@needs_shared
def test_sites_at_the_peak_equal_the_golden_ones(ask: Ask) -> None:
    (golden, *_) = json.loads((INPUTS / "mem_own_all_actions.golden.json").read_text())["devices"]
    rows = ask("memory_snapshot", INPUTS / "mem_own_all_actions_p4.pickle")["peak_stacks"]

    sites: dict[str, int] = {}
    for row in rows:
        if row["device"] == 0:
            site = row["site"].replace(" ", ":")
            sites[site] = sites.get(site, 0) + row["held_bytes"]
    assert sites == {site["site"]: site["bytes"] for site in golden["peak"]["top_sites_first_py_frame"]}


def test_peak_has_the_blocks_by_stack(small: Path, ask: Ask) -> None:
    answer = ask("memory_snapshot", small)

    (device,) = answer["devices"]
    assert (device["allocations"], device["frees"], device["start_bytes"]) == (2, 1, 0)
    assert (device["peak_bytes"], device["peak_at_ns"], device["end_bytes"]) == (8 * MB, 3000, 5 * MB)
    assert (device["segments"], device["unused_bytes"], device["largest_unused_bytes"]) == (1, 15 * MB, 11 * MB)
    assert [(row["site"], row["blocks"], row["held_bytes"], row["held_pct"]) for row in answer["peak_stacks"]] == [
        ("/home/ann/model.py:12 forward", 1, 5 * MB, 62.5),
        ("/home/ann/model.py:10 forward", 1, 3 * MB, 37.5),
    ]
    assert answer["peak_stacks"][0]["frames"].splitlines()[2] == "/home/ann/model.py:99 <module>"


@pytest.mark.parametrize(
    ("at_ns", "held"), [(0, []), (1000, [3]), (2999, [3]), (3000, [5, 3]), (6000, [5]), (None, [5])]
)
def test_live_set_is_that_of_the_moment(at_ns: int | None, held: list[int], small: Path, ask: Ask) -> None:
    rows = ask("memory_snapshot", small, at_ns=at_ns)["live_stacks"]

    assert [row["held_bytes"] for row in rows] == [size * MB for size in held]


def test_out_of_memory_has_what_was_live(small: Path, ask: Ask) -> None:
    answer = ask("memory_snapshot", small)

    (failure,) = answer["ooms"]
    assert (failure["failed_bytes"], failure["device_free_bytes"], failure["active_bytes"]) == (90 * MB, 7 * MB, 5 * MB)
    assert failure["site"] == "/home/ann/model.py:13 forward"
    assert [(row["at_ns"], row["held_bytes"]) for row in answer["oom_stacks"]] == [(failure["at_ns"], 5 * MB)]


def test_blocks_from_before_the_first_entry_are_live(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "before.pickle"
    path.write_bytes(
        pickled(
            snapshot(
                freed(BASE, 512, 5, frames=STACKS[4]),
                segments=[segment(BASE, MB, [block(BASE + 4096, 700, frames=STACKS[5])], stream=0)],
            )
        )
    )

    answer = ask("memory_snapshot", path, at_ns=-1)

    assert [(row["site"], row["held_bytes"]) for row in answer["live_stacks"]] == [
        ("/home/ann/model.py:15 forward", 700),
        ("/home/ann/model.py:14 forward", 512),
    ]
    assert [(row["size_bytes"], row["allocated_at_ns"], row["freed_at_ns"]) for row in answer["blocks"]] == [
        (700, None, None),
        (512, None, 0),
    ]


def test_peak_of_the_only_stream_is_that_of_the_device(small: Path, ask: Ask) -> None:
    (row,) = ask("memory_snapshot", small)["streams"]

    assert (row["stream"], row["peak_bytes"], row["peak_at_ns"], row["end_bytes"]) == (0, 8 * MB, 3000, 5 * MB)


def test_streams_have_their_own_peaks(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "streams.pickle"
    trace = [
        entry("alloc", BASE, 100, 1),
        entry("alloc", BASE + MB, 70, 2, stream=7),
        *freed(BASE, 100, 3),
        entry("alloc", BASE + 2 * MB, 60, 4, stream=7),
    ]
    blocks = [block(BASE + MB, 70), block(BASE + 2 * MB, 60)]
    path.write_bytes(pickled(snapshot(trace, segments=[segment(BASE, 3 * MB, blocks, stream=7)])))

    rows = ask("memory_snapshot", path)["streams"]

    assert [(row["stream"], row["peak_bytes"], row["peak_at_ns"], row["end_bytes"]) for row in rows] == [
        (0, 100, 0, 0),
        (7, 130, 3000, 130),
    ]


def test_curve_has_each_change_or_the_extremes(small: Path, tmp_path: Path, ask: Ask) -> None:
    curve = ask("memory_snapshot", small)["curve"]

    assert [(row["at_ns"], row["active_bytes"]) for row in curve] == [
        (1000, 0),
        (1000, 3 * MB),
        (3000, 8 * MB),
        (6000, 5 * MB),
    ]
    assert {row["reserved_bytes"] for row in curve} == {20 * MB}

    figures = write_large(tmp_path / "large.pickle", 30_000, live=100)
    thinned = ask("memory_snapshot", tmp_path / "large.pickle", points=50)["curve"]
    assert len(thinned) <= 2 * 53 + 1
    assert max(row["active_bytes"] for row in thinned) == figures["peak_bytes"]


@needs_shared
@pytest.mark.parametrize("name", GOLDEN)
def test_curve_and_devices_agree(name: str, ask: Ask) -> None:
    answer = ask("memory_snapshot", INPUTS / GOLDEN[name], points=10)

    for device in answer["devices"]:
        curve = [row for row in answer["curve"] if row["device"] == device["device"]]
        if curve:
            assert curve[0]["active_bytes"] == device["start_bytes"]
            assert curve[-1]["active_bytes"] == device["end_bytes"]
            assert max(row["active_bytes"] for row in curve) == device["peak_bytes"]
            assert max(row["reserved_bytes"] for row in curve) == device["peak_reserved_bytes"]
        at = {row["at_ns"] for row in answer["peak_stacks"] if row["device"] == device["device"]}
        assert at <= {device["peak_at_ns"]}


def test_blocks_of_segments_have_their_places(small: Path, ask: Ask) -> None:
    answer = ask("memory_snapshot", small)

    (placed,), (listed,) = answer["segment_blocks"], answer["segments"]
    assert (placed["segment"], placed["offset_bytes"], placed["size_bytes"]) == (listed["address"], 4 * MB, 5 * MB)
    assert placed["site"] == "/home/ann/model.py:12 forward"


def test_blocks_at_the_highest_addresses_have_their_places(tmp_path: Path, ask: Ask) -> None:
    path, high = tmp_path / "high.pickle", (1 << 64) - 4 * MB
    blocks = [block(high + MB, 700), block(high, 512)]
    path.write_bytes(pickled(snapshot([], segments=[segment(high, 2 * MB, blocks)])))

    rows = ask("memory_snapshot", path)["segment_blocks"]

    assert [(row["offset_bytes"], row["size_bytes"]) for row in rows] == [(0, 512), (MB, 700)]


def test_memory_answers_about_a_snapshot(small: Path, ask: Ask) -> None:
    (device,) = ask("memory", small)["devices"]

    assert (device["device_type"], device["peak_bytes"], device["peak_reserved_bytes"]) == ("CUDA", 8 * MB, 20 * MB)


def test_other_traces_have_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="not a memory snapshot"):
        ask("memory_snapshot", [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}])


def test_large_snapshot_has_its_peak(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "large.pickle"
    figures = write_large(path, 30_000, live=100)

    answer = ask("memory_snapshot", path, at_ns=figures["peak_index"] * 1000)

    (device,) = answer["devices"]
    assert (device["peak_bytes"], device["end_bytes"]) == (figures["peak_bytes"], figures["end_bytes"])
    assert sum(row["held_bytes"] for row in answer["live_stacks"]) == figures["peak_bytes"]

"""Comparison of two memory snapshots, with sums that are computed by hand."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.analysis.catalogue import QUESTIONS
from service.analysis.table import schema_of
from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask
from tests.conftest import scaled
from tests.snapshots import BASE, MB, STACKS, START_US, block, entry, frame, freed, pickled, segment, snapshot
from tests.traces import TraceShape, write_trace

Blocks = list[tuple[int, int]]


def written(path: Path, trace: list[Any]) -> Path:
    path.write_bytes(pickled(snapshot(trace)))
    return path


def allocations(blocks: Blocks) -> list[Any]:
    """Return allocations that are never freed, of a stack and a size in MB."""
    return [
        entry("alloc", BASE + place * 1000 * MB, size * 1_000_000, place, frames=STACKS[stack])
        for place, (stack, size) in enumerate(blocks)
    ]


blocks = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), min_size=1, max_size=8)


@settings(max_examples=scaled(15))
@given(blocks, blocks)
def test_each_site_is_summed_on_both_sides(
    tmp_path_factory: pytest.TempPathFactory, ask: Ask, base: Blocks, other: Blocks
) -> None:
    folder = tmp_path_factory.mktemp("sides")
    paths = [written(folder / f"{name}.pickle", allocations(side)) for name, side in (("a", base), ("b", other))]

    answer = ask("compare_snapshots", *paths)

    sums: list[Counter[str]] = [Counter(), Counter()]
    counts: list[Counter[str]] = [Counter(), Counter()]
    for side, held in enumerate((base, other)):
        for stack, size in held:
            sums[side][f"/home/ann/model.py:{10 + stack} forward"] += size * 1_000_000
            counts[side][f"/home/ann/model.py:{10 + stack} forward"] += 1
    assert {row["site"] for row in answer["stacks"]} == sums[0].keys() | sums[1].keys()
    for row in answer["stacks"]:
        before, after = (side[row["site"]] for side in sums)
        assert (row["base_held_bytes"], row["held_bytes"]) == (before, after)
        assert (row["base_blocks"], row["blocks"]) == tuple(side[row["site"]] for side in counts)
        assert row["difference_bytes"] == after - before
        if before and after:
            change = "more" if after > before else "less"
            assert row["verdict"] == (change if abs(after - before) > max(1_000_000, before * 0.05) else "same")
            assert row["difference_pct"] == pytest.approx(100 * (after - before) / before)
        else:
            assert row["verdict"] == ("gone" if before else "new")
            assert row["difference_pct"] is row["ratio"] is None
    differences = [abs(row["difference_bytes"]) for row in answer["stacks"]]
    assert differences == sorted(differences, reverse=True)
    peaks = {row["measure"]: row for row in answer["devices"]}["peak"]
    assert (peaks["base_value_bytes"], peaks["value_bytes"]) == tuple(side.total() for side in sums)


def test_tables_have_the_described_columns(tmp_path: Path, ask: Ask) -> None:
    path = written(tmp_path / "a.pickle", allocations([(1, 1)]))
    answer, tables = ask("compare_snapshots", path, path), QUESTIONS["compare_snapshots"].tables

    assert [*answer] == [*tables]
    for table, columns in tables.items():
        assert answer.answer.tables[table].schema.equals(schema_of(columns), check_metadata=True)


def test_stacks_of_one_site_are_separate_if_asked_for(tmp_path: Path, ask: Ask) -> None:
    stacks = [[frame(10), frame(caller, "<module>")] for caller in (20, 30)]
    base = written(tmp_path / "a.pickle", [entry("alloc", BASE, 5 * MB, 1, frames=stacks[0])])
    other = written(tmp_path / "b.pickle", [entry("alloc", BASE, 7 * MB, 1, frames=stacks[1])])

    (site,) = ask("compare_snapshots", base, other)["stacks"]
    both = ask("compare_snapshots", base, other, by="stack")["stacks"]

    assert (site["base_held_bytes"], site["held_bytes"], site["verdict"]) == (5 * MB, 7 * MB, "more")
    assert site["frames"].splitlines()[1] == "/home/ann/model.py:30 <module>"
    assert [(row["held_bytes"], row["verdict"]) for row in both] == [(7 * MB, "new"), (0, "gone")]


def test_end_is_compared_if_asked_for(tmp_path: Path, ask: Ask) -> None:
    trace = [entry("alloc", BASE, 5 * MB, 1, frames=STACKS[1]), entry("alloc", BASE + 9 * MB, 3 * MB, 2)]
    base = written(tmp_path / "a.pickle", trace)
    other = written(tmp_path / "b.pickle", [*trace, *freed(BASE, 5 * MB, 3)])

    assert {row["verdict"] for row in ask("compare_snapshots", base, other)["stacks"]} == {"same"}
    rows = ask("compare_snapshots", base, other, moment="end")["stacks"]
    assert [(row["base_held_bytes"], row["held_bytes"], row["verdict"]) for row in rows] == [
        (5 * MB, 0, "gone"),
        (3 * MB, 3 * MB, "same"),
    ]


def test_measures_that_a_side_does_not_record_are_left_out(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickled(snapshot([], segments=[segment(BASE, 2 * MB, [block(BASE, MB)])])))

    rows = ask("compare_snapshots", path, path)["devices"]
    assert {row["measure"] for row in rows} == {"start", "peak", "end", "segments", "unused"}
    assert {row["verdict"] for row in rows} == {"same"}


def test_stacks_that_differ_only_in_their_outermost_frames_are_separate(tmp_path: Path, ask: Ask) -> None:
    inner = [frame(line) for line in range(50)]
    paths = [
        written(tmp_path / f"{line}.pickle", [entry("alloc", BASE, 5 * MB, 1, frames=[*inner, frame(line, "main")])])
        for line in (1, 2)
    ]
    rows = ask("compare_snapshots", *paths, by="stack")["stacks"]
    assert sorted(row["verdict"] for row in rows) == ["gone", "new"]


def test_run_with_a_snapshot_beside_a_trace_equals_itself(tmp_path: Path, ask: Ask) -> None:
    notes = [
        {"stage": stage, "name": "ProfilerStep#0", "device": 0, "time_us": START_US + at}
        for stage, at in (("START", 0), ("END", 9))
    ]
    memory = tmp_path / "memory_rank0.pickle"
    memory.write_bytes(pickled(snapshot(allocations([(1, 1)]), external_annotations=notes)))
    trace = write_trace(tmp_path / "rank0.json", TraceShape(rank=0, world_size=1))

    answer = ask("compare", trace, memory, base=[trace, memory])

    assert {row["verdict"] for table in answer.values() for row in table} == {"same"}
    assert [skipped["name"] for skipped in answer.answer.skipped] == ["memory_rank0.pickle"] * 2
    assert {row["verdict"] for row in ask("compare_snapshots", trace, memory, base=[trace, memory])["stacks"]} == {
        "same"
    }


def test_other_traces_have_a_reason(tmp_path: Path, ask: Ask) -> None:
    base = written(tmp_path / "a.pickle", allocations([(1, 1)]))
    events = [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]

    with pytest.raises(NotApplicable, match="not a memory snapshot"):
        ask("compare_snapshots", events, events)
    with pytest.raises(NotApplicable, match="the other side"):
        ask("compare_snapshots", events, base=[base])

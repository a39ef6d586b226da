"""Steps of a snapshot and leaks across them, compared with a plain replay."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.conftest import Ask
from tests.snapshots import BASE, MB, STACKS, START_US, block, entry, freed, pickled, segment, snapshot

STEP_US = 100


def annotated(trace: list[Any], steps: int, name: str = "ProfilerStep#{}", **more: Any) -> bytes:
    """Return a snapshot with steps of `STEP_US`, whose annotations last half as long."""
    notes = [
        {"stage": stage, "name": name.format(step), "device": 0, "time_us": START_US + step * STEP_US + at}
        for step in range(steps)
        for stage, at in (("START", 0), ("END", STEP_US // 2))
    ]
    return pickled(snapshot(trace, external_annotations=notes, **more))


@pytest.fixture
def leaking(tmp_path: Path) -> Path:
    """Four steps: stack 1 leaves a block in each, stack 2 only in the first, and stack 3 frees its own a step later."""
    trace: list[Any] = []
    for step in range(4):
        at = step * STEP_US
        trace.append(entry("alloc", BASE + step * MB, 10 + step, at + 1, frames=STACKS[1]))
        if step == 0:
            trace.append(entry("alloc", BASE + 50 * MB, 1000, at + 2, frames=STACKS[2]))
        trace.append(entry("alloc", BASE + (60 + step) * MB, 70, at + 3, frames=STACKS[3]))
        if step > 0:
            trace += freed(BASE + (59 + step) * MB, 70, at + 4)
    path = tmp_path / "leaking.pickle"
    path.write_bytes(annotated(trace, 4))
    return path


def test_leaks_are_stacks_that_leave_blocks_in_several_steps(leaking: Path, ask: Ask) -> None:
    (leak,) = ask("memory_snapshot", leaking)["leaks"]

    assert (leak["site"], leak["steps"], leak["of_steps"]) == ("/home/ann/model.py:11 forward", 3, 3)
    assert (leak["blocks"], leak["left_bytes"], leak["left_per_step_bytes"]) == (3, 10 + 11 + 12, 11.0)


def test_steps_have_their_start_peak_and_end(leaking: Path, ask: Ask) -> None:
    steps = ask("memory_snapshot", leaking)["steps"]

    assert [(row["name"], row["end_ns"] - row["start_ns"]) for row in steps] == [
        *((f"ProfilerStep#{number}", STEP_US * 1000) for number in range(3)),
        ("ProfilerStep#3", STEP_US * 500),
    ]
    names = ("start_bytes", "peak_bytes", "end_bytes", "allocated_bytes", "kept_bytes")
    assert [tuple(row[name] for name in names) for row in steps] == [
        (0, 1080, 1080, 1080, 1010),
        (1080, 1161, 1091, 81, 11),
        (1091, 1173, 1103, 82, 12),
        (1103, 1186, 1116, 83, 83),
    ]


def test_annotation_that_begins_steps_can_be_named(leaking: Path, tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "named.pickle"
    trace = [entry("alloc", BASE + step * MB, 10, step * STEP_US + 1) for step in range(3)]
    path.write_bytes(annotated(trace, 3, "100%_of a step \\ {}"))

    assert ask("memory_snapshot", path)["steps"] == []
    for name, count in (("100%_of a step \\ *", 3), ("100%_of a step \\ 1", 1), ("100%?of*", 0), ("*", 3)):
        assert len(ask("memory_snapshot", path, step_name=name)["steps"]) == count
    assert len(ask("memory_snapshot", leaking, step_name="Optimizer.step#*")["steps"]) == 0


def test_optimizer_begins_steps_where_the_profiler_does_not(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "optimizer.pickle"
    path.write_bytes(annotated([entry("alloc", BASE, 10, 1)], 2, "Optimizer.step#SGD.step"))

    assert [row["name"] for row in ask("memory_snapshot", path)["steps"]] == ["Optimizer.step#SGD.step"] * 2


@given(
    st.lists(
        st.tuples(st.integers(0, 399), st.integers(0, 450), st.integers(0, 3), st.integers(1, 99)),
        min_size=1,
        max_size=25,
    )
)
def test_steps_and_leaks_equal_a_plain_replay(
    tmp_path_factory: pytest.TempPathFactory, ask: Ask, blocks: list[tuple[int, int, int, int]]
) -> None:
    """Each block has the times of its allocation and, from 400 on never, of its free; its stack and its size."""
    timed: list[tuple[int, int, Any]] = []
    for place, (begin, end, stack, size) in enumerate(blocks):
        address = BASE + place * MB
        timed.append((begin, place, [entry("alloc", address, size, begin, frames=STACKS[stack])]))
        if begin < end < 400:
            timed.append((end, place, freed(address, size, end)))
    timed.sort(key=lambda row: (row[0], row[1]))
    alive = [
        block(BASE + place * MB, size, frames=STACKS[stack])
        for place, (begin, end, stack, size) in enumerate(blocks)
        if not begin < end < 400
    ]
    path = tmp_path_factory.mktemp("steps") / "any.pickle"
    segments = [segment(BASE, 100 * MB, alive)] if alive else []
    path.write_bytes(annotated([one for _, _, entries in timed for one in entries], 4, segments=segments))

    answer = ask("memory_snapshot", path)

    left: dict[int, Counter[int]] = {}
    for begin, end, stack, size in blocks:
        if not begin < end < 400 and begin < 300:
            left.setdefault(stack, Counter())[begin // STEP_US] += size
    expected = {
        (f"/home/ann/model.py:{10 + stack} forward", len(steps), steps.total())
        for stack, steps in left.items()
        if len(steps) > 1
    }
    assert {(row["site"], row["steps"], row["left_bytes"]) for row in answer["leaks"]} == expected
    for index, row in enumerate(answer["steps"]):
        start, end_us = index * STEP_US, (index + 1) * STEP_US if index < 3 else 350
        level = sum(size for begin, end, _, size in blocks if begin < start and not begin < end < min(start, 400))
        assert row["start_bytes"] == level
        peak, allocated, kept = level, 0, 0
        for time, place, entries in timed:
            if start <= time < end_us:
                begin, end, _, size = blocks[place]
                is_allocation = entries[0]["action"] == "alloc"
                level += size if is_allocation else -size
                allocated += size if is_allocation else 0
                kept += size if is_allocation and not begin < end < 400 else 0
                peak = max(peak, level)
        names = ("peak_bytes", "end_bytes", "allocated_bytes", "kept_bytes")
        assert tuple(row[name] for name in names) == (peak, level, allocated, kept)

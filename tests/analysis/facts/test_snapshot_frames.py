"""The tree of frames that hold memory, compared with sums over the stacks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.snapshot_memory import UNKNOWN
from tests.analysis.conftest import Ask, Rows
from tests.conftest import SHARED, needs_shared
from tests.snapshots import BASE, GOLDEN, MB, SMALL, entry, frame, pickled, snapshot


def rows_of(rows: Rows, moment: str) -> Rows:
    return [row for row in rows if row["moment"] == moment]


def paths_of(rows: Rows) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return the blocks and bytes of each path from the root."""
    paths: list[tuple[str, ...]] = []
    for row in rows:
        paths.append((*(() if row["parent"] is None else paths[row["parent"]]), row["name"]))
    return {path: (row["blocks"], row["held_bytes"]) for path, row in zip(paths, rows, strict=True)}


def test_tree_has_python_frames_from_the_outermost(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "small.pickle"
    path.write_bytes(pickled(SMALL))

    frames = ask("memory_snapshot", path)["frames"]

    module = "/home/ann/model.py:99 <module>"
    first, second = ("/home/ann/model.py:10 forward", "/home/ann/model.py:12 forward")
    assert paths_of(rows_of(frames, "peak")) == {
        (module,): (2, 8 * MB),
        (module, second): (1, 5 * MB),
        (module, first): (1, 3 * MB),
    }
    assert paths_of(rows_of(frames, "live")) == {(module,): (1, 5 * MB), (module, second): (1, 5 * MB)}


def test_blocks_without_a_stack_have_a_row(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "unknown.pickle"
    native = [frame(0, "at::empty", "??")]
    entries = [entry("alloc", BASE, 100, 1, frames=[]), entry("alloc", BASE + MB, 50, 2, frames=native)]
    path.write_bytes(pickled(snapshot(entries)))

    frames = ask("memory_snapshot", path)["frames"]

    assert paths_of(rows_of(frames, "peak")) == {(UNKNOWN,): (1, 100), ("??:0 at::empty",): (1, 50)}


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=5), st.integers(1, 100)), min_size=1, max_size=12),
    st.integers(1, 9),
)
def test_tree_equals_a_plain_sum(
    tmp_path_factory: pytest.TempPathFactory, ask: Ask, blocks: list[tuple[list[int], int]], most: int
) -> None:
    path = tmp_path_factory.mktemp("frames") / "any.pickle"
    entries = [
        entry("alloc", BASE + place * MB, size, place, frames=[frame(line) for line in lines])
        for place, (lines, size) in enumerate(blocks)
    ]
    path.write_bytes(pickled(snapshot(entries)))
    expected: dict[tuple[str, ...], tuple[int, int]] = {}
    for lines, size in blocks:
        names = [f"/home/ann/model.py:{line} forward" for line in reversed(lines)] or [UNKNOWN]
        for depth in range(1, len(names) + 1):
            number, total = expected.get(tuple(names[:depth]), (0, 0))
            expected[tuple(names[:depth])] = number + 1, total + size

    whole = paths_of(rows_of(ask("memory_snapshot", path)["frames"], "live"))
    part = paths_of(rows_of(ask("memory_snapshot", path, rows=most)["frames"], "live"))

    assert whole == expected
    assert part.items() <= expected.items()
    assert (
        sorted((held for _, held in part.values()), reverse=True)
        == sorted((held for _, held in expected.values()), reverse=True)[:most]
    )


@needs_shared
def test_roots_hold_all_at_the_peak_of_real_snapshots(ask: Ask) -> None:
    for file in GOLDEN.values():
        answer = ask("memory_snapshot", SHARED.parent / "inputs" / file, rows=1_000_000)
        for device in answer["devices"]:
            roots = [
                row for row in rows_of(answer["frames"], "peak")
                if row["parent"] is None and row["device"] == device["device"]
            ]  # fmt: skip
            assert sum(row["held_bytes"] for row in roots) == device["peak_bytes"]

"""Unions of intervals are ordered, disjoint, and cover the same times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.intervals import Ints
from service.analysis.facts.unions import (
    Edges,
    lengths_of_groups,
    lengths_of_sets,
    union,
    union_of_both,
    unions_of_groups,
)

INTERVALS = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)))

GROUPED = st.lists(st.tuples(st.integers(-1, 2), st.integers(-50, 50), st.integers(0, 20)))


def edges(intervals: list[tuple[int, int]]) -> Edges:
    starts = np.array([start for start, _ in intervals], np.int64)
    return starts, starts + np.array([length for _, length in intervals], np.int64)


def pairs(intervals: Edges) -> list[tuple[int, int]]:
    return list(zip(intervals[0].tolist(), intervals[1].tolist(), strict=True))


def covered(starts: Ints, ends: Ints) -> set[int]:
    """Return the covered times in half units, which distinguish touching intervals from joined ones."""
    return {
        time
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        for time in range(2 * start, 2 * end + 1)
    }


@given(INTERVALS)
def test_union_covers_the_same_times_with_gaps_between(intervals: list[tuple[int, int]]) -> None:
    merged = union(*edges(intervals))
    assert covered(*merged) == covered(*edges(intervals))
    assert all(end < start for (_, end), (start, _) in zip(pairs(merged), pairs(merged)[1:], strict=False))


@given(INTERVALS, INTERVALS)
def test_union_of_unions_is_the_union_of_all(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    joined = union_of_both(union(*edges(first)), union(*edges(second)))
    assert pairs(joined) == pairs(union(*edges(first + second)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(0, 20))))
def test_length_of_a_group_is_that_of_the_union_of_its_intervals(rows: list[tuple[int, int, int]]) -> None:
    groups = np.array([group for group, _, _ in rows], np.int64)
    starts, ends = edges([(start, length) for _, start, length in rows])
    of_each = [union(starts[groups == group], ends[groups == group]) for group in range(4)]
    lengths = [int((lasts - firsts).sum()) for firsts, lasts in of_each]
    assert lengths_of_groups(groups, starts, ends, 4).tolist() == lengths


@given(GROUPED)
def test_unions_of_groups_are_those_of_their_intervals(rows: list[tuple[int, int, int]]) -> None:
    groups = np.array([group for group, _, _ in rows], np.int8)
    starts, ends = edges([(start, length) for _, start, length in rows])
    of_each = [union(starts[groups == group], ends[groups == group]) for group in range(3)]
    assert [*map(pairs, unions_of_groups(starts, ends, groups, 3))] == [*map(pairs, of_each)]


@given(GROUPED)
def test_lengths_of_sets_count_each_moment_for_exactly_the_groups_that_last(rows: list[tuple[int, int, int]]) -> None:
    groups = np.array([group for group, _, _ in rows], np.int8)
    starts, ends = edges([(start, length) for _, start, length in rows])
    lengths = [0] * 8
    for time in range(-50, 70):
        lasting = {group for group, start, length in rows if group >= 0 and start <= time < start + length}
        lengths[sum(1 << group for group in lasting)] += 1
    assert lengths_of_sets(starts, ends, groups, 3).tolist()[1:] == lengths[1:]


def test_length_of_a_group_may_exceed_signed_integers() -> None:
    bounds = np.array([-(1 << 63)], np.int64), np.array([(1 << 63) - 1], np.int64)
    assert lengths_of_groups(np.zeros(1, np.int64), *bounds, 1).tolist() == [(1 << 64) - 1]

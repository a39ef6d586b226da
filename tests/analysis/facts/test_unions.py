"""What intervals cover is told as few intervals, in order, however many there were and however they lay."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.intervals import Ints
from service.analysis.facts.unions import Edges, union, union_of_both

INTERVALS = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)))


def edges(intervals: list[tuple[int, int]]) -> Edges:
    starts = np.array([start for start, _ in intervals], np.int64)
    return starts, starts + np.array([length for _, length in intervals], np.int64)


def told(found: Edges) -> list[tuple[int, int]]:
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def covered(starts: Ints, ends: Ints) -> set[int]:
    """Half units: so the inside of an interval is told from its edges, and from what merely touches it."""
    return {
        at for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for at in range(2 * start, 2 * end + 1)
    }


@given(INTERVALS)
def test_a_union_covers_the_same_with_gaps_between(intervals: list[tuple[int, int]]) -> None:
    found = union(*edges(intervals))
    assert covered(*found) == covered(*edges(intervals))
    assert all(end < start for (_, end), (start, _) in zip(told(found), told(found)[1:], strict=False))


@given(INTERVALS, INTERVALS)
def test_the_union_of_unions_is_that_of_all(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    both = union_of_both(union(*edges(one)), union(*edges(other)))
    assert told(both) == told(union(*edges(one + other)))

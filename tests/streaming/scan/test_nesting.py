"""The numbers of slices that don't nest equal those of plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.streaming.scan.nesting import Nesting
from tests.conftest import scaled

Slice = tuple[int, int, int]  # track, start and end


def counted(slices: list[Slice], size: int) -> tuple[int, int]:
    """Return the numbers of overlaps and ties of slices, which are added in order of time, some at a time."""
    nesting, in_order = Nesting(), sorted(slices, key=lambda slice_: slice_[1])
    for at in range(0, len(in_order), size):
        nesting.add(*np.array(in_order[at : at + size]).T.copy())
    return nesting.overlaps, nesting.ties


def by_hand(slices: list[Slice]) -> tuple[int, int]:
    """Return the numbers of overlaps and ties; an overlapping slice is no parent of later slices."""
    overlaps = ties = 0
    nested: list[Slice] = []
    for tid, start, end in sorted(slices, key=lambda slice_: slice_[1]):
        around = [(s, e) for t, s, e in nested if t == tid and e > start]
        if any(s < start and e < end for s, e in around):
            overlaps += 1
            continue
        ties += any(s == start and e < end for s, e in around)
        nested.append((tid, start, end))
    return overlaps, ties


@pytest.mark.parametrize(
    ("slices", "overlaps", "ties"),
    [
        ([(1, 0, 10), (1, 2, 5), (1, 5, 10)], 0, 0),
        ([(1, 0, 10), (1, 5, 12)], 1, 0),
        ([(1, 0, 10), (2, 5, 12)], 0, 0),
        ([(1, 0, 5), (1, 0, 10)], 0, 1),
        ([(1, 0, 10), (1, 0, 5)], 0, 0),
        ([(1, 0, 5), (1, 0, 10), (1, 7, 9), (1, 8, 12)], 1, 1),
        ([(3, 0, 10), (0, 5, 12), (3, 5, 12)], 1, 0),
    ],
)
def test_slices_that_do_not_nest_are_counted(slices: list[Slice], overlaps: int, ties: int) -> None:
    assert counted(slices, len(slices)) == (overlaps, ties) == by_hand(slices)


moments = st.integers(0, 12)
tracks = st.integers(0, 4)
slice_lists = st.lists(
    st.tuples(tracks, moments, st.integers(1, 12)).map(lambda fields: (fields[0], fields[1], fields[1] + fields[2])),
    max_size=20,
)


@given(slice_lists.filter(bool), st.integers(1, 20))
@settings(max_examples=scaled(150))
def test_counts_equal_a_plain_count_for_any_slices_and_batches(slices: list[Slice], size: int) -> None:
    assert counted(slices, size) == by_hand(slices)


def test_thousands_of_tracks_and_open_slices_have_room() -> None:
    slices: list[Slice] = [(track, 0, 10) for track in range(5000)]
    slices += [(1, n, 20_000 - n) for n in range(10, 5010)]

    assert counted(slices, 1000) == (0, 0)

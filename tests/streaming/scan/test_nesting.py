"""The numbers of slices that don't nest equal those of plain Python."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.streaming.scan.events import ELEMENT_OR_CLOSE
from service.streaming.scan.nesting import Nesting
from service.streaming.scan.reader import Reader
from tests.conftest import scaled

READER = Reader()
Slice = tuple[str, int, int]  # track, start and end


def table_of(slices: list[Slice]) -> pa.Table:
    """Return the columns of slices, in order of time."""
    events = ",".join(
        f'{{"ph":"X","pid":1,"tid":{tid},"ts":{start},"dur":{end - start}}}' for tid, start, end in slices
    )
    table = pa.Table.from_batches(READER.read(f"{events}]".encode(), 0, ELEMENT_OR_CLOSE, last=True).batches)
    return table.take(pa.compute.sort_indices(table, [("ts_ns", "ascending"), ("position", "ascending")]))


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
        ([('"a"', 0, 10), ('"b"', 5, 12), ('"a"', 5, 12)], 1, 0),
    ],
)
def test_slices_that_do_not_nest_are_counted(slices: list[Any], overlaps: int, ties: int) -> None:
    nesting = Nesting()
    nesting.add(table_of(slices))

    assert (nesting.overlaps, nesting.ties) == (overlaps, ties) == by_hand(slices)


moments = st.integers(0, 12)
tracks = st.sampled_from(["1", "2", '"a"', '"b"', "null"])
slice_lists = st.lists(
    st.tuples(tracks, moments, st.integers(1, 12)).map(lambda fields: (fields[0], fields[1], fields[1] + fields[2])),
    max_size=20,
)


@given(slice_lists.filter(bool), st.integers(1, 20))
@settings(max_examples=scaled(150))
def test_counts_equal_a_plain_count_for_any_slices_and_batches(slices: list[Slice], size: int) -> None:
    table, nesting = table_of(slices), Nesting()
    for at in range(0, len(table), size):
        nesting.add(table.slice(at, size))

    assert (nesting.overlaps, nesting.ties) == by_hand(slices)


def test_thousands_of_tracks_and_open_slices_have_room() -> None:
    slices: list[Slice] = [(str(tid), 0, 10) for tid in range(5000)]
    slices += [("1", n, 20_000 - n) for n in range(10, 5010)]
    nesting = Nesting()
    table = table_of(slices)
    for at in range(0, len(table), 1000):
        nesting.add(table.slice(at, 1000))

    assert (nesting.overlaps, nesting.ties) == (0, 0)

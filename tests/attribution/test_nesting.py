"""Nesting: what compiled code finds is what a plain walk does."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.attribution import nesting
from service.trace.errors import NotApplicable

Slices = list[tuple[int, int, int]]
"""Thread, start and end of each."""

slices = st.lists(
    st.builds(lambda thread, start, lasting: (thread, start, start + lasting),
              st.integers(0, 2), st.integers(0, 12), st.integers(0, 9)),
    max_size=20,
)  # fmt: skip


def _columns(rows: Slices) -> tuple[nesting.Places, nesting.Ints, nesting.Ints]:
    threads, starts, ends = np.array(rows, np.int64).reshape(-1, 3).T
    order = nesting.in_order(starts, ends)
    return threads[order].astype(np.int32), starts[order].copy(), ends[order].copy()


@given(slices, st.booleans())
def test_slices_come_by_their_starts_the_longest_first_and_else_as_they_were(rows: Slices, sort: bool) -> None:
    rows = sorted(rows, key=lambda row: row[1]) if sort else rows  # as columns have them, and as nothing has
    starts, ends = (np.array([row[column] for row in rows], np.int64) for column in (1, 2))
    order = np.arange(len(rows))[nesting.in_order(starts, ends)]
    assert order.tolist() == sorted(range(len(rows)), key=lambda one: (rows[one][1], -rows[one][2]))


@given(slices, st.booleans())
def test_parents_are_those_of_a_stack(rows: Slices, drop: bool) -> None:
    threads, starts, ends = _columns(rows)
    stacks: dict[int, list[int]] = {0: [], 1: [], 2: []}
    expected = []
    for one, thread in enumerate(threads.tolist()):
        stack = stacks[thread]
        while stack and (starts[one] >= ends[stack[-1]] or (ends[one] > ends[stack[-1]] and not drop)):
            stack.pop()
        if stack and ends[one] > ends[stack[-1]]:
            expected.append(nesting.DROPPED)
            continue
        expected.append(stack[-1] if stack else nesting.NONE)
        stack.append(one)
    assert nesting.parents_of(threads, starts, ends, drop=drop).tolist() == expected


@given(slices, st.sets(st.integers(0, 19)), st.booleans())
def test_what_is_left_out_encloses_nothing(rows: Slices, out: set[int], drop: bool) -> None:
    threads, starts, ends = _columns(rows)
    left_out = np.isin(np.arange(len(rows)), [*out])
    kept = np.flatnonzero(~left_out)
    parents = nesting.parents_of(threads, starts, ends, drop=drop, left_out=left_out)
    alone = nesting.parents_of(threads[kept], starts[kept], ends[kept], drop=drop)
    assert (parents[left_out] == nesting.DROPPED).all()
    assert parents[kept].tolist() == [one if one < 0 else kept[one] for one in alone.tolist()]


@given(slices, st.lists(st.integers(0, 25)))
def test_what_happens_in_slices_and_in_none(rows: Slices, times: list[int]) -> None:
    _, starts, ends = _columns(rows)
    first, last, lonely = nesting.inside(starts, ends, np.array(sorted(times), np.int64))
    assert (last - first).tolist() == [
        sum(start <= time <= end for time in times) for start, end in zip(starts, ends, strict=True)
    ]
    pairs = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert lonely.tolist() == [not any(start <= time <= end for start, end in pairs) for time in sorted(times)]


@pytest.mark.parametrize("spread", [1, 1 << 40], ids=["dense", "sparse"])
@given(ids=st.lists(st.integers(-2, 9)), wanted=st.lists(st.integers(-2, 9)))
def test_an_owner_is_the_first_of_an_id(spread: int, ids: list[int], wanted: list[int]) -> None:
    found = nesting.owners(np.array(ids, np.int64) * spread, np.array(wanted, np.int64) * spread)
    assert found.tolist() == [ids.index(one) if one > 0 and one in ids else nesting.NONE for one in wanted]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1).map(lambda key: key >> 60 << 60)))
def test_numbers_are_in_the_order_in_which_keys_come(keys: list[int]) -> None:
    numbers, count = nesting.numbered(np.array(keys, np.int64))
    known = list(dict.fromkeys(keys))
    assert (numbers.tolist(), count) == ([known.index(key) for key in keys], len(known))
    assert nesting.firsts_of(numbers, count).tolist() == [keys.index(key) for key in known]
    assert nesting.tallied(numbers, count).tolist() == list(Counter(keys).values())


def test_many_keys_and_paths_find_room() -> None:
    keys = np.arange(100_000, dtype=np.int64) * 7919
    assert nesting.numbered(keys)[1] == 100_000
    chain = np.arange(-1, 99_999, dtype=np.int32)
    numbers, count = nesting.paths(chain, np.zeros(100_000, np.int32))
    assert (numbers.tolist(), count) == (list(range(100_000)), 100_000)


@given(slices, st.lists(st.integers(0, 2), min_size=20, max_size=20))
def test_paths_are_told_apart_by_all_names_above(rows: Slices, names: list[int]) -> None:
    threads, starts, ends = _columns(rows)
    parents = nesting.parents_of(threads, starts, ends)

    def path(one: int) -> tuple[int, ...]:
        return (*(path(parents[one]) if parents[one] >= 0 else ()), names[one])

    paths = [path(one) for one in range(len(rows))]
    numbers, count = nesting.paths(parents, np.array(names[: len(rows)], np.int32))
    assert numbers.tolist() == [list(dict.fromkeys(paths)).index(one) for one in paths]
    assert count == len(set(paths))


def test_words_keep_their_numbers_over_batches() -> None:
    numbering = nesting.Numbering()
    assert numbering.numbers(pa.array(["b", None, "a"])).tolist() == [0, 2, 1]
    assert numbering.numbers(pa.array(["a", "c", None])).tolist() == [1, 3, 2]
    assert numbering.numbers(pa.array([], pa.string())).tolist() == []
    assert numbering.words == ["b", "a", "", "c"]


def test_what_64_bits_do_not_hold_is_a_reason() -> None:
    with pytest.raises(NotApplicable, match="All of it adds up"):
        nesting.countable(np.full(3, 1 << 62), "All of it")

"""The compiled functions for nesting agree with plain Python."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.attribution import nesting
from service.trace.errors import NotApplicable

Slices = list[tuple[int, int, int]]
"""Thread, start and end of each slice."""

slices = st.lists(
    st.builds(lambda thread, start, duration: (thread, start, start + duration),
              st.integers(0, 2), st.integers(0, 12), st.integers(0, 9)),
    max_size=20,
)  # fmt: skip


def _columns(rows: Slices) -> tuple[nesting.Indices, nesting.Ints, nesting.Ints]:
    threads, starts, ends = np.array(rows, np.int64).reshape(-1, 3).T
    order = nesting.nesting_order(starts, ends)
    return threads[order].astype(np.int32), starts[order].copy(), ends[order].copy()


@given(slices, st.booleans())
def test_nesting_order_is_stable_by_start_and_longest_first(rows: Slices, sort: bool) -> None:
    rows = sorted(rows, key=lambda row: row[1]) if sort else rows  # sorted by start, as in columns, or in any order
    starts, ends = (np.array([row[column] for row in rows], np.int64) for column in (1, 2))
    order = np.arange(len(rows))[nesting.nesting_order(starts, ends)]
    assert order.tolist() == sorted(range(len(rows)), key=lambda index: (rows[index][1], -rows[index][2]))


@given(slices, st.booleans())
def test_parents_match_a_stack(rows: Slices, drop: bool) -> None:
    threads, starts, ends = _columns(rows)
    stacks: dict[int, list[int]] = {0: [], 1: [], 2: []}
    expected = []
    for index, thread in enumerate(threads.tolist()):
        stack = stacks[thread]
        while stack and (starts[index] >= ends[stack[-1]] or (ends[index] > ends[stack[-1]] and not drop)):
            stack.pop()
        if stack and ends[index] > ends[stack[-1]]:
            expected.append(nesting.DROPPED)
            continue
        expected.append(stack[-1] if stack else nesting.NONE)
        stack.append(index)
    assert nesting.parents_of(threads, starts, ends, drop=drop).tolist() == expected


@given(slices, st.sets(st.integers(0, 19)), st.booleans())
def test_left_out_slices_enclose_no_slice(rows: Slices, out: set[int], drop: bool) -> None:
    threads, starts, ends = _columns(rows)
    left_out = np.isin(np.arange(len(rows)), [*out])
    indices = np.flatnonzero(~left_out)
    parents = nesting.parents_of(threads, starts, ends, drop=drop, left_out=left_out)
    parents_alone = nesting.parents_of(threads[indices], starts[indices], ends[indices], drop=drop)
    assert (parents[left_out] == nesting.DROPPED).all()
    assert parents[indices].tolist() == [parent if parent < 0 else indices[parent] for parent in parents_alone.tolist()]


@given(slices, st.lists(st.integers(0, 25)))
def test_times_match_the_slices_that_contain_them(rows: Slices, times: list[int]) -> None:
    _, starts, ends = _columns(rows)
    first, last, outside = nesting.match_times(starts, ends, np.array(sorted(times), np.int64))
    assert (last - first).tolist() == [
        sum(start <= time <= end for time in times) for start, end in zip(starts, ends, strict=True)
    ]
    pairs = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert outside.tolist() == [not any(start <= time <= end for start, end in pairs) for time in sorted(times)]


@pytest.mark.parametrize("factor", [1, 1 << 40], ids=["dense", "sparse"])
@given(ids=st.lists(st.integers(-2, 9)), queries=st.lists(st.integers(-2, 9)))
def test_first_match_of_an_id_is_its_first_index(factor: int, ids: list[int], queries: list[int]) -> None:
    matches = nesting.first_matches(np.array(ids, np.int64) * factor, np.array(queries, np.int64) * factor)
    assert matches.tolist() == [ids.index(id_) if id_ > 0 and id_ in ids else nesting.NONE for id_ in queries]


@given(st.lists(st.integers(0, 30), unique=True), st.booleans(), st.lists(st.integers(-2, 33)))
def test_index_of_a_row_is_its_place_among_the_rows(rows: list[int], ascend: bool, wanted: list[int]) -> None:
    ordered = sorted(rows) if ascend else rows
    indices = nesting.row_indices(np.array(ordered, np.int32), np.array(wanted, np.int64))
    assert indices.tolist() == [ordered.index(row) if row in rows else nesting.NONE for row in wanted]


@given(st.sets(st.integers(-9, 9), min_size=1), st.lists(st.integers(-12, 12)))
def test_index_of_a_number_is_its_place_among_ascending_ones(numbers: set[int], wanted: list[int]) -> None:
    ordered = sorted(numbers)
    indices = nesting.ascending_indices(np.array(ordered, np.int64), np.array(wanted, np.int64))
    assert indices.tolist() == [ordered.index(number) if number in numbers else nesting.NONE for number in wanted]


@given(slices, st.lists(st.booleans(), min_size=20, max_size=20))
def test_outermost_marked_slice_is_the_last_marked_one_on_the_way_up(rows: Slices, flags: list[bool]) -> None:
    parents = nesting.parents_of(*_columns(rows))

    def way_up(slice_: int) -> list[int]:
        return [slice_, *(way_up(parents[slice_]) if parents[slice_] >= 0 else ())]

    outermost = nesting.outermost_marked(parents, np.array(flags[: len(rows)], np.bool_))
    assert outermost.tolist() == [
        next((above for above in reversed(way_up(slice_)) if flags[above]), nesting.NONE) for slice_ in range(len(rows))
    ]


@given(slices, st.lists(st.integers(0, 2), min_size=20, max_size=20), st.booleans())
def test_only_children_with_the_name_of_their_parent_merge(rows: Slices, names: list[int], some: bool) -> None:
    parents = nesting.parents_of(*_columns(rows))
    codes = np.array([0, 1, 1], np.int32)  # the names 1 and 2 count as equal
    mergeable = np.arange(len(rows)) % 3 > 0 if some else None
    keys = np.arange(len(rows), dtype=np.int32)

    def target(slice_: int) -> int:
        parent = int(parents[slice_])
        if parent < 0 or (parents == parent).sum() > 1 or codes[names[parent]] != codes[names[slice_]]:
            return slice_
        may_merge = mergeable is None or (mergeable[parent] and mergeable[slice_])
        return target(parent) if may_merge else slice_

    targets = [target(slice_) for slice_ in range(len(rows))]
    own_keys, merged = nesting.merge_only_children(
        parents, np.array(names[: len(rows)], np.int32), codes, mergeable, keys
    )
    assert own_keys.tolist() == targets
    assert merged.tolist() == [target_ != slice_ for slice_, target_ in enumerate(targets)]
    assert keys.tolist() == [slice_ if target_ == slice_ else nesting.NONE for slice_, target_ in enumerate(targets)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4))), st.booleans())
def test_slices_have_a_key_for_each_name_kind_and_extra(rows: list[tuple[int, int, int]], with_extras: bool) -> None:
    codes = [0, 1, 1, 2]
    names, kinds, extras = (np.array([row[column] for row in rows], np.int32) for column in range(3))
    keys, firsts = nesting.slice_keys(
        names, np.array(codes, np.int32), kinds.astype(np.int8), 1, extras if with_extras else None, 5
    )
    expected = [(codes[name], kind == 1, extra if with_extras else 0) for name, kind, extra in rows]
    distinct = list(dict.fromkeys(expected))
    assert keys.tolist() == [distinct.index(key) for key in expected]
    assert firsts.tolist() == [expected.index(key) for key in distinct]


@given(slices, st.lists(st.integers(-1, 3), min_size=20, max_size=20))
def test_times_by_key_are_sums_over_slices_with_and_without_children(rows: Slices, keys: list[int]) -> None:
    threads, starts, ends = _columns(rows)
    parents = nesting.parents_of(threads, starts, ends)
    own_keys = np.array(keys[: len(rows)], np.int32)
    all_keys = own_keys[::-1].copy()
    own, total = nesting.times_by_key(parents, starts, ends, own_keys, all_keys, 4)
    durations = ends - starts
    alone = durations - nesting.child_sums(parents, durations)
    assert own.tolist() == nesting.sum_by_key(own_keys, alone, 4).tolist()
    assert total.tolist() == nesting.sum_by_key(all_keys, durations, 4).tolist()


def test_values_do_not_count_for_negative_keys() -> None:
    parents, keys = np.array([-1, 0, 1], np.int32), np.array([0, -1, 1], np.int32)
    values = np.array([[0, 5], [0, 7], [0, 9]])
    cells = np.zeros((1, 2, 2), np.int64)
    nesting.add_to_ancestors(parents, keys, keys, np.array([1, 2, -1], np.int32), values, cells)
    assert cells.tolist() == [[[0, 12], [7, 7]]]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1).map(lambda key: key >> 60 << 60)))
def test_codes_of_keys_follow_their_first_appearance(keys: list[int]) -> None:
    codes, count = nesting.factorize(np.array(keys, np.int64))
    distinct = list(dict.fromkeys(keys))
    assert (codes.tolist(), count) == ([distinct.index(key) for key in keys], len(distinct))
    assert nesting.first_indices(codes, count).tolist() == [keys.index(key) for key in distinct]
    assert nesting.count_by_key(codes, count).tolist() == list(Counter(keys).values())


def test_hash_table_grows_for_many_keys_and_paths() -> None:
    keys = np.arange(100_000, dtype=np.int64) * 7919
    assert nesting.factorize(keys)[1] == 100_000
    chain = np.arange(-1, 99_999, dtype=np.int32)
    codes, count = nesting.path_codes(chain, np.zeros(100_000, np.int32))
    assert (codes.tolist(), count) == (list(range(100_000)), 100_000)


@given(slices, st.lists(st.integers(0, 2), min_size=20, max_size=20))
def test_path_codes_distinguish_all_names_of_ancestors(rows: Slices, names: list[int]) -> None:
    threads, starts, ends = _columns(rows)
    parents = nesting.parents_of(threads, starts, ends)

    def path_to(slice_: int) -> tuple[int, ...]:
        return (*(path_to(parents[slice_]) if parents[slice_] >= 0 else ()), names[slice_])

    paths = [path_to(slice_) for slice_ in range(len(rows))]
    codes, count = nesting.path_codes(parents, np.array(names[: len(rows)], np.int32))
    assert codes.tolist() == [list(dict.fromkeys(paths)).index(path) for path in paths]
    assert count == len(set(paths))


def test_word_codes_hold_over_batches() -> None:
    encoder = nesting.WordEncoder()
    assert encoder.encode(pa.array(["b", None, "a"])).tolist() == [0, 2, 1]
    assert encoder.encode(pa.array(["a", "c", None])).tolist() == [1, 3, 2]
    assert encoder.encode(pa.array([], pa.string())).tolist() == []
    assert encoder.words == ["b", "a", "", "c"]


def test_sum_beyond_64_bits_is_not_applicable() -> None:
    with pytest.raises(NotApplicable, match="All of it adds up"):
        nesting.require_countable(3.0 * (1 << 62), "All of it")

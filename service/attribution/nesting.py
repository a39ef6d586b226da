"""Compiled functions for the nesting of slices on threads: parents of millions of slices, and sums over subtrees."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.scan.compiled import compiled, inlined
from service.trace.errors import NotApplicable

NONE = -1
"""Parent of a slice that no other slice encloses; also stands for a missing index."""

DROPPED = -2
"""Parent of a slice that is left out because it overlaps another without nesting."""

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
"""Indices or codes of slices, threads, names and the like."""
Flags = npt.NDArray[np.bool_]


class WordEncoder:
    """Dictionary encoder whose codes are the same in all batches: words are numbered as they first appear."""

    def __init__(self) -> None:
        self._codes: dict[str | None, int] = {}

    def encode(self, words: pa.Array) -> Indices:
        """Return the code of each word; a new word gets the next code."""
        batch = words.dictionary_encode()
        codes = self._codes
        code_of_entry = [codes.setdefault(word, len(codes)) for word in batch.dictionary.to_pylist()]
        if batch.null_count:
            code_of_entry.append(codes.setdefault(None, len(codes)))
        entries = batch.indices.fill_null(len(code_of_entry) - 1).to_numpy(zero_copy_only=False)
        encoded: Indices = np.array(code_of_entry or [0], np.int32)[entries]
        return encoded

    @property
    def words(self) -> list[str]:
        """All words in the order of their codes; null becomes an empty word."""
        return [word or "" for word in self._codes]


def nesting_order(starts: Ints, ends: Ints) -> Any:
    """Return an index that sorts slices by start, and the longest first if starts are equal; the sort is stable."""
    if _is_nested(starts, ends):
        return slice(None)
    rises = starts[1:] > starts[:-1]
    if (starts[1:] < starts[:-1]).any():
        return np.lexsort((-ends, starts))
    runs = np.concatenate([[0], np.cumsum(rises)])  # only slices that share a start with a longer slice move
    moving = np.flatnonzero(np.isin(runs, runs[1:][~rises & (ends[1:] > ends[:-1])]))
    order = np.arange(len(starts))
    order[moving] = moving[np.lexsort((-ends[moving], runs[moving]))]
    return order


def factorize(keys: Ints) -> tuple[Indices, int]:
    """Return the code of each key, numbered as they first appear, and the count of distinct keys."""
    codes = np.empty(len(keys), np.int32)
    capacity = 1 << 12
    while (count := _factorize(keys, codes, np.empty(capacity, np.int64), np.full(capacity, NONE, np.int32))) < 0:
        capacity <<= 4
    return codes, count


def parents_of(
    threads: Indices, starts: Ints, ends: Ints, *, drop: bool = False, left_out: Flags | None = None
) -> Indices:
    """Return the index of the innermost slice that encloses each slice, or `NONE`.

    Args:
        threads: thread of each slice, numbered from 0; slices are in `nesting_order`.
        starts: start of each slice.
        ends: end of each slice.
        drop: leave out each slice that ends after the slice in which it starts; otherwise the outer slice counts as
            closed when the inner slice starts.
        left_out: slices to leave out in any case.
    """
    parents = np.empty(len(starts), np.int32)
    tops = np.full(int(threads.max(initial=-1)) + 1, NONE, np.int32)
    _nest(threads, starts, ends, tops, parents, drop, np.empty(0, bool) if left_out is None else left_out)
    return parents


def child_sums(parents: Indices, values: Ints) -> Ints:
    """Sum a value over the direct children of each slice."""
    sums = np.zeros(len(parents), np.int64)
    _sum(parents, values, sums)
    return sums


def times_by_key(
    parents: Indices, starts: Ints, ends: Ints, own_keys: Indices, all_keys: Indices, count: int
) -> tuple[Ints, Ints]:
    """Sum by key the times of slices without their direct children, and their whole times.

    Args:
        parents: parent of each slice.
        starts: start of each slice.
        ends: end of each slice.
        own_keys: key of each slice for its time without its children; negative for none.
        all_keys: key of each slice for its whole time; negative for none.
        count: number of keys.
    """
    own, total = np.zeros(count, np.int64), np.zeros(count, np.int64)
    _add_times(parents, starts, ends, own_keys, all_keys, own, total)
    return own, total


def subtree_sums(parents: Indices, values: Ints) -> Ints:
    """Sum a value over each slice and all its descendants."""
    sums = values.astype(np.int64)
    _sum_subtrees(parents, sums)
    return sums


def subtree_counts(parents: Indices, marked: Flags) -> Indices:
    """Count the marked ones among each slice and all its descendants."""
    counts = marked.astype(np.int32)
    _sum_subtrees(parents, counts)
    return counts


def path_codes(parents: Indices, names: Indices) -> tuple[Indices, int]:
    """Return a code for the path of names from the root to each slice, and the count of distinct paths.

    Codes are numbered as paths first appear.
    """
    codes = np.empty(len(parents), np.int32)
    capacity, radix = 1 << 12, int(names.max(initial=0)) + 1
    while True:
        table, slot_codes = np.empty(capacity, np.int64), np.full(capacity, NONE, np.int32)
        count = _encode_paths(parents, names, radix, codes, table, slot_codes)
        if count >= 0:
            return codes, count
        capacity <<= 4


def add_to_ancestors(
    parents: Indices, own_keys: Indices, keys: Indices, slices: Indices, values: Any, cells: Any
) -> None:
    """Add values to the sums of slices and of all their ancestors.

    Args:
        parents: parent of each slice.
        own_keys: key of each slice for values of the slice itself, without its children; negative for none.
        keys: key of each slice for values of the slice and its descendants; negative for none.
        slices: slice to which each row of `values` belongs; negative for none.
        values: one row for each item: its plane in `cells`, then the values to add.
        cells: array of sums by plane, key and column, to which the values are added. The first half of the columns
            holds sums of slices alone, the second half sums that include descendants.
    """
    _add_to_ancestors(parents, own_keys, keys, slices, values, cells)


def nearest_marked(parents: Indices, marked: Flags) -> Indices:
    """Return the nearest marked slice of each slice: itself or its closest marked ancestor, or `NONE`."""
    nearest = np.empty(len(parents), np.int32)
    _nearest_marked(parents, marked, nearest)
    return nearest


def outermost_marked(parents: Indices, marked: Flags) -> Indices:
    """Return the outermost marked slice around each slice, or the slice itself, or `NONE`."""
    outermost = np.empty(len(parents), np.int32)
    _outermost_marked(parents, marked, outermost)
    return outermost


def merge_only_children(
    parents: Indices, names: Indices, codes: Indices, mergeable: Flags | None, keys: Indices
) -> tuple[Indices, Flags]:
    """Merge each only child with the name of its parent into what its parent merges into, or else into its parent.

    Args:
        parents: parent of each slice.
        names: name of each slice.
        codes: code of each name; those of equal codes count as equal.
        mergeable: slices that may merge; None for all.
        keys: key of each slice; those of merged slices become `NONE`.

    Returns:
        For each slice, the key of the slice into which it merges, which is mostly itself; and whether it is merged.
    """
    own_keys, merged = np.empty(len(parents), np.int32), np.zeros(len(parents), np.bool_)
    counts = np.zeros(len(parents), np.uint8)
    chosen = np.empty(0, np.bool_) if mergeable is None else mergeable
    _merge(parents, counts, names, codes, chosen, keys, own_keys, merged)
    return own_keys, merged


def slice_keys(
    names: Indices, codes: Indices, kinds: Any, own_kind: int, extras: Indices | None, count: int
) -> tuple[Indices, Ints]:
    """Return a key for each slice: by its name, whether its kind is a certain one, and its extra.

    Args:
        names: name of each slice.
        codes: code of each name.
        kinds: kind of each slice.
        own_kind: slices of this kind have keys of their own.
        extras: further code of each slice; None for none.
        count: number of these codes.

    Returns:
        The keys, numbered as they first appear; and the first slice of each key.
    """
    keys, capacity = np.empty(len(names), np.int32), 1 << 12
    given = np.empty(0, np.int32) if extras is None else extras
    while True:
        tables = np.empty(capacity, np.int64), np.full(capacity, NONE, np.int32), np.empty(capacity, np.int64)
        found = _number_slices(names, codes, kinds, own_kind, given, count, keys, tables)
        if found >= 0:
            return keys, tables[2][:found].copy()
        capacity <<= 4


def sum_by_key(keys: Indices, values: Ints | Indices, count: int) -> Ints:
    """Sum the values of each key; negative keys do not count."""
    sums = np.zeros(count, np.int64)
    _sum(keys, values, sums)
    return sums


def first_indices(codes: Indices, count: int) -> Ints:
    """Return the index at which each code first appears."""
    firsts = np.zeros(count, np.int64)
    _find_firsts(codes, firsts)
    return firsts


def count_by_key(keys: Indices, count: int) -> Ints:
    """Count each key; negative keys do not count."""
    counts = np.zeros(count, np.int64)
    _count(keys, counts)
    return counts


def innermost_at(
    parents: Indices, threads: Indices, starts: Ints, ends: Ints, time_threads: Indices, times: Ints
) -> Indices:
    """Return the innermost slice that is open on the thread of each time, or `NONE`; a slice is closed at its end.

    Args:
        parents: parent of each slice, as from `parents_of`.
        threads: thread of each slice.
        starts: start of each slice.
        ends: end of each slice.
        time_threads: thread of each time; negative for a thread without slices.
        times: in ascending order.
    """
    innermost = np.empty(len(times), np.int32)
    tops = np.full(int(threads.max(initial=-1)) + 1, NONE, np.int32)
    _sweep(parents, threads, starts, ends, time_threads, times, tops, innermost)
    return innermost


def require_countable(total: float, subject: str) -> None:
    """Check that a sum fits in 64 bits.

    Args:
        total: sum of non-negative values.
        subject: phrase for the values, with which the error's message opens.

    Raises:
        NotApplicable: the sum does not fit.
    """
    if total >= 2.0**63:
        raise NotApplicable(f"{subject} adds up to more than 64 bits can hold.")


def match_times(starts: Ints, ends: Ints, times: Ints) -> tuple[Ints, Ints, Flags]:
    """Match times to the slices that contain them, bounds included.

    Args:
        starts: start of each slice, in ascending order.
        ends: end of each slice.
        times: in ascending order.

    Returns:
        For each slice, the index of its first time and the index past its last time; for each time, whether it lies
        in no slice.
    """
    first, last = np.searchsorted(times, starts, "left"), np.searchsorted(times, ends, "right")
    reach = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)])
    started = np.searchsorted(starts, times, "right")
    return first, last, (started == 0) | (reach[started] < times)


def first_matches(ids: Ints, wanted: Ints) -> Indices:
    """Return the index of the first id that equals each wanted id, or `NONE`.

    Args:
        ids: ids to search; 0 and negative values are no ids.
        wanted: ids to find.
    """
    matches = np.full(len(wanted), NONE, np.int32)
    if not len(ids) or not len(wanted):
        return matches
    slots = np.full(1 << (2 * len(wanted)).bit_length(), NONE, np.int32)
    _match(ids, wanted, slots, matches)
    return matches


def row_indices(rows: Any, wanted: Ints) -> Indices:
    """Return the index of each wanted row within `rows`, or `NONE`; rows are distinct, and numbered from 0."""
    indices = np.empty(len(wanted), np.int32)
    if _ascends(rows):
        _find_rows(rows, wanted, indices)
        return indices
    order = np.argsort(rows)
    _find_rows(rows[order], wanted, indices)
    return np.append(order, NONE).astype(np.int32)[indices]


def ascending_indices(numbers: Ints, wanted: Ints) -> Ints:
    """Return the index of each wanted number among numbers in ascending order, of which there are some, or `NONE`."""
    indices = np.empty(len(wanted), np.int64)
    _find_numbers(numbers, wanted, indices)
    return indices


@compiled
def total_duration(starts: Ints, ends: Ints) -> float:
    """Return the sum of durations, as a float because it may not fit in 64 bits."""
    total = 0.0
    for index in range(len(starts)):
        total += ends[index] - starts[index]
    return total


@compiled
def _is_nested(starts: Ints, ends: Ints) -> bool:
    """Return whether slices are in `nesting_order`."""
    for index in range(1, len(starts)):
        before = starts[index - 1]
        if starts[index] < before or (starts[index] == before and ends[index] > ends[index - 1]):
            return False
    return True


@compiled
def _find_numbers(numbers: Ints, wanted: Ints, indices: Ints) -> None:
    """Write the index of each wanted number; that of the number before is tried first."""
    at = 0
    for index in range(len(wanted)):
        if numbers[at] != wanted[index]:
            at = min(np.searchsorted(numbers, wanted[index]), len(numbers) - 1)
        indices[index] = at if numbers[at] == wanted[index] else NONE


@compiled
def _ascends(rows: Any) -> bool:
    """Return whether rows are in ascending order."""
    at = 1
    while at < len(rows) and rows[at] >= rows[at - 1]:
        at += 1
    return at >= len(rows)


@compiled
def _find_rows(rows: Any, wanted: Ints, indices: Indices) -> None:
    """Write the index of each wanted row. Steps from the last one double until they pass it, as it is mostly near."""
    low = 0
    for index in range(len(wanted)):
        row, step = wanted[index], 1
        while low > 0 and rows[low] > row:
            low, step = max(low - step, 0), 2 * step
        high, step = low + 1, 1
        while high < len(rows) and rows[high] <= row:
            low, high, step = high, high + step, 2 * step
        high = min(high, len(rows))
        while high - low > 1:
            middle = (low + high) // 2
            if rows[middle] <= row:
                low = middle
            else:
                high = middle
        indices[index] = low if low < len(rows) and rows[low] == row else NONE


@inlined
def _key_slot(key: int, table: Ints, slot_codes: Indices) -> int:
    """Return the slot of a key in a hash table, or the free slot where it belongs."""
    mask = len(table) - 1
    slot = (key * 0x2545F4914F6CDD1D) >> 32 & mask
    while slot_codes[slot] >= 0 and table[slot] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def _factorize(keys: Ints, codes: Indices, table: Ints, slot_codes: Indices) -> int:
    """Write the code of each key. Return the count of distinct keys, or -1 if the hash table is half full."""
    count, last_key, last = 0, 0, -1
    for index in range(len(keys)):
        key = keys[index]
        if last < 0 or key != last_key:
            slot = _key_slot(key, table, slot_codes)
            if slot_codes[slot] < 0:
                if 2 * count >= len(table) - 1:
                    return -1
                table[slot], slot_codes[slot] = key, count
                count += 1
            last_key, last = key, slot_codes[slot]
        codes[index] = last
    return count


@compiled
def _nest(
    threads: Indices, starts: Ints, ends: Ints, tops: Indices, parents: Indices, drop: bool, left_out: Flags
) -> None:
    """Find parents with one stack of open slices per thread; below each slice of a stack lies its parent."""
    for index in range(len(starts)):
        if len(left_out) and left_out[index]:
            parents[index] = DROPPED
            continue
        thread, start, end = threads[index], starts[index], ends[index]
        top = tops[thread]
        while top >= 0 and (start >= ends[top] or (end > ends[top] and not drop)):
            top = parents[top]
        if top >= 0 and end > ends[top]:
            parents[index], tops[thread] = DROPPED, top
        else:
            parents[index], tops[thread] = top, index


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    parents: Indices, threads: Indices, starts: Ints, ends: Ints, time_threads: Indices, times: Ints, tops: Indices,
    innermost: Indices,
) -> None:  # fmt: skip
    next_slice = 0
    for index in range(len(times)):
        while next_slice < len(starts) and starts[next_slice] <= times[index]:
            if parents[next_slice] != DROPPED:
                tops[threads[next_slice]] = next_slice
            next_slice += 1
        top = tops[time_threads[index]] if time_threads[index] >= 0 else NONE
        while top >= 0 and ends[top] <= times[index]:
            top = parents[top]
        innermost[index] = top


@compiled
def _sum_subtrees(parents: Indices, sums: Ints | Indices) -> None:
    for index in range(len(parents) - 1, -1, -1):  # children come after their parents
        if parents[index] >= 0:
            sums[parents[index]] += sums[index]


@compiled
def _add_times(
    parents: Indices, starts: Ints, ends: Ints, own_keys: Indices, all_keys: Indices, own: Ints, total: Ints
) -> None:
    for index in range(len(parents)):
        time, parent = ends[index] - starts[index], parents[index]
        if own_keys[index] >= 0:
            own[own_keys[index]] += time
        if all_keys[index] >= 0:
            total[all_keys[index]] += time
        if parent >= 0 and own_keys[parent] >= 0:
            own[own_keys[parent]] -= time


@compiled
def _merge(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    parents: Indices, counts: Any, names: Indices, codes: Indices, mergeable: Flags, keys: Indices, own_keys: Indices,
    merged: Flags,
) -> None:  # fmt: skip
    """Merge only children; `counts` receives the number of each slice's children, up to 2."""
    for index in range(len(parents)):
        if parents[index] >= 0 and counts[parents[index]] < 2:
            counts[parents[index]] += 1
    for index in range(len(parents)):
        parent = parents[index]
        own_keys[index] = keys[index]
        if parent < 0 or counts[parent] != 1 or codes[names[parent]] != codes[names[index]]:
            continue
        if len(mergeable) == 0 or (mergeable[parent] and mergeable[index]):
            own_keys[index] = own_keys[parent]
            keys[index], merged[index] = NONE, True


@compiled
def _number_slices(  # noqa: PLR0913, PLR0917 - likewise
    names: Indices, codes: Indices, kinds: Any, own_kind: int, extras: Indices, count: int, keys: Indices, tables: Any
) -> int:
    """Write the key of each slice. Return the count of keys, or -1 if the hash table is half full."""
    values, slot_keys, firsts = tables
    found = 0
    for index in range(len(names)):
        value = codes[names[index]] * 2 + (kinds[index] == own_kind)
        if len(extras) > 0:
            value = value * count + extras[index]
        slot = _key_slot(value, values, slot_keys)
        if slot_keys[slot] < 0:
            if 2 * found >= len(values) - 1:
                return -1
            values[slot], slot_keys[slot], firsts[found] = value, found, index
            found += 1
        keys[index] = slot_keys[slot]
    return found


@compiled
def _encode_paths(
    parents: Indices, names: Indices, radix: int, codes: Indices, table: Ints, slot_codes: Indices
) -> int:
    """Write the code of each slice's path. Return the count of distinct paths, or -1 if the hash table is half full."""
    mask, count = len(table) - 1, 0
    for index in range(len(parents)):
        key = names[index] + radix * (codes[parents[index]] + 1 if parents[index] >= 0 else 0)
        slot = (key * 0x2545F4914F6CDD1D) >> 32 & mask
        while slot_codes[slot] >= 0 and table[slot] != key:
            slot = (slot + 1) & mask
        if slot_codes[slot] < 0:
            if 2 * count >= mask:
                return -1
            table[slot], slot_codes[slot] = key, count
            count += 1
        codes[index] = slot_codes[slot]
    return count


@compiled
def _add_to_ancestors(
    parents: Indices, own_keys: Indices, keys: Indices, slices: Indices, values: Any, cells: Any
) -> None:
    width = values.shape[1] - 1
    for index in range(len(slices)):
        slice_, plane = slices[index], values[index, 0]
        if slice_ >= 0 and own_keys[slice_] >= 0:
            for column in range(width):
                cells[plane, own_keys[slice_], column] += values[index, column + 1]
        while slice_ >= 0:
            if keys[slice_] >= 0:
                for column in range(width):
                    cells[plane, keys[slice_], width + column] += values[index, column + 1]
            slice_ = parents[slice_]


@compiled
def _nearest_marked(parents: Indices, marked: Flags, nearest: Indices) -> None:
    for index in range(len(parents)):
        if marked[index]:
            nearest[index] = index
        else:
            nearest[index] = nearest[parents[index]] if parents[index] >= 0 else NONE


@compiled
def _outermost_marked(parents: Indices, marked: Flags, outermost: Indices) -> None:
    for index in range(len(parents)):
        above = outermost[parents[index]] if parents[index] >= 0 else NONE
        outermost[index] = index if above < 0 and marked[index] else above


@compiled
def _find_firsts(codes: Indices, firsts: Ints) -> None:
    for index in range(len(codes) - 1, -1, -1):
        firsts[codes[index]] = index


@compiled
def _sum(keys: Indices, values: Ints | Indices, sums: Ints) -> None:
    for index in range(len(keys)):
        if keys[index] >= 0:
            sums[keys[index]] += values[index]


@compiled
def _count(keys: Indices, counts: Any) -> None:
    for index in range(len(keys)):
        if keys[index] >= 0:
            counts[keys[index]] += 1


@compiled
def _match(ids: Ints, wanted: Ints, slots: Indices, matches: Indices) -> None:
    """Write the first index of each wanted id; `slots` is a hash table of indices of wanted ids, and all `NONE`."""
    repeats, last = False, 0
    for index in range(len(wanted)):
        if wanted[index] > 0:
            slot = _slot_of(wanted[index], wanted, slots)
            if slots[slot] >= 0:
                repeats = True
            else:
                slots[slot], last = index, max(last, wanted[index])
    for index in range(len(ids)):
        if 0 < ids[index] <= last:
            entry = slots[_slot_of(ids[index], wanted, slots)]
            if entry >= 0 and matches[entry] < 0:
                matches[entry] = index
    if repeats:
        for index in range(len(wanted)):
            if wanted[index] > 0:
                matches[index] = matches[slots[_slot_of(wanted[index], wanted, slots)]]


@inlined
def _slot_of(id_: int, wanted: Ints, slots: Indices) -> int:
    """Return the slot that holds an id, or a free one. Ids of a block share a cache line, as most have neighbours."""
    mask = len(slots) - 1
    slot = (((id_ >> 4) * 0x2545F4914F6CDD1D) >> 32 << 4 | id_ & 15) & mask
    while slots[slot] >= 0 and wanted[slots[slot]] != id_:
        slot = (slot + 1) & mask
    return slot

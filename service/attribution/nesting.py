"""What encloses what on threads: the parents of millions of slices, and sums along them. Compiled."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.scan.compiled import compiled
from service.trace.errors import NotApplicable

NONE = -1
"""The parent of a slice that nothing encloses."""

DROPPED = -2
"""The parent of a slice that is left out, since it overlaps another without nesting."""

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
"""Numbers of slices, or of what they belong to."""
Flags = npt.NDArray[np.bool_]


class Numbering:
    """Numbers words in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {}

    def numbers(self, words: pa.Array) -> Places:
        """The number of each word; what was not there before gets the next one."""
        coded = words.dictionary_encode()
        known = self._numbers
        places = [known.setdefault(word, len(known)) for word in coded.dictionary.to_pylist()]
        if coded.null_count:
            places.append(known.setdefault(None, len(known)))
        indices = coded.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)
        numbers: Places = np.array(places or [0], np.int32)[indices]
        return numbers

    @property
    def words(self) -> list[str]:
        """All words in the order of their numbers; null is none."""
        return [word or "" for word in self._numbers]


def in_order(starts: Ints, ends: Ints) -> Any:
    """What brings slices into the order of their starts, the longest first, and as they are where both are equal."""
    if len(starts) < 2:
        return slice(None)
    rises = starts[1:] > starts[:-1]
    if (rises | ((starts[1:] == starts[:-1]) & (ends[1:] <= ends[:-1]))).all():
        return slice(None)
    if (starts[1:] < starts[:-1]).any():
        return np.lexsort((-ends, starts))
    runs = np.concatenate([[0], np.cumsum(rises)])  # only the few that start at once with a longer one move
    moving = np.flatnonzero(np.isin(runs, runs[1:][~rises & (ends[1:] > ends[:-1])]))
    order = np.arange(len(starts))
    order[moving] = moving[np.lexsort((-ends[moving], runs[moving]))]
    return order


def numbered(keys: Ints) -> tuple[Places, int]:
    """A number for each key, the same for the same, and how many keys there are."""
    numbers = np.empty(len(keys), np.int32)
    room = 1 << 12
    while (count := _number(keys, numbers, np.empty(room, np.int64), np.full(room, NONE, np.int32))) < 0:
        room <<= 4
    return numbers, count


def parents_of(
    threads: Places, starts: Ints, ends: Ints, *, drop: bool = False, left_out: Flags | None = None
) -> Places:
    """The slice that encloses each, or `NONE`.

    Args:
        threads: of the slices, which are in order of time and the longest first; numbers from 0.
        starts: likewise.
        ends: likewise.
        drop: leave out what ends after the slice in which it starts; else that slice is over for it and what follows.
        left_out: which slices are left out anyway.
    """
    parents = np.empty(len(starts), np.int32)
    tops = np.full(int(threads.max(initial=-1)) + 1, NONE, np.int32)
    _nest(threads, starts, ends, tops, parents, drop, np.empty(0, bool) if left_out is None else left_out)
    return parents


def below(parents: Places, values: Ints) -> Ints:
    """The sum of a value over the children of each slice."""
    sums = np.zeros(len(parents), np.int64)
    _sum(parents, values, sums)
    return sums


def within(parents: Places, values: Ints) -> Ints:
    """The sum of a value over each slice and all that it encloses."""
    sums = values.astype(np.int64)
    _sum_within(parents, sums)
    return sums


def paths(parents: Places, names: Places) -> tuple[Places, int]:
    """A number for each slice, the same for those of the same name whose parents have the same; and how many there are.

    They are in the order in which they first come.
    """
    numbers = np.empty(len(parents), np.int32)
    room, radix = 1 << 12, int(names.max(initial=0)) + 1
    while (
        count := _number_paths(parents, names, radix, numbers, np.empty(room, np.int64), np.full(room, NONE, np.int32))
    ) < 0:
        room <<= 4
    return numbers, count


def climbing_sums(parents: Places, own_keys: Places, keys: Places, slices: Places, values: Any, cells: Any) -> None:
    """Add up values at the keys of slices, and of all that enclose them.

    Args:
        parents: of all slices.
        own_keys: of all slices, for what is in them and in no child.
        keys: of all slices, for what is in them at all; negative for those that have none.
        slices: where the values are; a negative one is nowhere.
        values: a row for each of these: the first number of a cell, and what is added.
        cells: gets the sums: for each first number and key, those in the slice itself and then those in all.
    """
    _climb_and_sum(parents, own_keys, keys, slices, values, cells)


def nearest(parents: Places, chosen: Flags) -> Places:
    """The innermost of some slices that encloses each, or is it; `NONE` where there is none."""
    found = np.empty(len(parents), np.int32)
    _climb(parents, chosen, found)
    return found


def merged(parents: Places, names: Places, mergeable: Flags) -> Places:
    """The slice into which each is merged: that above of the same name whose only child it is, else itself.

    Args:
        parents: of the slices.
        names: numbers of them.
        mergeable: which slices may be.
    """
    into = np.empty(len(parents), np.int32)
    _merge(parents, tallied(parents, len(parents)), names, mergeable, into)
    return into


def summed(keys: Places, values: Ints, count: int) -> Ints:
    """The sum of values that have the same key; what has a negative one does not count."""
    sums = np.zeros(count, np.int64)
    _sum(keys, values, sums)
    return sums


def firsts_of(numbers: Places, count: int) -> Ints:
    """Where each number first comes."""
    firsts = np.zeros(count, np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return firsts


def tallied(keys: Places, count: int) -> Ints:
    """How often each key is there; negative ones do not count."""
    counts = np.zeros(count, np.int64)
    _tally(keys, counts)
    return counts


def innermost(parents: Places, threads: Places, starts: Ints, ends: Ints, others: Places, times: Ints) -> Places:
    """The innermost slice that lasts at each time on its thread; one does no longer last at its end.

    Args:
        parents: of the slices, as `parents_of` has them.
        threads: likewise.
        starts: likewise.
        ends: likewise.
        others: the thread of each time; negative where there are no slices.
        times: in order.
    """
    found = np.empty(len(times), np.int32)
    tops = np.full(int(threads.max(initial=-1)) + 1, NONE, np.int32)
    _sweep(parents, threads, starts, ends, others, times, tops, found)
    return found


def countable(values: Ints, what: str) -> None:
    """Raise `NotApplicable` where values, of which none is negative, add up to more than 64 bits hold."""
    if values.sum(dtype=np.float64) >= 2.0**63:
        raise NotApplicable(f"{what} adds up to more than 64 bits can tell.")


def inside(starts: Ints, ends: Ints, times: Ints) -> tuple[Ints, Ints, Flags]:
    """Which times lie in each slice, its start and its end among them: from, and up to; and which lie in none.

    Args:
        starts: of the slices, in order.
        ends: likewise.
        times: in order.
    """
    first, last = np.searchsorted(times, starts, "left"), np.searchsorted(times, ends, "right")
    reach = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)])
    begun = np.searchsorted(starts, times, "right")
    return first, last, (begun == 0) | (reach[begun] < times)


def owners(ids: Ints, wanted: Ints) -> Places:
    """The place of the first of some ids that is wanted, for each that is; `NONE` where there is none.

    Args:
        ids: those there are; 0 and what is negative is no id.
        wanted: those looked for.
    """
    found = np.full(len(wanted), NONE, np.int32)
    if not len(ids) or not len(wanted):
        return found
    low, high = max(int(wanted.min()), 1), int(wanted.max())
    if high - low < 8 * (len(ids) + len(wanted)) + 1024:
        table = np.full(max(high - low + 1, 0), NONE, np.int32)
        _find(ids, wanted, low, high, table, found)
        return found
    order = np.argsort(ids, kind="stable")
    places = np.searchsorted(ids[order], wanted)
    places[places == len(ids)] = 0
    at = order[places]
    return np.where((ids[at] == wanted) & (wanted > 0), at, NONE).astype(np.int32)


def places_of(rows: Any, wanted: Ints) -> Places:
    """The place of each wanted row among some rows, which are numbers from 0; `NONE` where it is not among them."""
    return owners(rows.astype(np.int64) + 1, wanted + 1)


@compiled
def _number(keys: Ints, numbers: Places, table: Ints, taken: Places) -> int:
    """Number keys; -1 where a table is half full."""
    mask, count = len(table) - 1, 0
    last_key, last = 0, -1
    for index in range(len(keys)):
        key = keys[index]
        if last < 0 or key != last_key:
            slot = (key * 0x2545F4914F6CDD1D) >> 32 & mask
            while taken[slot] >= 0 and table[slot] != key:
                slot = (slot + 1) & mask
            if taken[slot] < 0:
                if 2 * count >= mask:
                    return -1
                table[slot], taken[slot] = key, count
                count += 1
            last_key, last = key, taken[slot]
        numbers[index] = last
    return count


@compiled
def _nest(
    threads: Places, starts: Ints, ends: Ints, tops: Places, parents: Places, drop: bool, left_out: Flags
) -> None:
    """Put slices on the stacks of their threads: below the topmost is its parent, and so on."""
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
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code passes all it needs: objects would cost more
    parents: Places, threads: Places, starts: Ints, ends: Ints, others: Places, times: Ints, tops: Places, found: Places
) -> None:
    begun = 0
    for index in range(len(times)):
        while begun < len(starts) and starts[begun] <= times[index]:
            if parents[begun] != DROPPED:
                tops[threads[begun]] = begun
            begun += 1
        top = tops[others[index]] if others[index] >= 0 else NONE
        while top >= 0 and ends[top] <= times[index]:
            top = parents[top]
        found[index] = top


@compiled
def _sum_within(parents: Places, sums: Ints) -> None:
    for index in range(len(parents) - 1, -1, -1):  # what is enclosed comes after what encloses
        if parents[index] >= 0:
            sums[parents[index]] += sums[index]


@compiled
def _merge(parents: Places, children: Ints, names: Places, mergeable: Flags, into: Places) -> None:
    for index in range(len(parents)):
        parent = parents[index]
        into[index] = index
        only = parent >= 0 and children[parent] == 1 and names[parent] == names[index]
        if only and mergeable[parent] and mergeable[index]:
            into[index] = into[parent]


@compiled
def _number_paths(parents: Places, names: Places, radix: int, numbers: Places, table: Ints, taken: Places) -> int:
    """Number slices by their names and parents' numbers; -1 where a table is half full."""
    mask, count = len(table) - 1, 0
    for index in range(len(parents)):
        key = names[index] + radix * (numbers[parents[index]] + 1 if parents[index] >= 0 else 0)
        slot = (key * 0x2545F4914F6CDD1D) >> 32 & mask
        while taken[slot] >= 0 and table[slot] != key:
            slot = (slot + 1) & mask
        if taken[slot] < 0:
            if 2 * count >= mask:
                return -1
            table[slot], taken[slot] = key, count
            count += 1
        numbers[index] = taken[slot]
    return count


@compiled
def _climb_and_sum(parents: Places, own_keys: Places, keys: Places, slices: Places, values: Any, cells: Any) -> None:
    width = values.shape[1] - 1
    for index in range(len(slices)):
        at, plane = slices[index], values[index, 0]
        if at >= 0:
            for column in range(width):
                cells[plane, own_keys[at], column] += values[index, column + 1]
        while at >= 0:
            if keys[at] >= 0:
                for column in range(width):
                    cells[plane, keys[at], width + column] += values[index, column + 1]
            at = parents[at]


@compiled
def _climb(parents: Places, chosen: Flags, found: Places) -> None:
    for index in range(len(parents)):
        if chosen[index]:
            found[index] = index
        else:
            found[index] = found[parents[index]] if parents[index] >= 0 else NONE


@compiled
def _sum(keys: Places, values: Ints, sums: Ints) -> None:
    for index in range(len(keys)):
        if keys[index] >= 0:
            sums[keys[index]] += values[index]


@compiled
def _tally(keys: Places, counts: Ints) -> None:
    for index in range(len(keys)):
        if keys[index] >= 0:
            counts[keys[index]] += 1


@compiled
def _find(ids: Ints, wanted: Ints, low: int, high: int, table: Places, found: Places) -> None:
    for index in range(len(ids)):
        if low <= ids[index] <= high and table[ids[index] - low] < 0:
            table[ids[index] - low] = index
    for index in range(len(wanted)):
        if wanted[index] >= low:
            found[index] = table[wanted[index] - low]

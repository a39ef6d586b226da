"""The slices of a rank, read in one pass: slices of host threads, and annotations on devices."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import Ints
from service.analysis.facts.unions import unions_of_groups
from service.attribution.nesting import NONE, Flags, Indices, nesting_order
from service.store.parts import TRACK
from service.streaming.scan.compiled import compiled, inlined
from service.trace.errors import ExportFailed
from service.trace.summary import LAUNCH_PATTERN, OP_CATEGORIES, PYTHON_CATEGORY

REGION = "gpu_user_annotation"
"""Category of annotations on devices."""

UNKNOWN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The integer that stands for null, and the largest integer."""

_INTS = ("ts_ns", "dur_ns", "correlation", "pid", "tid")
_WORDS = ("name", "cat", "ph", "pid_text", "tid_text")
_TS, _DUR, _CORRELATION, _PID, _TID = range(len(_INTS))
_NAME, _CAT, _PH, _PID_TEXT, _TID_TEXT = range(len(_WORDS))
COLUMNS = (*_INTS, *_WORDS)
"""Columns from which slices are read; see `columns_of`."""

BY_NAME = -2
"""Stands for the group of a slice's name in `Slices.unions`."""

_GROUPS = _HOST, _REGIONS = range(2)
_OTHER = len(_GROUPS)
_CORRELATED = len(_GROUPS)
"""Place of the count of correlated slices, after those of the groups."""


class Rows(NamedTuple):
    """Slices in order of their starts; of equal starts the longest first.

    ``starts`` and ``ends`` are in ns; ``names``, ``categories`` and ``threads`` are codes; ``rows`` are the rows of the
    events in order of time.
    """

    starts: Ints
    ends: Ints
    names: Indices
    categories: Any
    threads: Indices
    rows: Indices


class Correlated(NamedTuple):
    """The slices of the host that have a correlation id, as indices in ascending order, and these ids.

    Less than half of all slices have one.
    """

    indices: Indices
    ids: Ints


class Slices(NamedTuple):
    """The slices of a rank, except Python functions.

    ``names`` and ``categories`` list the texts by code. ``names`` has the names of all events except Python functions;
    the code of a slice without a name is their count. ``categories`` has those of these slices. ``threads`` has the
    `TRACK` of each thread.
    """

    names: list[str]
    categories: list[str]
    threads: pa.Table
    host: Rows
    regions: Rows
    correlated: Correlated

    def of_categories(self, condition: Callable[[str], Any]) -> Flags:
        """Flag the slices of the host whose category meets a condition."""
        flags: Flags = self._matching(self.categories, condition)[self.host.categories]
        return flags

    def host_named(self, condition: Callable[[str], Any]) -> Flags:
        """Flag the slices of the host whose name meets a condition."""
        return self._matching(self.names, condition)[self.host.names]

    def unions(self, category_groups: Sequence[int], name_groups: Sequence[int], count: int) -> list[Coverage]:
        """Return the coverage of each group of slices of the host.

        Args:
            category_groups: group of each category: a number from 0, `BY_NAME`, or another negative number for none.
            name_groups: group of each name where that of the category is `BY_NAME`, and of null at the end.
            count: number of groups.
        """
        groups = np.empty(len(self.host.starts), np.int8)
        _group(
            self.host.categories, np.array(category_groups, np.int8), self.host.names, np.array(name_groups, np.int8),
            groups,
        )  # fmt: skip
        return [Coverage.of_union(*union) for union in unions_of_groups(*self.host[:2], groups, count)]

    @staticmethod
    def _matching(words: list[str], condition: Callable[[str], Any]) -> Flags:
        return np.array([*(bool(condition(word)) for word in words), False])


def columns_of(counts: Mapping[str, int]) -> list[str]:
    """Return the columns to read: all but the phases if each event of the categories of slices is one.

    Args:
        counts: number of the events of each phase and category, as a summary has it.
    """
    for key in counts:
        phase, _, category = key.partition("|")
        if "|" in category or (phase != "X" and _group_of(category) != _OTHER):
            return [*COLUMNS]
    return [name for name in COLUMNS if name != "ph"]


def read_slices(tables: Iterable[pa.Table], counts: Mapping[str, int]) -> Slices:
    """Read the slices of a rank.

    Args:
        tables: events in order of time, with the columns of `columns_of`; text is dictionary-encoded.
        counts: number of slices of each category, or an upper bound.

    Raises:
        ExportFailed: there are more slices than counted.
    """
    reader = _Reader(counts)
    for table in tables:
        if len(table):
            reader.add(table)
    return reader.slices()


def _group_of(category: str) -> int:
    """Return the group of slices to which a category belongs."""
    if category in OP_CATEGORIES or re.fullmatch(LAUNCH_PATTERN, category):
        return _HOST
    return _REGIONS if category == REGION else _OTHER


class _Reader:
    def __init__(self, counts: Mapping[str, int]) -> None:
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._threads: dict[tuple[Any, ...], int] = {}
        self._events = 0
        capacity, categories = dict.fromkeys(_GROUPS, 0), 0
        for category, count in counts.items():
            if (group := _group_of(category)) != _OTHER:
                capacity[group] += count
                categories += 1
        code = np.int8 if categories <= np.iinfo(np.int8).max else np.int32
        # allocated in full at once: only the pages that are written take memory
        self._groups = tuple(_rows_of(capacity[group], code) for group in _GROUPS)
        self._correlated = Correlated(np.empty(capacity[_HOST], np.int32), np.empty(capacity[_HOST], np.int64))
        self._counts = np.zeros(len(_GROUPS) + 1, np.int64)
        self._firsts, self._slots = np.empty(0, np.int64), np.empty(0, np.int32)

    def add(self, table: pa.Table) -> None:
        """Copy the slices of the next table.

        Raises:
            ExportFailed: there are more slices than counted.
        """
        columns = {name: _Column(table[name]) if name in table.column_names else _NO_COLUMN for name in COLUMNS}
        read = tuple(
            (tuple(columns[name].values for name in names), tuple(columns[name].valid for name in names))
            for names in (_INTS, _WORDS)
        )
        categories, phases = columns["cat"].words, columns["ph"].words
        category_groups = np.array([*map(_group_of, categories), _OTHER], np.int8)
        is_slice = np.array([*(word == "X" for word in phases), "ph" not in table.column_names])
        category_codes = [
            self._categories.setdefault(word, len(self._categories)) if group != _OTHER else NONE
            for word, group in zip(categories, category_groups.tolist(), strict=False)
        ]
        codes = self._name_codes(columns["name"], columns["cat"]), np.array([*category_codes, NONE], np.int32)
        if len(self._firsts) < len(table):
            self._firsts = np.empty(len(table), np.int64)
            self._slots = np.full(2 << len(table).bit_length(), NONE, np.int32)
        before = self._counts.copy()
        threads = _copy(
            read, category_groups, is_slice, codes, self._events, (*self._groups, self._correlated), self._counts,
            self._firsts, self._slots,
        )  # fmt: skip
        if threads < 0:
            raise ExportFailed("The trace's columns have more slices than its summary counts.")
        self._events += len(table)
        tracks = (tuple(columns[name].at(row) for name in TRACK) for row in self._firsts[:threads].tolist())
        numbers = np.array([self._threads.setdefault(track, len(self._threads)) for track in tracks], np.int32)
        if (numbers != np.arange(threads)).any():
            for rows, first, last in zip(self._groups, before.tolist(), self._counts.tolist(), strict=False):
                rows.threads[first:last] = numbers[rows.threads[first:last]]

    def _name_codes(self, name: "_Column", category: "_Column") -> Indices:
        """Return the code of each name in a table's dictionary; -1 for names of Python functions only."""
        if PYTHON_CATEGORY not in category.words:
            return _encode(self._names, name.words)
        used = np.zeros(len(name.words) + 1, bool)
        _mark_used(
            name.values, name.valid, category.values, category.valid, category.words.index(PYTHON_CATEGORY), used
        )
        codes = np.full(len(used), NONE, np.int32)
        for entry in np.flatnonzero(used).tolist():
            codes[entry] = self._names.setdefault(name.words[entry], len(self._names))
        return codes

    def slices(self) -> Slices:
        """Return the slices of the host and the annotations on devices."""
        threads = zip(*self._threads, strict=True) if self._threads else [()] * len(TRACK)
        tracks = {
            name: pa.array(values, pa.int64() if name in _INTS else pa.string())
            for name, values in zip(TRACK, threads, strict=True)
        }
        (host, order), (regions, _) = map(self._rows, _GROUPS)
        correlated = Correlated._make(column[: self._counts[_CORRELATED]] for column in self._correlated)
        if not isinstance(order, slice):
            indices = np.argsort(order)[correlated.indices]
            moved = np.argsort(indices)
            correlated = Correlated(indices[moved].astype(np.int32), correlated.ids[moved])
        return Slices([*self._names], [*self._categories], pa.table(tracks), host, regions, correlated)

    def _rows(self, group: int) -> tuple[Rows, Any]:
        """Return the slices of a group, in order, and an index of their earlier places."""
        slices = Rows._make(column[: self._counts[group]] for column in self._groups[group])
        slices.names[slices.names < 0] = len(self._names)
        order = nesting_order(slices.starts, slices.ends)
        if not isinstance(order, slice):
            for column in slices:
                column[:] = column[order]  # one after the other, because a copy of all would double the memory
        return slices, order


def _rows_of(count: int, category: type[Any]) -> Rows:
    starts, ends = (np.empty(count, np.int64) for _ in range(2))
    names, threads, rows = (np.empty(count, np.int32) for _ in range(3))
    return Rows(starts, ends, names, np.empty(count, category), threads, rows)


class _Column:
    """The memory of a column: values or dictionary indices, and the validity bitmap, empty if no value is null."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        if column.num_chunks != 1:
            column = pa.chunked_array([column.unify_dictionaries().combine_chunks()], column.type)
        chunk = column.chunk(0)
        self.words: list[str] = []
        if isinstance(chunk, pa.DictionaryArray):
            self.words, chunk = chunk.dictionary.to_pylist(), chunk.indices
        if chunk.offset:
            chunk = pa.concat_arrays([chunk, chunk[:0]])
        valid, values = chunk.buffers()
        self.values = np.frombuffer(values, chunk.type.to_pandas_dtype(), len(chunk))
        self.valid = np.frombuffer(valid, np.uint8) if chunk.null_count else np.empty(0, np.uint8)
        self.values.flags.writeable = self.valid.flags.writeable = False  # compiled code is specialised by this flag

    def at(self, row: int) -> int | str | None:
        """Return the value of a row."""
        if not _has.py_func(self.valid, row):  # type: ignore[attr-defined] # numba sets it
            return None
        value = int(self.values[row])
        return self.words[value] if self.words else value


_NO_COLUMN = _Column(pa.chunked_array([], pa.dictionary(pa.int32(), pa.string())))


def _encode(codes: dict[str, int], words: list[str]) -> Indices:
    """Return the code of each word, with -1 appended; a new word gets the next code."""
    return np.array([*(codes.setdefault(word, len(codes)) for word in words), NONE], np.int32)


@compiled
def _has(valid: Any, row: int) -> bool:
    return len(valid) == 0 or valid[row >> 3] >> (row & 7) & 1 != 0


@compiled
def _int(columns: Any, column: int, row: int) -> int:
    """Return an integer of a row, or `UNKNOWN`."""
    values, valid = columns[0]
    value: int = values[column][row] if _has(valid[column], row) else UNKNOWN
    return value


@compiled
def _word(columns: Any, column: int, row: int) -> int:
    """Return the dictionary index of a text of a row, or -1."""
    codes, valid = columns[1]
    code: int = codes[column][row] if _has(valid[column], row) else NONE
    return code


@inlined
def _track(columns: Any, row: int) -> tuple[int, int, int, int]:
    """Return the pid and the tid of a row, and their texts as `_word` has them."""
    return (
        _int(columns, _PID, row), _int(columns, _TID, row),
        _word(columns, _PID_TEXT, row), _word(columns, _TID_TEXT, row),
    )  # fmt: skip


@compiled
def _copy(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    columns: Any, category_groups: Any, is_slice: Flags, codes: Any, first_row: int, groups: Any, counts: Ints,
    firsts: Ints, slots: Indices,
) -> int:  # fmt: skip
    """Append the slices of a table to their groups.

    Return the count of the table's threads, which number from 0, or -1 if a group has no room for a slice.

    Args:
        columns: for integers and for text, the columns' values and validity bitmaps.
        category_groups: group of each category, and of null at the end.
        is_slice: whether each phase is that of a slice, and null at the end; only true if there are no phases.
        codes: code of each name, and of each category; that of null is at the end.
        first_row: row of the table's first event.
        groups: the `Rows` of each group, and `Correlated`.
        counts: number of slices of each group and of correlated slices, which grow.
        firsts: receives the first row of each thread.
        slots: hash table with more than twice as many slots as events, all `NONE`, before and after.
    """
    threads, mask = 0, len(slots) - 1
    name_codes, category_codes = codes
    thread, last = -1, (0, 0, 0, 0)  # of the slice before: most slices have the thread of the one before
    has_phases = not is_slice[-1]
    for row in range(len(columns[1][0][_CAT])):
        category = _word(columns, _CAT, row)
        group = category_groups[category]
        if group == _OTHER or (has_phases and not is_slice[_word(columns, _PH, row)]):
            continue
        start = _int(columns, _TS, row)
        if start == UNKNOWN:
            continue
        track = _track(columns, row)
        if thread < 0 or track != last:
            slot = _slot_of(columns, track, mask, firsts, slots)
            if slots[slot] < 0:
                slots[slot], firsts[threads] = threads, row
                threads += 1
            thread, last = slots[slot], track
        duration = max(_int(columns, _DUR, row), 0)
        end = start + (duration if start <= _MAX - duration else 0)
        words = name_codes[_word(columns, _NAME, row)], category_codes[category], thread, first_row + row
        at = counts[group]
        counts[group] = at + 1
        is_written = (
            _write(groups[_HOST], at, start, end, words)
            if group == _HOST
            else _write(groups[_REGIONS], at, start, end, words)
        )
        if not is_written:
            return -1
        if group == _HOST:
            correlation = _int(columns, _CORRELATION, row)
            if correlation != UNKNOWN:
                place = counts[_CORRELATED]
                groups[_CORRELATED].indices[place], groups[_CORRELATED].ids[place] = at, correlation
                counts[_CORRELATED] = place + 1
    for number in range(threads - 1, -1, -1):  # the latest first, so that all others are still found
        slots[_slot_of(columns, _track(columns, firsts[number]), mask, firsts, slots)] = NONE
    return threads


@inlined
def _slot_of(columns: Any, track: tuple[int, int, int, int], mask: int, firsts: Ints, slots: Indices) -> int:
    """Return the slot of the thread of a track, or the free slot where it belongs."""
    pid, tid, pid_text, tid_text = track
    slot = ((pid * 31 + tid) * 31 + pid_text * 7 + tid_text) * 0x2545F4914F6CDD1D >> 32 & mask
    while slots[slot] >= 0 and _track(columns, firsts[slots[slot]]) != track:
        slot = (slot + 1) & mask
    return slot


@inlined
def _write(rows: Rows, at: int, start: int, end: int, words: Any) -> bool:
    """Write a slice, and return whether there is room for it."""
    if at == len(rows.starts):
        return False
    rows.starts[at], rows.ends[at] = start, end
    rows.names[at], rows.categories[at], rows.threads[at], rows.rows[at] = words
    return True


@compiled
def _group(categories: Any, category_groups: Any, names: Indices, name_groups: Any, groups: Any) -> None:
    """Write the group of each slice; see `Slices.unions`."""
    for index in range(len(groups)):
        group = category_groups[categories[index]]
        groups[index] = name_groups[names[index]] if group == BY_NAME else group


@compiled
def _mark_used(
    names: Indices, name_valid: Any, categories: Indices, category_valid: Any, python: int, used: Flags
) -> None:
    """Mark the names of events that are no Python functions."""
    for row in range(len(names)):
        if _has(name_valid, row) and not (_has(category_valid, row) and categories[row] == python):
            used[names[row]] = True

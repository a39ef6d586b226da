"""The slices of a rank, read in one pass: slices of host threads, and annotations on devices."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.attribution.nesting import NONE, Flags, Indices, nesting_order
from service.store.parts import TRACK
from service.streaming.ahead import read_ahead
from service.streaming.scan.compiled import compiled
from service.trace.errors import ExportFailed
from service.trace.summary import LAUNCH_PATTERN, OP_CATEGORIES, PYTHON_CATEGORY

REGION = "gpu_user_annotation"
"""Category of annotations on devices."""

UNKNOWN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The integer that stands for null, and the largest integer."""

_INTS = ("ts_ns", "dur_ns", "correlation")
COLUMNS = (*_INTS, "name", "cat", "ph", *TRACK)
"""Columns from which slices are read."""

_SORTED_BY = ("ts_ns", "pid", "tid"), ("cat", "ph", "pid_text", "tid_text")
_TS, _PID, _TID = range(len(_SORTED_BY[0]))
_CAT, _PH, _PID_TEXT, _TID_TEXT = range(len(_SORTED_BY[1]))

_GROUPS = _HOST, _REGIONS = range(2)
_OTHER = len(_GROUPS)

_WORDS = ("name", "cat", "thread", "row")
"""The columns of codes and rows."""


class Rows(NamedTuple):
    """Slices in order of their starts; of equal starts the longest first.

    ``starts`` and ``ends`` are in ns; ``names``, ``categories`` and ``threads`` are codes; ``correlations`` are
    `UNKNOWN` if null; ``rows`` are the rows of the events in order of time.
    """

    starts: Ints
    ends: Ints
    correlations: Ints
    names: Indices
    categories: Indices
    threads: Indices
    rows: Indices


class Slices(NamedTuple):
    """The slices of a rank, except Python functions.

    ``names`` and ``categories`` list the texts by code. ``names`` has the names of all events except Python functions;
    the code of a slice without a name is their count. ``threads`` has the `TRACK` of each thread.
    """

    names: list[str]
    categories: list[str]
    threads: pa.Table
    host: Rows
    regions: Rows

    def of_categories(self, condition: Callable[[str], Any]) -> Flags:
        """Flag the slices of the host whose category meets a condition."""
        return self._matching(self.categories, condition)[self.host.categories]

    def host_named(self, condition: Callable[[str], Any]) -> Flags:
        """Flag the slices of the host whose name meets a condition."""
        return self._matching(self.names, condition)[self.host.names]

    @staticmethod
    def _matching(words: list[str], condition: Callable[[str], Any]) -> Flags:
        return np.array([*(bool(condition(word)) for word in words), False])


def read_slices(tables: Iterable[pa.Table], counts: Mapping[str, int]) -> Slices:
    """Read the slices of a rank.

    Args:
        tables: events in order of time, with `COLUMNS`; text is dictionary-encoded.
        counts: number of slices of each category, or an upper bound.

    Raises:
        ExportFailed: there are more slices than counted.
    """
    reader = _Reader(counts)
    for copy in read_ahead((reader.sorted(table) for table in tables if len(table)), "slices"):
        copy()
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
        capacity = dict.fromkeys(_GROUPS, 0)
        for category, count in counts.items():
            if (group := _group_of(category)) != _OTHER:
                capacity[group] += count
        self._buffers = {group: _Buffer(capacity[group]) for group in _GROUPS}

    def sorted(self, table: pa.Table) -> Callable[[], None]:
        """Sort the slices of a table into groups, and return a function that copies them, perhaps in another thread.

        The functions must be called one after the other, in the order of the tables.
        """
        columns = {name: _Column(table[name]) for name in COLUMNS}
        sort_columns = tuple(
            (tuple(columns[name].values for name in names), tuple(columns[name].valid for name in names))
            for names in _SORTED_BY
        )
        categories, phases = columns["cat"].words, columns["ph"].words
        category_groups = np.array([*map(_group_of, categories), _OTHER], np.int8)
        is_slice = np.array([*(word == "X" for word in phases), False])
        groups, threads = np.empty(len(table), np.int8), np.empty(len(table), np.int32)
        firsts, slots = np.empty(len(table), np.int64), np.full(2 << len(table).bit_length(), NONE, np.int32)
        count = _sort(sort_columns, category_groups, is_slice, groups, threads, firsts, slots)
        tracks = zip(*(table[name].take(pa.array(firsts[:count])).to_pylist() for name in TRACK), strict=True)
        codes = {
            "name": self._name_codes(columns["name"], columns["cat"]),
            "cat": _encode(self._categories, categories),
            "thread": np.array([self._threads.setdefault(track, len(self._threads)) for track in tracks], np.int32),
            "row": np.arange(self._events, self._events + len(table), dtype=np.int32),
        }
        self._events += len(table)
        columns["thread"] = _Column(pa.chunked_array([threads]))
        columns["row"] = _Column(pa.chunked_array([np.arange(len(table), dtype=np.int32)]))

        def copy() -> None:
            for group, buffer in self._buffers.items():
                buffer.add(np.flatnonzero(groups == group), columns, codes)

        return copy

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
            name: pa.array(values, pa.int64() if name in _SORTED_BY[0] else pa.string())
            for name, values in zip(TRACK, threads, strict=True)
        }
        return Slices([*self._names], [*self._categories], pa.table(tracks), self._rows(_HOST), self._rows(_REGIONS))

    def _rows(self, group: int) -> Rows:
        """Return the slices of a group, in order."""
        ints, words = self._buffers.pop(group).columns()
        (starts, durations, correlations), (names, categories, threads, rows) = ints, words
        _replace_by_ends(starts, durations)
        names[names < 0] = len(self._names)
        slices = Rows(starts, durations, correlations, names, categories, threads, rows)
        order = nesting_order(slices.starts, slices.ends)
        if not isinstance(order, slice):
            for column in slices:
                column[:] = column[order]  # one after the other, because a copy of all would double the memory
        return slices


class _Buffer:
    """The columns of a group, allocated in full at once; only the pages that are written take memory."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = 0
        self._ints = {name: np.empty(capacity, np.int64) for name in _INTS}
        self._words = {name: np.empty(capacity, np.int32) for name in _WORDS}

    def add(self, rows: Ints, columns: Mapping[str, "_Column"], codes: Mapping[str, Indices]) -> None:
        """Append rows of a table; map each text to the code of its entry in the table's dictionary."""
        if self._count + len(rows) > self._capacity:
            raise ExportFailed("The trace's columns have more slices than its summary counts.")
        for name, ints in self._ints.items():
            _copy_ints(columns[name].values, columns[name].valid, rows, ints[self._count :])
        for name, words in self._words.items():
            _copy_codes(columns[name].values, columns[name].valid, codes[name], rows, words[self._count :])
        self._count += len(rows)

    def columns(self) -> tuple[list[Ints], list[Indices]]:
        """Return the written part of the integer and text columns."""
        count = self._count
        return [ints[:count] for ints in self._ints.values()], [words[:count] for words in self._words.values()]


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


@compiled
def _sort(
    columns: Any, category_groups: Any, is_slice: Flags, groups: Any, threads: Indices, firsts: Ints, slots: Indices
) -> int:
    """Write the group of each event and the number of its thread within the table; return the count of threads.

    Args:
        columns: for integers and for text, the columns' values and validity bitmaps.
        category_groups: group of each category, and of null at the end.
        is_slice: whether each phase is that of a slice, and null at the end.
        groups: receives the group of each event.
        threads: receives the thread of each event.
        firsts: receives the first row of each thread.
        slots: hash table with more than twice as many slots as events, all `NONE`.
    """
    count, mask = 0, len(slots) - 1
    for row in range(len(groups)):
        groups[row] = _OTHER
        if not is_slice[_word(columns, _PH, row)] or _int(columns, _TS, row) == UNKNOWN:
            continue
        groups[row] = category_groups[_word(columns, _CAT, row)]
        if groups[row] == _OTHER:
            continue
        pid, tid = _int(columns, _PID, row), _int(columns, _TID, row)
        pid_text, tid_text = _word(columns, _PID_TEXT, row), _word(columns, _TID_TEXT, row)
        slot = ((pid * 31 + tid) * 31 + pid_text * 7 + tid_text) * 0x2545F4914F6CDD1D >> 32 & mask
        while slots[slot] >= 0:
            first = firsts[slots[slot]]
            same = _int(columns, _PID, first) == pid and _int(columns, _TID, first) == tid
            if same and _word(columns, _PID_TEXT, first) == pid_text and _word(columns, _TID_TEXT, first) == tid_text:
                break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot], firsts[count] = count, row
            count += 1
        threads[row] = slots[slot]
    return count


@compiled
def _copy_ints(values: Ints, valid: Any, rows: Ints, target: Ints) -> None:
    """Copy the integers of rows, nulls as `UNKNOWN`."""
    for index in range(len(rows)):
        target[index] = values[rows[index]] if _has(valid, rows[index]) else UNKNOWN


@compiled
def _copy_codes(entries: Indices, valid: Any, codes: Indices, rows: Ints, target: Indices) -> None:
    """Copy the codes of the texts of rows."""
    for index in range(len(rows)):
        target[index] = codes[entries[rows[index]] if _has(valid, rows[index]) else NONE]


@compiled
def _mark_used(
    names: Indices, name_valid: Any, categories: Indices, category_valid: Any, python: int, used: Flags
) -> None:
    """Mark the names of events that are no Python functions."""
    for row in range(len(names)):
        if _has(name_valid, row) and not (_has(category_valid, row) and categories[row] == python):
            used[names[row]] = True


@compiled
def _replace_by_ends(starts: Ints, durations: Ints) -> None:
    """Overwrite durations with ends; a slice whose end overflows ends at its start."""
    for index in range(len(starts)):
        duration = max(durations[index], 0)
        durations[index] = starts[index] + (duration if starts[index] <= _MAX - duration else 0)

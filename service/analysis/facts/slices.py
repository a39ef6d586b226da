"""The slices of a rank, read in one pass: what the host's threads do, the regions that devices show, and their work."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.attribution.nesting import NONE, Flags, Indices, nesting_order
from service.store.parts import TRACK
from service.streaming.scan.compiled import compiled
from service.trace.errors import ExportFailed
from service.trace.summary import GPU_CATEGORIES, LAUNCH_PATTERN, OP_CATEGORIES

REGION = "gpu_user_annotation"
"""The category of the regions that devices show."""

UNKNOWN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The value of what is null; and the largest of all."""

PYTHON = "python_function"
"""The category of functions of Python, of which there can be many times as many as of all others."""

WORK = ("ts_ns", "dur_ns", "correlation", "external_id", "position", "device", "stream", "bytes")
"""The integers that are read of work."""
_INTS = WORK[:4]
"""Those that are read of other slices."""
COLUMNS = (*WORK, "name", "cat", "ph", *TRACK)
"""The columns from which slices are read."""

_SORTED_BY = ("ts_ns", "pid", "tid"), ("cat", "ph", "pid_text", "tid_text")
_TS, _PID, _TID = range(len(_SORTED_BY[0]))
_CAT, _PH, _PID_TEXT, _TID_TEXT = range(len(_SORTED_BY[1]))

_GROUPS = _HOST, _REGIONS, _WORK = range(3)
_OTHER = len(_GROUPS)

_OF_THREADS = _INTS, ("name", "cat", "thread", "row")
_READ_OF = {_HOST: _OF_THREADS, _REGIONS: _OF_THREADS, _WORK: (WORK, ("name", "cat"))}
"""The integers and the words that are read of each group."""


class Rows(NamedTuple):
    """Slices in order of their starts; of those that begin at once the longest first.

    ``starts`` and ``ends`` are in ns; ``names``, ``categories`` and ``threads`` are numbers; ``correlations`` and
    ``external_ids`` are `UNKNOWN` where a slice has none; ``rows`` are those of the events in order of time.
    """

    starts: Ints
    ends: Ints
    correlations: Ints
    external_ids: Ints
    names: Indices
    categories: Indices
    threads: Indices
    rows: Indices


class Slices(NamedTuple):
    """The slices of a rank, but for functions of Python.

    ``names`` are those of all events that are no functions of Python, and ``categories`` those of all, by their
    numbers; a slice without a name has the number behind the last one. ``threads`` has the `TRACK` of each thread.
    """

    names: list[str]
    categories: list[str]
    threads: pa.Table
    host: Rows
    regions: Rows

    def of_categories(self, holds: Callable[[str], Any]) -> Flags:
        """Which slices of the host are of a category of which a condition is true."""
        return self._among(self.categories, holds)[self.host.categories]

    def host_named(self, holds: Callable[[str], Any]) -> Flags:
        """Which slices of the host have a name of which a condition is true."""
        return self._among(self.names, holds)[self.host.names]

    @staticmethod
    def _among(words: list[str], holds: Callable[[str], Any]) -> Flags:
        return np.array([*(bool(holds(word)) for word in words), False])


def read_slices(tables: Iterable[pa.Table], counts: Mapping[str, int]) -> tuple[Slices, pa.Table]:
    """Read the slices of a rank.

    Args:
        tables: its events in order of time, with `COLUMNS`; words are dictionaries.
        counts: how many slices there are of each category, or may be.

    Returns:
        Those of the host and regions; and the work of its devices in order of time: ``position, name, cat, device,
        stream, correlation, external_id, bytes, ts_ns, dur_ns``.

    Raises:
        ExportFailed: there are more slices.
    """
    reader = _Reader(counts)
    for table in tables:
        if len(table):
            reader.add(table)
    return reader.slices(), reader.work()


def _group_of(category: str) -> int:
    """The group of slices of a category."""
    if category in OP_CATEGORIES or re.fullmatch(LAUNCH_PATTERN, category):
        return _HOST
    return _REGIONS if category == REGION else _WORK if category in GPU_CATEGORIES else _OTHER


class _Reader:
    def __init__(self, counts: Mapping[str, int]) -> None:
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._threads: dict[tuple[Any, ...], int] = {}
        self._events = 0
        room = dict.fromkeys(_GROUPS, 0)
        for category, count in counts.items():
            if (group := _group_of(category)) != _OTHER:
                room[group] += count
        self._taken = {group: _Taken(room[group], ints, words) for group, (ints, words) in _READ_OF.items()}

    def add(self, table: pa.Table) -> None:
        """Take the slices of a table."""
        columns = {name: _Column(table[name]) for name in COLUMNS}
        told = tuple(
            (tuple(columns[name].values for name in names), tuple(columns[name].valid for name in names))
            for names in _SORTED_BY
        )
        categories, phases = columns["cat"].words, columns["ph"].words
        in_groups = np.array([*map(_group_of, categories), _OTHER], np.int8)
        is_slice = np.array([*(word == "X" for word in phases), False])
        groups, threads = np.empty(len(table), np.int8), np.empty(len(table), np.int32)
        firsts, slots = np.empty(len(table), np.int64), np.full(2 << len(table).bit_length(), NONE, np.int32)
        many = _sort(told, in_groups, is_slice, groups, threads, firsts, slots)
        tracks = zip(*(table[name].take(pa.array(firsts[:many])).to_pylist() for name in TRACK), strict=True)
        numbers = {
            "name": self._named(columns["name"], columns["cat"]),
            "cat": _numbers(self._categories, categories),
            "thread": np.array([self._threads.setdefault(track, len(self._threads)) for track in tracks], np.int32),
            "row": np.arange(self._events, self._events + len(table), dtype=np.int32),
        }
        self._events += len(table)
        columns["thread"] = _Column(pa.chunked_array([threads]))
        columns["row"] = _Column(pa.chunked_array([np.arange(len(table), dtype=np.int32)]))
        for group, taken in self._taken.items():
            taken.add(np.flatnonzero(groups == group), columns, numbers)

    def _named(self, name: "_Column", category: "_Column") -> Indices:
        """The numbers of the names of a table, by those that they have in it; -1 of functions of Python."""
        if PYTHON not in category.words:
            return _numbers(self._names, name.words)
        named = np.zeros(len(name.words) + 1, bool)
        _mark(name.values, name.valid, category.values, category.valid, category.words.index(PYTHON), named)
        numbers = np.full(len(named), NONE, np.int32)
        for place in np.flatnonzero(named).tolist():
            numbers[place] = self._names.setdefault(name.words[place], len(self._names))
        return numbers

    def slices(self) -> Slices:
        """What was taken of threads and regions."""
        threads = zip(*self._threads, strict=True) if self._threads else [()] * len(TRACK)
        tracks = {
            name: pa.array(values, pa.int64() if name in _SORTED_BY[0] else pa.string())
            for name, values in zip(TRACK, threads, strict=True)
        }
        return Slices([*self._names], [*self._categories], pa.table(tracks), self._rows(_HOST), self._rows(_REGIONS))

    def _rows(self, group: int) -> Rows:
        """What was taken of a group, in order."""
        ints, words = self._taken.pop(group).columns()
        (starts, lasting, correlations, external_ids), (names, categories, threads, rows) = ints, words
        _end(starts, lasting)
        names[names < 0] = len(self._names)
        found = Rows(starts, lasting, correlations, external_ids, names, categories, threads, rows)
        order = nesting_order(found.starts, found.ends)
        return found if isinstance(order, slice) else Rows(*(column[order] for column in found))

    def work(self) -> pa.Table:
        """What was taken of work."""
        ints, (names, categories) = self._taken[_WORK].columns()
        columns = {name: pa.array(values, mask=values == UNKNOWN) for name, values in zip(WORK, ints, strict=True)}
        for name, numbers, known in (("name", names, self._names), ("cat", categories, self._categories)):
            indices = pa.array(numbers, mask=numbers < 0)
            columns[name] = pa.DictionaryArray.from_arrays(indices, pa.array(known, pa.string()))
        return pa.table(columns)


class _Taken:
    """What is taken of a group: as much room as it may need, of which only what is written takes memory."""

    def __init__(self, room: int, ints: Iterable[str], words: Iterable[str]) -> None:
        self._room = room
        self._count = 0
        self._ints = {name: np.empty(room, np.int64) for name in ints}
        self._words = {name: np.empty(room, np.int32) for name in words}

    def add(self, rows: Ints, columns: Mapping[str, "_Column"], numbers: Mapping[str, Indices]) -> None:
        """Write some rows of a table behind those that were taken before; of words, the numbers of those in it."""
        if self._count + len(rows) > self._room:
            raise ExportFailed("The trace's columns have more slices than its summary tells.")
        for name, ints in self._ints.items():
            _take(columns[name].values, columns[name].valid, rows, ints[self._count :])
        for name, words in self._words.items():
            _take_words(columns[name].values, columns[name].valid, numbers[name], rows, words[self._count :])
        self._count += len(rows)

    def columns(self) -> tuple[list[Ints], list[Indices]]:
        """What was written."""
        return [one[: self._count] for one in self._ints.values()], [one[: self._count] for one in self._words.values()]


class _Column:
    """A column as it lies in memory: values or numbers of words, and bits that tell which are not null; none if all."""

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
        self.values.flags.writeable = self.valid.flags.writeable = False  # which compiled code would tell apart


def _numbers(known: dict[str, int], words: list[str]) -> Indices:
    """The number of each word, of which new ones get the next; and -1."""
    return np.array([*(known.setdefault(word, len(known)) for word in words), NONE], np.int32)


@compiled
def _has(valid: Any, row: int) -> bool:
    return len(valid) == 0 or valid[row >> 3] >> (row & 7) & 1 != 0


@compiled
def _int(told: Any, column: int, row: int) -> int:
    """An integer of a row, or `UNKNOWN`."""
    values, valid = told[0]
    value: int = values[column][row] if _has(valid[column], row) else UNKNOWN
    return value


@compiled
def _word(told: Any, column: int, row: int) -> int:
    """The number of a word of a row in its table, or -1."""
    codes, valid = told[1]
    code: int = codes[column][row] if _has(valid[column], row) else NONE
    return code


@compiled
def _sort(
    told: Any, in_groups: Any, is_slice: Flags, groups: Any, threads: Indices, firsts: Ints, slots: Indices
) -> int:
    """Tell the group of each event, and the number of its thread in this table; count the threads.

    Args:
        told: of integers and of words, the columns and the bits of these.
        in_groups: of each category and, at the end, of none.
        is_slice: likewise of phases.
        groups: of each event; is written.
        threads: likewise.
        firsts: the first row of each thread; is written.
        slots: twice as many as events, all `NONE`.
    """
    many, mask = 0, len(slots) - 1
    for row in range(len(groups)):
        groups[row] = _OTHER
        if not is_slice[_word(told, _PH, row)] or _int(told, _TS, row) == UNKNOWN:
            continue
        groups[row] = in_groups[_word(told, _CAT, row)]
        if groups[row] > _REGIONS:
            continue
        pid, tid = _int(told, _PID, row), _int(told, _TID, row)
        pid_text, tid_text = _word(told, _PID_TEXT, row), _word(told, _TID_TEXT, row)
        slot = ((pid * 31 + tid) * 31 + pid_text * 7 + tid_text) * 0x2545F4914F6CDD1D >> 32 & mask
        while slots[slot] >= 0:
            first = firsts[slots[slot]]
            same = _int(told, _PID, first) == pid and _int(told, _TID, first) == tid
            if same and _word(told, _PID_TEXT, first) == pid_text and _word(told, _TID_TEXT, first) == tid_text:
                break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot], firsts[many] = many, row
            many += 1
        threads[row] = slots[slot]
    return many


@compiled
def _take(values: Ints, valid: Any, rows: Ints, into: Ints) -> None:
    """Write the integers of some rows, or `UNKNOWN`."""
    for index in range(len(rows)):
        into[index] = values[rows[index]] if _has(valid, rows[index]) else UNKNOWN


@compiled
def _take_words(codes: Indices, valid: Any, numbers: Indices, rows: Ints, into: Indices) -> None:
    """Write the numbers of the words of some rows."""
    for index in range(len(rows)):
        into[index] = numbers[codes[rows[index]] if _has(valid, rows[index]) else NONE]


@compiled
def _mark(names: Indices, named: Any, categories: Indices, told: Any, python: int, marked: Flags) -> None:
    """Mark the names that anything has but functions of Python."""
    for row in range(len(names)):
        if _has(named, row) and not (_has(told, row) and categories[row] == python):
            marked[names[row]] = True


@compiled
def _end(starts: Ints, lasting: Ints) -> None:
    """Write when slices end in the place of how long they last; what would end after all time ends at once."""
    for index in range(len(starts)):
        long = max(lasting[index], 0)
        lasting[index] = starts[index] + (long if starts[index] <= _MAX - long else 0)

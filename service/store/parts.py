"""Reader of a trace's columns by parts, which are row groups; their statistics show which parts to read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.store import flow_ids, text_sizes, work_tracks
from service.store.column_files import ColumnFile, ParquetColumns
from service.store.columns import WORDS
from service.store.flow_ids import FlowIds
from service.store.folder import unreadable
from service.streaming.ahead import read_ahead
from service.streaming.buffers import numbers_of
from service.streaming.integers import valid_rows
from service.trace.selection import ALWAYS, Interval
from service.trace.summary import Key, key_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Value = TypeVar("Value")

TRACK = ("pid", "pid_text", "tid", "tid_text")
"""The columns that identify an event's track."""

SLICE = frozenset({"X"}).__contains__
METADATA = frozenset({"M"}).__contains__
"""Conditions on an event's phase, to be passed to `Part.which`."""

UNTIMED = ALWAYS[0]
"""Sentinel time of untimed events. It is smaller than all times, although the columns store untimed events last."""

_UNKNOWN = -2
"""Integer of a word that `WordValues` was not asked for."""

_FEW = 64
"""Number of words up to which it takes less time to test all of them than to find those that occur."""

_AT_ONCE = 8
"""Number of parts that `Parts.tables` reads at a time, and that `Parts.read` requests at a time from a location."""

MIXERS = tuple(np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Factors of `mixed`."""

_SLOT_BITS = 12  # of the hash of a track, of which few traces have more than a hundred


class Part:
    """Some columns of consecutive rows, beginning with row `first`. Rows are in order of time, untimed ones last."""

    def __init__(self, index: int, first: int, table: pa.Table) -> None:
        self.index = index
        self.first = first
        self.table = table
        self.rows = slice(first, first + len(table))
        self._cache: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.table)

    def ints(self, column: str, missing: int = 0) -> Ints:
        """Return the values of a column, with `missing` for null."""
        return self._cached((column, missing), lambda: self._ints(column, missing))

    def _ints(self, column: str, missing: int) -> Ints:
        values = self.table[column]
        if not values.null_count or values.num_chunks != 1:
            return _filled(values, missing).to_numpy()  # type: ignore[no-any-return] # pyarrow has no types
        numbers, has = self.numbers(column), self.has(column)
        return np.where(has, numbers, missing) if missing else numbers * has

    def has(self, column: str) -> Flags:
        """Return flags of the rows in which a column is not null."""
        return self._cached((column, None), lambda: valid_rows(self.table[column]))

    def numbers(self, column: str) -> npt.NDArray[Any]:
        """Return the values of a column of integers, with any number for null; they can't be written."""
        return numbers_of(_joined(self.table[column]))

    def encoded(self, column: str) -> tuple[npt.NDArray[np.int32], pa.StringArray]:
        """Return a dictionary column as indices, which can't be written, and words; null is -1."""
        return self._cached((column, "encoded"), lambda: _encoded(self.table[column]))

    def coded(self, column: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return a dictionary column as indices and words; null is -1, so that `[*words, None]` has an entry for it."""
        codes, words = self.encoded(column)
        return codes, self._cached((column, "words"), words.to_pylist)

    def which(self, column: str, holds: Callable[[str | None], Any]) -> Flags:
        """Return flags of the rows whose word meets a condition, which is called once for each distinct word."""
        codes, words = self.coded(column)
        flags = np.zeros(len(words) + 1, np.bool_)  # the last one is that of null, whose code is -1
        for code in _used(codes, words) if len(words) > _FEW else range(-1, len(words)):
            flags[code] = bool(holds(words[code] if code >= 0 else None))
        return flags.take(codes, mode="wrap")  # half the time of an index

    def matching(self, column: str, matches: Callable[[pa.StringArray], pa.BooleanArray]) -> Flags:
        """Return flags of the rows whose word matches; all words, which may be many, are tested in one call."""
        codes, words = self.encoded(column)
        flags = np.append(matches(words).to_numpy(zero_copy_only=False), False)  # the last one is that of null
        return flags.take(codes, mode="wrap")

    @property
    def slices(self) -> Flags:
        """Flags of the rows that are slices; only slices have a duration."""
        return self._cached("slices", lambda: self.which("ph", SLICE))

    @property
    def starts(self) -> Ints:
        """The start of each event in ns; `UNTIMED` if it has no time."""
        return self.ints("ts_ns", UNTIMED)

    @property
    def ends(self) -> Ints:
        """The end of each event in ns; `UNTIMED` if it has no time."""
        return self._cached("ends", self._ends)

    def _ends(self) -> Ints:
        ends = self.starts + np.maximum(self.ints("dur_ns"), 0) * self.slices
        return ends if self.has("ts_ns").all() else np.where(self.has("ts_ns"), ends, UNTIMED)

    def _cached(self, name: Any, make: Callable[[], Value]) -> Value:
        if name not in self._cache:
            self._cache[name] = make()
        value: Value = self._cache[name]
        return value


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.array([], column.type) if not column.num_chunks else column.unify_dictionaries().combine_chunks()


def _encoded(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], pa.StringArray]:
    words = _joined(column)
    return _filled(words.indices, -1).to_numpy(), words.dictionary


def _used(codes: npt.NDArray[np.int32], words: list[str]) -> list[int]:
    """Return the codes that occur, because most words may be unused; null is -1."""
    used: list[int] = (np.flatnonzero(np.bincount(codes + 1, minlength=len(words) + 1)) - 1).tolist()
    return used


def _filled(values: Any, missing: int) -> Any:
    """Return the values with `missing` for null. Most columns have no null, and are not copied."""
    return values.fill_null(missing) if values.null_count else values


@contextmanager
def _reading(events: ColumnFile) -> Iterator[None]:
    """Turn errors of reading columns into `ExportFailed`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise unreadable(events, error) from error


class Parts:
    """The parts of an ``events.parquet``.

    Attributes:
        work_tracks: the tracks of the GPU work; None if the file, which may be of an earlier version, does not tell.
        text_sizes: the largest sizes of texts; None likewise.

    Raises:
        ExportFailed: the file can't be read; the methods raise this, too.
        LocationError: its location can't be used; likewise.
    """

    def __init__(self, events: ColumnFile) -> None:
        self._events = events
        self.folder = events.parent
        with _reading(events):
            self._file = ParquetColumns(events, WORDS)
        metadata = self._file.metadata
        self.schema: pa.Schema = self._file.schema
        self._groups = self._file.groups
        texts = metadata.metadata or {}
        ids = flow_ids.decoded(texts.get(flow_ids.METADATA_KEY.encode(), b"[]"))
        self._flow_ids = ids if len(ids) == len(self._groups) else None  # older files have none
        self.work_tracks = work_tracks.decoded(texts.get(work_tracks.METADATA_KEY.encode(), b"null"))
        self.text_sizes = text_sizes.decoded(texts.get(text_sizes.METADATA_KEY.encode(), b"null"))
        self._firsts = np.cumsum([0, *(group.num_rows for group in self._groups)])
        self._places = self._file.places
        self.rows: int = metadata.num_rows
        self._nulls: dict[pa.DataType, pa.Array] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, columns: Sequence[str], indexes: Iterable[int] | None = None) -> Iterator[Part]:
        """Yield the parts at some indexes, or all parts, with some columns; a thread reads the next part ahead."""
        chosen = [*range(len(self))] if indexes is None else [*indexes]
        tables = self._ahead(columns, self._fetched(columns, chosen))
        for index, table in zip(chosen, tables, strict=True):
            yield Part(index, int(self._firsts[index]), table)

    def _fetched(self, columns: Sequence[str], indexes: Sequence[int]) -> Iterator[list[int]]:
        """Yield each index as a list, after what several following parts need was requested at once."""
        for place, index in enumerate(indexes):
            if place % _AT_ONCE == 0:
                together = indexes[place : place + _AT_ONCE]
                with _reading(self._events):
                    self._file.fetch(together, self._needed(columns, together))
            yield [index]

    def tables(self, columns: Sequence[str], at_once: int = _AT_ONCE) -> Iterator[pa.Table]:
        """Yield some columns of all events in tables of several parts, which is faster than part by part."""
        groups = (range(first, min(first + at_once, len(self))) for first in range(0, len(self), at_once))
        return self._ahead(columns, groups)

    def _ahead(self, columns: Sequence[str], reads: Iterable[Sequence[int]]) -> Iterator[pa.Table]:
        """Yield some columns of each group of parts; a thread reads the next group ahead."""
        return read_ahead((self._read(columns, [*indexes]) for indexes in reads), "parts")

    def _read(self, columns: Sequence[str], indexes: list[int]) -> pa.Table:
        """Read some columns of some parts; columns that are null in all of them are not read."""
        with _reading(self._events):
            table = self._file.read(indexes, self._needed(columns, indexes))
        for name in set(columns).difference(table.column_names):
            table = table.append_column(name, self._null_column(self.schema.field(name).type, len(table)))
        return table.select(columns)

    def _null_column(self, type_: pa.DataType, rows: int) -> pa.Array:
        """Return a column of nulls, a part of the longest one so far: making them for all parts takes long."""
        nulls = self._nulls.get(type_)
        if nulls is None or len(nulls) < rows:
            nulls = self._nulls[type_] = pa.nulls(rows, type_)
        return nulls[:rows]

    def _needed(self, columns: Sequence[str], indexes: Sequence[int]) -> list[str]:
        """Return the columns that are not null in all rows of some parts; at least one."""
        needed = [name for name in columns if not all(self._is_null(index, name) for index in indexes)]
        return needed or [columns[0]]

    def _is_null(self, index: int, column: str) -> bool:
        """Return whether the statistics of a part show that a column is null in all of its rows."""
        statistics = self._groups[index].column(self._places[column]).statistics
        return statistics is not None and statistics.has_null_count and statistics.null_count == self.length(index)

    def holding(self, rows: Flags) -> list[int]:
        """Return the indices of the parts that hold any of the flagged rows."""
        return [i for i in range(len(self)) if rows[self._firsts[i] : self._firsts[i + 1]].any()]

    def between(self, first: int, last: int) -> list[int]:
        """Return the indices of the parts that hold any of the rows from `first` to `last`."""
        begin, end = np.searchsorted(self._firsts, [first, last], side="right")
        return [*range(int(begin) - 1, int(end))]

    def at(self, times: Ints) -> list[int]:
        """Return the indexes of the parts that may hold events of some times, which are in ascending order."""
        spans = ((index, self.span(index, "ts_ns")) for index in range(len(self)))
        return [
            index
            for index, span in spans
            if span and np.searchsorted(times, span[0]) < np.searchsorted(times, span[1], "right")
        ]

    def span(self, index: int, column: str) -> Interval | None:
        """Return the smallest and the largest value of a column in a part; None if it has no value."""
        statistics = self._groups[index].column(self._places[column]).statistics
        if statistics is None:
            return ALWAYS
        if statistics.has_min_max:
            return statistics.min, statistics.max
        return None if statistics.null_count == self.length(index) else ALWAYS

    def flow_ids(self, index: int) -> FlowIds:
        """Return the spans of the ids of flow arrows in a part; too wide in files of earlier versions."""
        if self._flow_ids is None:
            span = self.span(index, "id")
            return FlowIds(span, span)
        return self._flow_ids[index]

    def length(self, index: int) -> int:
        """Return the number of rows of a part."""
        return int(self._groups[index].num_rows)

    def rows_of(self, index: int) -> slice:
        """Return the range of the rows of a part."""
        return slice(int(self._firsts[index]), int(self._firsts[index + 1]))

    def time(self, index: int) -> Interval:
        """Return the start of a part's first event, `UNTIMED` if it may be untimed, and an upper bound of all ends."""
        starts, lasts = self.span(index, "ts_ns"), self.span(index, "dur_ns")
        if starts is None:
            return UNTIMED, UNTIMED
        first = UNTIMED if self.has_untimed(index) else starts[0]
        return first, min(starts[1] + max(lasts[1] if lasts else 0, 0), ALWAYS[1])

    def has_untimed(self, index: int) -> bool:
        """Return whether a part may hold untimed events."""
        statistics = self._groups[index].column(self._places["ts_ns"]).statistics
        return statistics is None or not statistics.has_null_count or bool(statistics.null_count)

    def with_neighbours(self, indexes: Iterable[int]) -> list[int]:
        """Return the given indices, and those of all adjacent parts that may hold events of the same time."""
        parts = set(indexes)
        for step in (1, -1):
            for index in sorted(parts, reverse=step < 0):
                at = index
                while 0 <= at + step < len(self) and self._touch(*sorted((at, at + step))):
                    at += step
                    if at in parts:
                        break
                    parts.add(at)
        return sorted(parts)

    def _touch(self, index: int, following: int) -> bool:
        before, behind = self.span(index, "ts_ns"), self.span(following, "ts_ns")
        return before is not None and behind is not None and before[1] >= behind[0]


def mixed(*columns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of the values of several columns; different values practically never collide."""
    value = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        value = (value ^ column.astype(np.uint64)) * MIXERS[0]
        value ^= value >> np.uint64(30)
        value *= MIXERS[1]
        value ^= value >> np.uint64(27)
        value *= MIXERS[2]
        value ^= value >> np.uint64(31)
    return value


def packed(first: Ints, second: Ints) -> npt.NDArray[np.uint64]:
    """Return a number for each pair of values: pairs of ordinary size keep their order, and others are hashed."""
    small = (first >= 0) & (first < 1 << 42) & (second >= 0) & (second < 1 << 20)
    if small.all():
        return (first << 20 | second).view(np.uint64)
    ordered = np.where(small, first << 20 | second, 0).view(np.uint64)
    return np.where(small, ordered, mixed(first, second) | np.uint64(1 << 63))


class WordValues:
    """An integer for each word of columns. Most parts have the same words as the part before, which are known then.

    Args:
        value_of: returns the integer, at least -1, of a word, or of None for null. It is called in the order in which
            a part lists its words.
    """

    def __init__(self, value_of: Callable[[str | None], int]) -> None:
        self._value_of = value_of
        self._latest: dict[str, tuple[pa.StringArray, Ints]] = {}  # words of the latest part, and their integers

    def of(self, part: Part, column: str, rows: Ints | None = None) -> Ints:
        """Return the integer of each word of a column, or of some rows of it."""
        codes, words = part.encoded(column)
        codes, table = codes if rows is None else codes[rows], self._table(column, words)
        values: Ints = table.take(codes, mode="wrap")  # half the time of an index
        if values.min(initial=0) == _UNKNOWN:
            self._ask(words, table, np.flatnonzero(np.bincount(codes[values == _UNKNOWN])))
            values = table.take(codes, mode="wrap")
        return values

    def table(self, part: Part, column: str) -> Ints:
        """Return the integer of each word that a part lists, which may be unused, and then that of null."""
        _, words = part.encoded(column)
        table = self._table(column, words)
        self._ask(words, table, np.flatnonzero(table == _UNKNOWN))
        return table

    def _table(self, column: str, words: pa.StringArray) -> Ints:
        """Return the integers of words, `_UNKNOWN` for those that were not asked for, and then that of null."""
        if column not in self._latest or not self._latest[column][0].equals(words):
            self._latest[column] = words, np.append(np.full(len(words), _UNKNOWN), self._value_of(None))
        return self._latest[column][1]

    def _ask(self, words: pa.StringArray, table: Ints, codes: npt.NDArray[Any]) -> None:
        table[codes] = [*map(self._value_of, words.take(pa.array(codes)).to_pylist())]


class Words(WordValues):
    """Assigns numbers to the words of columns, and -1 to null; words of the first parts have the first numbers."""

    def __init__(self) -> None:
        super().__init__(lambda word: -1 if word is None else self._numbers.setdefault(word, len(self._numbers)))
        self._numbers: dict[str, int] = {}

    @property
    def listed(self) -> list[str]:
        """The words, by number."""
        return [*self._numbers]


class Tracks:
    """Assigns numbers to tracks in the order of first occurrence; `keys` has the pid and the tid of each track."""

    columns = TRACK

    def __init__(self) -> None:
        self.keys: list[tuple[Key, Key]] = []
        self._numbers: dict[tuple[Key, Key], int] = {}  # a tid may be spelled in several ways
        self._words = Words()
        self._known = np.zeros(0, np.uint64)
        self._codes = np.zeros(0, np.int64)
        self._slots = np.zeros(1 << _SLOT_BITS, np.uint64)  # the hash of one of the tracks with these first bits
        self._slot_codes = np.full(1 << _SLOT_BITS, -1)
        self._of_parts: dict[int, npt.NDArray[Any]] = {}

    def of(self, part: Part) -> Ints:
        """Return the number of each event's track."""
        if part.index not in self._of_parts:
            pids, tids = (track_ids(part, name, self._words) for name in ("pid", "tid"))
            numbers = self._numbered(mixed(pids, tids, part.has("pid") + 2 * part.has("tid")), part)
            self._of_parts[part.index] = numbers.astype(np.min_scalar_type(len(self.keys)))
        return self._of_parts[part.index].astype(np.int64)

    def needed(self, indexes: Iterable[int]) -> tuple[str, ...]:
        """Return the columns that `of` reads of the parts at some indexes: none if it knows the numbers of all."""
        return () if self._of_parts.keys() >= {*indexes} else TRACK

    def numbers(self, parts: Parts, indexes: Sequence[int]) -> Iterator[tuple[slice, Ints]]:
        """Yield the rows of some parts and the number of each one's track; parts are read if `of` has not seen them."""
        for part in parts.read(TRACK, [index for index in indexes if index not in self._of_parts]):
            self.of(part)
        for index in indexes:
            yield parts.rows_of(index), self._of_parts[index].astype(np.int64)

    def forget(self, part: Part) -> None:
        """Forget the numbers of a part's events, so that memory does not grow with the parts that are asked for."""
        self._of_parts.pop(part.index, None)

    def where(self, part: Part, holds: Callable[[tuple[Key, Key]], bool]) -> Flags:
        """Return flags of the events on tracks that meet a condition."""
        tracks = self.of(part)
        return np.array([holds(key) for key in self.keys], np.bool_)[tracks]

    def _numbered(self, keys: npt.NDArray[np.uint64], part: Part) -> Ints:
        slots = (keys >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
        numbers: Ints = self._slot_codes.take(slots)
        rows = np.flatnonzero((self._slots.take(slots) != keys) | (numbers < 0))
        if len(rows):
            numbers[rows] = self._searched(keys[rows], part, rows)
        return numbers

    def _searched(self, keys: npt.NDArray[np.uint64], part: Part, rows: Ints) -> Ints:
        """Return the numbers of the tracks of some rows of a part by their hashes, which may be new."""
        at = np.minimum(np.searchsorted(self._known, keys), max(len(self._known) - 1, 0))
        unknown = np.flatnonzero(self._known[at] != keys) if len(self._known) else np.arange(len(keys))
        if len(unknown):
            fresh, firsts = np.unique(keys[unknown], return_index=True)
            tracks = tracks_at(part, rows[unknown[firsts]])
            for track in tracks:
                if self._numbers.setdefault(track, len(self.keys)) == len(self.keys):
                    self.keys.append(track)
            codes = np.concatenate([self._codes, [self._numbers[track] for track in tracks]])
            known = np.concatenate([self._known, fresh])
            order = np.argsort(known)
            self._known, self._codes = known[order], codes[order]
            slots = known >> np.uint64(64 - _SLOT_BITS)
            self._slots[slots], self._slot_codes[slots] = known, codes
            at = np.searchsorted(self._known, keys)
        return self._codes[at]


def track_ids(part: Part, name: str, words: Words) -> Ints:
    """Return the pids or the tids of events, and the numbers of those that are texts.

    Args:
        part: the events.
        name: ``pid`` or ``tid``.
        words: gives texts their numbers.
    """
    has = part.has(name)
    return part.ints(name) if has.all() else np.where(has, part.ints(name), words.of(part, f"{name}_text"))


def tracks_at(part: Part, rows: Ints) -> list[tuple[Key, Key]]:
    """Return the tracks of a part's events at some rows, counted from its first."""
    values = rows_at(part, TRACK, rows)
    return [(key_of(pid, pid_text), key_of(tid, tid_text)) for pid, pid_text, tid, tid_text in values]


def rows_at(part: Part, columns: Sequence[str], rows: Ints) -> Iterator[tuple[Any, ...]]:
    """Return the values of some columns of a part at some rows, counted from its first."""
    return zip(*(column.to_pylist() for column in table_at(part, columns, rows).columns), strict=True)


def table_at(part: Part, columns: Sequence[str], rows: Ints) -> pa.Table:
    """Return some columns of a part at some rows, counted from its first, without the part's words and memory."""
    few = part.table.select(columns).take(pa.array(rows))
    return pa.table({name: _plain(few[name]) for name in columns})


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary, whose values take long to list one by one."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

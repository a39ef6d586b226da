"""The parts of a trace's columns: each is read by itself, and what its statistics rule out is not read at all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from service.store.census import key_of
from service.store.columns import WORDS
from service.store.folder import unreadable
from service.trace.selection import ALWAYS, Interval
from service.trace.summary import Key

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Made = TypeVar("Made")

TRACK = ("pid", "pid_text", "tid", "tid_text")
"""The columns that tell an event's track."""

SLICE = frozenset({"X"}).__contains__
METADATA = frozenset({"M"}).__contains__
"""Conditions on an event's phase."""

UNTIMED = ALWAYS[0]
"""The time of what has none: before all else."""

_AT_ONCE = 8
"""Parts that are read at a time where all are."""
_MIXED = tuple(np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Part:
    """Some columns of the rows from `first` on, in order of time; what has no time is at the end of the last parts."""

    def __init__(self, index: int, first: int, table: pa.Table) -> None:
        self.index = index
        self.first = first
        self.table = table
        self.rows = slice(first, first + len(table))
        self._made: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.table)

    def ints(self, column: str, missing: int = 0) -> Ints:
        """The values of a column, one of them for all that is null."""
        return self._once((column, missing), lambda: self._ints(column, missing))

    def _ints(self, column: str, missing: int) -> Ints:
        values = self.table[column]
        if not values.null_count or values.num_chunks != 1:
            return _filled(values, missing).to_numpy()  # type: ignore[no-any-return] # pyarrow has no types
        (chunk,) = values.chunks  # whose memory is read as it is: pyarrow's own way takes four times as long
        numbers = np.frombuffer(chunk.buffers()[1], chunk.type.to_pandas_dtype())
        return np.where(self.has(column), numbers[chunk.offset : chunk.offset + len(chunk)], missing)

    def has(self, column: str) -> Flags:
        """Where a column is not null."""
        return self._once((column, None), lambda: _valid(self.table[column]))

    def coded(self, column: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """A column of words as numbers into a list of them; -1, the last of a list with one more, is null."""
        return self._once((column, "words"), lambda: _coded(self.table[column]))

    def which(self, column: str, holds: Callable[[str | None], Any]) -> Flags:
        """Where a word meets a condition, which is asked once for each word."""
        codes, words = self.coded(column)
        flags: Flags = np.array([bool(holds(word)) for word in (*words, None)])[codes]
        return flags

    @property
    def slices(self) -> Flags:
        """Which events are slices: these alone last."""
        return self._once("slices", lambda: self.which("ph", SLICE))

    @property
    def starts(self) -> Ints:
        """When each event begins, in ns; `UNTIMED` where it has no time."""
        return self.ints("ts_ns", UNTIMED)

    @property
    def ends(self) -> Ints:
        """When each event ends, in ns."""
        return self._once("ends", self._ends)

    def _ends(self) -> Ints:
        lasts = np.where(self.slices, np.maximum(self.ints("dur_ns"), 0), 0)
        return np.where(self.has("ts_ns"), self.starts + lasts, UNTIMED)

    def _once(self, name: Any, make: Callable[[], Made]) -> Made:
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made


def _coded(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    words = column.unify_dictionaries().combine_chunks()
    if isinstance(words, pa.ChunkedArray):  # of no chunk at all
        return np.zeros(0, np.int32), []
    return _filled(words.indices, -1).to_numpy(), words.dictionary.to_pylist()


def _filled(values: Any, missing: int) -> Any:
    """The values, one of them for all that is null; most columns have no null, and a copy would cost the most here."""
    return values.fill_null(missing) if values.null_count else values


def _valid(values: pa.ChunkedArray) -> Flags:
    flags: Flags = values.is_valid().to_numpy() if values.null_count else np.ones(len(values), np.bool_)
    return flags


@contextmanager
def _reading(events: Path) -> Iterator[None]:
    """Raise `ExportFailed` where the columns can't be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise unreadable(events, error) from error


class Parts:
    """The parts of ``events.parquet`` in a folder of columns.

    Raises:
        ExportFailed: the file can't be read, now or later.
    """

    def __init__(self, events: Path) -> None:
        self._events = events
        self.folder = events.parent
        with _reading(events):
            self._file = pq.ParquetFile(events, read_dictionary=WORDS)
        told = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow
        self._groups = [told.row_group(index) for index in range(told.num_row_groups)]
        self._firsts = np.cumsum([0, *(group.num_rows for group in self._groups)])
        self._places = {name: index for index, name in enumerate(told.schema.names)}
        self.rows: int = told.num_rows

    def __len__(self) -> int:
        return len(self._groups)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, columns: Sequence[str], indexes: Iterable[int] | None = None) -> Iterator[Part]:
        """Yield some parts, or all, with some columns; the next one is read meanwhile."""
        chosen = [*range(len(self))] if indexes is None else [*indexes]
        tables = self._ahead(columns, ([index] for index in chosen))
        for index, table in zip(chosen, tables, strict=True):
            yield Part(index, int(self._firsts[index]), table)

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all events, many at a time: so they are read in less time than by parts."""
        several = (range(first, min(first + _AT_ONCE, len(self))) for first in range(0, len(self), _AT_ONCE))
        return self._ahead(columns, several)

    def _ahead(self, columns: Sequence[str], reads: Iterable[Sequence[int]]) -> Iterator[pa.Table]:
        """Yield some columns of some parts at a time; the next ones are read meanwhile."""
        ahead: Future[pa.Table] | None = None
        with ThreadPoolExecutor(1, "parts") as thread:
            for indexes in reads:
                before, ahead = ahead, thread.submit(self._read, columns, [*indexes])
                if before:
                    yield before.result()
            if ahead:
                yield ahead.result()

    def _read(self, columns: Sequence[str], indexes: list[int]) -> pa.Table:
        """Some columns of some parts; what is null in all of them is not read."""
        told = [name for name in columns if not all(self._is_null(index, name) for index in indexes)]
        with _reading(self._events):
            table = self._file.read_row_groups(indexes, columns=told or [columns[0]])
        for name in set(columns).difference(table.column_names):
            table = table.append_column(name, pa.nulls(len(table), self.schema.field(name).type))
        return table.select(columns)

    def _is_null(self, index: int, column: str) -> bool:
        """Whether statistics tell that a column is null in a part."""
        told = self._groups[index].column(self._places[column]).statistics
        return told is not None and told.has_null_count and told.null_count == self.length(index)

    def holding(self, rows: Flags) -> list[int]:
        """The parts in which any of the rows is set."""
        return [i for i in range(len(self)) if rows[self._firsts[i] : self._firsts[i + 1]].any()]

    def span(self, index: int, column: str) -> Interval | None:
        """The smallest and the largest value of a column in a part; None where it has none."""
        told = self._groups[index].column(self._places[column]).statistics
        if told is None:
            return ALWAYS
        return (told.min, told.max) if told.has_min_max else (None if told.null_count == self.length(index) else ALWAYS)

    def length(self, index: int) -> int:
        """The number of rows of a part."""
        return int(self._groups[index].num_rows)

    def time(self, index: int) -> Interval:
        """From when the first event of a part begins to when, at the latest, its last one ends."""
        starts, lasts = self.span(index, "ts_ns"), self.span(index, "dur_ns")
        if starts is None:
            return UNTIMED, UNTIMED
        first = UNTIMED if self.has_untimed(index) else starts[0]
        return first, min(starts[1] + max(lasts[1] if lasts else 0, 0), ALWAYS[1])

    def has_untimed(self, index: int) -> bool:
        """Whether a part may hold events without a time."""
        told = self._groups[index].column(self._places["ts_ns"]).statistics
        return told is None or not told.has_null_count or bool(told.null_count)

    def with_neighbours(self, indexes: Iterable[int]) -> list[int]:
        """The parts, and those beside them that hold events of the same time."""
        found = set(indexes)
        for step in (1, -1):
            for index in sorted(found, reverse=step < 0):
                at = index
                while 0 <= at + step < len(self) and self._touch(*sorted((at, at + step))):
                    at += step
                    if at in found:
                        break
                    found.add(at)
        return sorted(found)

    def _touch(self, one: int, following: int) -> bool:
        before, behind = self.span(one, "ts_ns"), self.span(following, "ts_ns")
        return before is not None and behind is not None and before[1] >= behind[0]


def mixed(*columns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One number for the values of several columns: 64 bits, in which different values differ."""
    value = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        value = (value ^ column.astype(np.uint64)) * _MIXED[0]
        value ^= value >> np.uint64(30)
        value *= _MIXED[1]
        value ^= value >> np.uint64(27)
        value *= _MIXED[2]
        value ^= value >> np.uint64(31)
    return value


def packed(first: Ints, second: Ints) -> npt.NDArray[np.uint64]:
    """One number for two values: those of ordinary size in order, first by the first; the others mixed."""
    small = (first >= 0) & (first < 1 << 42) & (second >= 0) & (second < 1 << 20)
    if small.all():
        return (first << 20 | second).view(np.uint64)
    ordered = np.where(small, first << 20 | second, 0).view(np.uint64)
    return np.where(small, ordered, mixed(first, second) | np.uint64(1 << 63))


class Words:
    """Numbers words in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, part: Part, column: str) -> Ints:
        """A column of words as numbers that are the same in all parts; -1 is null."""
        codes, words = part.coded(column)
        table = np.array([*(self._numbers.setdefault(word, len(self._numbers)) for word in words), -1], np.int64)
        return table[codes]


class Tracks:
    """Numbers tracks in the order in which they are first seen; `keys` has the pid and the tid of each."""

    columns = TRACK

    def __init__(self) -> None:
        self.keys: list[tuple[Key, Key]] = []
        self._numbers: dict[tuple[Key, Key], int] = {}  # several ways to write a tid are one
        self._words = Words()
        self._known = np.zeros(0, np.uint64)
        self._codes = np.zeros(0, np.int64)
        self._of_parts: dict[int, npt.NDArray[Any]] = {}

    def of(self, part: Part) -> Ints:
        """The numbers of the tracks of all events."""
        if part.index not in self._of_parts:
            ids = [
                np.where(part.has(name), part.ints(name), self._words.of(part, f"{name}_text"))
                for name in ("pid", "tid")
            ]
            numbers = self._numbered(mixed(*ids, part.has("pid") + 2 * part.has("tid")), part)
            self._of_parts[part.index] = numbers.astype(np.min_scalar_type(len(self.keys)))
        return self._of_parts[part.index].astype(np.int64)

    def where(self, part: Part, holds: Callable[[tuple[Key, Key]], bool]) -> Flags:
        """Which events lie on a track that meets a condition."""
        tracks = self.of(part)
        return np.array([holds(key) for key in self.keys], np.bool_)[tracks]

    def _numbered(self, keys: npt.NDArray[np.uint64], part: Part) -> Ints:
        at = np.minimum(np.searchsorted(self._known, keys), max(len(self._known) - 1, 0))
        unknown = np.flatnonzero(self._known[at] != keys) if len(self._known) else np.arange(len(keys))
        if len(unknown):
            fresh, rows = np.unique(keys[unknown], return_index=True)
            told = [_track(part, int(unknown[row])) for row in rows]
            self.keys += [track for track in dict.fromkeys(told) if track not in self._numbers]
            self._numbers = {track: number for number, track in enumerate(self.keys)}
            codes = np.concatenate([self._codes, [self._numbers[track] for track in told]])
            known = np.concatenate([self._known, fresh])
            order = np.argsort(known)
            self._known, self._codes = known[order], codes[order]
            at = np.searchsorted(self._known, keys)
        return self._codes[at]


def _track(part: Part, row: int) -> tuple[Key, Key]:
    pid, pid_text, tid, tid_text = (part.table[column][row].as_py() for column in TRACK)
    return key_of(pid, pid_text), key_of(tid, tid_text)

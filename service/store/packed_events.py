"""Events in few bytes, which sorted runs keep until they are merged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.buffers import characters_of, fixed, numbers_of, starts_of
from service.streaming.integers import ints, valid_rows
from service.streaming.scan.compiled import compiled
from service.streaming.scan.machine import PADDING, copy_lanes
from service.streaming.schema import SCHEMA, UNTIMED_LAST
from service.streaming.words import known_words

TEXT_MAX = np.iinfo(np.int32).max
"""Largest number of bytes of the texts in a column of a table."""

_HAS = "has"
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_FLAG, _TEXT = pa.bool_(), pa.string()
_TEXTS = [field.name for field in SCHEMA if field.type == _TEXT]
_TS = SCHEMA.get_field_index("ts_ns")
_VALUES = (np.int64, np.int32, np.int8)
_TYPES = (np.uint8, np.uint16, np.uint32, np.uint64)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PackedEvents:
    """Events in order of time.

    Attributes:
        batch: columns of `SCHEMA` without nulls, and ``has``. That column has a bit for each column in which an event
            has a value, and for each flag that is set. Integers are distances from the least one of their column, in
            the narrowest type. Flags, and columns without any value, are left out.
        least: the least integer of each column.
        times: the time of each event in ns, or `UNTIMED_LAST`.
    """

    batch: pa.RecordBatch
    least: Mapping[str, int]
    times: Ints

    @classmethod
    def sorted(cls, events: pa.Table) -> "PackedEvents":
        """Pack events, stably sorted by time. The texts of a column take at most `TEXT_MAX` bytes."""
        times = ints(events["ts_ns"], UNTIMED_LAST)
        order = np.argsort(times, kind="stable")
        rows = _inverse(order)
        has = np.zeros(len(events), np.uint32)
        columns: dict[str, pa.Array] = {}
        least: dict[str, int] = {}
        for bit, (name, column) in enumerate(zip(SCHEMA.names, events.unify_dictionaries().columns, strict=True)):
            if column.null_count == len(column):
                continue
            if column.type == _FLAG:
                has |= column.to_numpy().astype(np.uint32) << bit
                continue
            valid = valid_rows(column)
            has |= valid.astype(np.uint32) << bit if column.null_count else np.uint32(1 << bit)
            if column.type == _TEXT:
                columns[name] = _texts(_placed(column.chunks, rows), len(rows))
                continue
            if pa.types.is_dictionary(column.type):
                dictionary = column.chunk(0).dictionary
                codes = _packed([chunk.indices for chunk in column.chunks], valid, rows, 0, len(dictionary) - 1)
                columns[name] = known_words(codes, dictionary)
            else:
                least[name], most = _bounds_of(column.chunks, valid)
                columns[name] = _packed(column.chunks, valid, rows, least[name], most)
        return cls(pa.RecordBatch.from_pydict({**columns, _HAS: has[order]}), least, times[order])

    @classmethod
    def read(cls, batch: pa.RecordBatch, least: Mapping[str, int]) -> "PackedEvents":
        """Return a part of `PackedEvents.batch` that was written to a file and read again."""
        times = np.zeros(len(batch), np.int64)
        if "ts_ns" in least:
            _spread(numbers_of(batch["ts_ns"]), least["ts_ns"], np.arange(len(batch)), times)
        times[batch[_HAS].to_numpy() >> _TS & 1 == 0] = UNTIMED_LAST
        return cls(batch, least, times)

    def __len__(self) -> int:
        return len(self.batch)

    def part(self, first: int, last: int) -> "PackedEvents":
        """Return the events from index `first` to before `last`."""
        return PackedEvents(self.batch.slice(first, last - first), self.least, self.times[first:last])

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of `batch` by name."""
        return dict(zip(self.batch.schema.names, self.batch.columns, strict=True))


Placed = tuple[PackedEvents, Ints]
"""Events, and the rows of a table at which they belong, in ascending order."""


def joined(pieces: Sequence[PackedEvents]) -> Iterator[pa.Table]:
    """Yield the events of all pieces in order of time, as tables of `SCHEMA` whose columns have one chunk each.

    Events of the same time are in the order of the pieces. There is one table, unless its texts would be too long.
    """
    times = np.concatenate([piece.times for piece in pieces])
    yield from _tables(_placed(pieces, _inverse(np.argsort(times, kind="stable"))))


def _tables(pieces: Sequence[Placed]) -> Iterator[pa.Table]:
    joined_pieces = _Joined(pieces)
    if joined_pieces.count == 1 or joined_pieces.text_bytes <= TEXT_MAX:
        yield joined_pieces.table()
        return
    middle = joined_pieces.count // 2
    ends = [int(np.searchsorted(rows, middle)) for _, rows in pieces]
    yield from _tables([(events.part(0, end), rows[:end]) for (events, rows), end in zip(pieces, ends, strict=True)])
    yield from _tables(
        [(events.part(end, len(events)), rows[end:] - middle) for (events, rows), end in zip(pieces, ends, strict=True)]
    )


class _Joined:
    """Pieces that become a table of `count` events."""

    def __init__(self, pieces: Sequence[Placed]) -> None:
        self._pieces = [(events.columns(), events.least, rows) for events, rows in pieces]
        self.count = sum(len(rows) for _, rows in pieces)

    @property
    def text_bytes(self) -> int:
        """The number of bytes of the texts in the column that has most of them."""
        return max(
            sum(int(np.ptp(starts_of(texts)[[0, -1]])) for texts, _, _ in self._columns(name)) for name in _TEXTS
        )

    def table(self) -> pa.Table:
        """Return the table."""
        has = np.empty(self.count, np.uint32)
        for packed, _, rows in self._pieces:
            has[rows] = numbers_of(packed[_HAS])
        some, every = np.bitwise_or.reduce(has), np.bitwise_and.reduce(has)
        columns = []
        for bit, field in enumerate(SCHEMA):
            if field.type == _FLAG:
                columns.append(pa.array(_flags(has, bit)))
            elif not some >> bit & 1:
                columns.append(pa.nulls(self.count, field.type))
            else:
                valid = None if every >> bit & 1 else pa.py_buffer(np.packbits(_flags(has, bit), bitorder="little"))
                columns.append(self._column(field, valid))
        return pa.table(columns, SCHEMA)

    def _columns(self, name: str) -> Iterator[tuple[pa.Array, int, Ints]]:
        """Yield the packed column of each piece that has it, with its least integer and its rows."""
        for packed, least, rows in self._pieces:
            if name in packed:
                yield packed[name], least.get(name, 0), rows

    def _column(self, field: pa.Field, valid: pa.Buffer | None) -> pa.Array:
        if field.type == _TEXT:
            return _texts([(texts, rows) for texts, _, rows in self._columns(field.name)], self.count, valid)
        if pa.types.is_dictionary(field.type):
            return self._words(field.name, valid)
        pieces = [*self._columns(field.name)]
        numbers = self._new(len(pieces), np.int64)
        for distances, least, rows in pieces:
            _spread(numbers_of(distances), least, rows, numbers)
        return _array(field.type, numbers, valid)

    def _new(self, pieces: int, type_: type[np.integer[Any]]) -> npt.NDArray[Any]:
        """Return an array to which pieces write their rows, with 0 where they may leave some out."""
        return np.empty(self.count, type_) if pieces == len(self._pieces) else np.zeros(self.count, type_)

    def _words(self, name: str, valid: pa.Buffer | None) -> pa.DictionaryArray:
        """Return a column of words."""
        pieces = [*self._columns(name)]
        dictionaries, first, firsts = [pieces[0][0].dictionary], 0, []
        for words, _, _ in pieces:
            if not words.dictionary.equals(dictionaries[-1]):
                first += len(dictionaries[-1])
                dictionaries.append(words.dictionary)
            firsts.append(first)
        distinct = pa.concat_arrays(dictionaries).dictionary_encode()
        numbers, codes = numbers_of(distinct.indices), self._new(len(pieces), np.int32)
        for (words, _, rows), first in zip(pieces, firsts, strict=True):
            _spread_codes(numbers_of(words.indices), numbers[first:], rows, codes)
        return known_words(_array(pa.int32(), codes, valid), distinct.dictionary)


def prepare_packing() -> None:
    """Load or compile the code for integers of all sizes, of which a trace may have but some."""
    row, numbers, valid = np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.bool_)
    codes = np.zeros(1, np.int32)
    for values in (pa.array(row.astype(type_)) for type_ in _VALUES):
        least, _ = _bounds_of([values], valid)
        for type_ in (type_ for type_ in _TYPES if np.iinfo(type_).bits <= values.type.bit_width):
            distances = numbers_of(_packed([values], valid, row, least, int(np.iinfo(type_).max)))
            _spread(distances, 0, row, numbers)
            _spread_codes(distances, fixed(codes), row, codes)


def _flags(has: npt.NDArray[np.uint32], bit: int) -> Flags:
    """Return whether a bit is set in each number."""
    flags: Flags = has & np.uint32(1 << bit) > 0
    return flags


def _inverse(order: Ints) -> Ints:
    """Return the place of each index in an order."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def _placed(pieces: Sequence[Any], rows: Ints) -> list[tuple[Any, Ints]]:
    """Return each piece with its rows, which are given for all pieces one after the other."""
    ends = np.cumsum([len(piece) for piece in pieces])
    return [*zip(pieces, np.split(rows, ends[:-1]), strict=True)]


def _array(type_: pa.DataType, numbers: npt.NDArray[np.integer[Any]], valid: pa.Buffer | None) -> pa.Array:
    values = numbers.astype(type_.to_pandas_dtype(), copy=False)
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(values)])


def _texts(pieces: Iterable[tuple[pa.StringArray, Ints]], count: int, valid: pa.Buffer | None = None) -> pa.StringArray:
    """Return a column of `count` texts from pieces with their rows; rows of no piece are empty."""
    found = [*pieces]
    starts = np.zeros(count + 1, np.int32)
    for texts, rows in found:
        starts[rows + 1] = np.diff(starts_of(texts))
    np.cumsum(starts, out=starts)
    out = np.empty(starts[-1], np.uint8)
    for texts, rows in found:
        _spread_texts(starts_of(texts), characters_of(texts), rows, starts, out)
    return pa.StringArray.from_buffers(count, pa.py_buffer(starts), pa.py_buffer(out), valid)


def _packed(chunks: Sequence[pa.Array], valid: Flags, rows: Ints, least: int, most: int) -> pa.Array:
    """Return the values of a column at other rows, as distances from the least one; 0 where there is no value."""
    distances, first = np.zeros(len(rows), np.min_scalar_type(most - least)), 0
    for chunk in chunks:
        last = first + len(chunk)
        _pack(numbers_of(chunk), valid[first:last], rows[first:last], least, distances)
        first = last
    return pa.array(distances)


def _bounds_of(chunks: Sequence[pa.Array], valid: Flags) -> tuple[int, int]:
    """Return the least and the largest of the valid values of a column, of which there is at least one."""
    least, most, first = _INT_MAX, _INT_MIN, 0
    for chunk in chunks:
        last = first + len(chunk)
        least, most = _bounds(numbers_of(chunk), valid[first:last], least, most)
        first = last
    return least, most


@compiled
def _bounds(values: Any, valid: Any, least: int, most: int) -> tuple[int, int]:
    """Return the least and the largest of the valid values and of two others."""
    for index in range(len(values)):
        if valid[index]:
            least, most = min(least, values[index]), max(most, values[index])
    return least, most


@compiled
def _pack(values: Any, valid: Any, rows: Ints, least: int, distances: Any) -> None:
    """Write the distances of valid values from the least one to some rows of a column."""
    for index in range(len(rows)):
        if valid[index]:
            distances[rows[index]] = values[index] - least


@compiled
def _spread(distances: Any, least: int, rows: Ints, numbers: Ints) -> None:
    """Write integers to some rows of a column."""
    for index in range(len(rows)):
        numbers[rows[index]] = np.int64(distances[index]) + least


@compiled
def _spread_codes(words: Any, numbers: Any, rows: Ints, codes: Any) -> None:
    """Write the numbers of words to some rows of a column."""
    for index in range(len(rows)):
        codes[rows[index]] = numbers[words[index]]


@compiled
def _spread_texts(begins: Any, characters: Any, rows: Ints, starts: Any, out: Any) -> None:
    """Copy texts to some rows of a column.

    Args:
        begins: where each text begins in `characters`, and where the last one ends.
        characters: all texts.
        rows: the row of each text.
        starts: where the text of each row begins in `out`.
        out: output: the texts of the column.
    """
    for index in range(len(rows)):
        at, end, to = int(begins[index]), int(begins[index + 1]), int(starts[rows[index]])
        if end - at < PADDING:
            for offset in range(end - at):
                out[to + offset] = characters[at + offset]
            continue
        behind = to + end - at
        while end - at > PADDING:
            copy_lanes(characters, at, out, to)
            at, to = at + PADDING, to + PADDING
        copy_lanes(characters, end - PADDING, out, behind - PADDING)

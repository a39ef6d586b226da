"""Tally of a trace's events by phase, category, track, device and stream, made while they are written."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.store.parts import Part, Words
from service.streaming.scan.compiled import compiled
from service.trace.summary import RECORD_WINDOW_END

_KEYS = ("ph", "cat", "pid", "pid_text", "tid", "tid_text", "device", "stream")
_WORDS = frozenset({"ph", "cat", "pid_text", "tid_text"})
_HAS = len(_KEYS)  # bits of the keys that are not null, and of those of a mark of the profiler
_IS_MARK = len(_KEYS)
_EVENTS, _START, _END, _TIMED, _BEFORE_ZERO, _AT_ZERO, _LASTING, _NEGATIVE = range(_HAS + 1, _HAS + 9)
_WIDTH = _NEGATIVE + 1
_FREE = -1
_ROWS_AT_ONCE = 10_000  # rows that are listed at a time
_TIME_MAX = (1 << 63) - 1
_FACTOR = 0x2545F4914F6CDD1D

Ints = npt.NDArray[np.int64]


class TallyRow(NamedTuple):
    """The keys of some events, and what is counted of them; see `Tally.table`."""

    ph: str | None
    cat: str | None
    pid: int | None
    pid_text: str | None
    tid: int | None
    tid_text: str | None
    device: int | None
    stream: int | None
    is_mark: bool
    events: int
    start_ns: int | None
    end_ns: int | None
    timed: int
    before_zero: int
    at_zero: int
    lasting: int
    negative: int


@compiled
def _slot(keys: Ints, event: int, rows: Ints, slots: Ints) -> int:
    """Return the slot of the row that has an event's keys, or the free slot where its number belongs."""
    value = 0
    for key in range(keys.shape[0]):
        value = (value ^ keys[key, event]) * _FACTOR
        value ^= (value >> 29) & 0x7FFFFFFFF
    slot = value & (slots.size - 1)
    while slots[slot] != _FREE:
        row, key = slots[slot], 0
        while key < keys.shape[0] and rows[row, key] == keys[key, event]:
            key += 1
        if key == keys.shape[0]:
            break
        slot = (slot + 1) & (slots.size - 1)
    return slot


@compiled
def _add(keys: Ints, times: Ints, has: Any, rows: Ints, slots: Ints, known: int, first: int) -> tuple[int, int]:
    """Add events to the rows of their keys; return the number of rows, and the index of the first event without room.

    Args:
        keys: a row for each key, and one for the bits of those that are not null.
        times: the starts and the durations in ns.
        has: whether there is a start, and a duration.
        rows: the table.
        slots: hash table of the numbers of rows, larger than the table.
        known: number of rows so far.
        first: index of the event to begin with.
    """
    for event in range(first, keys.shape[1]):
        slot = _slot(keys, event, rows, slots)
        row = slots[slot]
        if row == _FREE:
            if known == len(rows):
                return known, event
            row = slots[slot] = known
            known += 1
            for key in range(keys.shape[0]):
                rows[row, key] = keys[key, event]
        rows[row, _EVENTS] += 1
        start, last = times[0, event], times[1, event]
        if has[0, event]:
            end = start
            if has[1, event] and last > 0 and (start <= 0 or last <= _TIME_MAX - start):
                end = start + last
            is_first = rows[row, _TIMED] == 0
            rows[row, _START] = start if is_first else min(rows[row, _START], start)
            rows[row, _END] = end if is_first else max(rows[row, _END], end)
            rows[row, _TIMED] += 1
            rows[row, _BEFORE_ZERO] += start < 0
            rows[row, _AT_ZERO] += start == 0
        rows[row, _LASTING] += has[1, event]
        rows[row, _NEGATIVE] += has[1, event] and last < 0
    return known, keys.shape[1]


@compiled
def _place(keys: Ints, rows: Ints, slots: Ints) -> None:
    """Enter all rows into an empty hash table; `keys` has their keys."""
    for row in range(keys.shape[1]):
        slots[_slot(keys, row, rows, slots)] = row


def _are_marks(part: Part) -> npt.NDArray[np.bool_]:
    """Flag the instants `RECORD_WINDOW_END`."""
    (names,) = part.table["name"].chunks
    code = names.dictionary.index(RECORD_WINDOW_END).as_py()  # a list of all words would take long
    if code < 0:
        return np.zeros(len(part), np.bool_)
    flags: npt.NDArray[np.bool_] = (names.indices.fill_null(-1).to_numpy() == code) & ~part.slices
    return flags


class Tally:
    """The tally; its memory grows with the number of distinct keys."""

    def __init__(self) -> None:
        self._rows = np.zeros((1, _WIDTH), np.int64)
        self._slots = np.full(2, _FREE)
        self._known = 0
        self._words = {name: Words() for name in _KEYS if name in _WORDS}

    def add(self, part: Part) -> None:
        """Add the next events."""
        has = [part.has(name) for name in _KEYS]
        bits = _are_marks(part).astype(np.uint16) << _IS_MARK
        keys = np.empty((_HAS + 1, len(part)), np.int64)
        for place, name in enumerate(_KEYS):
            bits |= has[place].astype(np.uint16) << place
            if not has[place].any():
                keys[place] = -1 if name in _WORDS else 0  # as null is in other parts
            else:
                keys[place] = self._words[name].of(part, name) if name in _WORDS else part.ints(name)
        keys[_HAS] = bits
        times = np.array([part.ints(name) for name in ("ts_ns", "dur_ns")])
        has_times = np.array([part.has(name) for name in ("ts_ns", "dur_ns")])
        done = 0
        while done < len(part):
            self._known, done = _add(keys, times, has_times, self._rows, self._slots, self._known, done)
            if done < len(part):
                self._grow()

    def _grow(self) -> None:
        """Double the table."""
        rows = np.zeros((2 * len(self._rows), _WIDTH), np.int64)
        rows[: self._known] = self._rows[: self._known]
        self._rows, self._slots = rows, np.full(2 * len(rows), _FREE)
        _place(np.ascontiguousarray(rows[: self._known, : _HAS + 1].T), rows, self._slots)

    def rows(self) -> Iterator[TallyRow]:
        """Yield the rows of `table`."""
        for batch in self.table().to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield from map(TallyRow._make, zip(*(batch[name].to_pylist() for name in TallyRow._fields), strict=True))

    def table(self) -> pa.Table:
        """Return the tally.

        Returns:
            The keys, as the events have them; ``events``, their number; ``start_ns`` and ``end_ns``, their first start
            and last end; ``is_mark``, whether they are Kineto's `RECORD_WINDOW_END`; and the numbers ``timed`` with a
            start, ``before_zero`` and ``at_zero`` with one there, ``lasting`` with a duration, and ``negative`` with
            one below zero.
        """
        rows = self._rows[: self._known]
        columns: dict[str, pa.Array] = {}
        for place, name in enumerate(_KEYS):
            lacking = rows[:, _HAS] >> place & 1 == 0
            if name in _WORDS:
                words = pa.array(self._words[name].listed, pa.string())
                columns[name] = words.take(pa.array(rows[:, place], mask=lacking))
            else:
                columns[name] = pa.array(rows[:, place], mask=lacking)
        untimed = rows[:, _TIMED] == 0
        columns |= {
            "is_mark": pa.array(rows[:, _HAS] >> _IS_MARK & 1 == 1),
            "events": pa.array(rows[:, _EVENTS]),
            "start_ns": pa.array(rows[:, _START], mask=untimed),
            "end_ns": pa.array(rows[:, _END], mask=untimed),
            "timed": pa.array(rows[:, _TIMED]),
            "before_zero": pa.array(rows[:, _BEFORE_ZERO]),
            "at_zero": pa.array(rows[:, _AT_ZERO]),
            "lasting": pa.array(rows[:, _LASTING]),
            "negative": pa.array(rows[:, _NEGATIVE]),
        }
        return pa.table(columns)

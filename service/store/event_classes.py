"""Classes of a trace's events: events of one class have the same phase, category, track, device and stream."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from service.store.parts import TRACK, Flags, Part, Words
from service.streaming.scan.compiled import compiled, inlined
from service.trace.summary import RECORD_WINDOW_END, Key, key_of

KEYS = ("ph", "cat", *TRACK, "device", "stream")
"""The columns that events of one class have in common."""
COLUMNS = (*KEYS, "name")
"""The columns from which classes are found."""

_WORDS = ("ph", "cat", "pid_text", "tid_text")
_INTS = ("pid", "tid", "device", "stream")
_PLACES = {name: place for place, name in enumerate((*_WORDS, *_INTS))}
"""Places of the keys in a row."""
_HAS = len(_PLACES)  # place of the bits of the integers that are not null, and of the bit of the profiler's mark
_IS_MARK = len(_INTS)
_WIDTH = _HAS + 1
_FREE = -1
_LISTED_AT_ONCE = 10_000

_RANDOM = np.random.default_rng(0).integers(1 << 62, size=_WIDTH) | 1  # factors with which sums of keys differ

Ints = npt.NDArray[np.int64]


class EventClass(NamedTuple):
    """A class of events, by the fields that all of them share.

    Attributes:
        is_mark: whether they are Kineto's instants `RECORD_WINDOW_END`.
    """

    ph: str | None
    cat: str | None
    pid: int | None
    pid_text: str | None
    tid: int | None
    tid_text: str | None
    device: int | None
    stream: int | None
    is_mark: bool

    @property
    def track(self) -> tuple[Key, Key]:
        """The pid and the tid, which may be spelled in several ways."""
        return key_of(self.pid, self.pid_text), key_of(self.tid, self.tid_text)


@inlined
def _slot(key: Ints, rows: Ints, slots: Ints) -> int:
    """Return the slot of the row that has a key, or the free slot where its number belongs."""
    value = 0
    for place in range(_WIDTH):
        value += key[place] * _RANDOM[place]
    slot = (value ^ value >> 31) & (slots.size - 1)
    while slots[slot] != _FREE:
        row, place = slots[slot], 0
        while place < _WIDTH and rows[row, place] == key[place]:
            place += 1
        if place == _WIDTH:
            break
        slot = (slot + 1) & (slots.size - 1)
    return slot


@compiled
def _number(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    codes: Any, tables: Any, numbers: Any, has: Any, marks: Flags, rows: Ints, slots: Ints, classes: Ints, known: int,
    first: int,
) -> tuple[int, int]:  # fmt: skip
    """Number events by their keys; return the number of rows, and the index of the first event without room.

    Args:
        codes: the codes of the events' words, for each of `_WORDS`.
        tables: the number of each code.
        numbers: the events' integers, for each of `_INTS`.
        has: whether there is an integer.
        marks: whether the event is the profiler's mark.
        rows: the distinct keys so far; the row behind them takes the key of an event.
        slots: hash table of the numbers of rows, larger than the table of rows.
        classes: output: the row of each event.
        known: number of rows so far.
        first: index of the event to begin with.
    """
    for event in range(first, len(classes)):
        key = rows[known]
        bits = marks[event] << _IS_MARK
        for column in range(len(codes)):
            key[column] = tables[column][codes[column][event]]
        for column in range(len(numbers)):
            key[len(codes) + column] = numbers[column][event] if has[column][event] else 0
            bits |= has[column][event] << column
        key[_HAS] = bits
        slot = _slot(key, rows, slots)
        if slots[slot] == _FREE:
            if known == len(rows) - 1:
                return known, event
            slots[slot] = known
            known += 1
        classes[event] = slots[slot]
    return known, len(classes)


@compiled
def _place(rows: Ints, known: int, slots: Ints) -> None:
    """Enter the known rows into an empty hash table."""
    for row in range(known):
        slots[_slot(rows[row], rows, slots)] = row


class EventClasses:
    """The classes of a trace's events, numbered in the order of their first event.

    Its memory grows with the number of classes.

    Attributes:
        tracks: the number of each class's track.
        track_keys: the pid and the tid of each track.
    """

    def __init__(self) -> None:
        self._rows = np.zeros((2, _WIDTH), np.int64)
        self._slots = np.full(4, _FREE)
        self._known = 0
        self._words = {name: Words() for name in _WORDS}
        self._latest: tuple[ReferenceType[Part], Ints] | None = None  # so that it does not keep the part's memory
        self._track_numbers: dict[tuple[Key, Key], int] = {}
        self.track_keys: list[tuple[Key, Key]] = []
        self.tracks = ClassValues(self, self._track_of)

    def __len__(self) -> int:
        return self._known

    def of(self, part: Part) -> Ints:
        """Return the number of the class of each event; the part has `COLUMNS`."""
        if self._latest is None or self._latest[0]() is not part:
            self._latest = ref(part), self._numbered(part)
        return self._latest[1]

    def _numbered(self, part: Part) -> Ints:
        codes = tuple(part.encoded(name)[0] for name in _WORDS)
        tables = tuple(words.table(part, name) for name, words in self._words.items())
        numbers, has = tuple(part.numbers(name) for name in _INTS), tuple(part.has(name) for name in _INTS)
        marks, classes = _are_marks(part), np.empty(len(part), np.int64)
        done = 0
        while done < len(part):
            self._known, done = _number(
                codes, tables, numbers, has, marks, self._rows, self._slots, classes, self._known, done
            )
            if done < len(part):
                self._grow()
        return classes

    def _grow(self) -> None:
        """Double the table."""
        rows = np.zeros((2 * len(self._rows), _WIDTH), np.int64)
        rows[: self._known] = self._rows[: self._known]
        self._rows, self._slots = rows, np.full(2 * len(rows), _FREE)
        _place(rows, self._known, self._slots)

    def listed(self, first: int = 0) -> Iterator[EventClass]:
        """Yield the classes from number `first` on."""
        words = {name: numbers.listed for name, numbers in self._words.items()}
        for start in range(first, self._known, _LISTED_AT_ONCE):
            rows = self._rows[start : min(start + _LISTED_AT_ONCE, self._known)]
            columns = [_words(rows, name, words[name]) if name in words else _ints(rows, name) for name in KEYS]
            are_marks = (rows[:, _HAS] >> _IS_MARK & 1 == 1).tolist()
            yield from map(EventClass._make, zip(*columns, are_marks, strict=True))

    def _track_of(self, class_: EventClass) -> int:
        number = self._track_numbers.setdefault(class_.track, len(self.track_keys))
        if number == len(self.track_keys):
            self.track_keys.append(class_.track)
        return number


class ClassValues:
    """An integer for each class of events.

    Args:
        classes: the classes.
        value_of: returns the integer of a class; called once for each, in their order.
    """

    def __init__(self, classes: EventClasses, value_of: Callable[[EventClass], int]) -> None:
        self._classes = classes
        self._value_of = value_of
        self._values = np.empty(0, np.int64)
        self._known = 0

    def of(self, numbers: Ints) -> Ints:
        """Return the integers of the classes with some numbers."""
        return self.values().take(numbers)

    def values(self) -> Ints:
        """Return the integers of all classes."""
        if self._known < len(self._classes):
            if len(self._values) < len(self._classes):
                grown = np.empty(2 * len(self._classes), np.int64)
                grown[: self._known] = self._values[: self._known]
                self._values = grown
            for number, class_ in enumerate(self._classes.listed(self._known), self._known):
                self._values[number] = self._value_of(class_)
            self._known = len(self._classes)
        return self._values[: self._known]


def _words(rows: Ints, name: str, words: Sequence[str]) -> list[str | None]:
    """Return the words of some rows, and None for null."""
    return [words[number] if number >= 0 else None for number in rows[:, _PLACES[name]].tolist()]


def _ints(rows: Ints, name: str) -> list[int | None]:
    """Return the integers of some rows, and None for null."""
    values, has = rows[:, _PLACES[name]].tolist(), (rows[:, _HAS] >> _INTS.index(name) & 1).tolist()
    return [value if has_value else None for value, has_value in zip(values, has, strict=True)]


def _are_marks(part: Part) -> Flags:
    """Flag the instants `RECORD_WINDOW_END`."""
    codes, names = part.encoded("name")
    mark = names.index(RECORD_WINDOW_END).as_py()  # a list of all words would take long
    if mark < 0:
        return np.zeros(len(part), np.bool_)
    flags: Flags = (codes == mark) & ~part.slices
    return flags

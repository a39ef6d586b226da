"""Classes of a trace's events: events of one class have the same phase, category, track, device and stream."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from service.store.parts import TRACK, Part, Words
from service.streaming.scan.compiled import compiled
from service.trace.summary import RECORD_WINDOW_END, Key, key_of

KEYS = ("ph", "cat", *TRACK, "device", "stream")
"""The columns that events of one class have in common."""
COLUMNS = (*KEYS, "name")
"""The columns from which classes are found."""

_WORDS = frozenset({"ph", "cat", "pid_text", "tid_text"})
_HAS = len(KEYS)  # place of the bits of the keys that are not null, and of the bit of the profiler's mark
_IS_MARK = len(KEYS)
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


@compiled
def _slot(keys: Ints, event: int, rows: Ints, slots: Ints) -> int:
    """Return the slot of the row that has an event's keys, or the free slot where its number belongs."""
    value = 0
    for key in range(keys.shape[0]):
        value += keys[key, event] * _RANDOM[key]
    slot = (value ^ value >> 31) & (slots.size - 1)
    while slots[slot] != _FREE:
        row, key = slots[slot], 0
        while key < keys.shape[0] and rows[row, key] == keys[key, event]:
            key += 1
        if key == keys.shape[0]:
            break
        slot = (slot + 1) & (slots.size - 1)
    return slot


@compiled
def _number(keys: Ints, rows: Ints, slots: Ints, numbers: Ints, known: int, first: int) -> tuple[int, int]:
    """Number events by their keys; return the number of rows, and the index of the first event without room.

    Args:
        keys: a row for each key, and one for the bits of those that are not null.
        rows: the distinct keys so far.
        slots: hash table of the numbers of rows, larger than the table of rows.
        numbers: output: the row of each event.
        known: number of rows so far.
        first: index of the event to begin with.
    """
    for event in range(first, keys.shape[1]):
        slot = _slot(keys, event, rows, slots)
        if slots[slot] == _FREE:
            if known == len(rows):
                return known, event
            for key in range(keys.shape[0]):
                rows[known, key] = keys[key, event]
            slots[slot] = known
            known += 1
        numbers[event] = slots[slot]
    return known, keys.shape[1]


@compiled
def _place(keys: Ints, rows: Ints, slots: Ints) -> None:
    """Enter all rows into an empty hash table; `keys` has their keys."""
    for row in range(keys.shape[1]):
        slots[_slot(keys, row, rows, slots)] = row


class EventClasses:
    """The classes of a trace's events, numbered in the order of their first event.

    Its memory grows with the number of classes.

    Attributes:
        tracks: the number of each class's track.
        track_keys: the pid and the tid of each track.
    """

    def __init__(self) -> None:
        self._rows = np.zeros((1, _WIDTH), np.int64)
        self._slots = np.full(2, _FREE)
        self._known = 0
        self._keys = np.empty(0, np.int64)  # reused: touching new memory takes longer than filling it
        self._words = {name: Words() for name in KEYS if name in _WORDS}
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
        bits = _are_marks(part).astype(np.uint16) << _IS_MARK
        if self._keys.size < _WIDTH * len(part):
            self._keys = np.empty(_WIDTH * len(part), np.int64)
        keys = self._keys[: _WIDTH * len(part)].reshape(_WIDTH, len(part))
        for place, name in enumerate(KEYS):
            has = part.has(name)
            bits |= has.astype(np.uint16) << place
            if not has.any():
                keys[place] = -1 if name in _WORDS else 0  # as null is in other parts
            else:
                keys[place] = self._words[name].of(part, name) if name in _WORDS else part.ints(name)
        keys[_HAS] = bits
        numbers = np.empty(len(part), np.int64)
        done = 0
        while done < len(part):
            self._known, done = _number(keys, self._rows, self._slots, numbers, self._known, done)
            if done < len(part):
                self._grow()
        return numbers

    def _grow(self) -> None:
        """Double the table."""
        rows = np.zeros((2 * len(self._rows), _WIDTH), np.int64)
        rows[: self._known] = self._rows[: self._known]
        self._rows, self._slots = rows, np.full(2 * len(rows), _FREE)
        _place(np.ascontiguousarray(rows[: self._known].T), rows, self._slots)

    def listed(self, first: int = 0) -> Iterator[EventClass]:
        """Yield the classes from number `first` on."""
        words = {name: numbers.listed for name, numbers in self._words.items()}
        for start in range(first, self._known, _LISTED_AT_ONCE):
            rows = self._rows[start : min(start + _LISTED_AT_ONCE, self._known)]
            columns = [_column(rows, place, words.get(name)) for place, name in enumerate(KEYS)]
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
        if self._known < len(self._classes):
            if len(self._values) < len(self._classes):
                grown = np.empty(2 * len(self._classes), np.int64)
                grown[: self._known] = self._values[: self._known]
                self._values = grown
            for number, class_ in enumerate(self._classes.listed(self._known), self._known):
                self._values[number] = self._value_of(class_)
            self._known = len(self._classes)
        return self._values.take(numbers)


def _column(rows: Ints, place: int, words: Sequence[str] | None) -> list[Any]:
    """Return a key of some rows: its numbers or their words, and None for null."""
    values, has = rows[:, place].tolist(), (rows[:, _HAS] >> place & 1).tolist()
    if words is not None:
        return [words[value] if has_value else None for value, has_value in zip(values, has, strict=True)]
    return [value if has_value else None for value, has_value in zip(values, has, strict=True)]


def _are_marks(part: Part) -> npt.NDArray[np.bool_]:
    """Flag the instants `RECORD_WINDOW_END`."""
    (names,) = part.table["name"].chunks
    code = names.dictionary.index(RECORD_WINDOW_END).as_py()  # a list of all words would take long
    if code < 0:
        return np.zeros(len(part), np.bool_)
    flags: npt.NDArray[np.bool_] = (names.indices.fill_null(-1).to_numpy() == code) & ~part.slices
    return flags

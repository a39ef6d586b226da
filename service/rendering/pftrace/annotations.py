"""Arguments of events, which are JSON text, as the annotations of track events.

Compiled code converts nearly all of them. It leaves out the few whose values need more than a look at their bytes, such
as escaped characters and integers of more than 18 digits.
"""

import math
import struct
from typing import Any, NamedTuple

import numpy as np

from service.formats.pftrace.messages import Annotation, varint
from service.formats.pftrace.packets import PACKET_MAX
from service.rendering.pftrace.annotating import DEBUG, DEPTH_MAX, KEYS_MAX, SLOTS, annotate, key_slot
from service.rendering.pftrace.wire import Bytes
from service.rendering.text import PackedTexts
from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import called
from service.trace.text import Members, Number, read, without_halves, written

SIZE_MAX = PACKET_MAX >> 1
"""Largest size in bytes of an event's annotations; larger ones are left out."""

_GROWTH = 5  # bytes of annotations per byte of JSON, at most: `-1,` becomes 13
_ROOM = 64  # bytes of an event's annotations beyond those
_DOUBLE = struct.Struct("<d")
_INTEGERS, _UNSIGNED = range(-(1 << 63), 1 << 63), range(1 << 63, 1 << 64)
_slot = called(key_slot)


class Annotations(NamedTuple):
    """The annotations of events.

    Attributes:
        values: their bytes, as fields of a track event.
        starts: the index at which those of each event begin.
        stops: the index after their end.
        exact: flags of the events whose arguments can be restored from them.
    """

    values: Bytes
    starts: Ints
    stops: Ints
    exact: Flags


class AnnotationWriter:
    """Converts arguments of events. The names of arguments get numbers, from 1 on.

    Attributes:
        keys: the names of arguments that have numbers, in order.
    """

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._slots = np.zeros(SLOTS, np.int64)
        self._key_values = np.zeros(1 << 12, np.uint8)
        self._key_starts = np.zeros(KEYS_MAX + 1, np.int64)
        self._stack = np.zeros((DEPTH_MAX + 1, 3), np.int64)
        self._number = np.zeros(4, np.int64)
        self._bits = np.zeros(1, np.uint64)
        self._out = np.empty(0, np.uint8)
        self._later = np.zeros((1 << 14, 3), np.int64)

    def write(self, texts: PackedTexts) -> Annotations:
        """Return the annotations of events, whose memory the next call uses again.

        Args:
            texts: the arguments of each event as JSON; empty for an event without arguments.
        """
        count = len(texts.starts) - 1
        size = _GROWTH * int(texts.starts[-1] - texts.starts[0]) + _ROOM * (count + 1)
        if size > len(self._out):
            self._out = np.empty(size, np.uint8)
        out = self._out
        starts, stops = np.zeros(count, np.int64), np.zeros(count, np.int64)
        left = np.zeros(count, np.bool_)
        state = np.zeros(6, np.int64)
        state[4] = len(self.keys)
        while not annotate(
            texts.values, texts.starts, out, starts, stops, left, state, self._slots, self._key_values,
            self._key_starts, self._stack, self._number, self._bits.view(np.float64), self._bits,
            self._later,
        ):  # fmt: skip
            self._add_key(texts.values[state[2] : state[3]].tobytes())
            state[4] = len(self.keys)
        for at, start, stop in self._later[: state[5]].tolist():
            out[at : at + 8] = np.frombuffer(_DOUBLE.pack(float(texts.values[start:stop].tobytes())), np.uint8)
        return self._with_left(texts, out[: state[1]], starts, stops, left)

    def _with_left(self, texts: PackedTexts, out: Bytes, starts: Ints, stops: Ints, left: Flags) -> Annotations:
        """Add the annotations that compiled code has left out."""
        exact, pieces, end = ~left, [out], len(out)
        for row in np.flatnonzero(left).tolist():
            text = texts.values[texts.starts[row] : texts.starts[row + 1]].tobytes().decode()
            content, exact[row] = annotations_of(text)
            pieces.append(np.frombuffer(content, np.uint8))
            starts[row], stops[row], end = end, end + len(content), end + len(content)
        large = stops - starts > SIZE_MAX
        values = np.concatenate(pieces) if len(pieces) > 1 else out
        return Annotations(values, starts, np.where(large, starts, stops), exact & ~large)

    def _add_key(self, key: bytes) -> None:
        number = len(self.keys)
        start = int(self._key_starts[number])
        end = start + len(key)
        if end > len(self._key_values):
            self._key_values = np.concatenate([self._key_values, np.zeros(end, np.uint8)])
        self._key_values[start:end] = np.frombuffer(key, np.uint8)
        self._key_starts[number + 1] = end
        slot = int(_slot(self._key_values, start, end, self._slots, self._key_values, self._key_starts))
        self.keys.append(key)
        self._slots[slot] = number + 1


def annotations_of(text: str) -> tuple[bytes, bool]:
    """Return the annotations of arguments, and whether the arguments can be restored from them.

    Values that annotations lack become text: integers of more than 64 bits, and values below `DEPTH_MAX` brackets. A
    null and an empty object have no value. Arguments that are not an object become one named ``args``.
    """
    try:
        arguments = read(text)
    except RecursionError:
        arguments = text
    is_object = isinstance(arguments, Members)
    exact, fields = is_object, list[bytes]()
    for name, value in arguments if is_object else [("args", arguments)]:
        annotation, same = _annotation(without_halves(name).encode(), value, 0)
        content = annotation.SerializeToString()
        fields.append(DEBUG + varint(len(content)) + content)
        exact &= same and name == without_halves(name)
    return b"".join(fields), exact


def _annotation(name: bytes | None, value: Any, depth: int) -> tuple[Any, bool]:
    """Return an annotation, and whether its value can be restored from it."""
    annotation, exact = Annotation(), True
    if name is not None:
        annotation.name = name
    match value:
        case bool():
            annotation.bool_value = value
        case Number():
            exact = _set_number(annotation, value)
        case str():
            annotation.string_value = without_halves(value).encode()
            exact = without_halves(value) == value
        case Members() | list() if depth >= DEPTH_MAX:
            annotation.string_value, exact = written(value).encode(errors="replace"), False
        case Members():
            entries = [_annotation(without_halves(key).encode(), item, depth + 1) for key, item in value]
            annotation.dict_entries.extend(entry for entry, _ in entries)
            exact = bool(value) and all(same for _, same in entries)
            exact &= all(key == without_halves(key) for key, _ in value)
        case list():
            items = [_annotation(None, item, depth + 1) for item in value]
            annotation.array_values.extend(item for item, _ in items)
            exact = all(same for _, same in items)
        case _:
            exact = False  # a null has no value, like an empty list
    return annotation, exact


def _set_number(annotation: Any, number: Number) -> bool:
    """Set the value of an annotation, and return whether it is exact."""
    if number.removeprefix("-").isdigit() and len(number) <= 20:
        integer = int(number)
        if integer in _INTEGERS:
            annotation.int_value = integer
            return True
        if integer in _UNSIGNED:
            annotation.uint_value = integer
            return True
    if number.removeprefix("-").isdigit():
        annotation.string_value = number.encode()
        return False
    annotation.double_value = float(number)
    return math.isfinite(annotation.double_value)

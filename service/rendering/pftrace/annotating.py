"""Compiled conversion of arguments, which are JSON text, to the annotations of track events.

The text was scanned before, so that it is valid JSON, except for words such as ``NaN``.
"""

from typing import Any

import numpy as np

from service.formats.pftrace.messages import tag
from service.rendering.pftrace.wire import Bytes, close_message, put, put_slice, put_varint
from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.values import DIGITS_MAX, ESCAPES, after_blanks, after_characters, put_double, read_number

DEPTH_MAX = 64
"""Levels of brackets that annotations keep; values below them are text."""

KEYS_MAX = 1 << 12
"""Number of names of arguments that are written once and referred to by number; further ones are written in full."""

SLOTS = 1 << 14
"""Size of the hash table of names."""

DEBUG = tag("TrackEvent", "debug_annotations")
_ENTRY, _ITEM = tag("Annotation", "dict_entries"), tag("Annotation", "array_values")
_NUMBERED, _NAMED = tag("Annotation", "name_iid"), tag("Annotation", "name")
_BOOL, _INT, _DOUBLE = (tag("Annotation", f"{kind}_value") for kind in ("bool", "int", "double"))
_STRING = tag("Annotation", "string_value")

_DONE, _LEFT, _NEW_KEY = 0, 1, 2
_KEY_SIZE = 256  # bytes of a name that gets a number


@inlined
def key_slot(values: Bytes, start: int, stop: int, slots: Ints, key_values: Bytes, key_starts: Ints) -> int:
    """Return the slot of a key in the hash table, or the free slot at which to add it."""
    mixed = np.uint64(0xCBF29CE484222325)
    for at in range(start, stop):
        mixed = (mixed ^ np.uint64(values[at])) * np.uint64(0x100000001B3)
    slot = int(mixed >> np.uint64(32)) & (SLOTS - 1)
    while slots[slot]:
        first, last = key_starts[slots[slot] - 1], key_starts[slots[slot]]
        if last - first == stop - start:
            same = 0
            while same < stop - start and values[start + same] == key_values[first + same]:
                same += 1
            if same == stop - start:
                break
        slot = (slot + 1) & (SLOTS - 1)
    return slot


@inlined
def _put_string(values: Bytes, at: int, stop: int, out: Bytes, end: int) -> int:
    """Write the characters of a string; return the new end, or -1 for escaped ones that need more than a look."""
    while at < stop:
        byte = values[at]
        if byte == 0x5C:
            at += 1
            byte = ESCAPES[values[at]]
            if not byte:
                return -1
        out[end] = byte
        at, end = at + 1, end + 1
    return int(end)


@inlined
def _put_number(out: Bytes, end: int, number: Ints, negative: bool, doubles: Any, bits: Any) -> int:
    """Write a number as `read_number` writes it; return the new end, or -1 if its value needs more than a look."""
    if number[1] > DIGITS_MAX:
        return -1
    if not number[3]:
        return int(put_varint(out, put(out, end, _INT), -number[0] if negative else number[0]))
    if not put_double(number, negative, doubles):
        return -1
    end = put(out, end, _DOUBLE)
    left = bits[0]
    for _ in range(8):
        out[end] = np.uint8(left & np.uint64(0xFF))
        left >>= np.uint64(8)
        end += 1
    return int(end)


@inlined
def _put_scalar(
    values: Bytes, at: int, out: Bytes, end: int, number: Ints, doubles: Any, bits: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write a string, a number or a boolean; return the index after it and the new end, or -1 as the end."""
    byte = values[at]
    if byte == 0x22:
        at += 1
        stop = after_characters(values, at)
        end = put(out, end, _STRING) + 1
        last = _put_string(values, at, stop, out, end)
        return stop + 1, close_message(out, end, last) if last >= 0 else -1
    if byte == 0x2D or 0x30 <= byte <= 0x39:
        negative = byte == 0x2D
        at = read_number(values, at + 1 if negative else at, number)
        return at, _put_number(out, end, number, negative, doubles, bits)
    if byte in (0x74, 0x66):
        end = put(out, end, _BOOL)
        out[end] = byte == 0x74
        return at + (4 if byte == 0x74 else 5), end + 1
    return at, -1  # null, and words that JSON lacks


@inlined
def _put_key(
    values: Bytes, at: int, stop: int, out: Bytes, end: int, state: Ints,
    slots: Ints, key_values: Bytes, key_starts: Ints,
) -> int:  # fmt: skip
    """Write the name of an argument; return the new end, or -1 for a name that must get a number first."""
    number = slots[key_slot(values, at, stop, slots, key_values, key_starts)]
    if number:
        return int(put_varint(out, put(out, end, _NUMBERED), number))
    if state[4] < KEYS_MAX and stop - at <= _KEY_SIZE:
        state[2], state[3] = at, stop
        return -1
    end = put_varint(out, put(out, end, _NAMED), stop - at)
    return int(put_slice(out, end, values, at, stop))


@inlined
def _is_later(number: Ints, size: int, state: Ints, later: Any) -> bool:
    """Return whether a number is an ordinary double with too many digits, in an annotation that does not move.

    Args:
        number: the number, as `read_number` writes it.
        size: bytes of the annotation before it.
        state: see `annotate`.
        later: see `annotate`.
    """
    is_ordinary = number[3] and 0 < number[1] <= 40 and abs(number[2]) <= 200
    return bool(is_ordinary and size < 0x40 and state[5] < len(later))


@inlined
def _put_object(
    values: Bytes, at: int, out: Bytes, end: int, state: Ints, slots: Ints, key_values: Bytes, key_starts: Ints,
    stack: Any, number: Ints, doubles: Any, bits: Any, later: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write the members of an object.

    Returns:
        `_DONE`, `_LEFT` or `_NEW_KEY`; and the new end.
    """
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 1, 0  # start of the annotation, whether it is an object, its members
    at += 1
    while True:
        at = after_blanks(values, at)
        byte = values[at]
        if byte == 0x2C:
            at += 1
            continue
        if byte in (0x7D, 0x5D):
            if depth == 0:
                return _DONE, end
            if stack[depth, 1] and not stack[depth, 2]:
                return _LEFT, end
            end = close_message(out, stack[depth, 0], end)
            depth, at = depth - 1, at + 1
            continue
        stack[depth, 2] = 1
        end = put(out, end, DEBUG) if depth == 0 else put(out, end, _ENTRY) if stack[depth, 1] else put(out, end, _ITEM)
        end += 1
        start = end
        if stack[depth, 1]:
            stop = after_characters(values, at + 1)
            for place in range(at + 1, stop):
                if values[place] == 0x5C:
                    return _LEFT, end
            end = _put_key(values, at + 1, stop, out, end, state, slots, key_values, key_starts)
            if end < 0:
                return _NEW_KEY, end
            at = after_blanks(values, after_blanks(values, stop + 1) + 1)  # the colon
        if values[at] in (0x7B, 0x5B):
            depth += 1
            if depth >= DEPTH_MAX:
                return _LEFT, end
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = start, values[at] == 0x7B, 0
            at += 1
            continue
        here, body = at, end
        at, end = _put_scalar(values, at, out, end, number, doubles, bits)
        if end < 0:
            is_number = values[here] == 0x2D or 0x30 <= values[here] <= 0x39
            if depth or not is_number or not _is_later(number, body - start, state, later):
                return _LEFT, end
            end = put(out, body, _DOUBLE)
            later[state[5], 0], later[state[5], 1], later[state[5], 2] = end, here, at
            state[5] += 1
            end += 8
        end = close_message(out, start, end)


@compiled
def annotate(
    texts: Bytes, text_starts: Ints, out: Bytes, starts: Ints, stops: Ints, left: Flags, state: Ints,
    slots: Ints, key_values: Bytes, key_starts: Ints, stack: Any, number: Ints, doubles: Any, bits: Any,
    later: Any,
) -> bool:  # fmt: skip
    """Write the annotations of events, from the row and the end in `state` on; return False at a name without number.

    Args:
        texts: the arguments of all events as JSON.
        text_starts: the index at which those of each event begin.
        out: output: the annotations.
        starts: output: the index at which those of each event begin.
        stops: output: the index after their end.
        left: output: flags of the events that are left out.
        state: the next event, the end of `out`, the span of the name, and the counts of numbered names and of rows of
            `later`; updated.
        slots: the hash table of names: their numbers, and 0 for a free slot.
        key_values: the bytes of the names.
        key_starts: the index at which each name begins.
        stack: scratch memory for open brackets.
        number: scratch memory for a number.
        doubles: scratch memory for a double.
        bits: the same memory as an integer.
        later: output: doubles that are still to be written: their index in `out`, and their span in `texts`.
    """
    for row in range(state[0], len(starts)):
        end = state[1]
        starts[row], stops[row] = end, end
        doubles_before = state[5]
        if text_starts[row + 1] > text_starts[row]:
            outcome = _LEFT
            if texts[text_starts[row]] == 0x7B:
                outcome, end = _put_object(
                    texts, text_starts[row], out, end, state, slots, key_values, key_starts,
                    stack, number, doubles, bits, later,
                )  # fmt: skip
            if outcome != _DONE:
                state[5] = doubles_before
            if outcome == _NEW_KEY:
                state[0] = row
                return False
            left[row] = outcome == _LEFT
            if outcome == _DONE:
                stops[row], state[1] = end, end
    return True

"""Compiled conversion of arguments, which are JSON text, to the arguments of records.

Numbers, booleans and strings keep their types. Lists and objects inside the arguments become their JSON text. Nulls are
left out. The text was scanned and sanitized before.
"""

from typing import Any

import numpy as np

from service.rendering.fuchsia.words import INLINE, STRINGS_MAX, Words
from service.rendering.sanitizing import Bytes
from service.rendering.text import BLANK
from service.store.parts import Ints
from service.streaming.scan.compiled import inlined
from service.streaming.scan.machine import PADDING, plain_run, word_at
from service.streaming.scan.values import DIGITS_MAX, ESCAPES, after_blanks, put_double, read_number

SLOTS = 1 << 16
"""Size of the hash table of strings, more than twice `STRINGS_MAX`."""

PREFIX = b"args."
"""Text before the name of each argument, as in the engine's importer of JSON."""

INT32, INT64, DOUBLE, TEXT, BOOL = 1, 3, 5, 6, 9
"""Types of arguments."""

_NUMBERED_MAX = 256  # bytes of a text that gets a number
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_WORD = 8  # bytes of a word
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_QUOTE, _BACKSLASH, _COMMA, _MINUS, _POINT, _LOWER_E = b'"\\,-.e'
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = b"{}[]"


@inlined
def _after_characters(values: Bytes, at: int) -> tuple[int, bool]:
    """Return the index of the quote that ends a string, and whether a character before it is escaped."""
    escaped = False
    while True:
        run = plain_run(values, at) if at + PADDING <= len(values) else 0
        at += run
        if run == PADDING:
            continue
        byte = values[np.uintp(at)]
        if byte == _QUOTE:
            return at, escaped
        escaped |= byte == _BACKSLASH
        at += 2 if byte == _BACKSLASH else 1


@inlined
def _nested_end(values: Bytes, at: int) -> int:
    """Return the index after a list or an object that begins at `at`."""
    depth = 0
    while True:
        byte = values[np.uintp(at)]
        at += 1
        if byte == _QUOTE:
            at = _after_characters(values, at)[0] + 1
        elif byte in (_OPEN_OBJECT, _OPEN_LIST):
            depth += 1
        elif byte in (_CLOSE_OBJECT, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return at


@inlined
def _word_of(values: Bytes, at: int, stop: int) -> Any:
    """Return up to eight bytes before `stop` as a number: the first bytes of a text, or its last ones."""
    if stop - at >= _WORD:
        return np.uint64(word_at(values, at))
    word = np.uint64(0)
    for place in range(np.uintp(at), np.uintp(stop)):
        word = word << np.uint64(8) | np.uint64(values[place])
    return word


@inlined
def _hash_of(values: Bytes, start: int, stop: int, kind: int) -> Any:
    """Return a hash of a text and of its kind."""
    mixed = np.uint64(kind)
    at, last = start, max(stop - _WORD, start)
    while True:
        mixed = (mixed ^ _word_of(values, at, stop)) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(32)
        if at == last:
            return mixed
        at = min(at + _WORD, last)


@inlined
def _are_equal(values: Bytes, first: int, second: int, size: int) -> bool:
    """Return whether two texts of the same size are equal."""
    at, last = 0, max(size - _WORD, 0)
    while True:
        if _word_of(values, first + at, first + size) != _word_of(values, second + at, second + size):
            return False
        if at == last:
            return True
        at = min(at + _WORD, last)


@inlined
def _slot(values: Bytes, start: int, stop: int, kind: int, slots: Ints, spans: Any) -> int:
    """Return the slot of a text in the hash table, or the free slot for it; `kind` is 1 for a name, 0 for a value."""
    slot = int(_hash_of(values, start, stop, kind)) & (SLOTS - 1)
    while slots[slot]:
        number = slots[slot]
        first, last = spans[number, 0], spans[number, 1]
        is_alike = last - first == stop - start and spans[number, 2] == kind
        if is_alike and _are_equal(values, start, first, stop - start):
            break
        slot = (slot + 1) & (SLOTS - 1)
    return slot


@inlined
def _number_of(values: Bytes, start: int, stop: int, kind: int, slots: Ints, spans: Any, known: Ints) -> int:
    """Return the number of a text, which is new if no earlier text is equal; 0 if it gets none."""
    if stop - start > _NUMBERED_MAX:
        return 0
    slot = _slot(values, start, stop, kind, slots, spans)
    if not slots[slot]:
        if known[0] >= STRINGS_MAX:
            return 0
        known[0] += 1
        number = known[0]
        slots[slot] = number
        spans[number, 0], spans[number, 1], spans[number, 2] = start, stop, kind
    return int(slots[slot])


@inlined
def _hex(byte: int) -> int:
    return byte - 0x30 if byte <= 0x39 else (byte | 0x20) - 0x57


@inlined
def _put_characters(out_bytes: Bytes, to: int, values: Bytes, start: int, stop: int) -> int:
    """Write the characters of a JSON string from the byte `to` on; return the new end."""
    at = start
    while at < stop:
        byte = int(values[np.uintp(at)])
        at += 1
        if byte != _BACKSLASH:
            out_bytes[np.uintp(to)] = byte
            to += 1
            continue
        byte = int(values[np.uintp(at)])
        at += 1
        if byte != 0x75:
            out_bytes[np.uintp(to)] = ESCAPES[byte]
            to += 1
            continue
        code = 0
        for place in range(4):
            code = code << 4 | _hex(int(values[np.uintp(at + place)]))
        at += 4
        if code >= 0x800:
            out_bytes[np.uintp(to)] = 0xE0 | code >> 12
            out_bytes[np.uintp(to + 1)] = 0x80 | (code >> 6 & 0x3F)
            out_bytes[np.uintp(to + 2)] = 0x80 | (code & 0x3F)
            to += 3
        elif code >= 0x80:
            out_bytes[np.uintp(to)] = 0xC0 | code >> 6
            out_bytes[np.uintp(to + 1)] = 0x80 | (code & 0x3F)
            to += 2
        else:
            out_bytes[np.uintp(to)] = code
            to += 1
    return to


@inlined
def _put_inline(
    out_bytes: Bytes, end: int, values: Bytes, start: int, stop: int, named: bool, is_string: bool
) -> tuple[int, int]:  # fmt: skip
    """Write a text from the word `end` on; return its reference and the new end.

    If it is `named`, `PREFIX` comes before it. If it `is_string`, it is the inside of a JSON string; other texts are
    written as they are, with blanks in place of line breaks and tabs, as JSON documents have them.
    """
    to = 8 * end
    if named:
        for place in range(len(PREFIX)):
            out_bytes[np.uintp(to + place)] = PREFIX[place]
        to += len(PREFIX)
    if is_string:
        to = _put_characters(out_bytes, to, values, start, stop)
    else:
        for at in range(np.uintp(start), np.uintp(stop)):
            out_bytes[np.uintp(to)] = max(values[at], BLANK)
            to += 1
    size = to - 8 * end
    while to & 7:
        out_bytes[np.uintp(to)] = 0
        to += 1
    return INLINE | size, to >> 3


@inlined
def _put_reference(
    out_bytes: Bytes, end: int, values: Bytes, start: int, stop: int, named: bool, is_string: bool, escaped: bool,
    slots: Ints, spans: Any, known: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Return the reference to a text, and the new end, after writing the text itself if it has no number.

    Strings with `escaped` characters have none.
    """
    if stop == start and not named:
        return 0, end
    number = 0 if escaped else _number_of(values, start, stop, 1 if named else 0, slots, spans, known)
    if number:
        return number, end
    return _put_inline(out_bytes, end, values, start, stop, named, is_string)


@inlined
def _read_integer(values: Bytes, at: int) -> tuple[int, int]:
    """Return the index after some digits, and their value if they are at most `DIGITS_MAX`."""
    value = 0
    while True:
        digit = int(values[np.uintp(at)]) - 0x30
        if digit < 0 or digit > 9:
            return at, value
        value = value * 10 + digit
        at += 1


@inlined
def _put_integer(out: Words, end: int, name: int, header_end: int, value: int) -> int:
    """Write an integer, with its header at `end`; return the new end."""
    size = header_end - end
    if _INT32_MIN <= value <= _INT32_MAX:
        out[end] = INT32 | size << 4 | name << 16 | (value & 0xFFFFFFFF) << 32
        return header_end
    out[end] = INT64 | (size + 1) << 4 | name << 16
    out[header_end] = value
    return header_end + 1


@inlined
def _put_number(
    out: Words, end: int, name: int, header_end: int, number: Ints, negative: bool, doubles: Any,
    bits: Any, values: Bytes, start: int, stop: int, later: Any, known: Ints,
) -> int:  # fmt: skip
    """Write a number as `read_number` writes it, with its header at `end`; return the new end.

    The value follows at `header_end`, after an inline name. Doubles that `put_double` can't write are left for `later`.
    """
    size = header_end - end
    if not number[3] and number[1] <= DIGITS_MAX:
        return int(_put_integer(out, end, name, header_end, -number[0] if negative else number[0]))
    if not number[3]:  # an integer of 19 digits, which fits into 64 bits
        wide = np.uint64(0)
        for at in range(np.uintp(stop - number[1]), np.uintp(stop)):
            wide = wide * np.uint64(10) + np.uint64(values[at] - 0x30)
        out[end] = INT64 | (size + 1) << 4 | name << 16
        out[header_end] = ~wide + np.uint64(1) if negative else wide
        return header_end + 1
    out[end] = DOUBLE | (size + 1) << 4 | name << 16
    if put_double(number, negative, doubles):
        out[header_end] = bits[0]
    else:
        row = known[1]
        later[row, 0], later[row, 1], later[row, 2] = header_end, start, stop
        known[1] += 1
    return header_end + 1


@inlined
def put_argument(
    values: Bytes, at: int, out: Words, out_bytes: Bytes, end: int, slots: Ints, spans: Any, known: Ints,
    number: Ints, doubles: Any, bits: Any, later: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write the member of an object that begins at the quote `at`; nothing for a null.

    Returns:
        The index after it, and the new end.
    """
    stop, escaped = _after_characters(values, at + 1)
    name, header_end = _put_reference(
        out_bytes, end + 1, values, at + 1, stop, True, True, escaped, slots, spans, known
    )  # fmt: skip
    at = after_blanks(values, after_blanks(values, stop + 1) + 1)  # after the colon
    byte = values[np.uintp(at)]
    if byte == _QUOTE or byte in (_OPEN_OBJECT, _OPEN_LIST):
        is_string = byte == _QUOTE
        start, escaped = at + 1 if is_string else at, False
        if is_string:
            stop, escaped = _after_characters(values, start)
        else:
            stop = _nested_end(values, at)
        text, last = _put_reference(
            out_bytes, header_end, values, start, stop, False, is_string, escaped, slots, spans, known
        )  # fmt: skip
        out[end] = TEXT | (last - end) << 4 | name << 16 | text << 32
        return stop + 1 if is_string else stop, last
    if byte == _MINUS or 0x30 <= byte <= 0x39:
        negative = byte == _MINUS
        first = at + 1 if negative else at
        after, value = _read_integer(values, first)
        if after - first <= DIGITS_MAX and values[np.uintp(after)] | 0x20 not in (_POINT, _LOWER_E):
            return after, _put_integer(out, end, name, header_end, -value if negative else value)
        after = read_number(values, first, number)
        return after, _put_number(
            out, end, name, header_end, number, negative, doubles, bits, values, at, after, later, known
        )  # fmt: skip
    if byte in (0x74, 0x66):
        out[end] = BOOL | (header_end - end) << 4 | name << 16 | (1 if byte == 0x74 else 0) << 32
        return at + (4 if byte == 0x74 else 5), header_end
    while values[np.uintp(at)] not in (_COMMA, _CLOSE_OBJECT):  # null
        at += 1
    return at, end

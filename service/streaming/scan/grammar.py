"""JSON's grammar (RFC 8259) over bytes: finds the end of a value, or the offset of its damage.

Each function takes a text, the offset to start at, and the text's end, after which `PADDING` bytes follow. It returns
an offset and a verdict: `OK` with the offset after the text that it read, `MORE` if the text ends too early, or `BAD`
with the offset of the first invalid byte.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from service.streaming.scan.compiled import called, compiled, inlined
from service.streaming.scan.machine import PADDING, blank_run, byte_at, plain_run

OK, MORE, BAD = 0, 1, 2
DEPTH_MAX = 512
"""Largest depth of open brackets in an event; common JSON readers stop near a thousand."""

PLAIN, ESCAPED, LONE = 0, 1, 2
"""Forms of a string: without escapes, with escapes, with escapes of which one is half a surrogate pair."""

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _DOT = b'"\\,:-.'
_OPEN_OBJECT, _OPEN_ARRAY = b"{["
_TO_CLOSING = 2  # difference of the codes of "}" and "{", and of "]" and "["
_SPACE = ord(" ")
_ZERO, _NINE, _LOWER_E, _LOWER_U, _PLUS = b"09eu+"
_TRUE, _FALSE, _NULL = b"tfn"
_ESCAPES = np.isin(np.arange(256), list(b'"\\/bfnrt'))
_WORDS = np.frombuffer(b"true.false.null", np.uint8)

Text = npt.NDArray[np.uint8]
Stack = npt.NDArray[np.uint8]


@compiled
def _blanks_end(text: Text, at: int, end: int) -> int:
    run = PADDING
    while run == PADDING and at < end:
        run = blank_run(text, at)
        at += run
    return at


@inlined
def skip_blanks(text: Text, at: int, end: int) -> int:
    """Return the offset of the first byte from `at` on that is not white space; at least `end` if there is none."""
    if byte_at(text, at) > _SPACE:
        return at
    if byte_at(text, at) == _SPACE and byte_at(text, at + 1) > _SPACE:
        return at + 1
    return _blanks_end(text, at, end)


@compiled
def _hex4(text: Text, at: int) -> int:
    """Return the value of four hexadecimal digits, or -1."""
    value = 0
    for offset in range(at, at + 4):
        digit = byte_at(text, offset)
        if _ZERO <= digit <= _NINE:
            digit -= _ZERO
        elif 97 <= digit | 32 <= 102:
            digit = (digit | 32) - 87
        else:
            return -1
        value = value * 16 + digit
    return value


@compiled
def _long_string_end(text: Text, at: int, end: int) -> tuple[int, int, int]:
    how, high = PLAIN, False  # high: the first half of a surrogate pair comes directly before `at`
    while True:
        run = plain_run(text, at)
        high &= run == 0
        at += run
        if at >= end:
            return at, MORE, how
        if run == PADDING:
            continue
        byte = byte_at(text, at)
        if byte == _QUOTE:
            return at, OK, how
        if byte != _BACKSLASH:
            return at, BAD, how
        if at + 1 >= end:
            return at, MORE, how
        how = max(how, ESCAPED)
        if byte_at(text, at + 1) != _LOWER_U:
            if not _ESCAPES[byte_at(text, at + 1)]:
                return at, BAD, how
            at, high = at + 2, False
            continue
        if at + 6 > end:
            return at, MORE, how
        unit = _hex4(text, at + 2)
        if unit < 0:
            return at, BAD, how
        is_low = 0xDC00 <= unit < 0xE000
        if is_low and not high:
            how = LONE
        high = 0xD800 <= unit < 0xDC00
        if high and not _low_follows(text, at + 6, end):
            how = LONE
        at += 6


@inlined
def string_end(text: Text, at: int, end: int) -> tuple[int, int, int]:
    """Read a string from after its opening quote on; the returned offset is that of its closing quote.

    The third result is the form of the string: `PLAIN`, `ESCAPED` or `LONE`.
    """
    run = plain_run(text, at)
    if at + run < end and byte_at(text, at + run) == _QUOTE:
        return at + run, OK, PLAIN
    return _long_string_end(text, at, end)


@compiled
def _low_follows(text: Text, at: int, end: int) -> bool:
    if at + 6 > end or byte_at(text, at) != _BACKSLASH or byte_at(text, at + 1) != _LOWER_U:
        return False
    return 0xDC00 <= _hex4(text, at + 2) < 0xE000


@inlined
def _digits_end(text: Text, at: int, end: int) -> int:
    while at < end and _ZERO <= byte_at(text, at) <= _NINE:
        at += 1
    return at


@inlined
def number_end(text: Text, at: int, end: int) -> tuple[int, int]:
    """Read a number; at the text's end the verdict is `MORE`, since more digits may follow."""
    if byte_at(text, at) == _MINUS:
        at += 1
    start = at
    at = _digits_end(text, at, end)
    if at >= end:
        return at, MORE
    if at == start or (byte_at(text, start) == _ZERO and at > start + 1):
        return at, BAD
    if byte_at(text, at) == _DOT:
        start = at + 1
        at = _digits_end(text, start, end)
        if at >= end:
            return at, MORE
        if at == start:
            return at, BAD
    if byte_at(text, at) | 32 == _LOWER_E:
        at += 1
        if at < end and (byte_at(text, at) == _PLUS or byte_at(text, at) == _MINUS):
            at += 1
        start = at
        at = _digits_end(text, start, end)
        if at >= end:
            return at, MORE
        if at == start:
            return at, BAD
    return at, OK


@compiled
def _word_end(text: Text, at: int, end: int) -> tuple[int, int]:
    """Read ``true``, ``false`` or ``null``."""
    first = byte_at(text, at)
    if first == _TRUE:
        word, length = 0, 4
    elif first == _FALSE:
        word, length = 5, 5
    elif first == _NULL:
        word, length = 11, 4
    else:
        return at, BAD
    for offset in range(length):
        if at + offset >= end:
            return end, MORE
        if byte_at(text, at + offset) != _WORDS[word + offset]:
            return at, BAD
    return at + length, OK


@inlined
def scalar_end(text: Text, at: int, end: int) -> tuple[int, int]:
    """Read a value that is neither object nor array."""
    first = byte_at(text, at)
    if first == _QUOTE:
        at, verdict, _ = string_end(text, at + 1, end)
        return (at + 1, OK) if verdict == OK else (at, verdict)
    if first == _MINUS or _ZERO <= first <= _NINE:
        return number_end(text, at, end)
    return _word_end(text, at, end)


@inlined
def key_end(text: Text, at: int, end: int) -> tuple[int, int, int]:
    """Read a key and its colon; the returned offset is that of the value, the third result that of the key's end."""
    if byte_at(text, at) != _QUOTE:
        return at, BAD, at
    stop, verdict, _ = string_end(text, at + 1, end)
    if verdict != OK:
        return stop, verdict, stop
    at = skip_blanks(text, stop + 1, end)
    if at >= end:
        return at, MORE, stop
    if byte_at(text, at) != _COLON:
        return at, BAD, stop
    at = skip_blanks(text, at + 1, end)
    return at, MORE if at >= end else OK, stop


@compiled
def value_end(text: Text, at: int, end: int, stack: Stack) -> tuple[int, int]:
    """Read any value; `stack` is memory for `DEPTH_MAX` open brackets."""
    first = byte_at(text, at)
    if first != _OPEN_OBJECT and first != _OPEN_ARRAY:
        return scalar_end(text, at, end)
    stack[0] = first
    depth, at = 1, at + 1
    fresh = True  # directly after an opening bracket
    while True:
        at = skip_blanks(text, at, end)
        if at >= end:
            return at, MORE
        byte, bracket = byte_at(text, at), stack[depth - 1]
        if byte == bracket + _TO_CLOSING:
            depth, at, fresh = depth - 1, at + 1, False
            if depth == 0:
                return at, OK
            continue
        if not fresh:
            if byte != _COMMA:
                return at, BAD
            at = skip_blanks(text, at + 1, end)
            if at >= end:
                return at, MORE
        if bracket == _OPEN_OBJECT:
            at, verdict, _ = key_end(text, at, end)
            if verdict != OK:
                return at, verdict
        byte = byte_at(text, at)
        if byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:
            if depth == stack.size:
                return at, BAD
            stack[depth] = byte
            depth, at, fresh = depth + 1, at + 1, True
            continue
        at, verdict = scalar_end(text, at, end)
        if verdict != OK:
            return at, verdict
        fresh = False


def new_stack() -> Any:
    """Allocate the stack of `value_end`."""
    return np.zeros(DEPTH_MAX, np.uint8)


find_blanks_end, find_key_end = called(skip_blanks), called(key_end)
"""Versions of `skip_blanks` and `key_end` that Python can call."""

"""Sanitizing of values that break the engine's importer, or that the importer silently misreads.

Measured on trace_processor v54: NUL ends a name. After an escaped surrogate pair, or half of one, arguments are lost.
Integers of 2^63 or more change. Each level of nested brackets becomes a key as long as its path.
"""

import json
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.machine import PADDING, number_marks
from service.trace.text import Members, Number, read, without_halves, written

Bytes = npt.NDArray[np.uint8]

LONG = 1 << 13
"""Size of a text in bytes above which its nesting is checked."""

DEPTH_MAX = 64
"""Levels of brackets that are kept; deeper values are shown as text."""

_EACH = (1 << 2 * PADDING) + (1 << PADDING) + 1  # the lowest bit of each of the three groups of `number_marks`
_LANES = (1 << PADDING) - 1
_INTEGERS = range(-(1 << 63), 1 << 63)
_CLOSE = 2.0**-50  # relative error of a double whose last digits differ
_EXPONENT_MAX = 308  # of a power of ten that is a double
_EXPONENT_SIZE = 9  # digits of an exponent that are enough to see that it is larger
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_INTEGER = re.compile(r"-?\d+")
_DOUBLE = re.compile(r"-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")


def sanitized(text: str, *, in_json: bool = True) -> str:
    """Return the text of a JSON object without anything that harms the engine; other JSON values become objects.

    Args:
        text: the JSON value.
        in_json: whether the engine reads the numbers from the text itself, as it does in JSON documents.
    """
    flat = _flat(text) if text.startswith("{") else f'{{"args":{_flat(text)}}}'
    return written(_sanitized(read(flat), in_json=in_json), ensure_ascii=False)


def suspects(values: Bytes, starts: Ints, among: Flags) -> Ints:
    """Return the indices of texts that may need sanitizing.

    These are texts that are not objects, are long, or contain an escaped NUL, an escaped surrogate or a large number.

    Args:
        values: the texts, one after the other.
        starts: the index at which each text begins, and the index at which the last one ends.
        among: flags of the texts to look at.
    """
    suspect = among.copy()
    _mark_suspects(values, starts, suspect)
    return np.flatnonzero(suspect)


@compiled
def _mark_suspects(values: Bytes, starts: Ints, suspect: Flags) -> None:
    """Clear the flags of the texts that are not suspect."""
    for text in range(len(suspect)):
        if not suspect[text]:
            continue
        start, stop = starts[text], starts[text + 1]
        suspect[text] = stop > start and (
            values[start] != 0x7B
            or stop - start > LONG
            or (_may_be_suspect(values, start, stop) and _is_suspect(values, start, stop))
        )


@inlined
def _may_be_suspect(values: Bytes, start: int, stop: int) -> bool:
    """Return whether a text has a backslash, an exponent or a long number; most texts have none of them.

    Of 19 digits in a row, 8 fill a half of the `PADDING` bytes that are read at a time.
    """
    after_digit = 0
    for at in range(start, stop, PADDING):
        if at + PADDING > len(values):
            return True
        marks = number_marks(values, at)
        if stop - at < PADDING:
            marks &= ((1 << (stop - at)) - 1) * _EACH
        digits, exponents = marks & _LANES, marks >> PADDING & _LANES
        if marks >> 2 * PADDING or (digits << 1 | after_digit) & exponents:
            return True
        if digits & 0xFF == 0xFF or digits >> 8 == 0xFF:
            return True
        after_digit = digits >> PADDING - 1
    return False


@inlined
def _is_suspect(values: Bytes, start: int, stop: int) -> bool:
    """Return whether a text contains an escaped NUL or surrogate, 19 digits in a row, or a long exponent."""
    digits, before = 0, np.uint8(0)
    for at in range(np.uintp(start), np.uintp(stop)):
        byte = values[at]
        if 0x30 <= byte <= 0x39:
            digits += 1
            if digits >= 19:
                return True
            continue
        if digits and (byte | 0x20) == 0x65 and not 0x41 <= before <= 0x7A and _is_long(values, int(at) + 1, stop):
            return True
        digits, before = 0, byte
        if byte == 0x5C and int(at) + 2 < stop and values[at + np.uintp(1)] == 0x75:  # an escape such as \u0000
            first = values[at + np.uintp(2)]
            if first | 0x20 == 0x64 or first == 0x30:
                return True
    return False


@inlined
def _is_long(values: Bytes, at: int, stop: int) -> bool:
    """Return whether an exponent has at least three digits."""
    if at < stop and values[at] in (0x2B, 0x2D):
        at += 1
    for digit in range(3):
        if at + digit >= stop or not 0x30 <= values[at + digit] <= 0x39:
            return False
    return True


def _flat(text: str) -> str:
    """Return the JSON text with strings in place of values that are nested deeper than `DEPTH_MAX`."""
    pieces: list[str] = []
    copied, depth, begin = 0, 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == DEPTH_MAX + 1:
                begin = token.start()
        elif token[0] in "]}":
            if depth == DEPTH_MAX + 1:
                pieces += text[copied:begin], json.dumps(text[begin : token.end()])
                copied = token.end()
            depth -= 1
    return "".join([*pieces, text[copied:]])


def _sanitized(value: Any, *, in_json: bool) -> Any:
    match value:
        case Members():
            return Members((plain(key), _sanitized(item, in_json=in_json)) for key, item in value)
        case list():
            return [_sanitized(item, in_json=in_json) for item in value]
        case Number():
            return engine_number(value, in_json=in_json) or str(value)
        case str():
            return plain(value)
        case _:
            return value


def plain(string: str) -> str:
    """Return a string without characters that harm the engine."""
    return without_halves(string).replace("\0", "\N{REPLACEMENT CHARACTER}")


def engine_number(number: Number, *, in_json: bool = True) -> Number | None:
    """Return a number in a notation that the engine keeps, apart from the last digits of a double; None without one.

    Args:
        number: the number.
        in_json: see `sanitized`.
    """
    if _INTEGER.fullmatch(number):
        return number if len(number) <= 20 and int(number) in _INTEGERS else None
    value = float(number)
    if not math.isfinite(value):
        return None
    shortest = repr(value)
    notations = [number, Number(shortest), Number(f"{Decimal(shortest):e}")]  # the last one has no zeros to overflow
    return next((text for text in notations if not in_json or _is_close(_engine_double(text), abs(value))), None)


def _is_close(one: float, other: float) -> bool:
    return math.isfinite(one) and abs(one - other) <= other * _CLOSE


def _engine_double(text: str) -> float:
    """Return the absolute value of a double as the engine reads it from JSON: digits overflow, and powers are rounded.

    https://github.com/google/perfetto/blob/v54.0/src/trace_processor/util/json_parser.h, ``StringToDouble``
    """
    match = _DOUBLE.fullmatch(text)
    if match is None:  # NaN or an infinity
        return math.nan
    whole, fraction = match[1], match[2] or ""
    exponent = int((match[3] or "0")[:_EXPONENT_SIZE])  # Python reads no longer integers than 4,300 digits
    divisor = 10 ** len(fraction) % (1 << 64)
    if not divisor:
        return math.nan
    value = float(_wrapped(whole)) + float(_wrapped(fraction or "0")) / float(divisor)
    if exponent < 0:
        return value / 10.0**-exponent if -exponent <= _EXPONENT_MAX else 0.0
    return value * 10.0**exponent if exponent <= _EXPONENT_MAX else math.inf


def _wrapped(digits: str) -> int:
    """Return an integer as 64 bits hold it."""
    return (int(digits) + (1 << 63)) % (1 << 64) - (1 << 63)


def counter_args(args: str | None) -> tuple[str, int, int]:
    """Return the finite numbers among a counter's arguments as JSON, their count, and the count of other arguments."""
    value = read(args) if args else Members()
    values = dict(value) if isinstance(value, Members) else {"value": value}
    numbers = Members((plain(key), Number(repr(float(item)))) for key, item in values.items() if _is_finite(item))
    return written(numbers, ensure_ascii=False), len(numbers), len(values) - len(numbers)


def _is_finite(value: Any) -> bool:
    return isinstance(value, Number) and abs(float(value)) < float("inf")

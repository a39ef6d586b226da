"""Inlined functions that read a number and find its end in one pass, if it is in a common notation."""

from service.streaming.scan.compiled import inlined
from service.streaming.scan.grammar import Text
from service.streaming.scan.machine import byte_at, word_at

_MINUS, _DOT, _ZERO, _NINE, _LOWER_E = b"-.09e"
_DIGITS_MAX = 18  # this many nines still fit a signed integer of 64 bits
_MICRO_DIGITS_MAX = 16  # digits of whole microseconds that fit as nanoseconds, unless the first is a nine
_DECIMALS = 3
_ZEROS, _SIXES, _HIGH_HALVES = 0x3030303030303030, 0x0606060606060606, -0x0F0F0F0F0F0F0F10


@inlined
def _are_digits(word: int) -> bool:
    """Return whether all bytes of a word are digits, which are 0x30 to 0x39."""
    return word & _HIGH_HALVES == _ZEROS and word + _SIXES & _HIGH_HALVES == _ZEROS


@inlined
def _value_of_digits(word: int) -> int:
    """Return the value of eight digits, of which the first is the lowest byte: joins pairs, then pairs of pairs."""
    word = (word & 0x0F0F0F0F0F0F0F0F) * ((10 << 8) + 1) >> 8
    word = (word & 0x00FF00FF00FF00FF) * ((100 << 16) + 1) >> 16
    return (word & 0x0000FFFF0000FFFF) * ((10_000 << 32) + 1) >> 32


@inlined
def _digits(text: Text, at: int, limit: int, value: int) -> tuple[int, int]:
    """Append digits to a value; return the offset after them, and the value."""
    while at + 8 <= limit and _are_digits(word_at(text, at)):
        value = value * 100_000_000 + _value_of_digits(word_at(text, at))
        at += 8
    while at < limit and _ZERO <= byte_at(text, at) <= _NINE:
        value = value * 10 + byte_at(text, at) - _ZERO
        at += 1
    return at, value


@inlined
def read_integer(text: Text, at: int, end: int) -> tuple[int, int, bool]:
    """Read an integer; return the offset after it, its value, and True.

    Returns the same offset, 0 and False if the text is none as Python prints it (-0, 01, 1e3), has too many digits, or
    may go on after `end`.
    """
    negative = byte_at(text, at) == _MINUS
    first = at + negative
    limit = min(end, first + _DIGITS_MAX + 1)
    after, value = _digits(text, first, limit, 0)
    byte = byte_at(text, after)
    if after == first or after >= limit or byte == _DOT or byte | 32 == _LOWER_E:
        return at, 0, False
    if byte_at(text, first) == _ZERO and (after > first + 1 or negative):
        return at, 0, False
    return after, -value if negative else value, True


@inlined
def read_nanoseconds(text: Text, at: int, end: int) -> tuple[int, int, int]:
    """Read a number in µs; return the offset after it, its value in ns, and the number of decimals of its text.

    Returns the same offset, 0 and -1 for an unusual text (-0, 01, 1e3, picoseconds), too many digits, or a text that
    may go on after `end`.
    """
    negative = byte_at(text, at) == _MINUS
    first = at + negative
    limit = min(end, first + _MICRO_DIGITS_MAX + 1)
    after, value = _digits(text, first, limit, 0)
    digits, decimals = after - first, 0
    if digits == 0 or after >= limit or (digits == _MICRO_DIGITS_MAX and byte_at(text, first) == _NINE):
        return at, 0, -1
    if byte_at(text, first) == _ZERO and digits > 1:
        return at, 0, -1
    if byte_at(text, after) == _DOT:
        point = after
        limit = min(end, point + 1 + _DECIMALS + 1)
        after, value = _digits(text, point + 1, limit, value)
        decimals = after - point - 1
        if decimals == 0 or after >= limit:
            return at, 0, -1
    if byte_at(text, after) | 32 == _LOWER_E or (negative and value == 0):
        return at, 0, -1
    for _ in range(_DECIMALS - decimals):
        value *= 10
    return after, -value if negative else value, decimals

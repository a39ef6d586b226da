"""Inlined functions that read values in JSON text that was scanned before.

They check nothing: the text is valid, and the value ends before the array does.
"""

from typing import Any

import numpy as np

from service.streaming.scan.columns import Ints
from service.streaming.scan.compiled import inlined
from service.streaming.scan.grammar import Text

DIGITS_MAX = 18
"""Number of digits of which any integer fits into 64 bits."""

ESCAPES = np.zeros(256, np.uint8)
"""Characters by the letter after the backslash; 0 for other bytes, such as the ``u`` of a character's code."""
for _letter, _character in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    ESCAPES[_letter] = _character

_INTEGER_MAX, _POWER_MAX = 1 << 53, 22  # doubles hold all integers up to the first, and powers of ten up to the second
_POWERS = 10.0 ** np.arange(_POWER_MAX + 1)
_ZERO, _NINE, _LOWER_E, _QUOTE, _BACKSLASH, _MINUS, _PLUS, _POINT, _SPACE = b'09e"\\-+. '


@inlined
def after_blanks(text: Text, at: int) -> int:
    """Return the offset of the first byte from `at` on that is no white space."""
    while text[np.uintp(at)] <= _SPACE:
        at += 1
    return at


@inlined
def after_characters(text: Text, at: int) -> int:
    """Return the offset of the quote that ends a string; `at` is that of its first character."""
    while text[np.uintp(at)] != _QUOTE:
        at += 2 if text[np.uintp(at)] == _BACKSLASH else 1
    return at


@inlined
def read_number(text: Text, at: int, number: Ints) -> int:
    """Read a number without its sign.

    Args:
        text: the text.
        at: offset of the number's first digit.
        number: output: up to `DIGITS_MAX` significant digits as an integer, their count in the text, the power of ten,
            and whether the number is a double.

    Returns:
        The offset after the number.
    """
    number[:] = 0
    while True:
        byte = text[np.uintp(at)]
        if _ZERO <= byte <= _NINE:
            number[1] += number[1] > 0 or byte != _ZERO
            if number[1] <= DIGITS_MAX:
                number[0] = number[0] * 10 + (byte - _ZERO)
            number[2] -= number[3]
        elif byte == _POINT:
            number[3] = 1
        else:
            break
        at += 1
    if text[np.uintp(at)] | 0x20 == _LOWER_E:
        number[3] = 1
        lowers = text[np.uintp(at + 1)] == _MINUS
        at += 2 if lowers or text[np.uintp(at + 1)] == _PLUS else 1
        exponent = 0
        while _ZERO <= text[np.uintp(at)] <= _NINE:
            exponent = min(exponent * 10 + (text[np.uintp(at)] - _ZERO), 999)
            at += 1
        number[2] += -exponent if lowers else exponent
    return int(at)


@inlined
def put_double(number: Ints, negative: bool, doubles: Any) -> bool:
    """Write the value of a number to `doubles[0]`; return False if that takes more than one rounding.

    The value is the quotient or the product of an integer and a power of ten that doubles hold, so that it is rounded
    once.

    Args:
        number: the number as `read_number` writes it.
        negative: whether it has a minus sign.
        doubles: output: the value.
    """
    power = number[2]
    if number[1] > DIGITS_MAX or number[0] > _INTEGER_MAX or abs(power) > _POWER_MAX:
        return False
    value = float(number[0])
    value = value * _POWERS[power] if power >= 0 else value / _POWERS[-power]
    doubles[0] = -value if negative else value
    return True

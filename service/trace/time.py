"""Conversion of decimal text into integer nanoseconds, never through a float.

Kineto writes times in microseconds:

* until April 2024: whole microseconds since the epoch;
* April and May 2024: one decimal, since the epoch;
* since then: three decimals, relative to ``baseTimeNanoseconds``.

A double of epoch microseconds has a resolution of 250 ns, so only the decimal text is exact.
"""

from decimal import ROUND_FLOOR, Context, Decimal
from typing import TypeGuard

Microseconds = int | Decimal
"""Exact time of a JSON reader: an integer or a decimal."""

_LARGEST = (1 << 62) // 1000
_FLOOR = Context(prec=40, rounding=ROUND_FLOOR)
"""Decimal context that keeps more digits than a time in ns has, so that rounding stays below a nanosecond."""


def is_time(value: object) -> TypeGuard[Microseconds]:
    """Return whether a JSON value is a time in µs, small enough that the sum of two fits in 64 bits in ns."""
    return type(value) in (int, Decimal) and -_LARGEST <= value <= _LARGEST  # type: ignore[operator] # just checked


def plus(time: Microseconds, duration: Microseconds) -> Microseconds:
    """Return the sum of a time and a duration, exact to the nanosecond for any number of digits."""
    if type(time) is int and type(duration) is int:
        return time + duration
    return _FLOOR.add(time, duration)


def to_ns(time: Microseconds) -> int:
    """Return the nanoseconds of a time in µs, rounded down."""
    if type(time) is int:
        return time * 1000
    return _FLOOR.multiply(time, 1000).__floor__()


def decimals_of(ns: int) -> int:
    """Return the number of decimals that a time in µs needs to be exact."""
    return next(digits for digits in range(4) if ns % 10 ** (3 - digits) == 0)


def decimal(ns: int, digits: int) -> str:
    """Return the text of a time in µs with the given number of decimals, at most three."""
    whole, part = divmod(abs(ns), 1000)
    decimals = f".{part:03}"[: digits + 1] if digits else ""
    return f"{'-' if ns < 0 else ''}{whole}{decimals}"

"""Time: integer nanoseconds made from decimal text, never through a float.

Kineto writes microseconds: whole ones since the epoch (to April 2024), with one decimal since the epoch (April
and May 2024), with three decimals relative to ``baseTimeNanoseconds`` (since). A double of epoch microseconds
has a grain of 256 ns, so the decimal text is the only exact source.
"""

from decimal import ROUND_FLOOR, Context, Decimal
from typing import TypeGuard

Microseconds = int | Decimal
"""A time as a JSON reader gives it exactly: an integer, or a decimal."""

_LARGEST = (1 << 62) // 1000
_FLOOR = Context(prec=40, rounding=ROUND_FLOOR)
"""Keeps more digits than a time in ns has, so that what it cuts off never reaches a nanosecond."""


def is_time(value: object) -> TypeGuard[Microseconds]:
    """Whether a JSON value is a number of µs of which two, added, are still a signed 64-bit count of ns."""
    return type(value) in (int, Decimal) and -_LARGEST <= value <= _LARGEST  # type: ignore[operator] # just checked


def plus(time: Microseconds, duration: Microseconds) -> Microseconds:
    """When something ends that begins at a time; exact to the nanosecond, however many digits the two have."""
    if type(time) is int and type(duration) is int:
        return time + duration
    return _FLOOR.add(time, duration)


def to_ns(time: Microseconds) -> int:
    """Nanoseconds of a time in µs; digits beyond the nanosecond are cut off towards minus infinity."""
    if type(time) is int:
        return time * 1000
    return _FLOOR.multiply(time, 1000).__floor__()


def decimals_of(ns: int) -> int:
    """How many decimals a time in µs takes to be exact."""
    return next(digits for digits in range(4) if ns % 10 ** (3 - digits) == 0)


def decimal(ns: int, digits: int) -> str:
    """The text of a time in µs, with at most three decimals that are enough for it."""
    whole, part = divmod(abs(ns), 1000)
    decimals = f".{part:03}"[: digits + 1] if digits else ""
    return f"{'-' if ns < 0 else ''}{whole}{decimals}"

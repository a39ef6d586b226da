"""Numbers as people read them: with a unit and three significant digits, or with separators."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

Format = Callable[[Any], str]

_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_TIMES = re.compile(r"(?:.*_)?(?:start|end|at|ts|base)(?:_ns)?")
"""Names of columns with times on the trace's clock. Three digits would not tell two of them apart."""
_NUMBERS = re.compile(
    r"(?:.*_)?(?:id|ts|rank|ranks|device|devices|stream|pid|tid|upid|utid|correlation|step|number|cycle|position|line"
    r"|port|context|peer|level|depth)"
)
"""Names of columns with numbers that name a thing, which have no thousands."""
_SUFFIXES = {
    "ns": "ns", "us": "µs", "bytes": "bytes", "pct": "%", "gb_per_s": "GB/s", "gbps": "GB/s",
}  # fmt: skip


class Quantity(NamedTuple):
    """How a terminal shows a column: its title, and the text of a value that is not None."""

    title: str
    text: Format


def duration(ns: float) -> str:
    """Format a duration of nanoseconds: 999 ns, 1.23 µs, 45.6 ms, 789 s."""
    if ns == 0:
        return "0 ns"
    rounded = abs(float(f"{ns:.3g}"))
    factor, unit = next(((factor, unit) for factor, unit in _DURATIONS if rounded >= factor), _DURATIONS[-1])
    if isinstance(ns, int) and unit == "ns":
        return f"{ns} ns"
    return f"{three_digits(ns / factor)} {unit}"


def size(count: float) -> str:
    """Format bytes in decimal units: 816.5 kB."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    power = min((len(str(abs(round(count)))) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {' kMGT'[power]}B"


def percent(value: float) -> str:
    """Format a percentage: 12.5 %."""
    if value == 0:
        return "0 %"
    return f"{value:.1f} %" if abs(value) >= 0.05 else f"{value:.2g} %"


def grouped(count: int | None) -> str:
    """Format an integer with thousands separators."""
    return "-" if count is None else f"{count:,}"


def three_digits(value: float) -> str:
    """Format a number with three significant digits; the digits before the point stay."""
    return _digits(value, 3)


def decimal(value: float) -> str:
    """Format a number without a unit: six significant digits, and all before the point."""
    text = _digits(value, 6)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def quantity(name: str, kind: str, unit: str | None) -> Quantity | None:
    """Return how a terminal shows a column of numbers; None for other columns.

    Args:
        name: the column's name. A suffix like ``_ns`` is its unit if `unit` is None.
        kind: the type of the values: ``int``, ``double``, or another.
        unit: the unit of the values, if the server tells it.
    """
    if kind not in {"int", "double"}:
        return None
    stem, suffix = _stem_and_suffix(name)
    unit = unit or _SUFFIXES.get(suffix) or ("ns" if name == "dur" else None)
    if unit == "ns" and _TIMES.fullmatch(name):
        return Quantity(name, str)
    if unit is not None:
        return Quantity(stem if _SUFFIXES.get(suffix) == unit else name, _of_unit(unit))
    if kind == "double":
        return Quantity(name, decimal)
    return Quantity(name, str if _NUMBERS.fullmatch(name) else grouped)


def _stem_and_suffix(name: str) -> tuple[str, str]:
    for suffix in _SUFFIXES:
        if name.endswith(f"_{suffix}"):
            return name.removesuffix(f"_{suffix}"), suffix
    return name, ""


def _of_unit(unit: str) -> Format:
    return {
        "ns": duration,
        "µs": lambda us: duration(1000 * us),
        "bytes": size,
        "%": percent,
    }.get(unit) or (lambda value: f"{three_digits(value)} {unit}")


def _digits(value: float, count: int) -> str:
    """Format a number with at least `count` significant digits, and no exponent unless it is tiny."""
    rounded = abs(float(f"{value:.{count}g}"))
    if rounded != 0 and rounded < 1e-4:
        return f"{value:.{count}g}"
    before = len(str(int(rounded))) if rounded >= 1 else 1
    return f"{value:,.{max(0, count - before)}f}"

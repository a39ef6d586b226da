"""Numbers with units, as people read them; the pages write them alike (`service/web/static/units.js`)."""

import re

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_TIME_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_CLOCK_FROM_S = 120
_PLURAL_ENDING = re.compile(r"(?<=[a-z]{3})s$")  # of a unit that is a noun, like "steps"


def readable(value: float, unit: str | None) -> str:
    """Return a number in the unit of its column: ns as "7.57 ms", bytes as "12.5 MB", a share as "1.63 %"."""
    if unit == "ns":
        return _duration(value)
    if unit == "bytes":
        return _bytes(value)
    if unit == "%":
        return f"{_digits(value, 2 if abs(value) < 1 else 3)} %"
    number = f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{value:,.3f}".rstrip("0").rstrip(".")
    number = number.removesuffix(".0")
    if unit and value == 1:
        unit = _PLURAL_ENDING.sub("", unit)
    return f"{number} {unit}" if unit else number


def _duration(ns: float) -> str:
    seconds = round(ns / 10**9)
    if abs(ns) >= _CLOCK_FROM_S * 10**9:
        minutes, hours = seconds // 60, seconds // 3600
        return f"{hours} h {minutes % 60:02} min" if hours else f"{minutes} min {seconds % 60:02} s"
    for size, unit in _TIME_UNITS:
        if abs(ns) >= size:
            return f"{_digits(ns / size, 4)} {unit}"
    return f"{_digits(ns, 4)} ns"


def _bytes(count: float) -> str:
    place = 0
    while abs(count) >= 999.5 and place < len(_BYTE_UNITS) - 1:
        count /= 1000
        place += 1
    digits = 0 if place == 0 or abs(count) >= 100 else 1 if abs(count) >= 10 else 2
    return f"{count:.{digits}f} {_BYTE_UNITS[place]}"


def _digits(number: float, count: int) -> str:
    """Return a number with some significant digits, without an exponent and without zeros at its end."""
    text = f"{float(f'{number:.{count}g}'):f}"
    return text.rstrip("0").rstrip(".")

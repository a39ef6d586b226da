"""Numbers with units on the command line, converted exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_NS = {"": 1, "ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9}
_DECIMAL = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES = _DECIMAL | {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_NUMBER = re.compile(r"([+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?) ?([^\W\d_]*)")


def nanoseconds(text: str) -> int:
    """Return the ns of ``1500``, ``1.5us``, ``10ms`` or ``2s``; raise ValueError unless it is a whole number of ns."""
    return _whole(text, _NS, "ns", "a time, like 1500 (ns), 5us, 1.5ms or 2s")


def byte_count(text: str) -> int:
    """Return the bytes of ``4096``, ``100MB`` or ``1.5GiB``; raise ValueError unless it is a whole number of bytes."""
    return _whole(text, _BYTES, "bytes", "a size, like 100MB or 1GiB")


def _whole(text: str, units: Mapping[str, int], unit: str, examples: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {examples}")
    exact = Fraction(match[1]) * factor
    if exact.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return int(exact)

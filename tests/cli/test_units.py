from __future__ import annotations

import pytest

from service.cli.units import byte_count, nanoseconds


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1500", 1500),
        ("0", 0),
        ("5us", 5_000),
        ("5 µs", 5_000),
        ("5\u03bcs", 5_000),
        ("1.5ms", 1_500_000),
        ("2s", 2_000_000_000),
        ("-0.001us", -1),
        ("1711964646.000000001s", 1_711_964_646_000_000_001),
        ("9007199254740.993us", 9_007_199_254_740_993),
        ("12345678901234567890123456789.000000001s", 12_345_678_901_234_567_890_123_456_789_000_000_001),
    ],
)
def test_nanoseconds_are_exact(text: str, ns: int) -> None:
    assert nanoseconds(text) == ns


@pytest.mark.parametrize("text", ["", "ms", "1.5", "0.1ns", "1.0001us", "1e3", "1h", "1_000", "1,5ms", "nan", "٣"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        nanoseconds(text)


@pytest.mark.parametrize(
    ("text", "count"), [("4096", 4096), ("100MB", 100_000_000), ("1.5 GiB", 3 << 29), ("64kb", 64_000), ("1b", 1)]
)
def test_byte_counts_are_exact(text: str, count: int) -> None:
    assert byte_count(text) == count


@pytest.mark.parametrize("text", ["", "MB", "0.5", "1s", "1 000"])
def test_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        byte_count(text)

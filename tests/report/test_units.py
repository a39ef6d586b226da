"""Numbers with units are short, and keep the sign and the magnitude."""

import pytest

from service.report.units import readable


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "ns", "0 ns"), (999, "ns", "999 ns"), (1000, "ns", "1 µs"), (7_568_123, "ns", "7.568 ms"),
        (-1_500_000, "ns", "-1.5 ms"), (119_900_000_000, "ns", "119.9 s"), (187_000_000_000, "ns", "3 min 07 s"),
        (7_500_000_000_000, "ns", "2 h 05 min"), (0, "bytes", "0 B"), (12_500_000, "bytes", "12.5 MB"),
        (999_600, "bytes", "1.00 MB"), (-46_137_344, "bytes", "-46.1 MB"),
        (1 << 62, "bytes", "4612 PB"), (76.2345, "%", "76.2 %"),
        (0.0123, "%", "0.012 %"),
        (100.0, "%", "100 %"), (0.0, "%", "0 %"), (1234567, None, "1,234,567"), (3.0, "steps", "3 steps"),
        (1, "steps", "1 step"), (1.0, "GB/s", "1 GB/s"),
        (46.125, "GB/s", "46.125 GB/s"), (0.3456, None, "0.346"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_have_a_unit(value: float, unit: str | None, text: str) -> None:
    assert readable(value, unit) == text

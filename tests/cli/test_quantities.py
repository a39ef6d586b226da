from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.quantities import decimal, duration, percent, quantity, size


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (0.0, "0 ns"),
        (999, "999 ns"),
        (29.14, "29.1 ns"),
        (1000, "1.00 µs"),
        (61_549, "61.5 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (125_168_075, "125 ms"),
        (1_417_000_000, "1.42 s"),
        (-2_500_000, "-2.50 ms"),
        (12_345_678_901_234, "12,346 s"),
    ],
)
def test_duration_has_three_digits_and_a_unit(ns: float, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(-(2**62), 2**62))
def test_duration_is_within_half_of_its_third_digit(ns: int) -> None:
    number, unit = duration(ns).replace(",", "").split(" ")
    shown = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert abs(shown - ns) <= max(abs(ns) * 0.00501, 0)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (85017755648, "85.0 GB"), (-1500, "-1.5 kB")]
)
def test_size_has_a_unit(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 %"), (12.34, "12.3 %"), (0.0271, "0.027 %"), (100.0, "100.0 %")])
def test_small_percentage_is_not_zero(value: float, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1234567.891, "1,234,568"), (0.000012345678, "1.23457e-05"), (2.0, "2"), (1e300, f"{1e300:,.0f}")],
)
def test_decimal_keeps_all_digits_before_the_point(value: float, text: str) -> None:
    assert decimal(value) == text


@pytest.mark.parametrize(
    ("name", "kind", "unit", "value", "title", "text"),
    [
        ("span_ns", "int", "ns", 1_500_000, "span", "1.50 ms"),
        ("dur", "int", None, 2000, "dur", "2.00 µs"),
        ("host_mean_us", "double", "µs", 12.5, "host_mean", "12.5 µs"),
        ("peak_bytes", "int", "bytes", 2_000_000, "peak", "2.0 MB"),
        ("idle_pct", "double", "%", 12.5, "idle", "12.5 %"),
        ("bus_gb_per_s", "double", "GB/s", 123.456, "bus", "123 GB/s"),
        ("start_ns", "int", "ns", 4458676416431397, "start_ns", "4458676416431397"),
        ("allocated_at_ns", "int", "ns", 4458676416431397, "allocated_at_ns", "4458676416431397"),
        ("first_start_ns", "int", "ns", 4458676416431397, "first_start_ns", "4458676416431397"),
        ("ts", "int", None, 4458676416431397, "ts", "4458676416431397"),
        ("tid", "int", None, 140234, "tid", "140234"),
        ("track_id", "int", None, 140234, "track_id", "140234"),
        ("n", "int", None, 140234, "n", "140,234"),
        ("start_skew_ns", "int", "ns", 1500, "start_skew", "1.50 µs"),
    ],
)
def test_column_of_numbers_is_shown_by_its_unit(
    name: str, kind: str, unit: str | None, value: float, title: str, text: str
) -> None:
    shown = quantity(name, kind, unit)
    assert shown is not None
    assert (shown.title, shown.text(value)) == (title, text)


def test_column_of_text_has_no_quantity() -> None:
    assert quantity("name", "string", None) is None

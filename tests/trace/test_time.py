"""Times are exact: decimal text of any profiler version becomes integer nanoseconds without a float."""

from decimal import Decimal
from fractions import Fraction
from math import floor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.trace.time import is_time, plus, to_ns

LARGEST_US = (1 << 62) // 1000


def number(text: str) -> int | Decimal:
    """Parse a JSON number exactly."""
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)


@st.composite
def decimal_texts(draw: st.DrawFn, largest: int = LARGEST_US - 1) -> str:  # minus 1, since decimals follow
    """Draw decimal text with any number of decimals."""
    integer = draw(st.integers(0, largest))
    digits = draw(st.text("0123456789", max_size=60))
    return draw(st.sampled_from(["", "-"])) + str(integer) + ("." + digits if digits else "")


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1623142623529248", 1_623_142_623_529_248_000),  # to April 2024: whole µs since the epoch
        ("1712195495406752.8", 1_712_195_495_406_752_800),  # April and May 2024: one decimal
        ("1712195495505582.988", 1_712_195_495_505_582_988),
        ("4458676416431.397", 4_458_676_416_431_397),  # since May 2024: three decimals after baseTimeNanoseconds
        ("0.001", 1),
        ("0", 0),
        ("-0.001", -1),
        ("1e3", 1_000_000),
        ("1.7121954955055829E15", 1_712_195_495_505_582_900),
    ],
)
def test_times_of_every_profiler_version_become_exact_nanoseconds(text: str, ns: int) -> None:
    assert to_ns(number(text)) == ns
    assert type(to_ns(number(text))) is int


def test_double_would_lose_nanoseconds() -> None:
    text = "1712195495505582.988"

    assert int(float(text) * 1000) != to_ns(Decimal(text))


@given(decimal_texts())
@example("0." + "9" * 60)
@example("-0." + "0" * 50 + "1")
@example(f"{LARGEST_US - 1}." + "9" * 60)
def test_decimal_time_is_rounded_down_to_nanoseconds(text: str) -> None:
    assert to_ns(number(text)) == floor(Fraction(text) * 1000)


@given(decimal_texts(), decimal_texts())
@example("1712195495505582.9879999999999999999999999", "0.0000000000000000000000001")
@example(f"{LARGEST_US - 1}." + "9" * 60, "-" + "0." + "0" * 59 + "1")
def test_end_is_the_exact_sum_in_nanoseconds(start: str, duration: str) -> None:
    assert to_ns(plus(number(start), number(duration))) == floor((Fraction(start) + Fraction(duration)) * 1000)


@given(decimal_texts(), decimal_texts())
def test_sum_of_valid_times_fits_64_bits(start: str, duration: str) -> None:
    assert is_time(number(start))
    assert is_time(number(duration))
    assert -(1 << 63) <= to_ns(plus(number(start), number(duration))) < 1 << 63


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "12",
        1.5,
        [],
        {},
        LARGEST_US + 1,
        -LARGEST_US - 1,
        1 << 200,
        Decimal("1e400"),
        Decimal("-1e999999999"),
    ],
)
def test_non_number_or_time_beyond_2_to_the_62_ns_is_invalid(value: object) -> None:
    assert not is_time(value)


@pytest.mark.parametrize("text", ["1e-999999999", "-1e-999999999", "0e999999999"])
def test_extreme_exponent_is_computed_in_bounded_memory_and_time(text: str) -> None:
    assert is_time(Decimal(text))
    assert to_ns(plus(Decimal(text), 5)) in (4999, 5000)  # a tiny negative time rounds 5 µs down to 4999 ns

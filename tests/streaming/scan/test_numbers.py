"""Numbers are read with the offset after them, or left alone; nothing after the text's end counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.streaming.scan.compiled import called
from service.streaming.scan.numbers import read_integer, read_nanoseconds
from service.streaming.scan.reader import padded
from tests.conftest import scaled

integer_at, nanoseconds_at = called(read_integer), called(read_nanoseconds)
NOT_READ = (1, 0, False)


@given(st.integers(-(10**18) + 1, 10**18 - 1), st.sampled_from(",]} \n"))
@settings(max_examples=scaled(400))
def test_an_integer_ends_before_the_first_other_byte(number: int, behind: str) -> None:
    text = f" {number}{behind}8"
    assert integer_at(padded(text.encode()), 1, len(text)) == (1 + len(str(number)), number, True)


@given(st.text("0123456789/:;-.eE ", min_size=1, max_size=24))
@settings(max_examples=scaled(400))
def test_digits_are_the_bytes_from_0_to_9_alone(text: str) -> None:
    digits = len(text) - len(text.lstrip("0123456789"))
    after, value, is_integer = integer_at(padded(f" {text},".encode()), 1, len(text) + 2)
    if is_integer:
        assert (after, value) == (1 + len(f"{value}"), int(text[: after - 1]))
    else:
        assert (after, value) == (1, 0)
        assert not 0 < digits <= 18 or text[0] == "0" or text[digits] in ".eE"


@pytest.mark.parametrize("text", ["1", "12345678", "123456789012345678", "-5"])
def test_a_number_that_may_go_on_is_left_alone(text: str) -> None:
    frame = padded(f" {text}9999,".encode())
    assert integer_at(frame, 1, 1 + len(text)) == NOT_READ
    assert nanoseconds_at(frame, 1, 1 + len(text)) == (1, 0, -1)


@pytest.mark.parametrize(
    ("text", "nanoseconds", "decimals"),
    [
        ("0", 0, 0),
        ("0.5", 500, 1),
        ("-0.001", -1, 3),
        ("1712195499333509.373", 1712195499333509373, 3),
        ("12.50", 12500, 2),
    ],
)
def test_times_in_us_are_read_in_ns_with_the_number_of_their_decimals(
    text: str, nanoseconds: int, decimals: int
) -> None:
    assert nanoseconds_at(padded(f" {text},".encode()), 1, len(text) + 2) == (1 + len(text), nanoseconds, decimals)


@pytest.mark.parametrize(
    "text", ["-0", "-0.0", "01", "1.", ".5", "1.2345", "1e3", "1.5E3", "9000000000000000", "1" * 17]
)
def test_other_times_are_left_alone(text: str) -> None:
    assert nanoseconds_at(padded(f" {text},".encode()), 1, len(text) + 2) == (1, 0, -1)

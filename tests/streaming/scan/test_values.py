"""Values are read as a JSON parser reads them, or left to one."""

import json

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from service.streaming.scan.reader import padded
from service.streaming.scan.values import DIGITS_MAX, ESCAPES, after_blanks, after_characters, put_double, read_number

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,21})(\.[0-9]{1,21})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


@given(NUMBERS)
@example("9007199254740993.0")
@example("-0.0")
@example("1e-23")
def test_numbers_are_those_of_a_parser(text: str) -> None:
    number, doubles = np.zeros(4, np.int64), np.zeros(1)
    negative = text.startswith("-")
    end = read_number(padded(f"{text},".encode()), int(negative), number)
    assert end == len(text)
    digits, count, power, is_double = number.tolist()
    wanted = json.loads(text)
    assert bool(is_double) == isinstance(wanted, float)
    if not is_double and count <= DIGITS_MAX:
        assert (-digits if negative else digits, power) == (wanted, 0)
    if put_double(number, negative, doubles):
        assert doubles.tobytes() == np.array([float(text)]).tobytes()


def test_common_doubles_need_no_parser() -> None:
    number, doubles = np.zeros(4, np.int64), np.zeros(1)
    for text in ("0.1", "6967.312", "1e22", "0.0000000000000000000001", "900719925474099.1"):
        read_number(padded(f"{text}}}".encode()), 0, number)
        assert put_double(number, False, doubles), text


@given(st.text(max_size=30), st.sampled_from(["", " ", "\n\t "]))
def test_strings_and_blanks_end_where_a_parser_ends_them(value: str, blanks: str) -> None:
    text = f"{blanks}{json.dumps(value)},".encode()
    start = after_blanks(padded(text), 0)
    assert start == len(blanks)
    assert after_characters(padded(text), start + 1) == len(text) - 2


def test_escapes_are_those_of_json() -> None:
    letters = [letter for letter in range(0x20, 0x7F) if ESCAPES[letter]]
    assert {chr(letter): chr(ESCAPES[letter]) for letter in letters} == {
        letter: json.loads(f'"\\{letter}"') for letter in '"\\/bfnrt'
    }

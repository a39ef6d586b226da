"""JSON round-trips with the text of its numbers and all its members."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.text import Members, Number, read, with_member, written
from tests.columns import Number as Numeral
from tests.columns import Object, parsed
from tests.columns import written as serialised

strings = st.text(st.characters(codec=None, categories=None), max_size=6)
numerals = st.builds(Numeral, st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?\Z"))
values = st.recursive(
    strings | numerals | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(strings, inner), max_size=3).map(Object),
    max_leaves=8,
)
objects = st.lists(st.tuples(strings, values), max_size=4).map(Object)


@given(values)
def test_json_text_round_trips(value: object) -> None:
    assert parsed(written(read(serialised(value)))) == value


@pytest.mark.parametrize("text", ["1.50", "-0", "1E400", "123456789012345678901234567890", "1e-7", "NaN"])
def test_number_keeps_its_text(text: str) -> None:
    assert read(text) == Number(text)
    assert written(read(f"[{text}]")) == f"[{text}]"


def test_string_that_looks_like_a_number_stays_a_string() -> None:
    assert written(read('["1.50"]')) == '["1.50"]'


def test_duplicate_keys_are_kept() -> None:
    assert read('{"a": 1, "a": 2}') == Members([("a", Number("1")), ("a", Number("2"))])


def test_line_breaks_in_strings_are_accepted() -> None:
    assert json.loads(written(read('"a\nb\tc"'))) == "a\nb\tc"


@pytest.mark.parametrize("text", ["", "{", "[1,]", "01", '{"a" 1}', "1 2"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(text)


@given(objects, strings, values)
def test_with_member_appends_to_an_object(value: Object, key: str, member: object) -> None:
    text = serialised(value)
    for spaced in (text, text[:-1] + "\n }"):
        assert parsed(with_member(spaced, key, serialised(member))) == Object((*value, (key, member)))


@pytest.mark.parametrize("text", ["null", "[1]", "1", '"a"'])
def test_with_member_leaves_other_values_unchanged(text: str) -> None:
    assert with_member(text, "a", "1") == text

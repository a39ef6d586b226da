"""Sanitizing changes only harmful values, and all harmful texts are suspects."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.sanitizing import DEPTH_MAX, LONG, counter_args, plain, sanitized
from service.rendering.sanitizing import suspects as suspects_among
from service.rendering.text import PackedTexts
from tests.cutting.test_cut import ingested
from tests.rendering.loads import load

HARMFUL = st.characters(categories=["Cs"]) | st.just("\0")
SOUND = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
STRINGS = st.text(st.characters() | HARMFUL)
NUMBERS = st.integers() | st.integers(-(2**70), 2**70) | st.floats()


def objects(strings: st.SearchStrategy[str], numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    leaves = st.none() | st.booleans() | strings | numbers
    values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(strings, inner), max_leaves=12)
    return st.dictionaries(strings, values, max_size=5)


ANY = objects(STRINGS, NUMBERS) | st.lists(STRINGS) | STRINGS | NUMBERS | st.none()
DOUBLES = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)  # the engine reads no smaller ones
HARMLESS = objects(SOUND, st.integers(-(2**63), 2**63 - 1) | DOUBLES)


def text_of(value: Any, *, escaped: bool) -> str:
    """Return a value as JSON text, in the form in which ingest stores arguments."""
    text = json.dumps(value, ensure_ascii=escaped, separators=(",", ":"))
    text = re.sub(r'("[^"\\]*(?:\\.[^"\\]*)*")|NaN|-?Infinity', lambda match: match[1] or "1e999", text)
    return text if escaped else text.encode("utf-8", "replace").decode()


def suspects(table: PackedTexts) -> list[int]:
    """Return the indices of all texts that may need sanitizing."""
    indices: list[int] = suspects_among(table.values, table.starts, np.ones(len(table.lengths), np.bool_)).tolist()
    return indices


def check(value: Any, depth: int = 0) -> None:
    """Check that a value is harmless."""
    assert depth <= DEPTH_MAX
    match value:
        case dict():
            for key, item in value.items():
                check(key)
                check(item, depth + 1)
        case list():
            for item in value:
                check(item, depth + 1)
        case str():
            assert "\0" not in value
            value.encode()
        case bool() | None:
            pass
        case int():
            assert -(1 << 63) <= value < 1 << 63
        case float():
            assert math.isfinite(value)
        case _:
            raise AssertionError(value)


@given(ANY, st.booleans())
def test_sanitized_values_are_harmless(value: Any, escaped: bool) -> None:
    result = sanitized(text_of(value, escaped=escaped))
    check(json.loads(result))
    assert isinstance(json.loads(result), dict)
    assert "\\ud" not in result
    assert sanitized(result) == result


@given(HARMLESS, st.booleans())
def test_harmless_values_are_unchanged(value: dict[str, Any], escaped: bool) -> None:
    assert json.loads(sanitized(text_of(value, escaped=escaped))) == value


@given(st.lists(ANY, max_size=6), st.booleans())
def test_values_that_sanitizing_changes_are_suspects(values: list[Any], escaped: bool) -> None:
    texts = [text_of(value, escaped=escaped) for value in values]
    table = PackedTexts.of([text.encode() for text in texts])
    suspect = {*suspects(table)}
    for index, text in enumerate(texts):
        if index not in suspect:
            check(json.loads(text))
            assert json.loads(sanitized(text)) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        r'{"a":"\u0000"}', r'{"\u0000":1}', r'{"a":"\ud83d"}', r'{"a":"\uDC00"}', r'{"a":"\ud83d\ude00"}',
        '{"a":9223372036854775808}', '{"a":-9223372036854775809}', '{"a":1e999}', '{"a":1E+400}', '{"a":1.5e308}',
        '{"a":[18446744073709551615]}', "[]", "7", '"text"', "null", f'{{"a":"{"x" * LONG}"}}',
    ],
)  # fmt: skip
def test_harmful_text_is_suspect(text: str) -> None:
    table = PackedTexts.of([b"{}", text.encode(), b'{"a":1}'])
    assert suspects(table) == [1]


@pytest.mark.parametrize(
    "text",
    ["{}", '{"a":-9.5e-7}', '{"name":"kernel_1e999x"}', '{"a":"\\n\\\\"}', '{"a":123456789012345678}', '{"a":"é😀"}'],
)
def test_common_text_is_not_suspect(text: str) -> None:
    table = PackedTexts.of([text.encode()])
    assert suspects(table) == []


@pytest.mark.parametrize(
    "number",
    ["0.1", "0.38095238095238093", "1e-23", "1e23", "18446744073709551616.0", "12345678901234567890.5", "0e400", "-0.0",
     "3.141592653589793238462643383279", "0.0000001e315", "0.00000000000000000000001", "-1.7976931348623157e308",
     "1e00000000000000000000000023", f"0.{'0' * 5000}1", f"0e{'1' * 5000}", "5e-324", "2.5e-310",
     "0.00017438342254765194"],
)  # fmt: skip
def test_engine_reads_doubles_up_to_their_last_digits(number: str, tmp_path: Path) -> None:
    slice_ = '{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"z": %s, "after": 1}}'
    trace = ingested(f'{{"traceEvents": [{slice_ % number}]}}'.encode(), tmp_path / "trace")
    sql = "SELECT extract_arg(arg_set_id, 'args.z'), extract_arg(arg_set_id, 'args.after') FROM slice"
    whole = load(trace, sql).answers[0]
    chosen = load(trace, sql, selection={"names": ["a"]}).answers[0]
    assert whole == [(float(number), 1)]
    [[value, after]] = chosen
    assert after == 1
    if 0 < abs(float(number)) < 1e-300:
        assert value == number  # as text
    else:
        assert value == pytest.approx(float(number), rel=1e-15, abs=0)


@pytest.mark.parametrize("number", ["0e400", "0.0000001e315", "9223372036854775807", "1e19", "100000000000000000000.5"])
@pytest.mark.parametrize("key", ["tts", "tdur", "bind_id", "id2", "scope", "bp", "flow_in"])
def test_odd_number_outside_of_arguments_leaves_the_trace_loadable(key: str, number: str, tmp_path: Path) -> None:
    slice_ = f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "{key}": {number}}}'
    counter = '{"ph": "C", "name": "c", "pid": 1, "ts": 1, "args": {"n": 1e23}}'
    trace = ingested(f'{{"traceEvents": [{slice_}, {counter}]}}'.encode(), tmp_path / "trace")
    result = load(trace, "SELECT name, dur, thread_ts FROM slice", "SELECT value FROM counter")
    assert result.answers[0] == [("a", 2000, 0 if (key, number) == ("tts", "0e400") else None)]
    [[value]] = result.answers[1]
    assert value == pytest.approx(1e23, rel=1e-15)


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 1, 2000, 100_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_values_nested_too_deep_become_text(depth: int, brackets: tuple[str, str]) -> None:
    opens, closes = brackets
    inner = opens * (depth - 1) + "1" + closes * (depth - 1)
    result: Any = json.loads(sanitized(f'{{"b":{inner},"c":[2]}}'))
    check(result)
    assert result["c"] == [2]
    inner_value = result["b"]
    for _ in range(min(depth, DEPTH_MAX) - 1):
        inner_value = inner_value[0] if isinstance(inner_value, list) else inner_value["a"]
    deepest = opens * (depth - DEPTH_MAX) + "1" + closes * (depth - DEPTH_MAX)
    assert inner_value == (1 if depth <= DEPTH_MAX else deepest)


def test_duplicate_keys_keep_their_order() -> None:
    assert sanitized('{"a":1,"a":9223372036854775808}') == '{"a": 1, "a": "9223372036854775808"}'


def test_surrogate_pair_becomes_its_character() -> None:
    assert sanitized(r'{"\ud83d\ude00":"\ud83d\ude00\ud83d"}') == '{"😀": "😀\N{REPLACEMENT CHARACTER}"}'
    assert plain("a\0\ud83d") == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("args", "expected", "numbers", "omitted"),
    [
        (None, {}, 0, 0),
        ("{}", {}, 0, 0),
        ('{"a":1,"b":2.5,"c":-0}', {"a": 1, "b": 2.5, "c": 0}, 3, 0),
        ('{"a":"NaN","b":[1],"c":true,"d":null,"e":1e999}', {}, 0, 5),
        ("7", {"value": 7}, 1, 0),
        ('"text"', {}, 0, 1),
        ('{"a":1,"a":2}', {"a": 2}, 1, 0),
        (f'{{"a":{"9" * 5000},"b":{"9" * 40}}}', {"b": 1e40}, 1, 1),
        (r'{"a\u0000\ud83d":1}', {"a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}": 1}, 1, 0),
    ],
)
def test_counter_args_keep_only_numbers(args: str | None, expected: Any, numbers: int, omitted: int) -> None:
    text, count, left_out = counter_args(args)
    assert json.loads(text) == expected
    assert (count, left_out) == (numbers, omitted)


def test_empty_texts_are_not_suspect() -> None:
    table = PackedTexts.of([])
    assert suspects(table) == []
    assert suspects(PackedTexts(table.values, np.zeros(3, np.int64))) == []


@pytest.mark.parametrize("value", ["9223372036854775808", "1e999", "7E+308", r'"\u0000"', r'"\ud83d"'])
def test_harmful_value_is_found_at_any_offset(value: str) -> None:
    texts = [f'{{"{"k" * offset}":{value}}}' for offset in range(40)]
    table = PackedTexts.of([text.encode() for text in [*texts, *(f'{{"{"k" * 30}":1}}' for _ in range(3))]])
    assert suspects(table) == [*range(len(texts))]


def test_only_the_chosen_texts_are_suspects() -> None:
    table = PackedTexts.of([b"[]", b"[]", b"{}"])
    assert suspects_among(table.values, table.starts, np.array([False, True, True])).tolist() == [1]

"""Damaged JSON becomes valid JSON through the smallest plausible change, or is refused; valid JSON is unchanged."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.streaming.repair import DEPTH_MAX, REPAIRS_MAX, Repaired, Unrepairable, repair_json
from tests.conftest import SHARED, needs_shared

MALFORMED = SHARED / "malformed"
MEGABYTE = 1 << 20


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def read(text: bytes) -> Any:
    """Parse strictly valid JSON. Numbers stay strings, so that none is too large."""
    return json.loads(text.decode(), parse_constant=refuse, parse_int=str, parse_float=str)


def damages(piece: bytes) -> list[tuple[str, int]]:
    return [(change.damage.value, change.offset) for change in repair_json(piece).repairs]


def only_value(piece: bytes) -> bytes:
    (value,) = repair_json(piece).values
    read(value)
    return value


CASES = {
    "a newline in a string": (b'{"a": "x\ny"}', rb'{"a": "x\ny"}', [("control_character", 8)]),
    "a tab in a key": (b'{"a\tb": 1}', rb'{"a\tb": 1}', [("control_character", 3)]),
    "other control characters": (b'["\x01x\x1f"]', b'["\\u0001x\\u001f"]', [("control_character", 2)]),
    "a NUL between tokens": (b'{"a": 1,\x00 "b":\x00 2\x00}', b'{"a": 1, "b": 2 }', "control_character"),
    "DEL and a C1 control, which are sound": (b'["\x7f\xc2\x80"]', b'["\x7f\xc2\x80"]', []),
    "an escape of nothing": (rb'["\q", "a\u12", "\n"]', rb'["\\q", "a\\u12", "\n"]', "bad_escape"),
    "a backslash before a newline": (b'["a\\\nb"]', rb'["a\\\nb"]', [("bad_escape", 3), ("control_character", 4)]),
    "a path of Windows": (
        rb'{"a": "C:\Users\new\table.py(3): f", "b": 1}',
        rb'{"a": "C:\\Users\\new\\table.py(3): f", "b": 1}',
        [("bad_escape", 9)],
    ),
    "paths that end with a backslash": (
        rb'{"a": "C:\tmp\", "b": "D:\bar\"}',
        rb'{"a": "C:\\tmp\\", "b": "D:\\bar\\"}',
        [("bad_escape", 13), ("bad_escape", 29)],
    ),
    "stray bytes": (
        b'["a\xffb", "\xe2\x82", "\xf0\x9f\x98\x80"]',
        '["a\ufffdb", "\ufffd", "😀"]'.encode(),
        [("invalid_utf8", 3), ("invalid_utf8", 9)],
    ),
    "surrogates as bytes": (b'["\xed\xa0\xbd\\ud83d"]', '["\ufffd\ufffd\ufffd\\ud83d"]'.encode(), "invalid_utf8"),
    "an offset behind stray bytes": (
        b'["\xff\xfe\\q\xe2\x82\n"]',
        '["\ufffd\ufffd\\\\q\ufffd\\n"]'.encode(),
        [("invalid_utf8", 2), ("bad_escape", 4), ("invalid_utf8", 6), ("control_character", 8)],
    ),
    "no numbers": (
        b'{"a": NaN, "b": -Infinity, "c": [nan, inf, -inf, -nan(ind), 1.#INF]}',
        b'{"a": "NaN", "b": "-Infinity", "c": ["nan", "inf", "-inf", "-nan(ind)", "1.#INF"]}',
        "not_a_number",
    ),
    "bare words": (
        b'{"a": N/A, "b": None\n, "c": [True, undefined], "d": not json}',
        b'{"a": "N/A", "b": "None"\n, "c": ["True", "undefined"], "d": "not json"}',
        "bare_word",
    ),
    "numbers of other languages": (
        b"[1.2.3, 0x1f, +5, .5, 5., 1e, 12 MB, 10:30]",
        b'["1.2.3", "0x1f", "+5", ".5", "5.", "1e", "12 MB", "10:30"]',
        "bare_word",
    ),
    "a word with backslashes": (rb'{"a": C:\x}', rb'{"a": "C:\\x"}', [("bare_word", 6)]),
    "bare keys": (b'{a: 1, b c : 2}', b'{"a": 1, "b c": 2}', [("bare_word", 1), ("bare_word", 7)]),
    "values that are missing": (b'{"a": , "b": }', b'{"a": null, "b": null}', [("bare_word", 6), ("bare_word", 13)]),
    "leading zeros": (b'[007, -012.5, 00, 00.50e3]', b"[7, -12.5, 0, 0.50e3]", "leading_zero"),
    "numbers of any size": (b"[1e400, 123456789012345678901234567890.10]", None, []),
    "a comma too many in an object": (b'{,"a": 1,, "b": 2,}', b'{"a": 1, "b": 2}', "extra_comma"),
    "a comma too many in an array": (b"[,1,, 2,]", b"[1, 2]", [("extra_comma", n) for n in (1, 4, 7)]),
    "lost commas": (
        b'{"a": 1 "b": [1 2 "x" {} []] "c": "x" "d": {"e": "y"}\n"f": true}',
        b'{"a": 1, "b": [1, 2, "x", {}, []], "c": "x", "d": {"e": "y"},\n"f": true}',
        "missing_comma",
    ),
    "lost colons": (b'{"a" 1, "b" "x", "c" {"d": 1}}', b'{"a": 1, "b": "x", "c": {"d": 1}}', "missing_colon"),
    "a lost comma and a lost colon behind a string": (
        b'{"args": {"a": "x"} "dur" 5}',
        b'{"args": {"a": "x"}, "dur": 5}',
        [("missing_comma", 19), ("missing_colon", 25)],
    ),
    "a NUL before a bracket": (b'{"a":\x00[1]}', b'{"a": [1]}', [("control_character", 5)]),
    "lost ends": (b'{"a": {"b": [1, 2', b'{"a": {"b": [1, 2]}}', [("unclosed", 17)]),
    "a lost end before the comma of the piece": (b'{"a": {"b": 1},\n  ', b'{"a": {"b": 1}}', [("unclosed", 14)]),
    "the lost end of an array": (b'{"a": [1, 2}', b'{"a": [1, 2]}', [("unclosed", 11)]),
    "lost ends on both sides": (b'{"a": {"b": [1}', b'{"a": {"b": [1]}}', "unclosed"),
    "an object's end for an array's": (b'{"a": [1, 2}, "b": 3}', b'{"a": [1, 2], "b": 3}', [("wrong_bracket", 11)]),
    "an array's end for an object's": (b'{"a": {"b": 1]}', b'{"a": {"b": 1}}', [("wrong_bracket", 13)]),
    "an end of the wrong kind where nothing is": (b'{"a": [}', b'{"a": []}', [("unclosed", 7)]),
    "an end too many where nothing is": (b"[}, 1]", b"[ 1]", [("wrong_bracket", 1), ("extra_comma", 2)]),
    "an end too many inside": (b'{"a": 1]}', b'{"a": 1}', [("wrong_bracket", 7)]),
    "an end too many behind": (b'{"a": 1}}, ', b'{"a": 1}', [("wrong_bracket", 8)]),
}  # fmt: skip


@pytest.mark.parametrize(("piece", "repaired", "expected"), CASES.values(), ids=CASES)
def test_damage_is_repaired_to_exact_text(piece: bytes, repaired: bytes | None, expected: Any) -> None:
    assert only_value(piece) == (piece if repaired is None else repaired)
    if isinstance(expected, str):
        assert {damage for damage, _ in damages(piece)} == {expected}
    else:
        assert damages(piece) == expected


UNPAIRED = ['5" disk', 'open "(', 'end "}']
NAMES = [
    'foo "bar" baz',
    'quote "q" in name',
    '"all of it"',
    '""',
    '"a", "b"',
    *UNPAIRED,
    '{"device": "cpu"}',
    '{"device": "cpu", "x": "y"}',
    '{"a": {"b": ["c", "d"]}, "e": null}',
    '[{"a": "b"}, {"c": "d"}]',
    '"x": 1',
    'f("x", "y", "z")',
    '["a", "b"]',
    'print("a: {}", "}")',
]


def name_first(name: bytes) -> bytes:
    return b'{"ph": "X", "name": "%b", "pid": 1, "args": {"x": ["y", ""]}}' % name


def name_last(name: bytes) -> bytes:
    return b'{"ph": "X", "pid": 1,\n "name": "%b"\n}' % name


def inside(name: bytes) -> bytes:
    return b'{"ph": "X", "args": {"a": ["[4]", "%b", ""], "b": [[], [1]]}, "pid": 1}' % name


def deep(name: bytes) -> bytes:
    return b'{"ph": "X", "args": {"a": {"b": "%b"}}}' % name


def duplicated(name: bytes) -> bytes:
    return b'{"name": "%b", "cat": "%b", "pid": 1}' % (name, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [name_first, name_last, inside, deep])
def test_string_with_stray_quotes_keeps_its_end(name: str, place: Callable[[bytes], bytes]) -> None:
    piece = place(name.encode())
    assert only_value(piece) == place(name.replace('"', r"\"").encode())
    assert [damage for damage, _ in damages(piece)] == ["unescaped_quote"]
    assert damages(piece)[0][1] == place(b"|").index(b"|") + name.index('"')


@pytest.mark.parametrize("place", [name_first, name_last, inside, deep])
@pytest.mark.parametrize("behind", [0, 1, 100])
def test_string_of_much_json_keeps_its_end(place: Callable[[bytes], bytes], behind: int) -> None:
    name = json.dumps({f"key {n}": {"f(x)": ["a", "b"], "g": "h"} if n % 9 else "text" for n in range(500)})
    piece = b",\n".join([place(name.encode())] + [name_first(b"x")] * behind)
    sound = [place(name.replace('"', r"\"").encode())] + [name_first(b"x")] * behind
    assert (repair_json(piece).values, damages(piece)[1:]) == (sound, [])


@pytest.mark.parametrize("name", UNPAIRED)
def test_string_with_single_quote_or_bracket_keeps_its_end_in_long_text(name: str) -> None:
    piece = b",\n".join([name_first(name.encode())] + [name_first(b"x")] * 100)
    assert repair_json(piece).values == [name_first(name.replace('"', r"\"").encode())] + [name_first(b"x")] * 100


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.count("(") + name.count("{") == name.count(")") + name.count("}")]
)
def test_two_strings_with_stray_quotes_stay_separate(name: str) -> None:
    assert only_value(duplicated(name.encode())) == duplicated(name.replace('"', r"\"").encode())


def test_a_key_may_have_stray_quotes() -> None:
    assert only_value(b'{"say "hi" you": 1}') == rb'{"say \"hi\" you": 1}'


def test_escaped_quotes_stay_as_they_are_among_stray_ones() -> None:
    assert only_value(rb'{"a": "x \"y\" "z" \\", "b": 1}') == rb'{"a": "x \"y\" \"z\" \\", "b": 1}'


@pytest.mark.parametrize(
    ("piece", "values", "expected"),
    [
        (b'{"a": 1}, {"b": 2},', [b'{"a": 1}', b'{"b": 2}'], []),
        (b'{"a": 1}\n{"b": "x"} {"c": 3}', [b'{"a": 1}', b'{"b": "x"}', b'{"c": 3}'], "missing_comma"),
        (b'{"a": {"b": 1,\n{"c": 2}, ', [b'{"a": {"b": 1}}', b'{"c": 2}'], "unclosed"),
        (b'{"a": 1,}, {"b": {"c": 2},\n\n{"d": 3}', [b'{"a": 1}', b'{"b": {"c": 2}}', b'{"d": 3}'], None),
        (b'{"a": 1 {"b": 2}', [b'{"a": 1}', b'{"b": 2}'], None),
        (b'[{"a": 1 {"b": 2}]', [b'[{"a": 1}, {"b": 2}]'], None),
        (b'{"a": "x"}, "text", N/A, 5,', [b'{"a": "x"}', b'"text"', b'"N/A"', b"5"], "bare_word"),
        (b'{"a": 1}, , {"b": 2},', [b'{"a": 1}', b'{"b": 2}'], "extra_comma"),
        (b",", [], "extra_comma"),
        (b" \n", [], []),
        (b"", [], []),
    ],
)
def test_a_piece_may_hold_any_number_of_values(piece: bytes, values: list[bytes], expected: Any) -> None:
    assert repair_json(piece).values == values
    assert expected is None or {damage for damage, _ in damages(piece)} == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("piece", "offset"),
    [
        (b"}", 0),
        (b'{"a": 1} xyz', 9),
        (b'{"a": 1} : 2', 9),
        (b'{"a": "x', 6),
        (b'{"a', 1),
        (b'["\\', 1),
        (b'{"a": ', 6),
        (b'{"a": {', 7),
        (b'{"a": 1, b, "c": 2}', 9),
        (b'{"a":: 1}', 5),
        (b'{"a": foo"bar, "b": 1}', 9),
        (b'["\xff", }x', 6),
    ],
)
def test_ambiguous_damage_is_refused_with_its_offset(piece: bytes, offset: int) -> None:
    with pytest.raises(Unrepairable, match=r"\.$") as refused:
        repair_json(piece)
    assert (refused.value.offset, refused.value.reason) == (offset, str(refused.value))


@pytest.mark.parametrize("piece", [b'{"a": 1', b'{"a": {"b": 1},', b'{"a": {"b": [1}', b'{"a": "x'])
def test_values_cut_off_at_document_end_are_refused(piece: bytes) -> None:
    with pytest.raises(Unrepairable):
        repair_json(piece, at_end=True)


def test_complete_values_at_document_end_are_repaired() -> None:
    assert repair_json(b'{"a": NaN}', at_end=True).values == [b'{"a": "NaN"}']


def test_nesting_is_read_to_its_limit_and_refused_beyond() -> None:
    deepest = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert repair_json(deepest) == ([deepest], [])
    with pytest.raises(Unrepairable, match="nested"):
        repair_json(b"[%b]" % deepest)
    with pytest.raises(Unrepairable, match="nested"):
        repair_json(b'{"a":' * MEGABYTE)


def test_too_many_repairs_are_refused() -> None:
    assert len(repair_json(b"[" + b"NaN," * (REPAIRS_MAX - 1) + b"1,]").repairs) == REPAIRS_MAX
    for damaged in (b"NaN,", b'"\xff",', b",", b"\x00,"):
        with pytest.raises(Unrepairable, match="places"):
            repair_json(b"[" + damaged * (REPAIRS_MAX + 1) + b"1]")


def test_valid_string_with_any_number_of_escapes_is_unchanged() -> None:
    piece = b'{"%b": ["%b"]}' % (rb"\n" * 10_000, rb"\"" * 10_000)
    assert repair_json(piece) == ([piece], [])


QUOTED = [
    b'"',
    b'""a',
    b'"a" b, ',
    b'"(",',
    b'"a":',
    b'["("a", ',
    b'{"a":"b"} ',
    b'"\\",1,',
    b'"x)"]},"',
    b'"a":"b" "c",',
]
UNQUOTED = [
    b"[",
    b"{",
    b"}",
    b"[{}]",
    b",",
    b":",
    b"\\",
    b'\\"',
    b"\x01",
    b"\xff",
    b"a\xff",
    b"a ",
    b"1 ",
    b"0",
    b"NaN,",
]


@pytest.mark.system
@pytest.mark.parametrize("start", [b"", b'{"a":', b'["C:\\x '])
def test_time_is_proportional_to_length_for_any_piece(start: bytes) -> None:
    """Proportional time takes seconds here; quadratic time would take hours."""
    for pattern in QUOTED + UNQUOTED:
        piece = start + (pattern * MEGABYTE)[: MEGABYTE // 4]
        for end in (b"", b'"]'):
            try:
                repaired = repair_json(piece + end)
            except Unrepairable:
                continue
            assert all(json.loads(b"[%b]" % value) for value in repaired.values if len(value) < 100)


# Strategies for any JSON value.

words = st.text("abc xyz_:,/#'()<>é😀", max_size=12)
texts = words | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4))
objects = st.dictionaries(texts, values, max_size=6)


@st.composite
def dumped(draw: st.DrawFn, strategy: st.SearchStrategy[Any] = values) -> bytes:
    """Draw the JSON text of a value, in the style of any writer."""
    indent, separators = draw(st.sampled_from([(None, None), (2, None), (None, (",", ":")), (None, (" ,\n", "\t: "))]))
    return json.dumps(draw(strategy), ensure_ascii=draw(st.booleans()), indent=indent, separators=separators).encode()


def write(value: Any, string: Callable[[str], str], comma: Callable[[], str] = lambda: ", ", last: str = "") -> bytes:
    """Return the JSON text of a value, with custom strings and commas, and with `last` before each closing bracket."""

    def parts(value: Any) -> str:
        if isinstance(value, str):
            return string(value)
        if isinstance(value, dict):
            members = [f"{string(key)}: {parts(member)}" for key, member in value.items()]
            return "{" + joined(members) + "}"
        if isinstance(value, list):
            return "[" + joined([parts(item) for item in value]) + "]"
        return json.dumps(value)

    def joined(items: list[str]) -> str:
        return "".join(item + (comma() if n < len(items) - 1 else last) for n, item in enumerate(items))

    return parts(value).encode()


@given(dumped())
def test_valid_json_is_returned_unchanged(piece: bytes) -> None:
    assert repair_json(piece) == ([piece], [])


@given(st.lists(dumped(objects), max_size=4))
def test_valid_values_are_returned_unchanged_without_separators(pieces: list[bytes]) -> None:
    assert repair_json(b" ,\n".join(pieces)) == (pieces, [])
    assert repair_json(b",".join([*pieces, b" "]) if pieces else b"") == (pieces, [])


@given(values)
def test_raw_control_characters_keep_the_value(value: Any) -> None:
    def raw(text: str) -> str:
        return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'

    assert json.loads(only_value(write(value, raw))) == value


@given(values)
def test_invalid_escapes_keep_their_text_and_valid_ones_their_meaning(value: Any) -> None:
    def quoted(text: str) -> str:
        return json.dumps(text.replace(":", ";"))[:-1] + '\\q\\U\\x0"'  # without colons, as Windows paths differ

    def expected(value: Any) -> Any:
        if isinstance(value, dict):
            return {expected(key): expected(member) for key, member in value.items()}
        if isinstance(value, list):
            return [expected(item) for item in value]
        return value.replace(":", ";") + r"\q\U\x0" if isinstance(value, str) else value

    assert json.loads(only_value(write(value, quoted))) == expected(value)


@given(values, st.randoms(use_true_random=False))
def test_surplus_commas_keep_the_value(value: Any, chance: random.Random) -> None:
    piece = write(value, json.dumps, lambda: chance.choice([",", ", ,", " ,, ,"]), last=chance.choice(["", ",", ", ,"]))
    assert json.loads(only_value(piece)) == value


@given(values, st.randoms(use_true_random=False))
def test_lost_commas_keep_the_value(value: Any, chance: random.Random) -> None:
    piece = write(value, json.dumps, lambda: chance.choice([" ", "\n", ", "]))
    assert json.loads(only_value(piece)) == value


@given(values, st.integers(0, 20))
def test_lost_closing_brackets_keep_the_value(value: Any, count: int) -> None:
    piece = json.dumps(value).encode()
    ends = len(piece) - len(piece.rstrip(b"]}"))
    truncated = piece[: len(piece) - min(count, ends)]
    try:
        repaired = only_value(truncated)
    except Unrepairable:
        assert truncated.endswith((b"[", b"{"))
    else:
        assert repaired == piece


@given(objects, st.binary(min_size=1, max_size=8))
def test_invalid_utf8_is_replaced_as_python_replaces_it(value: dict[str, Any], raw: bytes) -> None:
    raw = b"".join(b"\\u%04x" % byte if byte < 0x20 or byte in b'"\\' else bytes([byte]) for byte in raw)
    piece = json.dumps({"name": "|", **value, "last": "|"}).encode().replace(b"|", raw)
    assert only_value(piece) == piece.decode(errors="replace").encode()


terms = st.sampled_from(["", "a", "cuda:0", "a b", "x, y", "aten::add"])
json_texts = st.recursive(
    terms | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(terms, inner, max_size=3),
).map(json.dumps)


@given(json_texts, st.sampled_from([name_first, name_last, inside, deep, duplicated]))
@example(json.dumps({"device": "cpu", "x": "y"}), name_first)
def test_a_name_that_is_json_itself_is_kept(name: str, place: Callable[[bytes], bytes]) -> None:
    assert only_value(place(name.encode())) == place(name.replace('"', r"\"").encode())


bits = st.sampled_from(rb'" { } [ ] , : \ 1 007 - . a NaN N/A true "a" "b": "c":1, {"d":[ C:\ \" \u12 \ud83d'.split())
fragments = bits | st.sampled_from([b"\n", b"\x00", b"\xff", b"\xe2\x82", b" "])


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    """Draw valid JSON with a few bytes inserted or removed."""
    text = bytearray(draw(dumped()))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 3))] = draw(st.just(b"") | fragments)
    return bytes(text)


@given(st.binary() | st.lists(fragments, max_size=40).map(b"".join) | mutilated(), st.booleans())
def test_any_bytes_are_refused_or_become_valid_json(piece: bytes, at_end: bool) -> None:
    try:
        repaired = repair_json(piece, at_end=at_end)
    except Unrepairable as refused:
        repaired, offsets = Repaired([], []), [refused.offset]
    else:
        offsets = [change.offset for change in repaired.repairs]
    for value in repaired.values:
        read(value)
        assert value.strip() == value
        assert repair_json(value, at_end=True) == ([value], [])
    assert offsets == sorted(offsets)
    assert all(0 <= offset <= len(piece) for offset in offsets)


# Files that torch has written.

OTHERS = [
    "backslash",
    "concrete_string",
    "ctrl01",
    "del7f",
    "emoji",
    "empty",
    "inf_nan_concrete",
    "na",
    "newline",
    "tab",
]
BROKEN = {
    "quote": ['quote "q" in name'],
    "json_braces": ['{"device": "cpu"}(12): run'],
    "weird_names": ['quote "q" in name', '{"device": "cpu"}'],
}


def malformed(name: str) -> bytes:
    return Path(MALFORMED / f"{name}.pt.trace.json").read_bytes()


@needs_shared
@pytest.mark.parametrize("name", OTHERS)
def test_valid_real_traces_are_returned_unchanged(name: str) -> None:
    piece = malformed(name)
    assert repair_json(piece) == ([piece.strip()], [])


@needs_shared
@pytest.mark.parametrize("name", BROKEN)
def test_names_that_broke_real_traces_are_kept(name: str) -> None:
    piece = malformed(name)
    expected = piece.strip()
    for broken in BROKEN[name]:
        expected = expected.replace(b'"%b",\n' % broken.encode(), json.dumps(broken).encode() + b",\n")
    assert only_value(piece) == expected
    assert [damage for damage, _ in damages(piece)] == ["unescaped_quote"] * len(BROKEN[name])
    names = [event["name"] for event in json.loads(only_value(piece))["traceEvents"]]
    assert set(BROKEN[name]) <= set(names)


@needs_shared
def test_metadata_that_broke_a_real_trace_is_kept() -> None:
    """torch lost the backslashes of these values, and the repair does not guess them."""
    piece = malformed("metadata_bad")
    document = json.loads(only_value(piece))
    assert document["str_md"] == 'a /"quoted/" / valuenl'
    assert (document["json_md"], document["bad_md"], document["host_name"]) == ({"a": "NaN"}, "not json", "vm")
    assert len(document["traceEvents"]) == piece.count(b'"ph"')
    assert [damage for damage, _ in damages(piece)] == ["unescaped_quote", "not_a_number", "bare_word"]


@needs_shared
def test_every_real_trace_that_broke_is_tested() -> None:
    files = {path.name.removesuffix(".pt.trace.json") for path in MALFORMED.iterdir()}
    assert files == {*OTHERS, *BROKEN, "metadata_bad"}

"""A document, in any layout and any chunking, gives the events and the envelope that `json` finds in it."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from service.streaming import document
from service.streaming.document import Document, StringTracker
from service.trace.errors import IngestError, NotATrace, NotJson, Truncated

BOM = b"\xef\xbb\xbf"


def chunked(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def read(text: bytes, size: int = 1 << 18) -> tuple[list[Any], bytes, dict[str, Any]]:
    """Events, the envelope's text and the envelope, of a document that comes in chunks of `size` bytes."""
    one = Document(chunked(text, size))
    events = list(one.events())
    return events, one.envelope_text(), one.envelope()


def refusal(text: bytes, size: int = 1 << 18) -> IngestError:
    with pytest.raises(IngestError) as caught:
        read(text, size)
    return caught.value


# -- what json finds --------------------------------------------------------------------------------------------

odd_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('\\"[]{}:,/ntu', max_size=8)
names = st.sampled_from(["traceEvents", "item", "ph", "args", '"traceEvents": [', "\\", '\\"', "]", "}]}"]) | odd_text
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**18, 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
events = st.lists(st.dictionaries(names, values, max_size=3) | st.none() | scalars | values, max_size=6)
metadata = st.dictionaries(names.filter(lambda key: key not in ("traceEvents", "traceEvents.item")), values, max_size=3)
layouts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 1, 2, "\t", " " * 40]),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", " : ")]),
        "ensure_ascii": st.booleans(),
    }
)
margins = st.sampled_from([b"", b"\n", b" \t\r\n" * 3])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """The text of a trace document: an object with its events anywhere, or the bare array."""
    inner = draw(events)
    before, after = draw(metadata), draw(metadata)
    whole: Any = inner
    if draw(st.integers(0, 3)):
        whole = {**before, "traceEvents": inner, **{key: value for key, value in after.items() if key not in before}}
    text = json.dumps(whole, **draw(layouts)).encode()
    return draw(margins) + text + draw(margins)


def check_against_json(text: bytes, size: int) -> None:
    whole = json.loads(text, parse_float=Decimal)
    bare = isinstance(whole, list)

    found, envelope_text, envelope = read(text, size)

    assert found == (whole if bare else whole["traceEvents"])
    assert [type(one) for one in found] == [type(one) for one in (whole if bare else whole["traceEvents"])]
    assert json.loads(envelope_text, parse_float=Decimal) == ([] if bare else {**whole, "traceEvents": []})
    assert list(envelope) == ([] if bare else [key for key in whole if key != "traceEvents"])
    assert envelope == ({} if bare else {key: value for key, value in whole.items() if key != "traceEvents"})


@given(documents(), st.integers(1, 30) | st.just(1 << 18))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(b'{"a": "]}", "traceEvents": [], "b": [[]]}', 1)
@example(b'{"traceEvents": [{"traceEvents": [1]}, [[2]], {}], "z": {"traceEvents": [3]}}', 3)
@example(b'{"x": "traceEvents", "y": ["traceEvents"], "traceEvents" \n : \t [ {} ] }', 2)
@example(b'[{"traceEvents": []}]', 5)
@example(b'{"traceEvents": [null, 1, "x", {}], "INFO": [["]"]], "W": []}', 4)
def test_events_and_envelope_are_those_that_json_finds(text: bytes, size: int) -> None:
    check_against_json(text, size)


@given(documents())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_size_of_chunk_finds_the_same(text: bytes) -> None:
    whole = read(text)

    assert all(read(text, size) == whole for size in range(1, min(len(text), 120) + 1))


@given(documents())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_cut_is_told(text: bytes) -> None:
    text = text.strip()
    for end in range(1, min(len(text), 300)):
        error = refusal(text[:end], 7)

        assert isinstance(error, Truncated)
        assert error.extra == {"offset": end}


def test_the_envelope_text_is_the_documents_own() -> None:
    text = b'{ "a" : 1.50 ,\n"traceEvents" : [\n {"n": 1} , {"n": 2}\n ]\t, "b":1e5,"c" : "\\u00e9" }\n'

    for size in range(1, len(text) + 1):
        assert read(text, size)[1] == b'{ "a" : 1.50 ,\n"traceEvents" : []\t, "b":1e5,"c" : "\\u00e9" }\n'


@pytest.mark.parametrize("key", [b'"trace\\u0045vents"', b'"\\u0074raceEvents"'])
def test_the_key_of_the_events_may_be_written_with_escapes(key: bytes) -> None:
    text = b'{"a": 1, ' + key + b': [{"n": 1}], "b": 2}'

    for size in range(1, len(text) + 1):
        assert read(text, size) == ([{"n": 1}], b'{"a": 1, ' + key + b': [], "b": 2}', {"a": 1, "b": 2})


@pytest.mark.parametrize("text", [b"[]", b'{"traceEvents":[]}', b' {"traceEvents" : [ ] , "a" : [ 1 ] } '])
def test_a_trace_without_events_is_a_trace(text: bytes) -> None:
    for size in range(1, len(text) + 1):
        assert read(text, size)[0] == []


def test_a_byte_order_mark_is_passed_over() -> None:
    text = BOM + b'{"traceEvents": [{"n": 1}], "a": 2}'

    for size in range(1, len(text) + 1):
        assert read(text, size) == ([{"n": 1}], b'{"traceEvents": [], "a": 2}', {"a": 2})
        assert read(BOM + b" \n " + text.removeprefix(BOM), size) == read(text)
        assert refusal(text + b"x", size).extra["offset"] == len(text)


def test_numbers_are_exact() -> None:
    text = b'[{"a": 1712195495406752.8, "b": 9223372036854775808, "c": 0.10, "d": 1e400, "e": 2.50, "f": -0.0}]'

    (event,) = read(text)[0]

    assert {key: str(value) for key, value in event.items()} == {
        "a": "1712195495406752.8",
        "b": "9223372036854775808",
        "c": "0.10",
        "d": "1E+400",
        "e": "2.50",
        "f": "-0.0",
    }
    assert type(event["b"]) is int


def test_nesting_two_thousand_deep_breaks_nothing() -> None:
    deep = b"[" * 2000 + b"]" * 2000

    found, envelope_text, envelope = read(b'{"traceEvents": [{"args": ' + deep + b'}, {}], "m": ' + deep + b"}", 1000)

    assert len(found) == 2
    assert envelope_text.endswith(deep + b"}")
    assert list(envelope) == ["m"]


# -- what is wrong, and where -----------------------------------------------------------------------------------

EVENT = (
    b'  {\n    "ph": "X", "cat": "cpu_op", "name": "aten::add \xc3\xa9",'
    b' "ts": 1234.567, "dur": 8, "args": {"d": [1, 2]}\n  }'
)
SOUND = b'{\n "schemaVersion": 1,\n "traceEvents": [\n' + b",\n".join([EVENT] * 40) + b'\n],\n "traceName": "t"\n}\n'
MIDDLE = SOUND.index(EVENT, len(SOUND) // 2)


def spoilt(old: bytes, new: bytes, at: bytes, start: int = MIDDLE) -> tuple[bytes, int]:
    """`SOUND` with the first `old` after `start` made `new`, and where in it the bytes `at` of `new` begin."""
    place = SOUND.index(old, start)
    return SOUND[:place] + new + SOUND[place + len(old) :], place + new.index(at)


SPOILT = {
    "NaN": spoilt(b"1234.567", b"NaN", b"N"),
    "Infinity": spoilt(b"1234.567", b"-Infinity", b"I"),
    "N/A": spoilt(b"1234.567", b"N/A", b"N"),
    "an unescaped quote": spoilt(b"aten::add", b'aten::"add', b"add"),
    "a control character": spoilt(b"aten::add", b"aten\x01add", b"\x01"),
    "a tab": spoilt(b"aten::add", b"aten\tadd", b"\t"),
    "a newline": spoilt(b"aten::add", b"aten\nadd", b"\n"),
    "a NUL in a string": spoilt(b"aten::add", b"aten\0add", b"\0"),
    "a NUL outside": spoilt(b' "ts"', b'\0"ts"', b"\0"),
    "invalid UTF-8": spoilt(b"aten::add", b"aten\xffadd", b"\xff"),
    "a Windows path": spoilt(b"aten::add", b"C:\\data", b"d"),
    "hex that is none": spoilt(b"aten::add", b"\\u12G4", b"G"),
    "a trailing comma": spoilt(b"\n],", b",\n],", b"]"),
    "a comma too many": spoilt(b"},\n  {", b"},,\n  {", b",\n"),
    "a comma too few": spoilt(b"},\n  {", b"}\n  {", b"{"),
    "a bracket that closes nothing": spoilt(b"[1, 2]", b"[1, 2}", b"}"),
    "a colon too few": spoilt(b'"dur": 8', b'"dur" 8', b"8"),
    "a colon too many": spoilt(b'"dur": 8', b'"dur":: 8', b": "),
    "a zero that leads": spoilt(b'"dur": 8', b'"dur": 08', b"8"),
    "a plus": spoilt(b'"dur": 8', b'"dur": +8', b"+"),
    "no digit after the point": spoilt(b"1234.567", b"1234.", b"."),
    "single quotes": spoilt(b'"cpu_op"', b"'cpu_op'", b"'"),
    "Python's None": spoilt(b'"cpu_op"', b"None", b"N"),
    "a comment": spoilt(b' "ts"', b'# "ts"', b"#"),
    "a key that is none": spoilt(b'"dur": 8', b"7: 8", b"7"),
    "a wrong token in the envelope": spoilt(b'"t"', b"undefined", b"u"),
    "a wrong token at the start": spoilt(b"1,", b"x1,", b"x", start=0),
    "more after the end": (SOUND + b"x", len(SOUND)),
    "a second document": (SOUND + SOUND, len(SOUND)),
    "a NUL after the end": (SOUND + b"\0", len(SOUND)),
}
SPOILT["no digit after the point"] = (SPOILT["no digit after the point"][0], SPOILT["no digit after the point"][1] + 1)


@pytest.mark.parametrize("what", SPOILT)
def test_an_error_names_the_byte_at_any_size_of_chunk(what: str) -> None:
    text, offset = SPOILT[what]
    for size in [*range(1, 90), 1000, 4096, 1 << 18]:
        error = refusal(text, size)

        assert isinstance(error, NotJson)
        found = error.extra["offset"]
        assert (found, size) == (offset, size) or (what == "a zero that leads" and found == offset - 1)
        assert f"byte {found}" in error.detail


@pytest.mark.parametrize("what", SPOILT)
def test_json_stumbles_at_the_same_byte(what: str) -> None:
    text, offset = SPOILT[what]
    try:
        json.loads(text, parse_constant=lambda name: json.loads("!"))
    except json.JSONDecodeError as error:
        place = len(text.decode()[: error.pos].encode())
        if error.pos == 0:  # it takes NaN for a number until its value is made
            assert what in ("NaN", "Infinity")
        else:
            assert offset - 5 <= place <= offset  # it names the start of what it can't take: of an escape, a number
    except UnicodeDecodeError as error:
        assert error.start == offset  # noqa: PT017 - two kinds of error are right
    else:
        pytest.fail("json took it")


def test_events_before_an_error_are_given_out() -> None:
    text, offset = SPOILT["NaN"]
    found = []

    with pytest.raises(NotJson):  # noqa: PT012 - the loop is what the reader does
        for event in Document(chunked(text, 64)).events():
            found.append(event)  # noqa: PERF402 - those before the error are asked for

    assert len(found) == text[:offset].count(b'"ph"') - 1


@pytest.mark.parametrize(
    "text", [b'[{"a": "\xed\xa0\x80"}]', rb'[{"a": "\udc00"}]', rb'[{"\udfff": 1}]', b'[{"a": 1e99999999999999999999}]']
)
def test_what_python_cannot_hold_is_refused_near_its_place(text: bytes) -> None:
    error = refusal(b"[" + b" " * 5000 + text[1:], 1000)

    assert isinstance(error, NotJson)
    assert error.extra == {"offset": 5000}
    assert "after byte 5000" in error.detail


@pytest.mark.parametrize("text", [b"", b" \n", BOM, BOM + b" "])
def test_an_empty_file_is_told(text: bytes) -> None:
    error = refusal(text)

    assert isinstance(error, NotJson)
    assert "empty" in error.detail


def test_no_chunk_at_all_is_an_empty_file() -> None:
    with pytest.raises(NotJson, match="empty"):
        list(Document([]).events())


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"3",
        b'"traceEvents"',
        b"null",
        b'{"traceEvents": null}',
        b'{"traceEvents": {}}',
        b'{"traceEvents": {"a": []}}',
        b'{"events": [{"ph": "X"}]}',
        b'{"a": {"traceEvents": [{"ph": "X"}]}}',
    ],
)
def test_json_without_an_array_of_events_is_no_trace(text: bytes) -> None:
    for size in (1, 1 << 18):
        assert isinstance(refusal(text, size), NotATrace)


@pytest.mark.parametrize(
    "text",
    [
        b'{"traceEvents": {"item": {"ph": "X"}}}',
        b'{"traceEvents.item": {"ph": "X"}}',
        b'{"traceEvents.item": {"ph": "X"}, "traceEvents": []}',
        b'{"traceEvents.item": {"ph": "X"}, "traceEvents": [{"ph": "X"}]}',
        b'{"traceEvents": [{"ph": "X"}], "traceEvents.item": {"ph": "X"}}',
        b'{"traceEvents": [], "traceEvents.item": {"ph": "X"}}',
    ],
)
def test_a_key_that_reads_like_an_event_is_never_one(text: bytes) -> None:
    for size in range(1, len(text) + 1):
        assert isinstance(refusal(text, size), NotATrace)


# -- bounded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b'{"a": "' + b"x" * 5000, b'{"traceEvents": [{}], "a": "' + b"x" * 5000])
def test_an_envelope_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(document, "ENVELOPE_MAX", 1000)

    error = refusal(text, 64)

    assert isinstance(error, NotATrace)
    assert "no end of a trace event" in error.detail


@given(
    st.lists(st.sampled_from([b'"', b"\\\\", b'\\"', b"a", b"\\u0022", b"[", b"\\n"]), max_size=12), st.integers(1, 5)
)
def test_the_tracker_knows_at_every_border_whether_it_is_in_a_string(tokens: list[bytes], size: int) -> None:
    text, inside, states = b"", False, [False]
    for token in tokens:
        if inside or not token.startswith(b"\\"):  # a backslash stands only in strings
            inside ^= token == b'"'
            text += token
            states += [states[-1]] * (len(token) - 1) + [inside]
    tracker = StringTracker()

    for at in range(0, len(text), size):
        assert tracker.inside == states[at]
        tracker.advance(text[at : at + size])
    assert tracker.inside == states[len(text)]

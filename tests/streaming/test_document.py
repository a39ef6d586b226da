"""A document, in any layout and any chunking, gives the events and the envelope that ijson finds in it.

What ijson can't read is damaged: the damage is mended or the smallest piece left out, and the report tells which.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from io import BufferedReader, BytesIO
from itertools import product, takewhile
from operator import eq
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from service.streaming import document, frames
from service.streaming.codec import plain_chunks
from service.streaming.document import Document
from service.streaming.scan import reader
from service.streaming.scan.reader import ELEMENT_MAX
from service.trace.errors import BadCompression, IngestError, NotATrace, NotJson, Truncated
from tests.columns import KEYS, Number, Object, parsed, unordered
from tests.events import Reading, by_ijson, plain, read, read_chunks

BOM = b"\xef\xbb\xbf"


def refusal(text: bytes, chunk: int = 1 << 18) -> IngestError:
    with pytest.raises(IngestError) as caught:
        read(text, chunk=chunk)
    return caught.value


# -- what ijson finds -----------------------------------------------------------------------------------------------

BLANKS = ["", " ", "\n", "\n  ", " \t\r\n", " " * 17]
NUMBERS = ["-0", "-0.0", "0.10", "-0.5", "1.50", "1e5", "1E-3", "1e400", str(2**63), str(-(2**63)), str(2**64), "1e3"]
TIMES = ["1712195495406752", "1712195495406752.8", "4458676416431.397", "-5.25", "8999999999999999.999", "9" * 16]

odd_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text('\\"[]{}:,/ntu\x00\n', max_size=20)
keys = st.sampled_from([*KEYS, "traceEvents", "External id", "bp", '"ph": [', "\\", "}]}"]) | odd_text
numbers = st.builds(
    Number,
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from([*NUMBERS, *TIMES]),
)
scalars = st.none() | st.booleans() | numbers | odd_text


def objects(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    return st.lists(st.tuples(keys, of), max_size=6).map(Object)


values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=8)
elements = st.lists(
    objects(values) | objects(values) | values.filter(lambda value: not is_array_of_events(value)), max_size=8
)
names = keys.filter(lambda key: key != "traceEvents")
around = st.lists(st.tuples(names, values), max_size=3, unique_by=lambda member: member[0])


def is_array_of_events(value: Any) -> bool:
    """Whether a value among the events is read as events itself: their array seems to have a bracket too many."""
    match value:
        case [Object() as first, *_]:
            return [key for key, _ in first[:1]] == ["ph"]
    return False


def rendered(value: Any, blank: str, escapes: str) -> str:
    """The JSON text of a value, with white space at all places that may have some."""

    def joined(parts: Iterator[str]) -> str:
        return blank + f"{blank},{blank}".join(parts) + blank

    def string(text: str) -> str:
        if escapes == "all":
            units = text.encode("utf-16-be")
            return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'
        return json.dumps(text, ensure_ascii=escapes == "some")

    match value:
        case Object():
            members = (f"{string(key)}{blank}:{blank}{rendered(item, blank, escapes)}" for key, item in value)
            return "{" + joined(members) + "}"
        case list():
            return "[" + joined(rendered(item, blank, escapes) for item in value) + "]"
        case Number():
            return value.text
        case str():
            return string(value)
        case _:
            return json.dumps(value)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """The text of a trace document: an object with its events anywhere, or the bare array."""
    whole: Any = draw(elements)
    if draw(st.integers(0, 3)):
        before = draw(around)
        behind = [member for member in draw(around) if member[0] not in dict(before)]
        whole = Object([*before, ("traceEvents", whole), *behind])
    blank, escapes = draw(st.sampled_from(BLANKS)), draw(st.sampled_from(["few", "some", "all"]))
    return f"{blank}{rendered(whole, blank, escapes)}{blank}".encode()


sizes = st.sampled_from([1, 2, 7, 30, 1 << 18])
frame_sizes = st.sampled_from([1, 20, 50, 130, 1000, 8 << 20])


def read_in(text: bytes, chunk: int, frame: int) -> Reading:
    """Read in frames of so many bytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(frames, "FRAME_SIZE", frame)
        return read(text, chunk=chunk)


def elements_of(whole: Any) -> list[Any]:
    found: list[Any] = whole if isinstance(whole, list) else dict(whole)["traceEvents"]
    return found


@given(documents(), sizes, frame_sizes)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example(b'{"a": "]}", "traceEvents": [{}], "b": [[]]}', 1, 1)
@example(b'{"traceEvents": [{"traceEvents": [1]}, [[2]], {}], "z": {"traceEvents": [3]}}', 3, 20)
@example(b'{"x": "traceEvents", "y": ["traceEvents"], "traceEvents" \n : \t [ {} ] }', 2, 20)
@example(b'[{"traceEvents": []}]', 5, 1)
@example(b'{"traceEvents": [null, 1, "x", {}], "INFO": [["]"]], "W": []}', 4, 50)
@example(b'[{"ph":"X","ph":"M","ts":1,"ts":2}, {"ph":"M","\\u0070h":"X","ts":1}, {"\\u0070h":"X","ph":"M"}]', 9, 50)
@example(b'[{"ph":"X","name":"},{\\"ph\\":"}, {"ph":"X","name":"},{"}, {"ph":"X","args":[{"ph":1},{"ph":1}]}]', 9, 30)
def test_events_and_envelope_are_those_that_ijson_finds(text: bytes, chunk: int, frame: int) -> None:
    events, envelope = by_ijson(text)
    came = elements_of(parsed(text))
    if came and not events:
        with pytest.raises(NotATrace):
            read_in(text, chunk, frame)
        return

    found = read_in(text, chunk, frame)

    assert [*map(plain, found.events)] == events
    assert plain(parsed(found.envelope)) == envelope
    assert [*map(unordered, found.events)] == [unordered(event) for event in came if isinstance(event, Object)]
    assert found.refused == len(came) - len(events)
    assert found.notes == ({"not_an_event": found.refused} if found.refused else {})
    assert list(found.members) == ([] if envelope == [] else [key for key in envelope if key != "traceEvents"])


@given(documents().filter(lambda text: by_ijson(text)[0]))
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_chunks_and_frames_of_every_size_find_the_same(text: bytes) -> None:
    def facts(found: Reading) -> Any:
        first = {code: offsets[0] for code, offsets in found.offsets.items()}  # a frame tells of one like it
        return found.events, found.envelope, found.notes, first

    whole = read(text)

    assert all(read(text, chunk=chunk) == whole for chunk in range(1, min(len(text), 30)))
    assert all(facts(read_in(text, 1 << 18, frame)) == facts(whole) for frame in range(1, min(len(text), 60)))


def test_the_envelope_is_the_documents_own_text() -> None:
    text = b'{ "a" : 1.50 ,\n"traceEvents" : [\n {"n": 1} , {"n": 2}\n ]\t, "b":1e5,"c" : "\\u00e9" }\n'

    for chunk in range(1, len(text) + 1):
        found = read(text, chunk=chunk)
        assert found.envelope == b'{ "a" : 1.50 ,\n"traceEvents" : []\t, "b":1e5,"c" : "\\u00e9" }'
        assert found.members == {"a": 1.5, "b": 1e5, "c": "é"}


@pytest.mark.parametrize("key", [b'"trace\\u0045vents"', b'"\\u0074raceEvents"'])
def test_the_key_of_the_events_may_be_written_with_escapes(key: bytes) -> None:
    text = b'{"a": 1, ' + key + b': [{"n": 1}], "b": 2}'

    for chunk in range(1, len(text) + 1):
        found = read(text, chunk=chunk)
        assert [plain(event) for event in found.events] == [{"n": 1}]
        assert (found.envelope, found.members) == (b'{"a": 1, ' + key + b': [], "b": 2}', {"a": 1, "b": 2})


@pytest.mark.parametrize("text", [b"[]", b'{"traceEvents":[]}', b' {"traceEvents" : [ ] , "a" : [ 1 ] } '])
def test_a_trace_without_events_is_a_trace(text: bytes) -> None:
    for chunk in range(1, len(text) + 1):
        assert read(text, chunk=chunk).events == []


def test_half_a_surrogate_pair_comes_back_as_it_was_and_is_shown_as_one_that_can_be() -> None:
    text = rb'{"host_name": "\ud83d!", "traceEvents": [{"name": "\udc00\ud83d", "args": {"\ud83d": "\ud83d"}}, {}]}'

    found = read(text)

    assert found.events == elements_of(parsed(text))
    assert found.members == {"host_name": "\ufffd!"}
    assert json.loads(found.envelope)["host_name"] == "\ud83d!"


@pytest.mark.parametrize("number", ["9" * 5000, "1e99999999999999999999", "-1e-99999999999999999999", "1e400"])
def test_a_number_beyond_all_use_keeps_its_text(number: str) -> None:
    text = f'{{"n": {number}, "traceEvents": [{{"ts": {number}, "dur": {number}, "pid": {number}}}]}}'.encode()

    found = read(text)

    assert found.events == elements_of(parsed(text))
    assert parsed(found.envelope) == Object([("n", Number(number)), ("traceEvents", [])])
    assert list(found.members) == ["n"]


def test_an_event_with_thousands_of_keys_and_one_of_megabytes_are_events_like_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "FRAME_SIZE", 1 << 16)
    wide = {f"key {n}": n for n in range(200_000)}
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    text = json.dumps([{"ph": "X"}, wide, {"name": "x" * 3_000_000}, {"args": deep}, {"ph": "Y"}])

    found = read(text.encode())

    assert found.events == parsed(text)
    assert found.refused == 0


def test_what_is_nested_too_deep_is_left_out_and_told() -> None:
    deep = b"[" * 2000 + b"]" * 2000

    found = read(b'{"traceEvents": [{"ph": "X"}, {"args": ' + deep + b'}, {"ph": "Y"}], "m": ' + deep + b"}")

    assert [plain(event) for event in found.events] == [{"ph": "X"}, {"ph": "Y"}]
    assert found.notes == {"unreadable_event": 1, "envelope": 1}
    assert found.members == {}


# -- what is damaged ------------------------------------------------------------------------------------------------

EVENT = (
    b'  {\n    "ph": "X", "cat": "cpu_op", "name": "aten::add \xc3\xa9", "pid": %d,'
    b' "ts": 1234.567, "dur": 8, "args": {"d": [1, 2]}\n  }'
)
WROTE = [EVENT % number for number in range(40)]
SOUND = b'{\n "schemaVersion": 1,\n "traceEvents": [\n' + b",\n".join(WROTE) + b'\n],\n "traceName": "t"\n}\n'
WHOLE = read(SOUND)
SPOILT: dict[str, tuple[bytes, bytes, bytes, str, Any]] = {
    # in each event: what is replaced, by what, where in it the damage is told, how it is called; what is left of it
    "an unescaped quote": (b"aten::add", b'aten::"add', b'"', "unescaped_quote", {"name": 'aten::"add é'}),
    "code in a name": (b"aten::add", b'f("a", {"b"})', b'"', "unescaped_quote", {"name": 'f("a", {"b"}) é'}),
    "a control character": (b"aten::add", b"a\x01dd", b"\x01", "control_character", {"name": "a\x01dd é"}),
    "a tab": (b"aten::add", b"a\tdd", b"\t", "control_character", {"name": "a\tdd é"}),
    "a newline": (b"aten::add", b"a\ndd", b"\n", "control_character", {"name": "a\ndd é"}),
    "a NUL in a string": (b"aten::add", b"a\0dd", b"\0", "control_character", {"name": "a\0dd é"}),
    "a NUL outside": (b' "ts"', b'\0"ts"', b"\0", "control_character", {}),
    "invalid UTF-8": (b"aten::add", b"a\xffdd", b"\xff", "invalid_utf8", {"name": "a\ufffddd é"}),
    "an encoded surrogate": (b"aten::add", b"\xed\xa0\x80", b"\xed", "invalid_utf8", {"name": "\ufffd" * 3 + " é"}),
    "half a character": (b"\xc3\xa9", b"\xc3", b"\xc3", "invalid_utf8", {"name": "aten::add \ufffd"}),
    "a Windows path": (b"aten::add", b"C:\\data\\new", b"\\", "bad_escape", {"name": "C:\\data\\new é"}),
    "a bad escape": (b"aten::add", b"a\\qb", b"\\", "bad_escape", {"name": "a\\qb é"}),
    "hex that is none": (b"aten::add", b"\\u12G4", b"\\", "bad_escape", {"name": "\\u12G4 é"}),
    "NaN": (b"1234.567", b"NaN", b"N", "not_a_number", {"ts": "NaN"}),
    "Infinity": (b"1234.567", b"-Infinity", b"-", "not_a_number", {"ts": "-Infinity"}),
    "N/A": (b"1234.567", b"N/A", b"N", "bare_word", {"ts": "N/A"}),
    "Python's None": (b'"cpu_op"', b"None", b"N", "bare_word", {"cat": "None"}),
    "single quotes": (b'"cpu_op"', b"'cpu_op'", b"'", "bare_word", {"cat": "'cpu_op'"}),
    "no value": (b'"dur": 8,', b'"dur": ,', b",", "bare_word", {"dur": None}),
    "no digit behind the point": (b"1234.567", b"1234.", b"1", "bare_word", {"ts": "1234."}),
    "a plus": (b'"dur": 8', b'"dur": +8', b"+", "bare_word", {"dur": "+8"}),
    "leading zeros": (b'"dur": 8', b'"dur": 008', b"0", "leading_zero", {}),
    "a comma too many inside": (b'"dur": 8,', b'"dur": 8,,', b",", "extra_comma", {}),
    "a comma at the end": (b"[1, 2]", b"[1, 2,]", b",]", "extra_comma", {}),
    "a comma too few inside": (b'"dur": 8,', b'"dur": 8 ', b" ", "missing_comma", {}),
    "a colon too few": (b'"dur": 8', b'"dur" 8', b" ", "missing_colon", {}),
    "a bracket too few": (b"[1, 2]}", b"[1, 2}", b"}", "unclosed", {}),
    "a bracket of the other kind": (b"[1, 2]}", b"[1, 2}}", b"}", "wrong_bracket", {}),
    "a colon too many": (b'"dur": 8', b'"dur":: 8', b"", "unreadable_event", None),
    "a comment": (b' "ts"', b'# "ts"', b"", "unreadable_event", None),
}


@pytest.mark.parametrize("what", SPOILT)
def test_damage_in_any_event_is_told_with_its_place_and_costs_no_other(what: str) -> None:
    old, new, mark, code, left = SPOILT[what]
    for number, frame in product((0, 1, 20, 38, 39), (300, 8 << 20)):
        start = SOUND.index(WROTE[number])
        place = start + WROTE[number].index(old)

        found = read_in(SOUND[:place] + new + SOUND[place + len(old) :], 1 << 18, frame)

        assert found.notes == {code: found.notes[code]}
        assert (found.envelope, found.members) == (WHOLE.envelope, WHOLE.members)
        expected = [plain(event) for event in WHOLE.events]
        if left is None:
            assert (found.kept, found.refused, found.notes[code]) == (39, 1, 1)
            assert found.offsets[code] == [start + 2]
            del expected[number]
        else:
            assert (found.kept, found.refused) == (40, 0)
            expected[number] |= left
            told = found.offsets[code][0]
            assert told == place + new.index(mark) or (code in ("extra_comma", "missing_comma", "unclosed") and told)
        assert [plain(event) for event in found.events] == expected


def changed(old: bytes, new: bytes, *, nth: int = 1) -> tuple[bytes, int]:
    """`SOUND` with the nth `old` made `new`, and where."""
    at = -1
    for _ in range(nth):
        at = SOUND.index(old, at + 1)
    return SOUND[:at] + new + SOUND[at + len(old) :], at


@pytest.mark.parametrize(
    ("old", "new", "shift", "code"),
    [
        (b"},\n  {", b"},,\n  {", 2, "extra_comma"),
        (b"},\n  {", b"}\n  {", 4, "missing_comma"),
        (b"},\n  {", b"}],\n  {", 2, "wrong_bracket"),
        (b"},\n  {", b"}, [\n  {", 3, "wrong_bracket"),
        (b"},\n  {", b"}, }\n  {", 3, "unreadable_event"),
        (b"},\n  {", b"}, 7, null, [1],\n  {", 3, "not_an_event"),
        (b"},\n  {", b"}, gar]b}age,\n  {", None, "unreadable_event"),
        (b"},\n  {", b"}\0,\n  {", 1, "control_character"),
        (b"}\n],", b"},\n],", 3, "extra_comma"),
        (b"}\n],", b"}\n, ,],", 4, "extra_comma"),
        (b"[\n  {", b"[,\n  {", 1, "extra_comma"),
    ],
)
def test_damage_between_events_costs_none(old: bytes, new: bytes, shift: int | None, code: str) -> None:
    for nth in (1, SOUND.count(old)):
        text, at = changed(old, new, nth=nth)
        for frame in (300, 8 << 20):
            found = read_in(text, 1 << 18, frame)

            assert found.events == WHOLE.events
            assert set(found.notes) <= {code, "extra_comma"}
            assert shift is None or found.offsets[code][0] == at + shift
            assert found.refused == sum(found.notes.get(one, 0) for one in ("not_an_event", "unreadable_event"))


def test_an_event_that_is_never_closed_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = changed(b"[1, 2]}\n  }", b"[1, 2, [", nth=20)
    for limit in (ELEMENT_MAX, 700):
        for module in (frames, reader):
            monkeypatch.setattr(module, "ELEMENT_MAX", limit)

        found = read_in(text, 1 << 18, 300)

        assert [event for event in found.events if dict(event)["pid"] != Number("19")] == [
            event for event in WHOLE.events if dict(event)["pid"] != Number("19")
        ]


def test_an_array_of_events_among_the_events_is_read_as_if_it_were_none() -> None:
    found = read(b'[{"ph": "a"}, [{"ph": "b"}, {"ph": "c"}], [{"ph": "d"}], [{"no": "event"}], {"ph": "e"}]')

    assert [plain(event)["ph"] for event in found.events] == [*"abcde"]
    assert found.refused == found.notes["not_an_event"] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"{\n", b"z\n"),
        (b"{\n", b"\0\n"),
        (b"{\n", b""),
        (b'"schemaVersion": 1', b'"schemaVersion": NaN'),
        (b'"schemaVersion": 1', b'"a\xff": [1], "schemaVersion": 1'),
        (b'"schemaVersion": 1', b'"host_name": "a"b", "schemaVersion": 1'),
        (b'"schemaVersion": 1', b'"a": [{"name": "x", "id": 1}, {]'),
        (b'"schemaVersion": 1', b'"a": {"b": 1'),
        (b'"schemaVersion": 1,', b'"schemaVersion": 1},'),
        (b'"schemaVersion": 1', b'"schemaVersion'),
        (b'"traceEvents": [', b'"traceEvents": '),
        (b'"traceEvents": [', b'"traceEvents": {'),
        (b'"traceEvents": [', b""),
        (b'"traceName": "t"', b'"traceName": undefined'),
        (b'"traceName": "t"', b'"traceName": "t'),
        (b'"traceName": "t"\n}', b'"traceName": "t"\n}}]]'),
        (b'"traceName": "t"\n}\n', b'"traceName": "t"\n'),
        (b'"traceName": "t"\n}\n', b'"traceName": "t"\n}\n\0\0\0'),
        (b'"traceName": "t"\n}\n', b'"traceName": "t"\n}\nmore'),
    ],
)
def test_damage_around_the_events_costs_none_and_leaves_a_sound_envelope(old: bytes, new: bytes) -> None:
    text, _ = changed(old, new)
    for chunk in (1, 7, 1 << 18):
        found = read(text, chunk=chunk)

        assert found.events[1:] == WHOLE.events[-len(found.events) + 1 :]
        assert found.kept >= 39
        assert found.notes


def test_a_byte_order_mark_is_passed_over_and_told() -> None:
    for chunk in (1, 2, 3, 1 << 18):
        found = read(BOM + SOUND, chunk=chunk)

        assert (found.events, found.envelope, found.members) == (WHOLE.events, WHOLE.envelope, WHOLE.members)
        assert found.offsets == {"byte_order_mark": [0]}


@pytest.mark.parametrize("between", [b"", b"\n", b" " * 100_000])
@pytest.mark.parametrize("second", [SOUND, b"[" + b",".join(WROTE) + b"]"])
def test_documents_in_one_file_are_read_as_one(between: bytes, second: bytes) -> None:
    found = read(SOUND + between + second)

    assert found.events == WHOLE.events * 2
    assert (found.envelope, found.members) == (WHOLE.envelope, WHOLE.members)
    start = len(SOUND + between)
    assert found.offsets == {"several_documents": [start]}


def test_damage_in_a_second_document_costs_nothing_of_the_first() -> None:
    for second in (b"{nothing", b'{"a": [}', b"{}", b'{"traceEvents": [', SOUND[:-40], b"[1, 2"):
        found = read(SOUND + second)

        assert found.events[:40] == WHOLE.events
        assert found.members == WHOLE.members
        assert "several_documents" in found.notes


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "traceEvents": [%b], "b": 2, "traceEvents": [%b], "c": 3}',
        b'{"a": 1, "traceEvents": [], "b": 2, "traceEvents": [%b, %b] , "c": 3}',
    ],
)
def test_arrays_of_events_in_one_document_are_read_as_one(text: bytes) -> None:
    text %= (b",".join(WROTE[:20]), b",".join(WROTE[20:]))
    for chunk in (1, 30, 1 << 18):
        found = read(text, chunk=chunk)

        assert found.events == WHOLE.events
        assert parsed(found.envelope) == parsed(b'{"a": 1, "traceEvents": [], "b": 2, "c": 3}')
        assert found.offsets == {"several_arrays": [text.index(b'"traceEvents"', 30)]}


# -- what is cut ----------------------------------------------------------------------------------------------------

SMALL = b'{"schemaVersion": 1, "traceEvents": [\n' + b",\n".join(WROTE[:4]) + b'\n], "traceName": "t"}'
ENDS = [SMALL.index(event) + len(event) for event in WROTE[:4]]


def check_cut(found: Reading | IngestError, plain_bytes: int) -> None:
    """Whether all events before a cut are there, and nothing else."""
    kept = sum(end <= plain_bytes for end in ENDS)
    if kept:
        assert isinstance(found, Reading)
        assert found.events == WHOLE.events[:kept]
        assert found.refused <= 1
        assert found.notes["cut"] == 1
        assert parsed(found.envelope)
    else:
        assert isinstance(found, Truncated)


def outcome(chunks: Iterator[bytes]) -> Reading | IngestError:
    try:
        return read_chunks(chunks)
    except IngestError as error:
        return error


def test_a_cut_anywhere_keeps_all_events_before_it() -> None:
    for end in range(1, len(SMALL)):
        check_cut(outcome(iter([SMALL[:end]])), end)


def test_a_cut_of_a_compressed_file_keeps_all_events_before_it() -> None:
    packed = gzip.compress(SMALL)
    for end in range(20, len(packed)):
        there = len(zlib.decompressobj(wbits=31).decompress(packed[:end]))
        check_cut(outcome(plain_chunks(BufferedReader(BytesIO(packed[:end])))), there)


def test_a_cut_in_what_follows_the_events_is_told_and_the_rest_is_kept() -> None:
    found = read(SMALL.removesuffix(b'"t"}'))

    assert found.members.get("schemaVersion") == 1
    assert found.offsets["cut"] == [len(SMALL) - 4]


def test_damage_of_the_compression_is_told_and_what_came_before_it_is_kept() -> None:
    packed = bytearray(gzip.compress(SOUND * 200, 1))
    packed[len(packed) // 2 :] = Random(0).randbytes(len(packed) // 2)

    found = read_chunks(plain_chunks(BufferedReader(BytesIO(bytes(packed)))))

    sound = list(takewhile(lambda pair: eq(*pair), zip(found.events, WHOLE.events * 200, strict=False)))
    assert len(sound) > 3500  # what it unpacks to before the damage is known may look like events
    assert found.notes["bad_compression"] == 1
    assert len(packed) // 2 - (1 << 16) < found.offsets["bad_compression"][0] <= len(packed)


def test_damage_of_the_compression_before_the_first_event_is_refused() -> None:
    packed = bytearray(gzip.compress(SMALL))
    packed[10:] = bytes([0xFF]) * len(packed[10:])

    assert isinstance(outcome(plain_chunks(BufferedReader(BytesIO(bytes(packed))))), BadCompression)


# -- what is no trace -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b" \n", BOM, BOM + b" "])
def test_an_empty_file_is_told(text: bytes) -> None:
    error = refusal(text)

    assert isinstance(error, NotJson)
    assert "empty" in error.detail


def test_no_chunk_at_all_is_an_empty_file() -> None:
    with pytest.raises(NotJson, match="empty"):
        list(Document([]).events())


@pytest.mark.parametrize("text", [b"no JSON", b"<html></html>", b"3", b'"traceEvents"', b"null", b"\0" * 100])
def test_what_is_no_json_is_refused_with_its_place(text: bytes) -> None:
    error = refusal(text)

    assert isinstance(error, NotJson)
    assert error.extra == {"offset": 0}


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"traceEvents": null}',
        b'{"traceEvents": {}}',
        b'{"traceEvents": {"a": []}}',
        b'{"events": [{"ph": "X"}]}',
        b'{"a": {"traceEvents": [{"ph": "X"}]}}',
        b'{"traceEvents": {"item": {"ph": "X"}}}',
        b'{"traceEvents.item": {"ph": "X"}}',
        b'{"traceEvents": [1, 2, [3]]}',
        b"[" + b"1, " * 5000 + b"2]",
    ],
)
def test_json_without_an_array_of_events_is_no_trace(text: bytes) -> None:
    for chunk in (1, 1 << 18):
        assert isinstance(refusal(text, chunk), NotATrace)


def test_noise_is_refused_before_all_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_SIZE", 1000)
    chunks = iter([b"[", *([b"1," * 500] * 1000)])

    with pytest.raises(NotATrace, match="None of the first"):
        read_chunks(chunks)

    assert len(list(chunks)) > 900


def test_an_envelope_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "ENVELOPE_MAX", 1000)
    monkeypatch.setattr(document, "_FIRST_LOOK", 100)
    monkeypatch.setattr(frames, "FRAME_SIZE", 100)
    endless = b'"a": "' + b"x" * 5000

    error = refusal(b"{" + endless, 64)
    behind = read(b'{"traceEvents": [{"ph": "X"}], ' + endless, chunk=64)

    assert isinstance(error, NotATrace)
    assert error.extra["limit"] == 1000
    assert (behind.kept, behind.envelope) == (1, b'{"traceEvents": []}')
    assert behind.notes["envelope"]


@pytest.mark.parametrize("end", [b"]}", b"],"])
def test_more_arrays_than_any_trace_has_are_refused(end: bytes) -> None:
    text = b'{"traceEvents": [{"ph": "X"}'

    error = refusal((text + end) * 1001 if end == b"]}" else text + (end + b'{"ph": "X"}') * 1001)

    assert isinstance(error, NotATrace)
    assert error.extra["limit"] == document.ARRAYS_MAX


@pytest.mark.parametrize("first", [b'{"bp": "e", "ph": "X"', b'{"z": {"ph": 1}, "ph": "X"', b'{"args": {}, "ph": "X"'])
def test_damage_costs_no_other_event_whatever_their_keys_begin_with(first: bytes) -> None:
    events = [first + b', "pid": %d}' % n for n in range(50)]
    broken = [*events[:20], first + b', "pid":: 1}', *events[20:]]

    found = read(b"[" + b",\n".join(broken) + b"]")

    assert [*map(unordered, found.events)] == [*map(unordered, parsed(b"[" + b",".join(events) + b"]"))]
    assert found.refused == found.notes["unreadable_event"] == 1


def test_an_event_beyond_all_size_is_left_out_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (frames, reader):
        monkeypatch.setattr(module, "ELEMENT_MAX", 1000)
    monkeypatch.setattr(frames, "FRAME_SIZE", 200)
    large = b'{"ph": "X", "name": "' + b"x" * 1500 + b'"}'

    found = read(b"[" + b",".join([*WROTE[:10], large, *WROTE[10:]]) + b"]")

    assert found.events == WHOLE.events
    assert found.notes["event_too_large"] == 1
    assert found.offsets["event_too_large"] == [len(b",".join(WROTE[:10])) + 2]

"""A document in any layout and any chunking yields the events and the envelope that ijson reads.

Text that ijson can't read is damaged. The reader repairs it, or leaves out the smallest piece that contains it, and
reports which.
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

from service.formats.chrome_json import document, frames
from service.formats.chrome_json.document import Document
from service.streaming.codec import plain_chunks
from service.streaming.scan import reader
from service.streaming.scan.reader import ELEMENT_MAX
from service.trace.errors import BadCompression, IngestError, NotATrace, NotJson, Truncated
from tests.columns import KEYS, Number, Object, parsed, unordered
from tests.conftest import scaled
from tests.events import Reading, by_ijson, plain, read, read_chunks

BOM = b"\xef\xbb\xbf"


def refusal(text: bytes, chunk: int = 1 << 18) -> IngestError:
    with pytest.raises(IngestError) as caught:
        read(text, chunk=chunk)
    return caught.value


# -- equality with ijson --------------------------------------------------------------------------------------------

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
    """Return whether an element reads like an array of events, so that its bracket seems to be a surplus one."""
    match value:
        case [Object() as first, *_]:
            return [key for key, _ in first[:1]] == ["ph"]
    return False


def rendered(value: Any, blank: str, escapes: str) -> str:
    """Return JSON text of a value, with white space wherever it is allowed."""

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
    """Draw the text of a trace document: an object with its events at any place, or the bare array of events."""
    root: Any = draw(elements)
    if draw(st.integers(0, 3)):
        members_before = draw(around)
        members_behind = [member for member in draw(around) if member[0] not in dict(members_before)]
        root = Object([*members_before, ("traceEvents", root), *members_behind])
    else:
        root.insert(draw(st.integers(0, len(root))), Object([("ph", "X")]))  # others are lists of something else
    blank, escapes = draw(st.sampled_from(BLANKS)), draw(st.sampled_from(["few", "some", "all"]))
    return f"{blank}{rendered(root, blank, escapes)}{blank}".encode()


sizes = st.sampled_from([1, 2, 7, 30, 1 << 18])
frame_sizes = st.sampled_from([1, 20, 50, 130, 1000, 8 << 20])


def read_in(text: bytes, chunk: int, frame: int) -> Reading:
    """Read a document in frames of the given size in bytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(frames, "FRAME_SIZE", frame)
        return read(text, chunk=chunk)


def elements_of(document: Any) -> list[Any]:
    elements: list[Any] = document if isinstance(document, list) else dict(document)["traceEvents"]
    return elements


@given(documents(), sizes, frame_sizes)
@settings(max_examples=scaled(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example(b'{"a": "]}", "traceEvents": [{}], "b": [[]]}', 1, 1)
@example(b'{"traceEvents": [{"traceEvents": [1]}, [[2]], {}], "z": {"traceEvents": [3]}}', 3, 20)
@example(b'{"x": "traceEvents", "y": ["traceEvents"], "traceEvents" \n : \t [ {} ] }', 2, 20)
@example(b'[{"traceEvents": []}, {"ph": "X"}]', 5, 1)
@example(b'{"traceEvents": [null, 1, "x", {}], "INFO": [["]"]], "W": []}', 4, 50)
@example(b'[{"ph":"X","ph":"M","ts":1,"ts":2}, {"ph":"M","\\u0070h":"X","ts":1}, {"\\u0070h":"X","ph":"M"}]', 9, 50)
@example(b'[{"ph":"X","name":"},{\\"ph\\":"}, {"ph":"X","name":"},{"}, {"ph":"X","args":[{"ph":1},{"ph":1}]}]', 9, 30)
def test_events_and_envelope_equal_those_of_ijson(text: bytes, chunk: int, frame: int) -> None:
    events, envelope = by_ijson(text)
    elements = elements_of(parsed(text))
    if elements and not events:
        with pytest.raises(NotATrace):
            read_in(text, chunk, frame)
        return

    reading = read_in(text, chunk, frame)

    assert [*map(plain, reading.events)] == events
    assert plain(parsed(reading.envelope)) == envelope
    assert [*map(unordered, reading.events)] == [unordered(event) for event in elements if isinstance(event, Object)]
    assert reading.refused == len(elements) - len(events)
    assert reading.notes == ({"not_an_event": reading.refused} if reading.refused else {})
    assert list(reading.members) == ([] if envelope == [] else [key for key in envelope if key != "traceEvents"])


@given(documents().filter(lambda text: by_ijson(text)[0]))
@settings(max_examples=scaled(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_chunk_and_frame_sizes_do_not_change_the_reading(text: bytes) -> None:
    def facts(reading: Reading) -> Any:
        # only the first offset of each code: later frames may add their own
        first_offsets = {code: offsets[0] for code, offsets in reading.offsets.items()}
        return reading.events, reading.envelope, reading.notes, first_offsets

    whole = read(text)

    assert all(read(text, chunk=chunk) == whole for chunk in range(1, min(len(text), 30)))
    assert all(facts(read_in(text, 1 << 18, frame)) == facts(whole) for frame in range(1, min(len(text), 60)))


def test_envelope_keeps_the_text_of_the_document() -> None:
    text = b'{ "a" : 1.50 ,\n"traceEvents" : [\n {"n": 1} , {"n": 2}\n ]\t, "b":1e5,"c" : "\\u00e9" }\n'

    for chunk in range(1, len(text) + 1):
        reading = read(text, chunk=chunk)
        assert reading.envelope == b'{ "a" : 1.50 ,\n"traceEvents" : []\t, "b":1e5,"c" : "\\u00e9" }'
        assert reading.members == {"a": 1.5, "b": 1e5, "c": "é"}


@pytest.mark.parametrize("key", [b'"trace\\u0045vents"', b'"\\u0074raceEvents"'])
def test_the_key_of_the_events_may_be_written_with_escapes(key: bytes) -> None:
    text = b'{"a": 1, ' + key + b': [{"n": 1}], "b": 2}'

    for chunk in range(1, len(text) + 1):
        reading = read(text, chunk=chunk)
        assert [plain(event) for event in reading.events] == [{"n": 1}]
        assert (reading.envelope, reading.members) == (b'{"a": 1, ' + key + b': [], "b": 2}', {"a": 1, "b": 2})


@pytest.mark.parametrize("text", [b"[]", b'{"traceEvents":[]}', b' {"traceEvents" : [ ] , "a" : [ 1 ] } '])
def test_a_trace_without_events_is_a_trace(text: bytes) -> None:
    for chunk in range(1, len(text) + 1):
        assert read(text, chunk=chunk).events == []


def test_half_a_surrogate_pair_is_kept_in_text_and_replaced_in_members() -> None:
    text = rb'{"host_name": "\ud83d!", "traceEvents": [{"name": "\udc00\ud83d", "args": {"\ud83d": "\ud83d"}}, {}]}'

    reading = read(text)

    assert reading.events == elements_of(parsed(text))
    assert reading.members == {"host_name": "\ufffd!"}
    assert json.loads(reading.envelope)["host_name"] == "\ud83d!"


@pytest.mark.parametrize("number", ["9" * 5000, "1e99999999999999999999", "-1e-99999999999999999999", "1e400"])
def test_huge_number_keeps_its_text(number: str) -> None:
    text = f'{{"n": {number}, "traceEvents": [{{"ts": {number}, "dur": {number}, "pid": {number}}}]}}'.encode()

    reading = read(text)

    assert reading.events == elements_of(parsed(text))
    assert parsed(reading.envelope) == Object([("n", Number(number)), ("traceEvents", [])])
    assert list(reading.members) == ["n"]


def test_events_with_thousands_of_keys_or_megabytes_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "FRAME_SIZE", 1 << 16)
    wide = {f"key {n}": n for n in range(200_000)}
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    text = json.dumps([{"ph": "X"}, wide, {"name": "x" * 3_000_000}, {"args": deep}, {"ph": "Y"}])

    reading = read(text.encode())

    assert reading.events == parsed(text)
    assert reading.refused == 0


def test_values_nested_too_deep_are_left_out_and_reported() -> None:
    deep = b"[" * 2000 + b"]" * 2000

    reading = read(b'{"traceEvents": [{"ph": "X"}, {"args": ' + deep + b'}, {"ph": "Y"}], "m": ' + deep + b"}")

    assert [plain(event) for event in reading.events] == [{"ph": "X"}, {"ph": "Y"}]
    assert reading.notes == {"unreadable_event": 1, "envelope": 1}
    assert reading.members == {}


# -- damage ---------------------------------------------------------------------------------------------------------

EVENT = (
    b'  {\n    "ph": "X", "cat": "cpu_op", "name": "aten::add \xc3\xa9", "pid": %d,'
    b' "ts": 1234.567, "dur": 8, "args": {"d": [1, 2]}\n  }'
)
WROTE = [EVENT % number for number in range(40)]
SOUND = b'{\n "schemaVersion": 1,\n "traceEvents": [\n' + b",\n".join(WROTE) + b'\n],\n "traceName": "t"\n}\n'
WHOLE = read(SOUND)
SPOILT: dict[str, tuple[bytes, bytes, bytes, str, Any]] = {
    # text in an event, its replacement, marker at the reported offset, code, and changed members (None: a lost event)
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


@pytest.mark.parametrize("damage", SPOILT)
def test_damage_in_an_event_is_reported_with_its_offset_and_loses_no_other(damage: str) -> None:
    old, new, mark, code, change = SPOILT[damage]
    for number, frame in product((0, 1, 20, 38, 39), (300, 8 << 20)):
        start = SOUND.index(WROTE[number])
        place = start + WROTE[number].index(old)

        reading = read_in(SOUND[:place] + new + SOUND[place + len(old) :], 1 << 18, frame)

        assert reading.notes == {code: reading.notes[code]}
        assert (reading.envelope, reading.members) == (WHOLE.envelope, WHOLE.members)
        expected = [plain(event) for event in WHOLE.events]
        if change is None:
            assert (reading.kept, reading.refused, reading.notes[code]) == (39, 1, 1)
            assert reading.offsets[code] == [start + 2]
            del expected[number]
        else:
            assert (reading.kept, reading.refused) == (40, 0)
            expected[number] |= change
            offset = reading.offsets[code][0]
            assert offset == place + new.index(mark) or (
                code in ("extra_comma", "missing_comma", "unclosed") and offset
            )
        assert [plain(event) for event in reading.events] == expected


def changed(old: bytes, new: bytes, *, nth: int = 1) -> tuple[bytes, int]:
    """Return `SOUND` with the nth `old` replaced by `new`, and the offset of the change."""
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
def test_damage_between_events_loses_no_event(old: bytes, new: bytes, shift: int | None, code: str) -> None:
    for nth in (1, SOUND.count(old)):
        text, at = changed(old, new, nth=nth)
        for frame in (300, 8 << 20):
            reading = read_in(text, 1 << 18, frame)

            assert reading.events == WHOLE.events
            assert set(reading.notes) <= {code, "extra_comma"}
            assert shift is None or reading.offsets[code][0] == at + shift
            assert reading.refused == sum(
                reading.notes.get(refusal, 0) for refusal in ("not_an_event", "unreadable_event")
            )


def test_unclosed_event_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = changed(b"[1, 2]}\n  }", b"[1, 2, [", nth=20)
    for limit in (ELEMENT_MAX, 700):
        for module in (frames, reader):
            monkeypatch.setattr(module, "ELEMENT_MAX", limit)

        reading = read_in(text, 1 << 18, 300)

        assert [event for event in reading.events if dict(event)["pid"] != Number("19")] == [
            event for event in WHOLE.events if dict(event)["pid"] != Number("19")
        ]


def test_events_of_a_nested_array_are_read() -> None:
    reading = read(b'[{"ph": "a"}, [{"ph": "b"}, {"ph": "c"}], [{"ph": "d"}], [{"no": "event"}], {"ph": "e"}]')

    assert [plain(event)["ph"] for event in reading.events] == [*"abcde"]
    assert reading.refused == reading.notes["not_an_event"] == 1


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
def test_damage_around_the_events_loses_none_and_leaves_a_valid_envelope(old: bytes, new: bytes) -> None:
    text, _ = changed(old, new)
    for chunk in (1, 7, 1 << 18):
        reading = read(text, chunk=chunk)

        assert reading.events[1:] == WHOLE.events[-len(reading.events) + 1 :]
        assert reading.kept >= 39
        assert reading.notes


def test_byte_order_mark_is_skipped_and_reported() -> None:
    for chunk in (1, 2, 3, 1 << 18):
        reading = read(BOM + SOUND, chunk=chunk)

        assert (reading.events, reading.envelope, reading.members) == (WHOLE.events, WHOLE.envelope, WHOLE.members)
        assert reading.offsets == {"byte_order_mark": [0]}


@pytest.mark.parametrize("between", [b"", b"\n", b" " * 100_000])
@pytest.mark.parametrize("second", [SOUND, b"[" + b",".join(WROTE) + b"]"])
def test_documents_in_one_file_are_read_as_one(between: bytes, second: bytes) -> None:
    reading = read(SOUND + between + second)

    assert reading.events == WHOLE.events * 2
    assert (reading.envelope, reading.members) == (WHOLE.envelope, WHOLE.members)
    start = len(SOUND + between)
    assert reading.offsets == {"several_documents": [start]}


def test_damage_in_a_second_document_loses_nothing_of_the_first() -> None:
    for second in (b"{nothing", b'{"a": [}', b"{}", b'{"traceEvents": [', SOUND[:-40], b"[1, 2"):
        reading = read(SOUND + second)

        assert reading.events[:40] == WHOLE.events
        assert reading.members == WHOLE.members
        assert "several_documents" in reading.notes


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
        reading = read(text, chunk=chunk)

        assert reading.events == WHOLE.events
        assert parsed(reading.envelope) == parsed(b'{"a": 1, "traceEvents": [], "b": 2, "c": 3}')
        assert reading.offsets == {"several_arrays": [text.index(b'"traceEvents"', 30)]}


# -- cuts -----------------------------------------------------------------------------------------------------------

SMALL = b'{"schemaVersion": 1, "traceEvents": [\n' + b",\n".join(WROTE[:4]) + b'\n], "traceName": "t"}'
ENDS = [SMALL.index(event) + len(event) for event in WROTE[:4]]


def check_cut(reading: Reading | IngestError, plain_bytes: int) -> None:
    """Check that exactly the events before a cut were read."""
    count = sum(end <= plain_bytes for end in ENDS)
    if count:
        assert isinstance(reading, Reading)
        assert reading.events == WHOLE.events[:count]
        assert reading.refused <= 1
        assert reading.notes["cut"] == 1
        assert parsed(reading.envelope)
    else:
        assert isinstance(reading, Truncated)


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
        expected_end = len(zlib.decompressobj(wbits=31).decompress(packed[:end]))
        check_cut(outcome(plain_chunks(BufferedReader(BytesIO(packed[:end])))), expected_end)


def test_cut_after_the_events_is_reported_and_the_rest_is_kept() -> None:
    reading = read(SMALL.removesuffix(b'"t"}'))

    assert reading.members.get("schemaVersion") == 1
    assert reading.offsets["cut"] == [len(SMALL) - 4]


def test_damaged_compression_is_reported_and_events_before_it_are_kept() -> None:
    packed = bytearray(gzip.compress(SOUND * 200, 1))
    packed[len(packed) // 2 :] = Random(0).randbytes(len(packed) // 2)

    reading = read_chunks(plain_chunks(BufferedReader(BytesIO(bytes(packed)))))

    sound = list(takewhile(lambda pair: eq(*pair), zip(reading.events, WHOLE.events * 200, strict=False)))
    assert len(sound) > 3500  # bytes before the detected damage may look like events
    assert reading.notes["bad_compression"] == 1
    assert len(packed) // 2 - (1 << 16) < reading.offsets["bad_compression"][0] <= len(packed)


def test_damaged_compression_before_the_first_event_is_refused() -> None:
    packed = bytearray(gzip.compress(SMALL))
    packed[10:] = bytes([0xFF]) * len(packed[10:])

    assert isinstance(outcome(plain_chunks(BufferedReader(BytesIO(bytes(packed))))), BadCompression)


# -- other documents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b" \n", BOM, BOM + b" "])
def test_empty_file_is_reported(text: bytes) -> None:
    error = refusal(text)

    assert isinstance(error, NotJson)
    assert "empty" in error.detail


def test_document_without_chunks_is_an_empty_file() -> None:
    with pytest.raises(NotJson, match="empty"):
        list(Document([]).events())


@pytest.mark.parametrize("text", [b"no JSON", b"<html></html>", b"3", b'"traceEvents"', b"null", b"\0" * 100])
def test_invalid_json_is_refused_with_its_offset(text: bytes) -> None:
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
        b'[{"key": "aten::mm", "count": 3, "dur": 7}, {"key": "aten::add", "args": {}}]',
    ],
)
def test_json_without_an_array_of_events_is_no_trace(text: bytes) -> None:
    for chunk in (1, 1 << 18):
        assert isinstance(refusal(text, chunk), NotATrace)


@pytest.mark.parametrize("event", [b'{"ph": "X"}', b'{"ts": 1.5}'])
def test_list_is_a_trace_if_one_object_has_a_phase_or_a_time(event: bytes) -> None:
    assert read(b'[{"key": "aten::mm"}, ' + event + b"]").kept == 2


def test_noise_is_refused_before_its_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_SIZE", 1000)
    chunks = iter([b"[", *([b"1," * 500] * 1000)])

    with pytest.raises(NotATrace, match="None of the first"):
        read_chunks(chunks)

    assert len(list(chunks)) > 900


def test_endless_envelope_is_refused_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "ENVELOPE_MAX", 1000)
    monkeypatch.setattr(document, "_FIRST_READ", 100)
    monkeypatch.setattr(frames, "FRAME_SIZE", 100)
    endless = b'"a": "' + b"x" * 5000

    error = refusal(b"{" + endless, 64)
    behind = read(b'{"traceEvents": [{"ph": "X"}], ' + endless, chunk=64)

    assert isinstance(error, NotATrace)
    assert error.extra["limit"] == 1000
    assert (behind.kept, behind.envelope) == (1, b'{"traceEvents": []}')
    assert behind.notes["envelope"]


@pytest.mark.parametrize("end", [b"]}", b"],"])
def test_too_many_arrays_are_refused(end: bytes) -> None:
    text = b'{"traceEvents": [{"ph": "X"}'

    error = refusal((text + end) * 1001 if end == b"]}" else text + (end + b'{"ph": "X"}') * 1001)

    assert isinstance(error, NotATrace)
    assert error.extra["limit"] == document.ARRAYS_MAX


@pytest.mark.parametrize("first", [b'{"bp": "e", "ph": "X"', b'{"z": {"ph": 1}, "ph": "X"', b'{"args": {}, "ph": "X"'])
def test_damage_loses_no_other_event_for_any_first_key(first: bytes) -> None:
    events = [first + b', "pid": %d}' % n for n in range(50)]
    broken = [*events[:20], first + b', "pid":: 1}', *events[20:]]

    reading = read(b"[" + b",\n".join(broken) + b"]")

    assert [*map(unordered, reading.events)] == [*map(unordered, parsed(b"[" + b",".join(events) + b"]"))]
    assert reading.refused == reading.notes["unreadable_event"] == 1


def test_oversized_event_is_left_out_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (frames, reader):
        monkeypatch.setattr(module, "ELEMENT_MAX", 1000)
    monkeypatch.setattr(frames, "FRAME_SIZE", 200)
    large = b'{"ph": "X", "name": "' + b"x" * 1500 + b'"}'

    reading = read(b"[" + b",".join([*WROTE[:10], large, *WROTE[10:]]) + b"]")

    assert reading.events == WHOLE.events
    assert reading.notes["event_too_large"] == 1
    assert reading.offsets["event_too_large"] == [len(b",".join(WROTE[:10])) + 2]

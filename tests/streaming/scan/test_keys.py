"""A scan finds the same in an event whatever keys it has read before."""

from hypothesis import given, settings
from hypothesis import strategies as st

from service.streaming.scan.events import ELEMENT, Scratch, new_scratch, scan_elements
from service.streaming.scan.reader import padded
from tests.conftest import scaled

USED = new_scratch(room=10, rest=100)
"""Has the keys of all texts of this module."""

BLANKS = st.sampled_from(["", " ", "\n    ", "  ", "\t"])
KEYS = st.sampled_from(
    [
        "ph",
        "cat",
        "name",
        "pid",
        "ts",
        "dur",
        "id",
        "args",
        "External id",
        "correlation",
        "bytes",
        "a",
        "\\u0061",
        "k" * 90,
    ]
)
VALUES = st.sampled_from(
    ['"X"', '"a\\"b"', "7", "12345678.25", "123456789012345678", "-0", "1e3", "null", "[1, {}]", '""']
)


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str] = VALUES) -> str:
    """Draw the text of an object."""
    members = draw(st.lists(st.tuples(BLANKS, KEYS, BLANKS, BLANKS, values, BLANKS), max_size=5))
    text = ",".join(f'{a}"{key}"{b}:{c}{value}{d}' for a, key, b, c, value, d in members)
    return "{" + (text or draw(BLANKS)) + "}"


EVENTS = objects(VALUES | objects())


def scan(text: str, scratch: Scratch) -> tuple[object, ...]:
    """Scan a text; return the result and all that it wrote to the tables."""
    encoded = text.encode()
    scratch.events[:] = 0
    result = scan_elements(padded(encoded), 0, len(encoded), ELEMENT, scratch)
    return result, scratch.events[:, : result.events].tolist(), scratch.rest[: result.rest].tolist()


@given(EVENTS)
@settings(max_examples=scaled(400))
def test_an_event_is_read_as_if_it_were_the_first(event: str) -> None:
    expected = scan(event, new_scratch(room=10, rest=100))
    assert scan(event, USED) == expected
    assert scan(event, USED) == expected


@given(EVENTS, st.data())
@settings(max_examples=scaled(400))
def test_damage_is_found_at_the_same_place(event: str, data: st.DataObject) -> None:
    scan(event, USED)
    at = data.draw(st.integers(0, len(event) - 1))
    damaged = event[:at] + data.draw(st.sampled_from(["", ",", ":", '"', " ", "}", "\x01"])) + event[at + 1 :]
    assert scan(damaged, USED)[0] == scan(damaged, new_scratch(room=10, rest=100))[0]


def test_more_keys_than_a_table_holds_are_read() -> None:
    scratch = new_scratch(room=2000, rest=2000)
    events = [f'{{"key {n}": {n}, "pid": {n}}}' for n in range(1000)]
    _, table, rest = scan(",".join(events), scratch)
    assert isinstance(table, list)
    assert isinstance(rest, list)
    assert table[0] == [*range(1000)]
    assert [",".join(events)[start:end] for _, start, end in rest] == [f'"key {n}": {n}' for n in range(1000)]

"""The scan records the span of each member, and reads its number exactly or leaves it as text."""

from decimal import ROUND_FLOOR, Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.streaming.scan.events import (
    BYTES,
    CLOSED,
    COMMA_OR_CLOSE,
    DUR_NS,
    ELEMENT,
    ELEMENT_OR_CLOSE,
    FULL,
    HAS_INT,
    PID_INT,
    STREAM,
    TS_DECIMALS,
    TS_NS,
    VERBATIM,
    new_scratch,
    scan_elements,
)
from service.streaming.scan.grammar import BAD, MORE
from service.streaming.scan.reader import padded
from tests.conftest import scaled

SCRATCH = new_scratch(room=100, rest=100)


def scan_one(event: str) -> dict[int, int]:
    """Scan an event, and return its numbers by column."""
    text = event.encode()
    result = scan_elements(padded(text), 0, len(text), ELEMENT, SCRATCH)
    assert (result.events, result.verdict, result.at) == (1, MORE, len(text))
    row = SCRATCH.events[:, 0]
    return {column: int(row[column]) for column in range(BYTES + 1) if row[HAS_INT] >> column & 1}


number_texts = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)


@given(number_texts)
@settings(max_examples=scaled(400))
@example("8999999999999999.999")
@example("9000000000000000")
@example("-8999999999999999.999")
@example("10000000000000000")
@example("1712195495406752.8")
@example("-0.001")
@example("0.0005")
@example("1e3")
def test_time_is_exact_or_left_as_text(text: str) -> None:
    result = scan_one(f'{{"ts":{text},"dur": {text} }}')

    row = SCRATCH.events[:, 0]
    assert result.get(TS_NS) == result.get(DUR_NS)
    integer, _, decimals = text.lstrip("-").partition(".")
    simple = "e" not in text.lower() and len(decimals) <= 3 and (Decimal(text) != 0 or text[0] != "-")
    if simple and (len(integer) < 16 or (len(integer) == 16 and integer[0] != "9")):
        assert result[TS_NS] == int((Decimal(text) * 1000).to_integral_value(ROUND_FLOOR))
        assert row[TS_DECIMALS] == len(decimals)
        assert not row[VERBATIM]
    else:
        assert TS_NS not in result
        assert row[VERBATIM]


@given(number_texts)
@settings(max_examples=scaled(250))
@example("9" * 18)
@example("-" + "9" * 18)
@example("1" + "0" * 18)
@example("-0")
def test_an_id_is_an_integer_as_python_prints_it_or_left_as_text(text: str) -> None:
    result = scan_one(f'{{"pid":{text},"args":{{"stream":{text}}}}}')

    canonical = text.lstrip("-").isdigit() and str(int(text)) == text and len(text.lstrip("-")) <= 18
    assert result == ({PID_INT: int(text), STREAM: int(text)} if canonical else {})


@pytest.mark.parametrize(
    ("text", "state", "events", "others", "verdict", "at"),
    [
        (b"", ELEMENT_OR_CLOSE, 0, 0, MORE, 0),
        (b" \n ]}", ELEMENT_OR_CLOSE, 0, 0, CLOSED, 4),
        (b"]", ELEMENT, 0, 0, BAD, 0),
        (b"]", COMMA_OR_CLOSE, 0, 0, CLOSED, 1),
        (b"{}", COMMA_OR_CLOSE, 0, 0, BAD, 0),
        (b", {}", COMMA_OR_CLOSE, 1, 0, MORE, 4),
        (b"{}, {", ELEMENT, 1, 0, MORE, 4),
        (b'{}, {"a": 01}', ELEMENT, 1, 0, BAD, 4),
        (b"{} {}", ELEMENT, 1, 0, BAD, 3),
        (b"{},, {}", ELEMENT, 1, 0, BAD, 3),
        (b'1, "a", [{}], {}, null]', ELEMENT, 1, 4, CLOSED, 23),
        (b'{}, [{"ph": "X"}]]', ELEMENT, 1, 0, BAD, 4),
    ],
)
def test_scan_stops_at_damage(text: bytes, state: int, events: int, others: int, verdict: int, at: int) -> None:
    result = scan_elements(padded(text), 0, len(text), state, SCRATCH)

    assert (result.events, result.non_events, result.verdict, result.at) == (events, others, verdict, at)


def test_scan_resumes_where_its_table_was_full() -> None:
    text = b",".join(b'{"pid": %d, "a": 1, "b": 2}' % n for n in range(50)) + b"]"
    for scratch in (new_scratch(room=3), new_scratch(rest=5), new_scratch(room=1, rest=2)):
        at, state, pids = 0, ELEMENT_OR_CLOSE, []
        while True:
            result = scan_elements(padded(text), at, len(text), state, scratch)
            pids += scratch.events[PID_INT, : result.events].tolist()
            at, state = result.at, result.state
            if result.verdict != FULL:
                break
        assert result.verdict == CLOSED
        assert pids == list(range(50))


def test_row_keeps_nothing_of_an_earlier_event() -> None:
    full = '{"ph":"X","ts":1,"dur":2,"pid":3,"args":{"stream":7,"bytes":9}}'
    scan_one(full)
    assert scan_one("{}") == {}
    scan_one(full)
    assert scan_one('{"ts":"x","dur":null,"pid":"y","args":[1]}') == {}
    assert np.count_nonzero(SCRATCH.events[VERBATIM, 0]) == 0

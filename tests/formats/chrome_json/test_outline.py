"""The outline passes the members before the events one by one, and passes only complete members."""

import pytest

from service.formats.chrome_json.outline import StopReason, events_after_damage, read_members

EVENTS = b'"traceEvents"'


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        (b"}", StopReason.END, 1),
        (b' "a": 1 } more', StopReason.END, 9),
        (b'"a": {"traceEvents": []}, "traceEvents": [', StopReason.ARRAY, 42),
        (b'"traceEvents" :\n[{', StopReason.ARRAY, 17),
        (b'"traceEvents": {}, "b": 2}', StopReason.END, 26),
        (b'"a": [1, 2', StopReason.UNFINISHED, 0),
        (b'"a": 1, "b": tr', StopReason.UNFINISHED, 6),
        (b'"a": 1 , ', StopReason.UNFINISHED, 6),
        (b"", StopReason.UNFINISHED, 0),
        (b'"a": nil}', StopReason.DAMAGE, 5),
        (b'"a": 1 "b": 2}', StopReason.DAMAGE, 7),
        (b'"a": 1,}', StopReason.DAMAGE, 7),
        (b", 1", StopReason.DAMAGE, 0),
    ],
)
def test_reading_stops_at_the_first_stop_reason(text: bytes, reason: StopReason, at: int) -> None:
    stop = read_members(text, at_start=True)

    assert (stop.reason, stop.at) == (reason, at)


def test_missing_comma_after_a_member_is_damage() -> None:
    assert read_members(b', "a": 1}', at_start=False).reason is StopReason.END
    assert read_members(b'"a": 1}', at_start=False).reason is StopReason.DAMAGE


def test_cut_members_are_resumed_at_the_end_of_a_member() -> None:
    text = b'"a": [{"b": "}"}], "c": -1.5e3, "\\u00e9": null, "traceEvents": ['
    for end in range(len(text)):
        stop = read_members(text[:end], at_start=True)
        assert stop.reason is StopReason.UNFINISHED

        again = read_members(text[stop.at :], at_start=stop.at_start)
        assert (again.reason, stop.at + again.at) == (StopReason.ARRAY, len(text))
        assert text[stop.at + again.key :].startswith(EVENTS)


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (b'garbage "traceEvents": [ {"ph": "X"}]', b' {"ph"'),
        (b'garbage "traceEvents": [ ]', b" ]"),
        (b'garbage [{"ph": "X", "name": "cut', b'{"ph"'),
        (b'"deviceProperties": [{"id": 0, "name": "V100"}], "x": [{"name": "a", "ph": "X"}]', b'{"name": "a"'),
        (b'"a": {"ph": "X"}, {"cat": "kernel", "ph": "X"}', b'{"cat"'),
    ],
)
def test_events_after_damage_are_recognised_by_key_or_shape(text: bytes, begins: bytes) -> None:
    start = events_after_damage(text, 0)

    assert start is not None
    assert text[start:].startswith(begins)


@pytest.mark.parametrize("text", [b"", b"garbage", b'[{"name": "V100"}]', b'{"args": {"ph": 1}}', b'"a": {"ph": "X"}'])
def test_other_text_is_not_mistaken_for_an_event(text: bytes) -> None:
    assert events_after_damage(text, 0) is None

"""Members of a document are passed one by one up to its events, and only complete ones are passed."""

import pytest

from service.formats.chrome_json.outline import Landmark, events_behind_damage, read_members

EVENTS = b'"traceEvents"'


@pytest.mark.parametrize(
    ("text", "landmark", "at"),
    [
        (b"}", Landmark.END, 1),
        (b' "a": 1 } more', Landmark.END, 9),
        (b'"a": {"traceEvents": []}, "traceEvents": [', Landmark.ARRAY, 42),
        (b'"traceEvents" :\n[{', Landmark.ARRAY, 17),
        (b'"traceEvents": {}, "b": 2}', Landmark.END, 26),
        (b'"a": [1, 2', Landmark.UNFINISHED, 0),
        (b'"a": 1, "b": tr', Landmark.UNFINISHED, 6),
        (b'"a": 1 , ', Landmark.UNFINISHED, 6),
        (b"", Landmark.UNFINISHED, 0),
        (b'"a": nil}', Landmark.DAMAGE, 5),
        (b'"a": 1 "b": 2}', Landmark.DAMAGE, 7),
        (b'"a": 1,}', Landmark.DAMAGE, 7),
        (b", 1", Landmark.DAMAGE, 0),
    ],
)
def test_reading_stops_at_the_first_landmark(text: bytes, landmark: Landmark, at: int) -> None:
    step = read_members(text, fresh=True)

    assert (step.landmark, step.at) == (landmark, at)


def test_missing_comma_after_a_member_is_damage() -> None:
    assert read_members(b', "a": 1}', fresh=False).landmark is Landmark.END
    assert read_members(b'"a": 1}', fresh=False).landmark is Landmark.DAMAGE


def test_cut_members_are_resumed_at_the_end_of_a_member() -> None:
    text = b'"a": [{"b": "}"}], "c": -1.5e3, "\\u00e9": null, "traceEvents": ['
    for end in range(len(text)):
        step = read_members(text[:end], fresh=True)
        assert step.landmark is Landmark.UNFINISHED

        next_step = read_members(text[step.at :], fresh=step.fresh)
        assert (next_step.landmark, step.at + next_step.at) == (Landmark.ARRAY, len(text))
        assert text[step.at + next_step.key :].startswith(EVENTS)


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
def test_events_behind_damage_are_recognised_by_key_or_shape(text: bytes, begins: bytes) -> None:
    start = events_behind_damage(text, 0)

    assert start is not None
    assert text[start:].startswith(begins)


@pytest.mark.parametrize("text", [b"", b"garbage", b'[{"name": "V100"}]', b'{"args": {"ph": 1}}', b'"a": {"ph": "X"}'])
def test_other_text_is_not_mistaken_for_an_event(text: bytes) -> None:
    assert events_behind_damage(text, 0) is None

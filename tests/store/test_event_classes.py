"""Events are of one class exactly if they agree in its columns, however they are split into parts."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.store.event_classes import COLUMNS, KEYS, ClassValues, EventClass, EventClasses
from service.store.parts import Part
from service.streaming.schema import SCHEMA
from service.trace.summary import RECORD_WINDOW_END

NUMBERS = st.none() | st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
TEXTS = st.none() | st.sampled_from(["", "X", '"a"', "kernel"])
EVENTS = st.lists(
    st.fixed_dictionaries(
        {name: TEXTS if name in {"ph", "cat", "pid_text", "tid_text"} else NUMBERS for name in KEYS}
        | {"name": st.none() | st.sampled_from(["", RECORD_WINDOW_END])}
    ),
    max_size=30,
)


def part_of(events: list[dict[str, Any]], index: int = 0) -> Part:
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    columns = [pa.array([event[field.name] for event in events], field.type) for field in schema]
    return Part(index, 0, pa.table(columns, schema))


def class_of(event: dict[str, Any]) -> EventClass:
    is_mark = event["name"] == RECORD_WINDOW_END and event["ph"] != "X"
    return EventClass(**{name: event[name] for name in KEYS}, is_mark=is_mark)


@given(st.lists(EVENTS, max_size=4))
def test_class_of_an_event_has_its_fields(pieces: list[list[dict[str, Any]]]) -> None:
    classes = EventClasses()
    asked: list[EventClass] = []

    def value_of(class_: EventClass) -> int:
        asked.append(class_)
        return len(asked)

    values = ClassValues(classes, value_of)
    listed: list[EventClass] = []
    for index, events in enumerate(pieces):
        part = part_of(events, index)
        numbers = classes.of(part)
        listed = [*classes.listed()]
        assert [listed[number] for number in numbers] == [class_of(event) for event in events]
        assert [asked[value - 1] for value in values.of(numbers)] == [class_of(event) for event in events]

    assert asked == listed
    assert len(classes) == len(asked) == len({class_of(event) for events in pieces for event in events})


def test_classes_from_a_number_on_are_the_last_ones() -> None:
    classes = EventClasses()
    classes.of(part_of([dict.fromkeys(COLUMNS) | {"tid": tid} for tid in (5, 3, 5, 8)]))

    assert [class_.tid for class_ in classes.listed(1)] == [3, 8]
    assert [*classes.listed(3)] == []


def test_classes_of_one_track_have_its_number() -> None:
    event = dict.fromkeys(COLUMNS) | {"pid": 1, "tid_text": '"a"'}
    events = [event, event | {"cat": "kernel"}, event | {"tid_text": r'"\u0061"'}, event | {"pid": 2}]
    classes = EventClasses()

    tracks = classes.tracks.of(classes.of(part_of(events))).tolist()

    assert [classes.track_keys[track] for track in tracks] == [(1, "a"), (1, "a"), (1, "a"), (2, "a")]
    assert len(classes.track_keys) == 2

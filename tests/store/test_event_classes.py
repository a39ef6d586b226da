"""Events are of one class exactly if they agree in its columns, however they are split into parts."""

from hypothesis import given
from hypothesis import strategies as st

from service.store.event_classes import COLUMNS, KEYS, ClassValues, EventClass, EventClasses
from service.store.parts import Part
from tests.store.class_rows import Row, is_mark, rows_of, table_of


def part_of(rows: list[Row], index: int = 0) -> Part:
    return Part(index, 0, table_of(rows, COLUMNS))


def class_of(row: Row) -> EventClass:
    return EventClass(**{name: row[name] for name in KEYS}, is_mark=is_mark(row))


@given(st.lists(rows_of(), max_size=4))
def test_class_of_an_event_has_its_fields(pieces: list[list[Row]]) -> None:
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

"""A frame yields its events; a damaged one yields repaired events and the offsets of the damage."""

import tracemalloc
from typing import Any

import pytest

from service.streaming.scan import columns
from service.streaming.scan.columns import Builder
from service.streaming.scan.events import COMMA_OR_CLOSE, ELEMENT, ELEMENT_OR_CLOSE
from service.streaming.scan.reader import Events, Reader
from tests.columns import parsed
from tests.events import rows_of, written_back

READER = Reader()
SOUND = [f'{{"ph": "X", "name": "é{n}", "pid": {n}}}' for n in range(6)]


def read(frame: str | bytes, *, offset: int = 0, state: int = ELEMENT_OR_CLOSE, last: bool = True) -> Events:
    return READER.read(frame.encode() if isinstance(frame, str) else frame, offset, state, last=last)


def events_of(read_events: Events) -> list[Any]:
    events = [written_back(row) for row in rows_of(read_events.batches)]
    assert len(events) == read_events.kept
    return events


def offsets(read_events: Events) -> dict[str, list[int | None]]:
    notes = read_events.health.as_dict(refused=read_events.refused)["notes"]
    return {note["code"]: [example["offset"] for example in note["examples"]] for note in notes}


def test_frame_may_end_within_or_after_an_element() -> None:
    text = ", ".join(SOUND)
    for end in range(len(text.encode())):
        read_events = read(text.encode()[:end], last=False)

        unread = text.encode()[read_events.at :].decode()
        events = events_of(read_events)
        assert events == parsed(f"[{', '.join(SOUND[: len(events)])}]")
        second_read = read(unread + "]", state=read_events.state)
        assert events + events_of(second_read) == parsed(f"[{text}]")
        assert second_read.closed


def test_damage_at_the_end_of_a_frame_is_left_to_the_next() -> None:
    frame = f'{SOUND[0]}, {{"ph": "X", "name": "a"b", "ts": '

    read_events = read(frame, last=False)

    assert events_of(read_events) == parsed(f"[{SOUND[0]}]")
    assert (read_events.refused, offsets(read_events)) == (0, {})
    assert read_events.at == frame.encode().index(b', {"ph"') + 2


@pytest.mark.parametrize("state", [ELEMENT_OR_CLOSE, ELEMENT, COMMA_OR_CLOSE])
def test_a_frame_may_begin_at_any_place_between_elements(state: int) -> None:
    read_events = read(("," if state == COMMA_OR_CLOSE else "") + ",".join(SOUND) + "] behind", state=state)

    assert events_of(read_events) == parsed(f"[{','.join(SOUND)}]")
    assert read_events.closed
    assert offsets(read_events) == {}


def test_offsets_count_document_bytes_after_replaced_ones() -> None:
    first = b'{"ph": "X", "name": "\xff and \xed\xa0\x80 and \xc3"}'
    broken = b'{"ph": "X", "name": "a\tb", "pid": NaN}'
    frame = first + b", 5, " + broken + b", " + SOUND[0].encode() + b"]"

    read_events = read(frame, offset=1000)

    assert offsets(read_events) == {
        "not_an_event": [1000 + frame.index(b"5, ")],
        "invalid_utf8": [1000 + frame.index(byte) for byte in (b"\xff", b"\xed", b"\xa0")],
        "control_character": [1000 + frame.index(b"\t")],
        "not_a_number": [1000 + frame.index(b"NaN")],
    }
    assert read_events.at == len(frame)
    assert [dict(event)["name"] for event in events_of(read_events)] == [
        "\ufffd and \ufffd\ufffd\ufffd and \ufffd",
        "a\tb",
        "é0",
    ]


@pytest.mark.parametrize("spare", [0, 1 << 16])
@pytest.mark.parametrize("room", [1, 2, 100])
def test_small_blocks_and_columns_hold_the_same_events(room: int, spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_SPARE", spare)
    reader = Reader()
    reader._builder = Builder(room, members=1)
    wide = '{"ph": "X", ' + ", ".join(f'"key {n}": {n}' for n in range(50)) + "}"
    long = f'{{"ph": "X", "args": {{"text": "{"x" * 3000}"}}}}'
    text = ",".join([*SOUND, wide, "7", long, *SOUND * 9])

    read_events = reader.read(f"{text}]".encode(), 0, ELEMENT_OR_CLOSE, last=True)

    assert events_of(read_events) == parsed(f"[{','.join([*SOUND, wide, long, *SOUND * 9])}]")
    assert read_events.refused == 1
    assert len(read_events.batches) > 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"args": "' + "x" * 8_000_000 + '"}', id="an event with long arguments"),
        pytest.param('{"other": "' + "x" * 8_000_000 + '"}', id="an event with a long member"),
        pytest.param(",".join(["{}"] * 200_000), id="many events without members"),
    ],
)
def test_memory_of_a_frame_is_bounded_by_its_events_and_texts(text: str) -> None:
    reader, frame = Reader(), f"{text}]".encode()
    reader.read(frame, 0, ELEMENT_OR_CLOSE, last=True)
    tracemalloc.start()

    for _ in range(2):  # the second time, the reader knows how dense such events are
        events = reader.read(frame, 0, ELEMENT_OR_CLOSE, last=True)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * (5 * len(frame) + 300 * events.kept)


def test_damage_up_to_the_next_event_is_one_refused_event() -> None:
    frame = ",".join([SOUND[0], '{"ph": "X", "pid":: 1}', *SOUND[1:]]) + "]"

    read_events = read(frame)

    assert events_of(read_events) == parsed(f"[{','.join(SOUND)}]")
    assert read_events.refused == 1
    assert offsets(read_events) == {"unreadable_event": [len(SOUND[0].encode()) + 1]}


def test_event_in_args_is_not_mistaken_for_an_element() -> None:
    frame = '{"ph": "X", "pid":: 1, "args": {"ph": "Y"}, "list": [{"ph": "Z"}]}, {"name": "b", "ph": "X"}]'

    assert [sorted(event) for event in events_of(read(frame))] == [[("name", "b"), ("ph", "X")]]


def test_samples_show_the_text_around_the_damage() -> None:
    frame = ",".join([*SOUND, '{"ph": "X", "pid": NaN}', *SOUND]) + "]"

    (note,) = read(frame).health.as_dict(refused=0)["notes"]

    text = note["examples"][0]["text"]
    assert text
    assert "NaN" in text
    assert len(text) <= 120

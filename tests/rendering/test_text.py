"""Events are written as JSON that keeps their values, and their times to the nanosecond."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.placed import ESSENTIAL_COLUMNS
from service.rendering.text import ALL_ARGS, NO_ARGS, SOME_ARGS, PackedTexts, member, write_lines

NS = 1000
KEYS = dict(zip(ESSENTIAL_COLUMNS, ("correlation", "device", "stream", "bytes"), strict=True))
"""The key in `args` of each column of an essential argument."""
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ARGS = st.dictionaries(
    NAMES.map(str), st.none() | st.booleans() | INTEGERS | NAMES | st.lists(INTEGERS, max_size=3), max_size=4
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from("XiC"),
            "cat": NAMES,
            "name": NAMES,
            "pid": INTEGERS,
            "tid": INTEGERS,
            "ts": st.integers(0, 2**53),
            "dur": st.none() | st.integers(0, 2**53),
            "id": st.none() | INTEGERS,
            "args": st.none() | ARGS,
            "mode": st.sampled_from([NO_ARGS, ALL_ARGS, SOME_ARGS]),
            "essential": st.fixed_dictionaries({name: st.none() | INTEGERS for name in ESSENTIAL_COLUMNS}),
            "rest": st.none() | st.sampled_from([',"bp":"e"', ',"s":"t","tts":5']),
            "indent": st.sampled_from([None, 1, 4]),
        }
    ),
    max_size=8,
)


def texts_of(events: list[dict[str, Any]], key: str, text: Callable[[Any], str]) -> tuple[PackedTexts, Any]:
    """Return the texts of a member of the events, and the index of each event's text."""
    unique = [*dict.fromkeys(event[key] for event in events if event[key] is not None)]
    codes = [unique.index(event[key]) if event[key] is not None else len(unique) for event in events]
    return PackedTexts.of([*(text(word).encode() for word in unique), b""]), np.array(codes, np.int64)


def text_of(events: list[dict[str, Any]]) -> str:
    """Return the text of events as the rendering writes it."""
    phases = PackedTexts.of([b"X", b"i", b"C"])
    numbers = ("pid", "tid", "ts", "dur", "id")
    texts = [None if event["args"] is None else json.dumps(event["args"], indent=event["indent"]) for event in events]
    args = PackedTexts.in_array(pa.array(texts, pa.string()))
    return write_lines(
        [
            (phases, np.array(["XiC".index(event["ph"]) for event in events], np.int64)),
            texts_of(events, "cat", member("cat")),
            texts_of(events, "name", member("name")),
            texts_of(events, "rest", str),
        ],
        np.array([[event[key] or 0 for event in events] for key in numbers], np.int64).reshape(5, len(events)),
        np.array([[event[key] is not None for event in events] for key in numbers], np.bool_).reshape(5, len(events)),
        args.values,
        args.starts[:-1],
        args.starts[1:],
        np.array([event["mode"] for event in events], np.int64),
        np.zeros(len(events), np.bool_),
        np.array([[event["essential"][key] or 0 for event in events] for key in KEYS], np.int64).reshape(
            len(KEYS), len(events)
        ),
        np.array([[event["essential"][key] is not None for event in events] for key in KEYS]).reshape(
            len(KEYS), len(events)
        ),
    ).decode()


def expected(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event that `json` should parse from the text."""
    members = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "id")}
    members |= {key: None if event[key] is None else Decimal(event[key]) / NS for key in ("ts", "dur")}
    if event["mode"] == ALL_ARGS:
        members["args"] = event["args"] and {
            key: json.dumps(value) if isinstance(value, list) else value for key, value in event["args"].items()
        }
    elif event["mode"] == SOME_ARGS:
        arguments = {KEYS[key]: value for key, value in event["essential"].items() if value is not None}
        members["args"] = arguments or None
    members |= json.loads(f"{{{(event['rest'] or '')[1:]}}}")
    return {key: value for key, value in members.items() if value is not None}


@given(EVENTS)
def test_written_events_are_parsed_back_unchanged(events: list[dict[str, Any]]) -> None:
    text = text_of(events)
    assert text.startswith(",\n") or not events
    parsed = json.loads(f"[{text[1:]}]", parse_float=Decimal)
    for event, written in zip(parsed, events, strict=True):
        for key, value in event.get("args", {}).items():
            if isinstance((written["args"] or {}).get(key), list):
                event["args"][key] = json.dumps(json.loads(value))  # the blanks of lists are as in the document
    assert parsed == [expected(event) for event in events]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0"), (1, "0.001"), (10, "0.01"), (100, "0.1"), (999, "0.999"), (1000, "1"), (1010, "1.01"), (20, "0.02"),
     (1 << 52, "4503599627370.496"), (123_456_000, "123456")],
)  # fmt: skip
def test_times_have_the_necessary_decimals(ns: int, text: str) -> None:
    event = dict.fromkeys(("cat", "name", "dur", "id", "args", "rest", "indent"))
    event |= {"ph": "X", "pid": 1, "tid": 1, "ts": ns, "mode": NO_ARGS, "essential": dict.fromkeys(KEYS)}
    assert text_of([event]) == f',\n{{"ph":"X","pid":1,"tid":1,"ts":{text}}}'


def arguments_of(args: dict[str, Any], indent: int | None) -> str:
    """Return the text of arguments that are written with an indentation."""
    event = dict.fromkeys(("cat", "name", "dur", "id", "rest")) | {"indent": indent, "args": args}
    event |= {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "mode": ALL_ARGS, "essential": dict.fromkeys(KEYS)}
    return text_of([event]).partition(',"args":')[2][:-1]


def test_arguments_lose_only_the_white_space_between_tokens() -> None:
    args = {"a b": ' \t"\\ {} ', "c": 1, "": "é 😀", "long": "text \\" * 20}
    assert arguments_of(args, 4) == json.dumps(args, separators=(",", ":"))


@pytest.mark.parametrize("value", [[], {}, [1, [2, 'a"]\\']], {"a": {"b": ["é", None]}, "c": "}"}, [" \n", "😀" * 30]])
def test_lists_and_objects_in_arguments_become_their_text(value: Any) -> None:
    for indent in (None, 2):
        args = json.loads(arguments_of({"a": 1, "value": value, "z": "end"}, indent))
        assert json.loads(args["value"]) == value
        assert args | {"value": None} == {"a": 1, "value": None, "z": "end"}


def test_slice_of_an_array_has_only_its_own_texts() -> None:
    array = pa.array(["skipped", "é", None, "", "last", "skipped"]).slice(1, 4)
    texts = PackedTexts.in_array(array)
    assert texts.lengths.tolist() == [2, 0, 0, 4]
    assert texts.values[texts.starts[0] : texts.starts[-1]].tobytes() == "élast".encode()

"""Events are written as JSON that keeps their values, and their times to the nanosecond."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.text import (
    COPIED,
    ESSENTIAL,
    ESSENTIAL_COLUMNS,
    NO_ARGS,
    PackedTexts,
    TextCache,
    member,
    write_lines,
)

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
            "mode": st.sampled_from([NO_ARGS, COPIED, ESSENTIAL]),
            "essential": st.fixed_dictionaries({name: st.none() | INTEGERS for name in ESSENTIAL_COLUMNS}),
            "rest": st.none() | st.sampled_from([',"bp":"e"', ',"s":"t","tts":5']),
            "indent": st.sampled_from([None, 1, 4]),
        }
    ),
    max_size=8,
)


def cached_texts(events: list[dict[str, Any]], key: str, cache: TextCache) -> tuple[PackedTexts, Any]:
    """Return the texts of a member of the events, and the index of each event's text."""
    unique = [*dict.fromkeys(event[key] for event in events if event[key] is not None)]
    codes = [unique.index(event[key]) if event[key] is not None else len(unique) for event in events]
    return cache.of(unique), np.array(codes, np.int64)


def text_of(events: list[dict[str, Any]]) -> str:
    """Return the text of events as the rendering writes it."""
    phases = PackedTexts.of([b"X", b"i", b"C"])
    numbers = ("pid", "tid", "ts", "dur", "id")
    args = pa.array(
        [None if event["args"] is None else json.dumps(event["args"], indent=event["indent"]) for event in events],
        pa.string(),
    )
    return write_lines(
        [
            (phases, np.array(["XiC".index(event["ph"]) for event in events], np.int64)),
            cached_texts(events, "cat", TextCache(member("cat"))),
            cached_texts(events, "name", TextCache(member("name"))),
            cached_texts(events, "rest", TextCache(str)),
        ],
        np.array([[event[key] or 0 for event in events] for key in numbers], np.int64).reshape(5, len(events)),
        np.array([[event[key] is not None for event in events] for key in numbers], np.bool_).reshape(5, len(events)),
        PackedTexts.in_array(pa.array(args, pa.string())),
        PackedTexts.of([]),
        np.array([event["mode"] for event in events], np.int64),
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
    if event["mode"] == COPIED:
        members["args"] = event["args"]
    elif event["mode"] == ESSENTIAL:
        arguments = {KEYS[key]: value for key, value in event["essential"].items() if value is not None}
        members["args"] = arguments or None
    members |= json.loads(f"{{{(event['rest'] or '')[1:]}}}")
    return {key: value for key, value in members.items() if value is not None}


@given(EVENTS)
def test_written_events_are_parsed_back_unchanged(events: list[dict[str, Any]]) -> None:
    text = text_of(events)
    assert text.startswith(",\n") or not events
    assert json.loads(f"[{text[1:]}]", parse_float=Decimal) == [expected(event) for event in events]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0"), (1, "0.001"), (10, "0.01"), (100, "0.1"), (999, "0.999"), (1000, "1"), (1010, "1.01"), (20, "0.02"),
     (1 << 52, "4503599627370.496"), (123_456_000, "123456")],
)  # fmt: skip
def test_times_have_the_necessary_decimals(ns: int, text: str) -> None:
    event = dict.fromkeys(("cat", "name", "dur", "id", "args", "rest", "indent"))
    event |= {"ph": "X", "pid": 1, "tid": 1, "ts": ns, "mode": NO_ARGS, "essential": dict.fromkeys(KEYS)}
    assert text_of([event]) == f',\n{{"ph":"X","pid":1,"tid":1,"ts":{text}}}'


def test_arguments_lose_only_the_white_space_between_tokens() -> None:
    args = {"a b": ' \t"\\ {} ', "c": [1, {"d": "\\"}], "": "é 😀"}
    event = dict.fromkeys(("cat", "name", "dur", "id", "rest")) | {"indent": 4, "args": args}
    event |= {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "mode": COPIED, "essential": dict.fromkeys(KEYS)}
    text = text_of([event])
    assert text.endswith(f',"args":{json.dumps(args, separators=(",", ":"))}}}')


def test_cache_builds_the_text_of_a_word_once() -> None:
    calls: list[str] = []

    def text(word: str) -> str:
        calls.append(word)
        return f"<{word}>"

    cache = TextCache(text)
    for _ in range(2):
        texts = cache.of(["a", "b", "a"])
        assert texts.values[: texts.starts[-1]].tobytes() == b"<a><b><a>"
        assert texts.lengths.tolist() == [3, 3, 3, 0]
    assert calls == ["a", "b"]


def test_slice_of_an_array_has_only_its_own_texts() -> None:
    array = pa.array(["skipped", "é", None, "", "last", "skipped"]).slice(1, 4)
    texts = PackedTexts.in_array(array)
    assert texts.lengths.tolist() == [2, 0, 0, 4]
    assert texts.values[texts.starts[0] : texts.starts[-1]].tobytes() == "élast".encode()

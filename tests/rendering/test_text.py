"""What is written is the JSON of the events: parsed back it has their values, and times to the nanosecond."""

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
            "fate": st.sampled_from([NO_ARGS, COPIED, ESSENTIAL]),
            "essential": st.fixed_dictionaries({name: st.none() | INTEGERS for name in ESSENTIAL_COLUMNS}),
            "rest": st.none() | st.sampled_from([',"bp":"e"', ',"s":"t","tts":5']),
            "indent": st.sampled_from([None, 1, 4]),
        }
    ),
    max_size=8,
)


def looked_up(events: list[dict[str, Any]], key: str, words: TextCache) -> tuple[PackedTexts, Any]:
    known = [*dict.fromkeys(event[key] for event in events if event[key] is not None)]
    codes = [known.index(event[key]) if event[key] is not None else len(known) for event in events]
    return words.of(known), np.array(codes, np.int64)


def text_of(events: list[dict[str, Any]]) -> str:
    """The text of events, made in the way that the rendering makes it."""
    phases = PackedTexts.of([b"X", b"i", b"C"])
    numbers = ("pid", "tid", "ts", "dur", "id")
    args = pa.array(
        [None if one["args"] is None else json.dumps(one["args"], indent=one["indent"]) for one in events], pa.string()
    )
    return write_lines(
        [
            (phases, np.array(["XiC".index(one["ph"]) for one in events], np.int64)),
            looked_up(events, "cat", TextCache(member("cat"))),
            looked_up(events, "name", TextCache(member("name"))),
            looked_up(events, "rest", TextCache(str)),
        ],
        np.array([[one[key] or 0 for one in events] for key in numbers], np.int64).reshape(5, len(events)),
        np.array([[one[key] is not None for one in events] for key in numbers], np.bool_).reshape(5, len(events)),
        PackedTexts.in_array(args),
        np.array([one["fate"] for one in events], np.int64),
        np.array([[one["essential"][key] or 0 for one in events] for key in KEYS], np.int64).reshape(
            len(KEYS), len(events)
        ),
        np.array([[one["essential"][key] is not None for one in events] for key in KEYS]).reshape(
            len(KEYS), len(events)
        ),
    ).decode()


def expected(event: dict[str, Any]) -> dict[str, Any]:
    """The event as json should find it."""
    made = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "id")}
    made |= {key: None if event[key] is None else Decimal(event[key]) / NS for key in ("ts", "dur")}
    if event["fate"] == COPIED:
        made["args"] = event["args"]
    elif event["fate"] == ESSENTIAL:
        kept = {KEYS[key]: value for key, value in event["essential"].items() if value is not None}
        made["args"] = kept or None
    made |= json.loads(f"{{{(event['rest'] or '')[1:]}}}")
    return {key: value for key, value in made.items() if value is not None}


@given(EVENTS)
def test_what_is_written_is_what_came(events: list[dict[str, Any]]) -> None:
    text = text_of(events)
    assert text.startswith(",\n") or not events
    assert json.loads(f"[{text[1:]}]", parse_float=Decimal) == [expected(event) for event in events]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0"), (1, "0.001"), (10, "0.01"), (100, "0.1"), (999, "0.999"), (1000, "1"), (1010, "1.01"), (20, "0.02"),
     (1 << 52, "4503599627370.496"), (123_456_000, "123456")],
)  # fmt: skip
def test_times_have_as_many_decimals_as_it_takes(ns: int, text: str) -> None:
    event = dict.fromkeys(("cat", "name", "dur", "id", "args", "rest", "indent"))
    event |= {"ph": "X", "pid": 1, "tid": 1, "ts": ns, "fate": NO_ARGS, "essential": dict.fromkeys(KEYS)}
    assert text_of([event]) == f',\n{{"ph":"X","pid":1,"tid":1,"ts":{text}}}'


def test_arguments_lose_the_space_between_their_tokens_and_no_other() -> None:
    args = {"a b": ' \t"\\ {} ', "c": [1, {"d": "\\"}], "": "é 😀"}
    event = dict.fromkeys(("cat", "name", "dur", "id", "rest")) | {"indent": 4, "args": args}
    event |= {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "fate": COPIED, "essential": dict.fromkeys(KEYS)}
    text = text_of([event])
    assert text.endswith(f',"args":{json.dumps(args, separators=(",", ":"))}}}')


def test_the_text_of_a_word_is_made_once() -> None:
    made: list[str] = []

    def text(word: str) -> str:
        made.append(word)
        return f"<{word}>"

    words = TextCache(text)
    for _ in range(2):
        texts = words.of(["a", "b", "a"])
        assert texts.values.tobytes() == b"<a><b><a>"
        assert texts.lengths.tolist() == [3, 3, 3, 0]
    assert made == ["a", "b"]


def test_texts_in_a_part_of_an_array() -> None:
    array = pa.array(["skipped", "é", None, "", "last", "skipped"]).slice(1, 4)
    texts = PackedTexts.in_array(array)
    assert texts.lengths.tolist() == [2, 0, 0, 4]
    assert texts.values[texts.starts[0] : texts.starts[-1]].tobytes() == "élast".encode()

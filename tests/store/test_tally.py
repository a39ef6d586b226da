"""The tally has what counting the events one by one gives, however they are split into parts."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.store.event_classes import KEYS, EventClasses
from service.store.parts import Part
from service.store.tally import Tally
from service.streaming.schema import SCHEMA
from service.trace.summary import RECORD_WINDOW_END

COLUMNS = (*KEYS, "name", "ts_ns", "dur_ns")
NUMBERS = st.none() | st.sampled_from([0, 1, -1, 7, 2**63 - 1, -(2**63)])
TEXTS = st.none() | st.sampled_from(["", "X", '"a"', "kernel"])
EVENTS = st.lists(
    st.fixed_dictionaries(
        {name: TEXTS if name in {"ph", "cat", "pid_text", "tid_text"} else NUMBERS for name in COLUMNS}
        | {"name": st.none() | st.sampled_from(["", RECORD_WINDOW_END])}
    ),
    max_size=30,
)


def table_of(events: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    return pa.table(
        {name: pa.array([event[name] for event in events], SCHEMA.field(name).type) for name in COLUMNS}, schema
    )


def tallied(*parts: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    tally, first = Tally(EventClasses()), 0
    for index, events in enumerate(parts):
        tally.add(Part(index, first, table_of(events)))
        first += len(events)
    rows = [*tally.rows()]
    assert len({row.event_class for row in rows}) == len(rows)
    return {tuple(row.event_class): tuple(row[1:]) for row in rows}


def counted(events: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    groups = defaultdict(list)
    for event in events:
        is_mark = event["name"] == RECORD_WINDOW_END and event["ph"] != "X"
        groups[*(event[name] for name in KEYS), is_mark].append((event["ts_ns"], event["dur_ns"]))
    return {key: _counts(times) for key, times in groups.items()}


def _counts(times: list[tuple[int | None, int | None]]) -> tuple[Any, ...]:
    starts = [start for start, _ in times if start is not None]
    ends = [start + max(last or 0, 0) for start, last in times if start is not None]
    ends = [start if end >= 2**63 else end for start, end in zip(starts, ends, strict=True)]
    lasts = [last for _, last in times if last is not None]
    return (
        len(times),
        min(starts, default=None),
        max(ends, default=None),
        len(starts),
        sum(start < 0 for start in starts),
        starts.count(0),
        len(lasts),
        sum(last < 0 for last in lasts),
    )


@given(EVENTS, EVENTS)
def test_tally_has_what_counting_gives(before: list[dict[str, Any]], behind: list[dict[str, Any]]) -> None:
    assert tallied(before, behind) == counted([*before, *behind])


def test_tally_grows_with_its_keys() -> None:
    random = np.random.default_rng(0)
    plain = dict.fromkeys(COLUMNS)
    parts = [
        [plain | {"tid": int(tid), "ts_ns": at} for at, tid in enumerate(random.integers(0, 5000, 2000))]
        for _ in range(5)
    ]
    found = tallied(*parts)
    assert len(found) > 3000
    assert found == counted([event for part in parts for event in part])

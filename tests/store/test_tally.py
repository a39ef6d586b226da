"""The tally has what counting the events one by one gives, however they are split into parts."""

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given

from service.store.event_classes import KEYS, EventClasses
from service.store.parts import Part
from service.store.tally import Tally
from tests.store.class_rows import NUMBERS, Row, is_mark, rows_of, table_of

COLUMNS = (*KEYS, "name", "ts_ns", "dur_ns")
EVENTS = rows_of(ts_ns=NUMBERS, dur_ns=NUMBERS)


def tallied(*parts: list[Row]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    tally, first = Tally(EventClasses()), 0
    for index, events in enumerate(parts):
        tally.add(Part(index, first, table_of(events, COLUMNS)))
        first += len(events)
    rows = [*tally.rows()]
    assert len({row.event_class for row in rows}) == len(rows)
    return {tuple(row.event_class): tuple(row[1:]) for row in rows}


def counted(events: list[Row]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    groups = defaultdict(list)
    for event in events:
        groups[*(event[name] for name in KEYS), is_mark(event)].append((event["ts_ns"], event["dur_ns"]))
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
def test_tally_has_what_counting_gives(before: list[Row], behind: list[Row]) -> None:
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

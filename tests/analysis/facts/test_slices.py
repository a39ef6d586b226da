"""Each slice is read once with its fields and its thread, for any split of the events into tables."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.slices import COLUMNS, columns_of, read_slices
from service.streaming.schema import SCHEMA
from service.trace.errors import ExportFailed

Event = dict[str, Any]

HOST = ("cpu_op", "user_annotation", "cuda_runtime", "hip_driver")
REGION, NEITHER = "gpu_user_annotation", ("kernel", "python_function", "Trace", None)
BORDERS = (-(2**62), -1, 0, 1, 7, 2**62, 2**63 - 1)

MAYBE = st.none() | st.sampled_from([-5, 0, 1, 2**53 + 1, 10**17])
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from(["X", "X", "X", "i", None]),
            "cat": st.sampled_from([*HOST, REGION, *NEITHER]),
            "name": st.sampled_from(["a", "b", "", None]),
            "ts_ns": st.none() | st.sampled_from(BORDERS),
            "dur_ns": st.none() | st.sampled_from(BORDERS),
            "pid": st.sampled_from([0, 1, None]),
            "pid_text": st.sampled_from([None, '"0"']),
            "tid": st.sampled_from([0, 2**40, None]),
            "tid_text": st.sampled_from([None, '"0"', '"main"']),
            "correlation": MAYBE,
        }
    ),
    max_size=40,
)


def by_time(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event["ts_ns"] is None, event["ts_ns"] or 0))


def tables(events: list[Event], cuts: list[int]) -> list[pa.Table]:
    """Return tables of the events in order of time, split at the cuts."""
    rows = by_time(events)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    return [pa.Table.from_pylist(rows[start:end], schema) for start, end in pairwise(edges)]


def counted(events: list[Event]) -> Counter[str]:
    return Counter(event["cat"] for event in events if event["ph"] == "X" and event["cat"])


def end(event: Event) -> int:
    """Return the end of an event, or its start if the end would overflow."""
    over = event["ts_ns"] + max(event["dur_ns"] or 0, 0)
    return over if over < 2**63 else int(event["ts_ns"])


def timed(events: list[Event], categories: Any) -> list[Event]:
    return [
        event for event in events if event["ph"] == "X" and event["ts_ns"] is not None and event["cat"] in categories
    ]


@given(EVENTS, st.lists(st.integers(1, 40)))
def test_slices_match_the_events_in_all_fields(events: list[Event], cuts: list[int]) -> None:
    slices = read_slices(tables(events, cuts), counted(events))
    ordered = by_time(events)
    tracks = [tuple(row.values()) for row in slices.threads.to_pylist()]
    assert len(set(tracks)) == len(tracks)
    for rows, categories in ((slices.host, HOST), (slices.regions, (REGION,))):
        fields = [
            (
                *map(int, (starts, ends)),
                [*slices.names, None][name],
                slices.categories[category],
                tracks[thread],
            )
            for starts, ends, name, category, thread, _ in zip(*rows, strict=True)
        ]
        assert [(ordered[row]["ts_ns"], ordered[row]["cat"]) for row in rows.rows] == [
            (start, slices.categories[category]) for start, category in zip(rows.starts, rows.categories, strict=True)
        ]
        expected = [
            (
                event["ts_ns"],
                end(event),
                *(event[key] for key in ("name", "cat")),
                tuple(event[key] for key in ("pid", "pid_text", "tid", "tid_text")),
            )
            for event in timed(events, categories)
        ]
        assert Counter(fields) == Counter(expected)
        times = [row[:2] for row in fields]
        assert times == sorted(times, key=lambda time: (time[0], -time[1]))


@given(EVENTS, st.lists(st.integers(1, 40)))
def test_correlated_slices_of_the_host_are_in_order(events: list[Event], cuts: list[int]) -> None:
    slices = read_slices(tables(events, cuts), counted(events))
    correlations = [by_time(events)[row]["correlation"] for row in slices.host.rows.tolist()]
    assert list(zip(*(column.tolist() for column in slices.correlated), strict=True)) == [
        (index, correlation) for index, correlation in enumerate(correlations) if correlation is not None
    ]


@given(EVENTS, st.lists(st.integers(1, 40)))
def test_names_include_all_events_except_python_functions(events: list[Event], cuts: list[int]) -> None:
    slices = read_slices(tables(events, cuts), counted(events))
    assert sorted(slices.names) == sorted(
        {event["name"] for event in events if event["name"] is not None and event["cat"] != "python_function"}
    )


@given(EVENTS)
def test_slices_of_the_host_are_filtered_by_category_and_name(events: list[Event]) -> None:
    slices = read_slices(tables(events, []), counted(events))
    host = timed(events, HOST)
    assert slices.of_categories({"cpu_op"}.__contains__).sum() == sum(event["cat"] == "cpu_op" for event in host)
    assert slices.host_named({"a", ""}.__contains__).sum() == sum(event["name"] in {"a", ""} for event in host)
    assert slices.host_named(lambda _: True).sum() == sum(event["name"] is not None for event in host)


@given(EVENTS, st.lists(st.integers(1, 40)))
def test_slices_are_the_same_without_phases_where_categories_tell_them(events: list[Event], cuts: list[int]) -> None:
    of_slices = [event | {"ph": "X"} if event["cat"] in {*HOST, REGION} else event for event in events]
    columns = columns_of(Counter(f"{event['ph'] or ''}|{event['cat'] or ''}" for event in of_slices))
    assert columns == [name for name in COLUMNS if name != "ph"]
    whole = tables(of_slices, cuts)
    expected, slices = (
        read_slices(some, counted(of_slices)) for some in (whole, [table.select(columns) for table in whole])
    )
    assert (slices.names, slices.categories, slices.threads) == (expected.names, expected.categories, expected.threads)
    for read, rows in ((slices.host, expected.host), (slices.regions, expected.regions)):
        assert [column.tolist() for column in read] == [column.tolist() for column in rows]


@pytest.mark.parametrize("key", ["i|cpu_op", "|gpu_user_annotation", "B|cuda_runtime", "X||cpu_op", "i|a|b"])
def test_phases_are_read_where_they_tell_slices_from_other_events(key: str) -> None:
    assert columns_of({"X|cpu_op": 3, "M|": 1, "s|ac2g": 2, key: 1}) == [*COLUMNS]


def test_more_slices_than_the_summary_counts_are_refused() -> None:
    events = [dict.fromkeys(COLUMNS) | {"ph": "X", "cat": "cpu_op", "ts_ns": 1}] * 3
    with pytest.raises(ExportFailed, match="more slices than its summary counts"):
        read_slices(tables(events, []), {"cpu_op": 2})


def test_a_hundred_thousand_threads_stay_distinct() -> None:
    count = 100_000
    columns = {name: pa.nulls(count, SCHEMA.field(name).type) for name in COLUMNS}
    columns |= {name: pa.array(np.arange(count)) for name in ("ts_ns", "tid")}
    for name, word in (("ph", "X"), ("cat", "cpu_op")):
        columns[name] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([word]))
    slices = read_slices([pa.table(columns)], {"cpu_op": count})
    assert slices.threads["tid"].to_pylist() == list(range(count))
    assert slices.host.threads.tolist() == list(range(count))

"""Every slice is read once, with what it has and on its thread, however its events are cut into tables."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.slices import COLUMNS, UNKNOWN, read_slices
from service.streaming.schema import SCHEMA
from service.trace.errors import ExportFailed

Event = dict[str, Any]

HOST = ("cpu_op", "user_annotation", "cuda_runtime", "hip_driver")
REGION, WORK, NEITHER = "gpu_user_annotation", ("kernel", "gpu_memcpy", "Memset"), ("python_function", "Trace", None)
BORDERS = (-(2**62), -1, 0, 1, 7, 2**62, 2**63 - 1)

MAYBE = st.none() | st.sampled_from([-5, 0, 1, 2**53 + 1, 10**17])
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from(["X", "X", "X", "i", None]),
            "cat": st.sampled_from([*HOST, REGION, *WORK, *NEITHER]),
            "name": st.sampled_from(["a", "b", "", None]),
            "ts_ns": st.none() | st.sampled_from(BORDERS),
            "dur_ns": st.none() | st.sampled_from(BORDERS),
            "pid": st.sampled_from([0, 1, None]),
            "pid_text": st.sampled_from([None, '"0"']),
            "tid": st.sampled_from([0, 2**40, None]),
            "tid_text": st.sampled_from([None, '"0"', '"main"']),
            **dict.fromkeys(("correlation", "external_id", "device", "stream", "bytes"), MAYBE),
        }
    ),
    max_size=40,
)


def in_order(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda one: (one["ts_ns"] is None, one["ts_ns"] or 0))


def tables(events: list[Event], cuts: list[int]) -> list[pa.Table]:
    """The events in order of time, as tables that end at the cuts."""
    rows = [{"position": place, **one} for place, one in enumerate(in_order(events))]
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    return [pa.Table.from_pylist(rows[start:end], schema) for start, end in pairwise(edges)]


def counted(events: list[Event]) -> Counter[str]:
    return Counter(one["cat"] for one in events if one["ph"] == "X" and one["cat"])


def end(one: Event) -> int:
    """When an event ends, which is when it starts if that would be after all time."""
    over = one["ts_ns"] + max(one["dur_ns"] or 0, 0)
    return over if over < 2**63 else int(one["ts_ns"])


def timed(events: list[Event], categories: Any) -> list[Event]:
    return [one for one in events if one["ph"] == "X" and one["ts_ns"] is not None and one["cat"] in categories]


@given(EVENTS, st.lists(st.integers(1, 40)))
def test_slices_are_those_of_the_events_with_all_that_they_have(events: list[Event], cuts: list[int]) -> None:
    found, work = read_slices(tables(events, cuts), counted(events))
    ordered = in_order(events)
    tracks = [tuple(row.values()) for row in found.threads.to_pylist()]
    assert len(set(tracks)) == len(tracks)
    for rows, categories in ((found.host, HOST), (found.regions, (REGION,))):
        told = [
            (
                *(int(value) for value in (starts, ends, correlation, external_id)),
                [*found.names, None][name],
                found.categories[category],
                tracks[thread],
            )
            for starts, ends, correlation, external_id, name, category, thread, _ in zip(*rows, strict=True)
        ]
        assert [(ordered[row]["ts_ns"], ordered[row]["cat"]) for row in rows.rows] == [
            (start, found.categories[category]) for start, category in zip(rows.starts, rows.categories, strict=True)
        ]
        expected = [
            (
                one["ts_ns"],
                end(one),
                *(UNKNOWN if one[key] is None else one[key] for key in ("correlation", "external_id")),
                *(one[key] for key in ("name", "cat")),
                tuple(one[key] for key in ("pid", "pid_text", "tid", "tid_text")),
            )
            for one in timed(events, categories)
        ]
        assert Counter(told) == Counter(expected)
        assert [one[:2] for one in told] == sorted((one[:2] for one in told), key=lambda one: (one[0], -one[1]))
    keys = ("name", "cat", "device", "stream", "correlation", "external_id", "bytes", "ts_ns", "dur_ns")
    assert Counter(tuple(row[key] for key in keys) for row in work.to_pylist()) == Counter(
        tuple(one[key] for key in keys) for one in timed(events, WORK)
    )
    assert work["position"].to_pylist() == sorted(work["position"].to_pylist())


@given(EVENTS, st.lists(st.integers(1, 40)))
def test_names_are_those_of_all_events_but_functions_of_python(events: list[Event], cuts: list[int]) -> None:
    found, _ = read_slices(tables(events, cuts), counted(events))
    assert sorted(found.names) == sorted(
        {one["name"] for one in events if one["name"] is not None and one["cat"] != "python_function"}
    )


@given(EVENTS)
def test_slices_of_the_host_are_chosen_by_category_and_name(events: list[Event]) -> None:
    found, _ = read_slices(tables(events, []), counted(events))
    host = timed(events, HOST)
    assert found.of_categories({"cpu_op"}.__contains__).sum() == sum(one["cat"] == "cpu_op" for one in host)
    assert found.host_named({"a", ""}.__contains__).sum() == sum(one["name"] in {"a", ""} for one in host)
    assert found.host_named(lambda _: True).sum() == sum(one["name"] is not None for one in host)


def test_more_slices_than_the_summary_tells_are_refused() -> None:
    events = [dict.fromkeys(COLUMNS) | {"ph": "X", "cat": "cpu_op", "ts_ns": 1}] * 3
    with pytest.raises(ExportFailed, match="more slices than its summary tells"):
        read_slices(tables(events, []), {"cpu_op": 2})


def test_a_hundred_thousand_threads_are_told_apart() -> None:
    many = 100_000
    columns = {name: pa.nulls(many, SCHEMA.field(name).type) for name in COLUMNS}
    columns |= {name: pa.array(np.arange(many)) for name in ("position", "ts_ns", "tid")}
    for name, word in (("ph", "X"), ("cat", "cpu_op")):
        columns[name] = pa.DictionaryArray.from_arrays(np.zeros(many, np.int32), pa.array([word]))
    found, _ = read_slices([pa.table(columns)], {"cpu_op": many})
    assert found.threads["tid"].to_pylist() == list(range(many))
    assert found.host.threads.tolist() == list(range(many))

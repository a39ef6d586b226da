"""Selections keep a client's values, or errors name the invalid ones; intervals are sets of moments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.errors import BadSelection
from service.trace.selection import (
    ALWAYS,
    Closure,
    Interval,
    Selection,
    difference,
    intersection,
    share_of_time,
    union,
)
from service.trace.selection_fields import VALUES_MAX
from service.trace.summary import Summary

ALL = {
    "window": {"from": "a", "end_ns": 9, "relative": True},
    "steps": [3],
    "ranks": [0],
    "devices": [0, 1],
    "streams": ["0/7"],
    "threads": [7, "1/7", "main"],
    "processes": ["python"],
    "categories": [""],
    "names": ["re:^a"],
    "phases": ["X"],
    "min_dur_ns": 5,
    "exclude": {"names": ["b*"], "window": {"to": "c"}},
    "straddle": "clip",
    "closure": {"flows": False},
}

intervals = st.lists(st.tuples(st.integers(-12, 12), st.integers(-12, 12)), max_size=6)


def moments(spans: list[Interval]) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


def is_union(spans: list[Interval]) -> bool:
    """Return whether intervals are sorted, separate and not empty."""
    edges = [edge for span in spans for edge in span]
    return edges == sorted(set(edges))


# -- intervals --------------------------------------------------------------------------------------------------


@given(intervals)
def test_union_has_the_moments_of_its_intervals_and_joins_them(spans: list[Interval]) -> None:
    joined = union(spans)

    assert is_union(joined)
    assert moments(joined) == moments(spans)


@given(intervals, intervals)
def test_intersection_has_the_moments_of_both(first: list[Interval], second: list[Interval]) -> None:
    shared = intersection(union(first), union(second))

    assert is_union(shared)
    assert moments(shared) == moments(first) & moments(second)


@given(intervals, intervals)
def test_difference_has_the_moments_of_the_first_alone(first: list[Interval], second: list[Interval]) -> None:
    remainder = difference(union(first), union(second))

    assert is_union(remainder)
    assert moments(remainder) == moments(first) - moments(second)


def test_difference_from_all_time_has_open_ends() -> None:
    assert difference([ALWAYS], [(3, 5), (5, 7)]) == [(ALWAYS[0], 3), (7, ALWAYS[1])]
    assert difference([ALWAYS], []) == [ALWAYS]
    assert difference([ALWAYS], [ALWAYS]) == []
    assert intersection([ALWAYS], [(3, 5)]) == [(3, 5)]
    assert difference([ALWAYS], [(ALWAYS[0], 3)]) == [(3, ALWAYS[1])]


# -- the model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{}, ALL, *({key: value} for key, value in ALL.items())], ids=" ".join)
def test_selection_round_trips_through_json(value: dict[str, Any]) -> None:
    assert Selection.parsed(value).as_dict() == value
    assert Selection.parsed(json.dumps(value)) == Selection.parsed(value)


def test_closure_is_complete_by_default() -> None:
    assert Selection.parsed({}).closure == Closure(
        metadata=True, flows=True, launches=True, kernels=True, annotations=True
    )


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"steps": []}, "steps"),
        ({"names": []}, "names"),
        ({"exclude": {"streams": []}}, "exclude.streams"),
        ({"step": [1]}, "step"),
        ({"exclude": {"exclude": {}}}, "exclude.exclude"),
        ({"exclude": {"straddle": "clip"}}, "exclude.straddle"),
        ({"closure": {"flow": True}}, "closure.flow"),
        ({"window": {"start": 1}}, "window.start"),
        ({"window": {"start_ns": 1.5}}, "window.start_ns"),
        ({"window": {"start_ns": "1"}}, "window.start_ns"),
        ({"window": {"start_ns": True}}, "window.start_ns"),
        ({"window": {"end_ns": 1 << 63}}, "window.end_ns"),
        ({"window": {"start_ns": 1, "from": "a"}}, "window"),
        ({"window": {"end_ns": 1, "to": "a"}}, "window"),
        ({"min_dur_ns": -1}, "min_dur_ns"),
        ({"straddle": "cut"}, "straddle"),
        ({"devices": ["0"]}, "devices.0"),
        ({"categories": "kernel"}, "categories"),
        ({"names": ["a"] * (VALUES_MAX + 1)}, "names"),
        ({"names": ["a" * 10_001]}, "names.0"),
        ({"names": ["*" * 1001]}, "names"),
        ({"names": ["re:" + "a" * 998]}, "names"),
        ({"exclude": {"names": ["*"] * 101}}, "exclude.names"),
        ([], "selection"),
        (None, "selection"),
        ("{", "selection"),
        (b"\xff", "selection"),
    ],
)
def test_invalid_selection_is_refused_and_the_error_names_the_place(value: Any, place: str) -> None:
    with pytest.raises(BadSelection) as caught:
        Selection.parsed(value)

    assert place in caught.value.detail
    assert len(caught.value.detail) < 1000


SUMMARY = Summary(
    bounds={"start_ns": 1000, "end_ns": 2000},
    steps=[
        {"number": 7, "name": "", "start_ns": 1100, "end_ns": 1200, "pid": 1, "tid": 1},
        {"number": 8, "name": "", "start_ns": 1200, "end_ns": 1400, "pid": 1, "tid": 1},
    ],
)


@pytest.mark.parametrize(
    ("selection", "share"),
    [
        ({}, 1.0),
        ({"streams": ["0/7"]}, 1.0),
        ({"steps": [7]}, 0.1),
        ({"steps": [7, 8]}, 0.3),
        ({"steps": [9]}, 0.0),
        ({"window": {"start_ns": 1500}}, 0.5),
        ({"window": {"start_ns": 500, "relative": True}}, 0.5),
        ({"window": {"start_ns": 0, "end_ns": 10**18}}, 1.0),
        ({"window": {"end_ns": 1150}, "steps": [7]}, 0.05),
        ({"window": {"from": "a", "to": "b"}}, 1.0),
    ],
)
def test_share_of_time_is_that_of_the_selected_window_and_steps(selection: dict[str, Any], share: float) -> None:
    assert share_of_time(Selection.parsed(selection), SUMMARY) == pytest.approx(share)


def test_share_of_time_of_a_trace_without_times_is_one() -> None:
    assert share_of_time(Selection.parsed({"steps": [7]}), Summary()) == 1.0

"""A selection is what a client sends, or says what is wrong with it; intervals are sets of moments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.errors import BadSelection
from service.trace.selection import (
    ALWAYS,
    VALUES_MAX,
    Closure,
    Interval,
    Selection,
    common,
    share_of_time,
    united,
    without,
)

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


def are_united(spans: list[Interval]) -> bool:
    """Whether intervals are in order and apart, and none is empty."""
    edges = [edge for span in spans for edge in span]
    return edges == sorted(set(edges))


# -- intervals --------------------------------------------------------------------------------------------------


@given(intervals)
def test_united_intervals_hold_the_same_moments_and_lie_apart(spans: list[Interval]) -> None:
    made = united(spans)

    assert are_united(made)
    assert moments(made) == moments(spans)


@given(intervals, intervals)
def test_what_is_common_is_in_both(ones: list[Interval], others: list[Interval]) -> None:
    made = common(united(ones), united(others))

    assert are_united(made)
    assert moments(made) == moments(ones) & moments(others)


@given(intervals, intervals)
def test_what_is_without_others_is_in_the_first_alone(ones: list[Interval], others: list[Interval]) -> None:
    made = without(united(ones), united(others))

    assert are_united(made)
    assert moments(made) == moments(ones) - moments(others)


def test_all_time_has_two_open_ends() -> None:
    assert without([ALWAYS], [(3, 5), (5, 7)]) == [(ALWAYS[0], 3), (7, ALWAYS[1])]
    assert without([ALWAYS], []) == [ALWAYS]
    assert without([ALWAYS], [ALWAYS]) == []
    assert common([ALWAYS], [(3, 5)]) == [(3, 5)]
    assert without([ALWAYS], [(ALWAYS[0], 3)]) == [(3, ALWAYS[1])]


# -- the model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [{}, ALL, *({key: value} for key, value in ALL.items())], ids=" ".join)
def test_a_selection_is_the_same_json_again(told: dict[str, Any]) -> None:
    assert Selection.parsed(told).as_dict() == told
    assert Selection.parsed(json.dumps(told)) == Selection.parsed(told)


def test_nothing_said_means_all_of_the_closure() -> None:
    assert Selection.parsed({}).closure == Closure(
        metadata=True, flows=True, launches=True, kernels=True, annotations=True
    )


@pytest.mark.parametrize(
    ("told", "place"),
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
def test_what_is_no_selection_is_refused_and_the_place_named(told: Any, place: str) -> None:
    with pytest.raises(BadSelection) as caught:
        Selection.parsed(told)

    assert place in caught.value.detail
    assert len(caught.value.detail) < 1000


SUMMARY = {
    "bounds": {"start_ns": 1000, "end_ns": 2000},
    "steps": [{"number": 7, "start_ns": 1100, "end_ns": 1200}, {"number": 8, "start_ns": 1200, "end_ns": 1400}],
}


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
def test_a_selection_tells_its_share_of_the_time(selection: dict[str, Any], share: float) -> None:
    assert share_of_time(Selection.parsed(selection), SUMMARY) == pytest.approx(share)


def test_a_trace_without_times_is_selected_whole() -> None:
    assert share_of_time(Selection.parsed({"steps": [7]}), {"bounds": None, "steps": []}) == 1.0

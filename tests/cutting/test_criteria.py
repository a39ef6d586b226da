"""Windows are exact to the nanosecond, and errors for unknown values list the known ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.cutting.criteria import SHOWN_MAX, IntervalSet
from service.store.parts import UNTIMED
from service.trace.errors import BadSelection, SelectionError, UnknownChoice
from service.trace.selection import ALWAYS, Interval, union
from tests.cutting.choices import Chosen, cut, text_of

HERE = {"pid": 1, "tid": 1}
TRACE = text_of(
    {"ph": "M", "name": "process_name", **HERE, "args": {"name": "python "}},
    {"ph": "M", "name": "thread_name", **HERE, "args": {"name": "main "}},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", **HERE, "ts": 10, "dur": 20},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", **HERE, "ts": 40, "dur": 20},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **HERE, "ts": 12, "dur": 5},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 30},
    {"ph": "i", "name": "mark", "pid": "Traces", "tid": "profiler", "ts": 90},
    distributedInfo={"rank": 3, "world_size": 8},
)

interval_lists = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=5).map(union)


def kept(selection: Chosen, text: str = TRACE) -> list[int]:
    """Return the positions of the events that a selection keeps."""
    with cut(text) as columns:
        return columns.kept(selection)[0]


def refusal(selection: Chosen, text: str = TRACE) -> SelectionError:
    """Return the error that refuses a selection."""
    with cut(text) as columns, pytest.raises(SelectionError) as caught:
        columns.kept(selection)
    return caught.value


# -- time -------------------------------------------------------------------------------------------------------


@given(interval_lists, st.integers(-10, 10), st.integers(0, 10))
def test_interval_set_overlaps_spans_that_share_a_moment(intervals: list[Interval], start: int, dur: int) -> None:
    assume(intervals)
    interval_set, starts = IntervalSet(intervals), np.array([start])
    moments = {moment for first, last in intervals for moment in range(first, last)}

    (overlaps,) = interval_set.overlaps(starts, starts + dur)
    (contains_start,) = interval_set.contains(starts)

    assert overlaps == bool(moments & set(range(start, start + max(dur, 1))))
    assert contains_start == (start in moments)
    if overlaps:
        assert interval_set.may_overlap((start, start + dur))
        (first,), (last,) = interval_set.clipped(starts, starts + dur)
        assert (first, last) == _clipped(intervals, start, start + dur)


def _clipped(intervals: list[Interval], start: int, end: int) -> Interval:
    """Cut a span to the start of the first and the end of the last interval that it overlaps."""
    stop = max(end, start + 1)  # an empty span counts as one moment
    overlapped = [(first, last) for first, last in intervals if first < stop and start < last]
    return max(start, overlapped[0][0]), min(end, overlapped[-1][1])


@given(interval_lists, st.integers(-10, 10), st.integers(0, 20))
def test_span_encloses_an_interval_set_if_it_contains_a_whole_interval(
    intervals: list[Interval], start: int, dur: int
) -> None:
    assume(intervals)
    (encloses,) = IntervalSet(intervals).enclosed_by(np.array([start]), np.array([start + dur]))

    assert encloses == any(start <= first and last <= start + dur for first, last in intervals)


@pytest.mark.parametrize("intervals", [[(0, 9)], [(-5, 9), (20, ALWAYS[1])], [(ALWAYS[0], 9)], [ALWAYS]])
def test_untimed_events_lie_before_all_time(intervals: list[Interval]) -> None:
    interval_set, untimed = IntervalSet(intervals), np.array([UNTIMED])

    has_no_start = intervals[0][0] == ALWAYS[0]
    assert interval_set.overlaps(untimed, untimed) == [has_no_start]
    assert interval_set.contains(untimed) == [has_no_start]
    assert interval_set.may_overlap((UNTIMED, UNTIMED)) == has_no_start


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({"start_ns": 60_000}, [6]),
        ({"start_ns": 59_999}, [3, 6]),
        ({"start_ns": 50_000, "relative": True}, [6]),
        ({"end_ns": 10_000}, []),
        ({"end_ns": 10_001}, [2]),
        ({"end_ns": 1, "relative": True}, [2]),
        ({"from": "gemm", "to": "gemm"}, [2, 3, 5]),
        ({"from": "ProfilerStep#4"}, [2, 3, 5, 6]),  # 2 is the step of 5, which lasts until then
        ({"to": "aten::mm"}, [2, 4]),
        ({"start_ns": 49_999, "end_ns": 50_000}, [2, 3, 5]),  # likewise
        ({}, [2, 3, 4, 5, 6]),
    ],
)
def test_window_keeps_events_that_overlap_it(window: dict[str, Any], expected: list[int]) -> None:
    positions = kept({"window": window})
    assert [position for position in positions if position > 1] == expected  # 0 and 1 are metadata


# -- unknown values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "choices"),
    [
        ({"steps": [3, 5]}, [3, 4]),
        ({"ranks": [0]}, [3]),
        ({"devices": [1]}, [0]),
        ({"streams": ["0/20"]}, ["0/7"]),
        ({"threads": ["Main"]}, ["0/7", "1/1", "Traces/profiler"]),
        ({"threads": ["7"]}, ["0/7", "1/1", "Traces/profiler"]),
        ({"processes": [7]}, [0, 1, "Traces"]),
        ({"categories": ["kernels"]}, ["", "cpu_op", "kernel", "user_annotation"]),
        ({"phases": ["B"]}, ["M", "X", "i"]),
    ],
)
def test_error_for_an_unknown_value_lists_the_known_ones(selection: Chosen, choices: list[Any]) -> None:
    (name,) = selection
    error = refusal(selection)

    assert isinstance(error, UnknownChoice)
    assert error.extra == {f"known_{name}": choices}
    assert str(choices[0]) in error.detail


def test_error_for_an_unknown_value_says_that_none_exist() -> None:
    bare = text_of({"ph": "i", "ts": 1})

    for name, value in {"steps": 1, "ranks": 0, "devices": 0, "streams": "0/7"}.items():
        error = refusal({name: [value]}, bare)
        assert error.extra == {f"known_{name}": []}
        assert "it has none" in error.detail


def test_error_for_an_unknown_value_lists_the_closest_of_many() -> None:
    text = text_of(*({"ph": "i", "cat": f"category {number}", "ts": number} for number in range(300)))

    choices = refusal({"categories": ["category 2999"]}, text).extra["known_categories"]

    assert len(choices) == SHOWN_MAX
    assert "category 299" in choices


@pytest.mark.parametrize("edge", ["from", "to"])
def test_window_edge_without_a_matching_slice_is_an_error(edge: str) -> None:
    error = refusal({"window": {edge: "mark"}})  # an event that is not a slice

    assert isinstance(error, UnknownChoice)
    assert "'mark'" in error.detail


def test_window_that_ends_with_an_earlier_slice_is_an_error() -> None:
    assert isinstance(refusal({"window": {"from": "ProfilerStep#4", "to": "aten::mm"}}), UnknownChoice)


@pytest.mark.parametrize(
    "name", ["steps", "ranks", "devices", "streams", "threads", "processes", "categories", "phases"]
)
def test_exclusion_may_name_unknown_values(name: str) -> None:
    absent = {"steps": 9, "ranks": 9, "devices": 9}.get(name, "9")

    assert kept({"exclude": {name: [absent]}}) == list(range(7))


# -- malformed input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "selection",
    [
        {"window": {"start_ns": 5, "end_ns": 5}},
        {"window": {"start_ns": 5, "end_ns": 4, "relative": True}},
        {"window": {"from": "ProfilerStep#4", "end_ns": 40_000}},
        {"exclude": {"window": {"start_ns": 5, "end_ns": 4}}},
        {"exclude": {"window": {}}},
        {"names": ["re:("]},
        {"names": ["ok", "re:a{1001}"]},
        {"exclude": {"names": ["re:*"]}},
    ],
)
def test_selection_that_leaves_no_time_or_has_a_malformed_pattern_is_refused(selection: Chosen) -> None:
    error = refusal(selection)

    assert isinstance(error, BadSelection)
    if "names" not in str(selection):
        assert error.extra == {"bounds": {"start_ns": 10_000, "end_ns": 90_000}}


def test_relative_window_of_a_trace_without_times_is_refused() -> None:
    assert isinstance(refusal({"window": {"relative": True}}, text_of({"ph": "M"})), BadSelection)

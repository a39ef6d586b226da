"""Slices of a lane nest by the engine's rules, and each slice is on the first lane where it nests."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from service.rendering.lanes import FLOW, OTHER, SEARCH_MAX, SLICE, LaneAssigner, in_order

Event = tuple[int, int, int, int]
"""Track, start, duration and kind."""

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 30), st.integers(0, 12), st.sampled_from([SLICE, SLICE, SLICE, FLOW, OTHER])
    ),
    max_size=60,
)


@dataclass
class Track:
    """The slices on each lane of a track as start and end, in plain Python."""

    lanes: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])

    def fits(self, lane: int, start: int, end: int) -> bool:
        """Return whether a slice nests on the lane: each earlier slice has ended or ends no earlier than this one."""
        return all(
            other_end >= end or (other_end <= start and other_start < start)
            for other_start, other_end in self.lanes[lane]
        )

    def place(self, start: int, end: int) -> int:
        lane = next((lane for lane in range(len(self.lanes)) if self.fits(lane, start, end)), len(self.lanes))
        if lane == len(self.lanes):
            self.lanes.append([])
        self.lanes[lane].append((start, end))
        return lane


class Assigned(NamedTuple):
    """The place of an event; whether it joins a slice, and whether a slice covers it."""

    track: int
    lane: int
    joined: bool
    covered: bool


def assigned_lanes(events: list[Event], *, cuts: Collection[int] = ()) -> list[Assigned]:
    """Assign events to lanes, passed in pieces."""
    assigner, places = LaneAssigner(), []
    first = 0
    for end in [*sorted(edge for edge in cuts if edge < len(events)), len(events)]:
        if end <= first or (end < len(events) and events[end - 1][1] == events[end][1]):
            continue
        track, start, dur, kind = (np.array(column, np.int64) for column in zip(*events[first:end], strict=True))
        lanes, *flags = assigner.assign(track, start, start + np.where(kind == SLICE, dur, 0), kind)
        places += [
            Assigned(*assigner.track_of(lane), bool(joined), bool(covered))
            for lane, joined, covered in zip(lanes, *flags, strict=True)
        ]
        first = end
    return places


def by_time(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event[1])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([SLICE, FLOW, OTHER])), max_size=200))
def test_events_of_one_time_are_in_order_of_their_ends_and_arrows_last(events: list[tuple[int, int, int]]) -> None:
    events.sort(key=lambda event: event[0])
    starts, durations, kinds = np.array(events, np.int64).reshape(-1, 3).T.copy()
    expected = sorted(range(len(events)), key=lambda at: (events[at][0], -events[at][1], events[at][2] == FLOW))
    assert in_order(starts, starts + durations, kinds).tolist() == expected


@given(EVENTS, st.sets(st.integers(0, 60)))
def test_slice_is_on_the_first_lane_where_it_nests(events: list[Event], cuts: set[int]) -> None:
    events = by_time(events)
    assigned = assigned_lanes(events, cuts=cuts)
    tracks: defaultdict[int, Track] = defaultdict(Track)
    order = sorted(range(len(events)), key=lambda at: (events[at][1], -events[at][2]))
    for at in order:
        track, start, dur, kind = events[at]
        assert assigned[at].track == track
        if kind == SLICE:
            assert assigned[at].lane == tracks[track].place(start, start + dur) + 1


@given(EVENTS)
def test_slices_of_a_lane_never_overlap_without_nesting(events: list[Event]) -> None:
    events = by_time(events)
    lanes: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for (_, start, dur, kind), (track, lane, *_) in zip(events, assigned_lanes(events), strict=True):
        if kind == SLICE:
            lanes[track, lane].append((start, start + dur))
    for slices in lanes.values():
        for pair in pairwise(slices):
            (_, end), (next_start, next_end) = sorted(pair, key=lambda times: (times[0], -times[1]))
            assert end <= next_start or next_end <= end
    assert sum(map(len, lanes.values())) == sum(kind == SLICE for *_, kind in events)


@given(EVENTS)
@example([(0, 0, 2, SLICE), (0, 1, 2, SLICE), (0, 1, 3, SLICE), (0, 3, 0, FLOW)])  # a slice under one that has ended
def test_arrow_ends_on_the_lane_of_a_slice_that_begins_then_or_is_open(events: list[Event]) -> None:
    events = by_time(events)
    assigned = assigned_lanes(events)
    slices: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (track, start, dur, kind), (_, lane, *_) in zip(events, assigned, strict=True):
        if kind == SLICE:
            slices[track].append((start, start + dur, lane))
    for (track, at, _, kind), (_, lane, joined, covered) in zip(events, assigned, strict=True):
        begin = {slice_lane for start, _, slice_lane in slices[track] if start == at}
        last = {slice_lane for start, end, slice_lane in slices[track] if start < at < end}
        if kind == FLOW:
            assert lane == min(begin or last or {1})
        if kind != SLICE:
            assert joined == (kind == FLOW and bool(begin))
        shortest = min((end for start, end, other in slices[track] if start == at and other == lane), default=at + 1)
        assert covered == (kind == FLOW and (shortest > at if begin else bool(last)))


@given(EVENTS)
def test_slices_that_end_with_the_slice_around_them_are_known(events: list[Event]) -> None:
    events = by_time(events)
    around: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    order = sorted(range(len(events)), key=lambda at: (events[at][1], -events[at][2]))
    assigned = assigned_lanes(events)
    for at in order:
        (track, start, dur, kind), (_, lane, joined, _) = events[at], assigned[at]
        if kind == SLICE:
            open_slices = [
                (other, end) for other, end in around[track, lane] if not (end <= start and other < start)
            ]  # fmt: skip
            assert joined == any(end == start + dur for _, end in open_slices)
            around[track, lane].append((start, start + dur))


@given(EVENTS)
def test_other_events_are_on_the_first_lane(events: list[Event]) -> None:
    events = by_time(events)
    for (*_, kind), (_, lane, *_) in zip(events, assigned_lanes(events), strict=True):
        assert lane == 1 or kind != OTHER


def test_slices_without_duration_at_one_time_share_a_lane() -> None:
    assert {place.lane for place in assigned_lanes([(0, 5, 0, SLICE)] * 3000)} == {1}


def test_lanes_are_numbered_in_order_of_their_first_slice() -> None:
    ladder = [(0, step, 100_000, SLICE) for step in range(SEARCH_MAX + 50)]
    lanes = [place.lane for place in assigned_lanes(ladder)]
    assert lanes == [*range(1, len(ladder) + 1)]


def test_lanes_of_a_million_slices_do_not_depend_on_the_pieces() -> None:
    starts = np.sort(np.random.default_rng(1).integers(0, 3_000_000, 1_000_000))
    ends, track, kind = starts + 3, np.zeros(len(starts), np.int64), np.full(len(starts), SLICE)
    single, parts = LaneAssigner(), LaneAssigner()
    at_once, *_ = single.assign(track, starts, ends, kind)
    edges = [0, *np.searchsorted(starts, [700_000, 1_500_000]), len(starts)]
    pieces = [
        parts.assign(*(column[begin:end] for column in (track, starts, ends, kind)))[0]
        for begin, end in pairwise(edges)
    ]
    assert np.array_equal(at_once, np.concatenate(pieces))
    assert len(single) == len(parts) < 20

"""On each lane slices nest as the engine wants them to, and each lies on the first lane where it does."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from service.rendering.lanes import FLOW, OTHER, SEARCH_MAX, SLICE, LaneAssigner

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
    """What lies on a track, by plain Python: of each lane the slices, as start and end."""

    lanes: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])

    def fits(self, lane: int, start: int, end: int) -> bool:
        """Whether a slice may come next: each before it is over, or goes on at least as long."""
        return all(ends >= end or (ends <= start and begins < start) for begins, ends in self.lanes[lane])

    def place(self, start: int, end: int) -> int:
        found = next((at for at in range(len(self.lanes)) if self.fits(at, start, end)), len(self.lanes))
        if found == len(self.lanes):
            self.lanes.append([])
        self.lanes[found].append((start, end))
        return found


def laid(events: list[Event], *, cuts: Collection[int] = ()) -> list[tuple[int, int, bool]]:
    """The track and the number of each event's lane, and whether it joins a slice; events of one time come together."""
    lanes, placed = LaneAssigner(), []
    begun = 0
    for end in [*sorted(cut for cut in cuts if cut < len(events)), len(events)]:
        if end <= begun or (end < len(events) and events[end - 1][1] == events[end][1]):
            continue
        track, start, lasts, kind = (np.array(column, np.int64) for column in zip(*events[begun:end], strict=True))
        found, joined = lanes.assign(track, start, start + np.where(kind == SLICE, lasts, 0), kind)
        placed += [(*lanes.track_of(one), bool(join)) for one, join in zip(found, joined, strict=True)]
        begun = end
    return placed


def by_time(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event[1])


@given(EVENTS, st.sets(st.integers(0, 60)))
def test_each_slice_lies_on_the_first_lane_where_it_nests(events: list[Event], cuts: set[int]) -> None:
    events = by_time(events)
    found = laid(events, cuts=cuts)
    tracks: defaultdict[int, Track] = defaultdict(Track)
    order = sorted(range(len(events)), key=lambda at: (events[at][1], -events[at][2]))
    for at in order:
        track, start, lasts, kind = events[at]
        assert found[at][0] == track
        if kind == SLICE:
            assert found[at][1] == tracks[track].place(start, start + lasts) + 1


@given(EVENTS)
def test_no_two_slices_of_a_lane_overlap_without_nesting(events: list[Event]) -> None:
    events = by_time(events)
    lanes: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for (_, start, lasts, kind), (track, lane, _) in zip(events, laid(events), strict=True):
        if kind == SLICE:
            lanes[track, lane].append((start, start + lasts))
    for slices in lanes.values():
        for one, other in pairwise(slices):
            (start, end), (begins, ends) = sorted([one, other], key=lambda a: (a[0], -a[1]))
            assert end <= begins or ends <= end
    assert sum(map(len, lanes.values())) == sum(kind == SLICE for *_, kind in events)


@given(EVENTS)
@example([(0, 0, 2, SLICE), (0, 1, 2, SLICE), (0, 1, 3, SLICE), (0, 3, 0, FLOW)])  # one below a slice that is over
def test_arrows_end_on_the_lane_of_a_slice_that_begins_then_or_else_of_one_that_lasts(events: list[Event]) -> None:
    events = by_time(events)
    found = laid(events)
    slices: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (track, start, lasts, kind), (_, lane, _) in zip(events, found, strict=True):
        if kind == SLICE:
            slices[track].append((start, start + lasts, lane))
    for (track, at, _, kind), (_, lane, joined) in zip(events, found, strict=True):
        begin = {one for start, _, one in slices[track] if start == at}
        last = {one for start, end, one in slices[track] if start < at < end}
        if kind == FLOW:
            assert lane == min(begin or last or {1})
        assert joined == (kind == FLOW and bool(begin))


@given(EVENTS)
def test_what_is_no_slice_lies_on_the_first_lane(events: list[Event]) -> None:
    events = by_time(events)
    for (*_, kind), (_, lane, _) in zip(events, laid(events), strict=True):
        assert lane == 1 or kind != OTHER


def test_slices_of_no_duration_at_one_time_share_a_lane() -> None:
    assert {lane for _, lane, _ in laid([(0, 5, 0, SLICE)] * 3000)} == {1}


def test_lanes_are_numbered_in_the_order_in_which_they_come() -> None:
    ladder = [(0, step, 100_000, SLICE) for step in range(SEARCH_MAX + 50)]
    lanes = [lane for _, lane, _ in laid(ladder)]
    assert lanes == [*range(1, len(ladder) + 1)]


def test_a_million_slices_in_parts_need_no_more_lanes_than_at_once() -> None:
    starts = np.sort(np.random.default_rng(1).integers(0, 3_000_000, 1_000_000))
    ends, track, kind = starts + 3, np.zeros(len(starts), np.int64), np.full(len(starts), SLICE)
    whole, parts = LaneAssigner(), LaneAssigner()
    placed, _ = whole.assign(track, starts, ends, kind)
    edges = [0, *np.searchsorted(starts, [700_000, 1_500_000]), len(starts)]
    pieces = [
        parts.assign(*(column[begin:end] for column in (track, starts, ends, kind)))[0]
        for begin, end in pairwise(edges)
    ]
    assert np.array_equal(placed, np.concatenate(pieces))
    assert len(whole) == len(parts) < 20

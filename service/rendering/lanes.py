"""Lanes of a track. Slices that overlap without nesting get separate lanes: on one lane, the engine would drop them."""

from typing import Any

import numpy as np

from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled
from service.streaming.scan.nesting import grow_slices

OTHER, SLICE, FLOW = 0, 1, 2
"""Kinds of events: others, which fit on any lane; slices; and ends of arrows, which go to the lane of their slice."""

_RUN_MAX = 1 << 5  # events of one time that are put in order in place; the time of that grows with the square
SEARCH_MAX = 1 << 10  # lanes of a track to search for one with room for a slice; real traces have fewer
_NONE = -1


@compiled
def _order(starts: Ints, ends: Ints, kinds: Ints, order: Ints) -> bool:
    """Put the events of each time in order: the longest first, and ends of arrows last among those of one end.

    Args:
        starts: the start of each event, in ns, in order.
        ends: the end of each event, in ns.
        kinds: the kind of each event.
        order: output: the indices of the events.

    Returns:
        Whether they are in order; False once a time has more than `_RUN_MAX` events.
    """
    first = 0
    while first < len(starts):
        last = first + 1
        while last < len(starts) and starts[last] == starts[first]:
            last += 1
        if last - first > _RUN_MAX:
            return False
        for event in range(first, last):
            place = event
            while place > first:
                before = order[place - 1]
                is_tie = ends[before] == ends[event] and kinds[before] == FLOW and kinds[event] != FLOW
                if ends[before] >= ends[event] and not is_tie:
                    break
                order[place] = before
                place -= 1
            order[place] = event
        first = last
    return True


@compiled
def _top_slice(lane: int, start: int, lanes: Any, slices: Any, counts: Ints) -> int:
    """Return the topmost open slice of a lane at a time, or -1. Remove the slices that have ended by then."""
    top = lanes[lane, 2]
    while top >= 0 and slices[top, 1] <= start and slices[top, 0] < start:
        below = slices[top, 2]
        slices[top, 2], slices[0, 2] = slices[0, 2], top
        counts[1] -= 1
        top = below
    lanes[lane, 2] = top
    return int(top)


@compiled
def _assign(
    tracks: Ints, starts: Ints, ends: Ints, kinds: Ints, order: Ints, assigned: Ints, joined: Flags, covered: Flags,
    firsts: Ints, lanes: Any, slices: Any, counts: Ints,
) -> None:  # fmt: skip
    """Assign events to lanes.

    Args:
        tracks: the track of each event.
        starts: the start of each event, in ns.
        ends: the end of each event, in ns.
        kinds: the kind of each event.
        order: the indices of the events by time; of events at the same time, the longest is first.
        assigned: output: the lane of each event.
        joined: output: flags of the ends of arrows on a lane where a slice begins at the same time, and of the slices
            that end with the slice around them.
        covered: output: flags of the ends of arrows on a lane whose topmost slice goes on.
        firsts: the first lane of each track.
        lanes: rows of track, number, topmost open slice, the track's next lane, and on first lanes the number of lanes.
        slices: rows of start, end and the slice below; the first row is the head of the list of free rows.
        counts: the number of lanes, and the number of open slices.
    """
    for event in order:
        track, start, end = tracks[event], starts[event], ends[event]
        lane = firsts[track]
        if lane < 0:
            lane = firsts[track] = counts[0]
            lanes[lane, 0], lanes[lane, 1], lanes[lane, 2], lanes[lane, 3], lanes[lane, 4] = track, 1, -1, -1, 1
            counts[0] += 1
        if kinds[event] == SLICE:
            last = lane
            searched = 0
            while lane >= 0:
                top = _top_slice(lane, start, lanes, slices, counts)
                if top < 0 or slices[top, 1] >= end:
                    break
                last = lane
                searched += 1
                lane = lanes[lane, 3] if searched < SEARCH_MAX else -1
            if lane < 0:
                lane = counts[0]
                counts[0] += 1
                lanes[firsts[track], 4] += 1
                lanes[lane, 0], lanes[lane, 1], lanes[lane, 2] = track, lanes[firsts[track], 4], -1
                lanes[lane, 3], lanes[last, 3] = lanes[last, 3], lane
            joined[event] = lanes[lane, 2] >= 0 and slices[lanes[lane, 2], 1] == end
            free = slices[0, 2]
            slices[0, 2] = slices[free, 2]
            slices[free, 0], slices[free, 1], slices[free, 2] = start, end, lanes[lane, 2]
            lanes[lane, 2] = free
            counts[1] += 1
        elif kinds[event] == FLOW:
            covering = -1
            other = lane
            while other >= 0:
                top = _top_slice(other, start, lanes, slices, counts)
                if top >= 0 and slices[top, 0] == start:
                    covering = other
                    joined[event] = True
                    break
                if covering < 0 and top >= 0 and slices[top, 1] > start:
                    covering = other
                other = lanes[other, 3]
            top = lanes[covering, 2] if covering >= 0 else -1
            covered[event] = top >= 0 and slices[top, 1] > start
            lane = covering if covering >= 0 else lane
        assigned[event] = lane


def in_order(starts: Ints, ends: Ints, kinds: Ints) -> Ints:
    """Return the indices of events, whose starts are in order, as `_assign` needs them."""
    order = np.empty(len(starts), np.int64)
    return order if _order(starts, ends, kinds, order) else np.lexsort((kinds == FLOW, -ends, starts))


class LaneAssigner:
    """Assigns events to lanes, with memory in proportion to the number of lanes and open slices."""

    def __init__(self) -> None:
        self._firsts = np.full(1 << 8, _NONE)
        self._lanes = np.zeros((1 << 8, 5), np.int64)
        self._slices = grow_slices(np.zeros((1, 3), np.int64), 1 << 10)
        self._counts = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self._counts[0])

    def assign(self, tracks: Ints, starts: Ints, ends: Ints, kinds: Ints) -> tuple[Ints, Flags, Flags]:
        """Assign events to lanes. Calls must be in order of time, and one call must have all events of one time.

        Args:
            tracks: the track of each event, a number from 0 on.
            starts: the start of each event, in ns, in order.
            ends: the end of each event, in ns; not before its start.
            kinds: the kind of each event: `OTHER`, `SLICE` or `FLOW`.

        Returns:
            The lane of each event; flags of the ends of arrows at the begin of a slice, and of the slices that end with
            the slice around them; and flags of the ends of arrows in a slice that goes on.
        """
        order = in_order(starts, ends, kinds)
        assigned = np.zeros(len(starts), np.int64)
        joined, covered = np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.bool_)
        tracks_end = int(tracks.max(initial=0)) + 1
        if tracks_end > len(self._firsts):
            self._firsts = np.concatenate([self._firsts, np.full(tracks_end, _NONE)])
        if len(self) + len(starts) > len(self._lanes):
            self._lanes = np.concatenate([self._lanes, np.zeros((len(self._lanes) + len(starts), 5), np.int64)])
        if self._counts[1] + len(starts) >= len(self._slices) - 1:
            self._slices = grow_slices(self._slices, 2 * len(self._slices) + len(starts))
        _assign(
            tracks, starts, ends, kinds, order, assigned, joined, covered,
            self._firsts, self._lanes, self._slices, self._counts,
        )  # fmt: skip
        return assigned, joined, covered

    def track_of(self, lane: int) -> tuple[int, int]:
        """Return the track of a lane, and the lane's number on that track, from 1 on."""
        return int(self._lanes[lane, 0]), int(self._lanes[lane, 1])

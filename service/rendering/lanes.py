"""Lanes of a track: slices that overlap without nesting lie on different ones, for the engine drops such slices."""

from typing import Any

import numpy as np

from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled
from service.streaming.scan.nesting import chained

OTHER, SLICE, FLOW = 0, 1, 2
"""What an event is to lanes: what fits on any, a slice, and an end of an arrow, which goes where its slice is."""

SEARCHED = 1 << 10  # lanes of a track, before a new one is made unasked: what has more is no trace of real work
_NONE = -1


@compiled
def _open(lane: int, start: int, lanes: Any, slices: Any, counts: Ints) -> int:
    """The topmost slice of a lane that is open at a time, or -1; those that are over by then are taken off."""
    top = lanes[lane, 2]
    while top >= 0 and slices[top, 1] <= start and slices[top, 0] < start:
        below = slices[top, 2]
        slices[top, 2], slices[0, 2] = slices[0, 2], top
        counts[1] -= 1
        top = below
    lanes[lane, 2] = top
    return int(top)


@compiled
def _lay(
    tracks: Ints, starts: Ints, ends: Ints, kinds: Ints, order: Ints, placed: Ints, joined: Flags,
    firsts: Ints, lanes: Any, slices: Any, counts: Ints,
) -> None:  # fmt: skip
    """Put events on lanes.

    Args:
        tracks: of the events.
        starts: likewise, in ns.
        ends: likewise.
        kinds: likewise.
        order: the events in order of time, and the longest first.
        placed: gets the lane of each event.
        joined: gets which ends of arrows lie where a slice begins at their time.
        firsts: the first lane of each track.
        lanes: rows of track, number, topmost open slice, the track's next lane and, of a first one, the lanes it has.
        slices: rows of start, end and the slice below; the first is the head of the list of free ones.
        counts: lanes, open slices.
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
                top = _open(lane, start, lanes, slices, counts)
                if top < 0 or slices[top, 1] >= end:
                    break
                last = lane
                searched += 1
                lane = lanes[lane, 3] if searched < SEARCHED else -1
            if lane < 0:
                lane = counts[0]
                counts[0] += 1
                lanes[firsts[track], 4] += 1
                lanes[lane, 0], lanes[lane, 1], lanes[lane, 2] = track, lanes[firsts[track], 4], -1
                lanes[lane, 3], lanes[last, 3] = lanes[last, 3], lane
            free = slices[0, 2]
            slices[0, 2] = slices[free, 2]
            slices[free, 0], slices[free, 1], slices[free, 2] = start, end, lanes[lane, 2]
            lanes[lane, 2] = free
            counts[1] += 1
        elif kinds[event] == FLOW:
            covering = -1
            other = lane
            while other >= 0:
                top = _open(other, start, lanes, slices, counts)
                if top >= 0 and slices[top, 0] == start:
                    covering = other
                    joined[event] = True
                    break
                if covering < 0 and top >= 0 and slices[top, 1] > start:
                    covering = other
                other = lanes[other, 3]
            lane = covering if covering >= 0 else lane
        placed[event] = lane


class Lanes:
    """Lays events on lanes; its size grows with the lanes and with the slices that are open."""

    def __init__(self) -> None:
        self._firsts = np.full(1 << 8, _NONE)
        self._lanes = np.zeros((1 << 8, 5), np.int64)
        self._slices = chained(np.zeros((1, 3), np.int64), 1 << 10)
        self._counts = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self._counts[0])

    def lay(self, tracks: Ints, starts: Ints, ends: Ints, kinds: Ints) -> tuple[Ints, Flags]:
        """The lane of each event, and which ends of arrows lie on one where a slice begins at their time.

        Args:
            tracks: numbers from 0 on.
            starts: in ns.
            ends: likewise, not before the starts.
            kinds: `OTHER`, `SLICE` or `FLOW`.

        Events come in order of time, and those of one time in one call.
        """
        order = np.lexsort((kinds == FLOW, -ends, starts)) if len(starts) else np.zeros(0, np.int64)
        placed, joined = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.bool_)
        most = int(tracks.max(initial=0)) + 1
        if most > len(self._firsts):
            self._firsts = np.concatenate([self._firsts, np.full(most, _NONE)])
        if len(self) + len(starts) > len(self._lanes):
            self._lanes = np.concatenate([self._lanes, np.zeros((len(self._lanes) + len(starts), 5), np.int64)])
        if self._counts[1] + len(starts) >= len(self._slices) - 1:
            self._slices = chained(self._slices, 2 * len(self._slices) + len(starts))
        _lay(tracks, starts, ends, kinds, order, placed, joined, self._firsts, self._lanes, self._slices, self._counts)
        return placed, joined

    def where(self, lane: int) -> tuple[int, int]:
        """The track of a lane, and its number there, from 1 on."""
        return int(self._lanes[lane, 0]), int(self._lanes[lane, 1])

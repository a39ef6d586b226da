"""Lookup of the profiler step at a time on a thread."""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from service.attribution.nesting import Indices, Ints
from service.store.steps import merged_steps
from service.trace.rank import ranks_by_pid
from service.trace.summary import Key, Step, Summary

NO_STEP = -1
"""Step number of a time outside all steps."""

_AT_ONCE = 1 << 16
"""Number of times to look up at once."""

Track = tuple[Key, Key]
"""The pid and tid of a thread."""


class _Timeline(NamedTuple):
    """Steps in order of their starts, in ns; overlapping annotations of a step are merged."""

    starts: Ints
    ends: Ints
    numbers: Ints

    def at(self, times: Ints) -> Ints:
        """Return the number of the last step that began at or before each time, or `NO_STEP` if that step is over."""
        if not len(self.starts):
            return np.full(len(times), NO_STEP, np.int64)
        numbers = np.empty(len(times), np.int64)
        for first in range(0, len(times), _AT_ONCE):  # so that millions of times need little further memory
            some = times[first : first + _AT_ONCE]
            last = np.searchsorted(self.starts, some, "right") - 1
            inside = (last >= 0) & (self.ends[last] > some)
            numbers[first : first + _AT_ONCE] = np.where(inside, self.numbers[last], NO_STEP)
        return numbers


class StepClock:
    """Lookup of the step at a time on a thread.

    A time lies in the step that began last, unless that step is over; so it lies in at most one step. Only the steps
    that the thread itself annotates count. If it annotates none, all steps of its rank count.

    Args:
        summary: summary of the trace, as in the catalog; its ``steps`` are in order of time.
    """

    def __init__(self, summary: Summary) -> None:
        self._ranks = ranks_by_pid(summary.ranks)
        steps_by_rank: dict[Hashable, list[Step]] = {}
        steps_by_thread: dict[Track, list[Step]] = {}
        for step in summary.steps:
            track = normalized_track(step.get("pid", ""), step.get("tid", ""))
            steps_by_rank.setdefault(self._rank(track), []).append(step)
            steps_by_thread.setdefault(track, []).append(step)
        self._timelines = [_timeline(())]
        self._timeline_by_rank = {rank: self._add(steps) for rank, steps in steps_by_rank.items()}
        self._timeline_by_thread = {
            track: self._add(steps)
            for track, steps in steps_by_thread.items()
            if len(steps) < len(steps_by_rank[self._rank(track)])
        }

    def _add(self, steps: Iterable[Step]) -> int:
        self._timelines.append(_timeline(steps))
        return len(self._timelines) - 1

    def _rank(self, track: Track) -> int | None:
        return self._ranks.get(track[0]) if isinstance(track[0], int) else None

    def at(self, times: Ints, tracks: Ints | Indices, keys: Sequence[Track]) -> Ints:
        """Return the number of the step at each time, or `NO_STEP`.

        Args:
            times: in ns.
            tracks: track number of each time.
            keys: pid and tid of each track, by track number.
        """
        timelines = {self._timeline_of(key) for key in keys}
        if len(timelines) == 1:
            return self._timelines[timelines.pop()].at(times)
        timeline_of_time = np.array([self._timeline_of(key) for key in keys] or [0], np.int64)[tracks]
        numbers = np.full(len(times), NO_STEP, np.int64)
        for timeline in np.unique(timeline_of_time).tolist():
            rows = np.flatnonzero(timeline_of_time == timeline)
            numbers[rows] = self._timelines[timeline].at(times[rows])
        return numbers

    def _timeline_of(self, key: Track) -> int:
        track = normalized_track(*key)
        own = self._timeline_by_thread.get(track)
        return self._timeline_by_rank.get(self._rank(track), 0) if own is None else own


def normalized_track(pid: Key, tid: Key) -> Track:
    """Return the track with a decimal tid as a number. Traces of 2021 write the same tid as a number or as text."""
    return pid, int(tid) if isinstance(tid, str) and tid.isdecimal() and len(tid) < 19 else tid


def _timeline(steps: Iterable[Step]) -> _Timeline:
    numbers, starts, ends = merged_steps(steps)
    return _Timeline(starts, np.maximum(ends, starts + 1), numbers)

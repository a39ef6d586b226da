"""Lookup of the profiler step at a time on a thread."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from service.attribution.nesting import Flags, Indices, Ints
from service.attribution.rank_steps import steps_of_numbers
from service.store.steps import merged_steps
from service.streaming.scan.compiled import compiled
from service.trace.rank import ranks_by_pid
from service.trace.summary import Key, Step, Summary

NO_STEP = -1
"""Step number of a time outside all steps."""

Track = tuple[Key, Key]
"""The pid and tid of a thread."""

Rows = Ints | slice
"""Places of times: a list, or a range of them, which needs no copy."""


class _Timeline(NamedTuple):
    """Steps in order of their starts, in ns; overlapping annotations of a step are merged.

    Attributes:
        starts: start of each step.
        ends: end of each step.
        numbers: number of each step.
        latest_ends: latest end of each step and of those before it.
        indexes: index of each step; steps of threads have that of the rank's step that they are part of.
    """

    starts: Ints
    ends: Ints
    numbers: Ints
    latest_ends: Ints
    indexes: Ints

    def begun(self, times: Ints) -> Ints:
        """Return the place of the last step that began at or before each time, or -1."""
        return np.searchsorted(self.starts, times, "right") - 1

    def at(self, times: Ints) -> Ints:
        """Return the number of the last step that began at or before each time, or `NO_STEP` if that step is over."""
        if not len(self.starts):
            return np.full(len(times), NO_STEP, np.int64)
        numbers = np.empty(len(times), np.int64)
        _look_up(self.starts, self.ends, self.numbers, times, numbers)
        return numbers

    def lasts(self, times: Ints) -> Flags:
        """Flag the times at which any step lasts."""
        last = self.begun(times)
        flags: Flags = (last >= 0) & (np.append(self.latest_ends, 0)[last] > times)
        return flags

    def named(self, numbers: Ints, times: Ints) -> Ints:
        """Return the index of the step with each number, or -1; see `steps_of_numbers`."""
        return np.append(self.indexes, -1)[steps_of_numbers(self.numbers, self.starts, numbers, times)]


class StepClock:
    """Lookup of the step at a time on a thread.

    A time lies in the step that began last, unless that step is over; so it lies in at most one step. Only the steps
    that the thread itself annotates count. If it annotates none, all steps of its rank count.

    Args:
        summary: summary of the trace, as in the catalog; its ``steps`` are in order of time.

    Attributes:
        count: number of the steps of all ranks; their indexes are below it.
    """

    def __init__(self, summary: Summary) -> None:
        self._ranks = ranks_by_pid(summary.ranks)
        steps_by_rank: dict[Hashable, list[Step]] = {}
        steps_by_thread: dict[Track, list[Step]] = {}
        keys = [(step.get("pid", ""), step.get("tid", "")) for step in summary.steps]
        lists = {}  # of each key, as few have all steps
        for key in dict.fromkeys(keys):
            track = normalized_track(*key)
            lists[key] = steps_by_rank.setdefault(self._rank(track), []), steps_by_thread.setdefault(track, [])
        for key, step in zip(keys, summary.steps, strict=True):
            for steps in lists[key]:
                steps.append(step)
        self.count = 0
        self._known: dict[Track, int] = {}  # of the tracks looked up so far
        self._of_ranks = [_timeline((), 0)]  # of each timeline, the timeline of its rank
        self._timelines = [*self._of_ranks]
        self._timeline_by_rank = {rank: self._add(steps) for rank, steps in steps_by_rank.items()}
        self._timeline_by_thread = {
            track: self._add_thread(steps, self._timeline_by_rank[self._rank(track)])
            for track, steps in steps_by_thread.items()
            if len(steps) < len(steps_by_rank[self._rank(track)])
        }
        has_one = not self._ranks and not self._timeline_by_thread
        self._only = self._timeline_by_rank.get(None, 0) if has_one else None  # the timeline of all tracks

    def _add(self, steps: Iterable[Step]) -> int:
        timeline = _timeline(steps, self.count)
        self.count += len(timeline.starts)
        self._timelines.append(timeline)
        self._of_ranks.append(timeline)
        return len(self._timelines) - 1

    def _add_thread(self, steps: Iterable[Step], rank: int) -> int:
        timeline, of_rank = _timeline(steps, 0), self._timelines[rank]
        self._timelines.append(timeline._replace(indexes=of_rank.named(timeline.numbers, timeline.starts)))
        self._of_ranks.append(of_rank)
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
        return self._looked_up(tracks, keys, lambda timeline, rows: self._timelines[timeline].at(times[rows]))

    def deciding(self, times: Ints, tracks: Ints, keys: Sequence[Track]) -> Ints:
        """Return the index of the step that decides about the step at each time, or -1; see `at`.

        A clock that has all annotations of these steps, and any annotations of others, has the same step at each time.
        It is the step at that time or, if there is none although a step of the rank lasts, the last step that counts
        for the thread and has begun, else the first.
        """

        def look(timeline: int, rows: Rows) -> Ints:
            counting, some = self._timelines[timeline], times[rows]
            if not len(counting.starts):
                return np.full(len(some), -1)
            begun = np.maximum(counting.begun(some), 0)
            return np.where(self._of_ranks[timeline].lasts(some), counting.indexes[begun], -1)

        return self._looked_up(tracks, keys, look)

    def named(self, numbers: Ints, times: Ints, tracks: Ints, keys: Sequence[Track]) -> Ints:
        """Return the index of the step of a track's rank with each number, or -1.

        Of several steps of a number, it is the last that began by its time or, if none did, the first.
        """
        return self._looked_up(
            tracks, keys, lambda timeline, rows: self._of_ranks[timeline].named(numbers[rows], times[rows])
        )

    def _looked_up(self, tracks: Ints | Indices, keys: Sequence[Track], look: Callable[[int, Rows], Ints]) -> Ints:
        """Return what a function finds in the timeline of each track; it takes the timeline and places of tracks."""
        if self._only is not None:
            return look(self._only, slice(None))
        timelines = {self._timeline_of(key) for key in keys}
        if len(timelines) == 1:
            return look(timelines.pop(), slice(None))
        timeline_of_time = np.array([self._timeline_of(key) for key in keys] or [0], np.int64)[tracks]
        found = np.full(len(tracks), -1)
        for timeline in np.unique(timeline_of_time).tolist():
            rows = np.flatnonzero(timeline_of_time == timeline)
            found[rows] = look(timeline, rows)
        return found

    def _timeline_of(self, key: Track) -> int:
        if key not in self._known:
            track = normalized_track(*key)
            own = self._timeline_by_thread.get(track)
            self._known[key] = self._timeline_by_rank.get(self._rank(track), 0) if own is None else own
        return self._known[key]


def normalized_track(pid: Key, tid: Key) -> Track:
    """Return the track with a decimal tid as a number. Traces of 2021 write the same tid as a number or as text."""
    return pid, int(tid) if isinstance(tid, str) and tid.isdecimal() and len(tid) < 19 else tid


def _timeline(steps: Iterable[Step], first: int) -> _Timeline:
    """Return the timeline of steps, whose indexes begin with the first."""
    numbers, starts, ends = merged_steps(steps)
    ends = np.maximum(ends, starts + 1)
    return _Timeline(starts, ends, numbers, np.maximum.accumulate(ends), np.arange(first, first + len(starts)))


@compiled
def _look_up(starts: Ints, ends: Ints, numbers: Ints, times: Ints, found: Ints) -> None:
    """Write the number of the last step that began by each time, or `NO_STEP`; most have that of the time before."""
    step = 0
    for index in range(len(times)):
        time = times[index]
        if time < starts[step] or (step + 1 < len(starts) and time >= starts[step + 1]):
            step = max(np.searchsorted(starts, time, "right") - 1, 0)
        found[index] = numbers[step] if starts[step] <= time < ends[step] else NO_STEP

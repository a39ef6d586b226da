"""In which profiler step a moment on a thread lies."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from service.attribution.nesting import Ints
from service.trace.rank import ranks_by_pid
from service.trace.summary import Key

NO_STEP = -1
"""Stands for the number of a step where a moment lies in none."""

Track = tuple[Key, Key]


class _Timeline(NamedTuple):
    """Steps in order of their starts, in ns; annotations of one step that overlap are one."""

    starts: Ints
    ends: Ints
    numbers: Ints

    def at(self, times: Ints) -> Ints:
        """The number of the step that began last before each time, or `NO_STEP` where that is over."""
        if not len(self.starts):
            return np.full(len(times), NO_STEP, np.int64)
        last = np.searchsorted(self.starts, times, "right") - 1
        inside = (last >= 0) & (self.ends[last] > times)
        return np.where(inside, self.numbers[last], NO_STEP)


class StepClock:
    """Tells the step of moments.

    A moment lies in the step that began last, unless that is over: among the steps that its own thread annotates, or,
    where the thread annotates none, among those of its rank. So a moment lies in one step at most.

    Args:
        summary: of the trace, as the catalog has it; its ``steps`` are in order of time.
    """

    def __init__(self, summary: Mapping[str, Any]) -> None:
        self._ranks = ranks_by_pid(summary.get("ranks", []))
        of_ranks: dict[Hashable, list[Mapping[str, Any]]] = {}
        of_threads: dict[Track, list[Mapping[str, Any]]] = {}
        for step in summary["steps"]:
            track = thread_of(step.get("pid", ""), step.get("tid", ""))
            of_ranks.setdefault(self._rank(track), []).append(step)
            of_threads.setdefault(track, []).append(step)
        self._timelines = [_timeline(())]
        self._of_rank = {rank: self._add(steps) for rank, steps in of_ranks.items()}
        self._of_thread = {
            track: self._add(steps)
            for track, steps in of_threads.items()
            if len(steps) < len(of_ranks[self._rank(track)])
        }

    def _add(self, steps: Iterable[Mapping[str, Any]]) -> int:
        self._timelines.append(_timeline(steps))
        return len(self._timelines) - 1

    def _rank(self, track: Track) -> int | None:
        return self._ranks.get(track[0]) if isinstance(track[0], int) else None

    def at(self, times: Ints, tracks: Ints, keys: Sequence[Track]) -> Ints:
        """The number of the step in which each moment lies, or `NO_STEP`.

        Args:
            times: of the moments, in ns.
            tracks: the number of the track of each.
            keys: the pid and the tid of each track, by its number.
        """
        timelines = {self._timeline_of(key) for key in keys}
        if len(timelines) == 1:
            return self._timelines[timelines.pop()].at(times)
        chosen = np.array([self._timeline_of(key) for key in keys] or [0], np.int64)[tracks]
        numbers = np.full(len(times), NO_STEP, np.int64)
        for timeline in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == timeline)
            numbers[rows] = self._timelines[timeline].at(times[rows])
        return numbers

    def _timeline_of(self, key: Track) -> int:
        track = thread_of(*key)
        own = self._of_thread.get(track)
        return self._of_rank.get(self._rank(track), 0) if own is None else own


def thread_of(pid: Key, tid: Key) -> Track:
    """A track as it is told apart: in 2021 some events had the tid as a number and some as text."""
    return pid, int(tid) if isinstance(tid, str) and tid.isdecimal() and len(tid) < 19 else tid


def _timeline(steps: Iterable[Mapping[str, Any]]) -> _Timeline:
    merged: list[list[int]] = []
    latest: dict[int, list[int]] = {}
    for step in sorted(steps, key=lambda one: (one["start_ns"], -one["end_ns"])):
        number, start, end = step["number"], step["start_ns"], max(step["end_ns"], step["start_ns"] + 1)
        if number in latest and start < latest[number][1]:
            latest[number][1] = max(latest[number][1], end)
        else:
            latest[number] = [start, end, number]
            merged.append(latest[number])
    return _Timeline(*np.array(merged or np.empty((0, 3)), np.int64).T)

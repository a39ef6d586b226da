"""Compiled selections: the time intervals and the predicates that implement a selection for a given trace.

`service.cutting.rows` adds the closure.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from service.cutting.names import NamePatterns
from service.cutting.steps import EventSteps
from service.store.parts import UNTIMED, Flags, Ints, Part, Parts, Tracks
from service.trace.errors import BadSelection, UnknownChoice
from service.trace.rank import ranks_by_pid
from service.trace.selection import ALWAYS, Criteria, Interval, Selection, Window, difference, intersection, union
from service.trace.summary import ANNOTATION_CATEGORIES, GPU_CATEGORIES, Key, Summary

Value = TypeVar("Value", int, str)
Entity = TypeVar("Entity")
Predicate = Callable[[Part], Flags]

SHOWN_MAX = 50
"""Maximum number of known values that an error lists."""
_SHOWN_CHARACTERS_MAX = 256
"""Maximum length of a known value that an error lists."""
_COMPARED_MAX = 5000
"""Maximum number of known values to compare with an unknown one; comparing all could take minutes."""

_SINGULARS = {
    "steps": "step", "ranks": "rank", "devices": "device", "streams": "stream", "threads": "thread",
    "processes": "process", "categories": "category", "phases": "phase",
}  # fmt: skip


class IntervalSet:
    """Intervals of time, sorted and disjoint."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.intervals = tuple(intervals)
        self._starts, self._ends = (np.array(edges, np.int64) for edges in zip(*self.intervals, strict=True))

    @property
    def is_limited(self) -> bool:
        """Return whether the intervals leave out any time."""
        return self.intervals != (ALWAYS,)

    def may_overlap(self, span: Interval) -> bool:
        """Return whether an event within a span may overlap an interval; both ends of the span are inclusive."""
        return bool(span[0] < self._ends[-1] and span[1] >= self._starts[0])

    def contains(self, times: Ints) -> Flags:
        """Flag the times that lie in an interval."""
        return self.overlaps(times, times)

    def overlaps(self, starts: Ints, ends: Ints) -> Flags:
        """Flag the spans that overlap an interval; an empty span overlaps the interval that contains it."""
        at = np.searchsorted(self._starts, ends - (ends > starts), "right") - 1
        flags: Flags = (at >= 0) & (self._ends[at] > starts)
        return flags

    def enclosed_by(self, starts: Ints, ends: Ints) -> Flags:
        """Flag the spans that enclose at least one whole interval."""
        at = np.minimum(np.searchsorted(self._starts, starts), len(self._starts) - 1)
        flags: Flags = (self._starts[at] >= starts) & (self._ends[at] <= ends)
        return flags

    def clipped(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Cut each span to the start of the first and the end of the last interval that it overlaps."""
        last = np.searchsorted(self._starts, ends - (ends > starts), "right") - 1
        first = np.searchsorted(self._ends, starts, "right")
        return np.maximum(starts, self._starts[first]), np.minimum(ends, self._ends[last])


class CompiledSelection:
    """Predicates of a selection on single events of a trace.

    Args:
        parts: the trace's columns.
        tracks: the tracks of the columns.
        steps: the steps of the events.
        selection: the selection to compile.
        summary: the trace's summary, as in the catalog.

    Attributes:
        time: the time of the window, minus the time of the excluded window.
        time_with_steps: the part of `time` that lies in the selected steps. The closure adds the annotations that
            enclose an interval of that part. None if the part is unlimited or empty.
        columns: the columns that the predicates read.

    Raises:
        BadSelection: the windows leave no time, or a pattern is invalid.
        UnknownChoice: the selection has a value that the trace does not have.
    """

    def __init__(self, parts: Parts, tracks: Tracks, steps: EventSteps, selection: Selection, summary: Summary) -> None:
        compiler, excluded = _CriteriaCompiler(parts, tracks, steps, summary), selection.exclude
        intervals = compiler.window(selection)
        self.selection = selection
        self._predicates = compiler.predicates(selection)
        self._exclusions: list[Predicate] = []
        if excluded:
            lenient = _CriteriaCompiler(parts, tracks, steps, summary, lenient=True)
            if excluded.window:
                intervals = difference(intervals, lenient.window(excluded))
            self._exclusions = lenient.predicates(excluded)
        if not intervals:
            raise BadSelection("The selection leaves no time: all of it is excluded.", bounds=summary.bounds)
        self.time = IntervalSet(intervals)
        in_steps = intervals
        if selection.steps is not None:
            in_steps = intersection(intervals, compiler.times_of_steps(selection.steps, selection.ranks))
        is_limited = in_steps and in_steps != [ALWAYS]
        self.time_with_steps = IntervalSet(in_steps) if is_limited else None
        self._in_ranks = None if selection.ranks is None else compiler.in_ranks(selection.ranks)
        self.columns = compiler.columns | (lenient.columns if excluded else set())
        self._parts_with_work = None if selection.steps is None else steps.parts_with_linked(selection.steps)

    def may_match(self, index: int, span: Interval) -> bool:
        """Return whether the part at `index` may have matching events; `span` is the time of all its events."""
        if not self.time.may_overlap(span):
            return False
        if self._parts_with_work is None or index in self._parts_with_work:
            return True
        return bool(self.time_with_steps and self.time_with_steps.may_overlap(span))

    @property
    def is_everything(self) -> bool:
        """Return whether every event matches."""
        return not (self.time.is_limited or self._predicates or self._exclusions)

    @property
    def time_columns(self) -> set[str]:
        """Return the columns by which events are in the selected time or annotate it; none if it is unlimited."""
        limited = self.time.is_limited or self.time_with_steps is not None
        return {"cat", "ph", "ts_ns", "dur_ns"} if limited else set()

    @property
    def has_exclusions(self) -> bool:
        """Return whether the selection excludes events. The closure can't add excluded events."""
        return bool(self._exclusions)

    def matches_ignoring_time(self, part: Part) -> Flags:
        """Flag the events that meet all criteria other than the window, and match no exclusion."""
        flags = ~self.excluded(part)
        for predicate in self._predicates:
            flags &= predicate(part)
        return flags

    def annotations(self, part: Part) -> Flags:
        """Flag the annotations around the selected time, of the selected ranks, which the closure adds."""
        if self.time_with_steps is None:
            return np.zeros(len(part), np.bool_)
        around = part.which("cat", ANNOTATION_CATEGORIES.__contains__) & part.slices & part.has("ts_ns")
        around &= self.time_with_steps.enclosed_by(part.starts, part.ends) & ~self.excluded(part)
        return around if self._in_ranks is None else around & self._in_ranks(part)

    def excluded(self, part: Part) -> Flags:
        """Flag the events that an exclusion matches."""
        flags = np.zeros(len(part), np.bool_)
        for predicate in self._exclusions:
            flags |= predicate(part)
        return flags


class _CriteriaCompiler:
    """Compiles criteria into intervals and predicates.

    Args:
        parts: the trace's columns.
        tracks: the tracks of the columns.
        steps: the steps of the events.
        summary: the trace's summary, as in the catalog.
        lenient: whether to ignore values that the trace does not have, instead of raising `UnknownChoice`.

    Attributes:
        columns: the columns that the predicates compiled so far read.
    """

    def __init__(
        self, parts: Parts, tracks: Tracks, steps: EventSteps, summary: Summary, *, lenient: bool = False
    ) -> None:
        self._parts = parts
        self._tracks = tracks
        self._event_steps = steps
        self._summary = summary
        self._lenient = lenient
        self.columns: set[str] = set()

    # -- time ----------------------------------------------------------------------------------------------------------

    def window(self, criteria: Criteria) -> list[Interval]:
        """Return the time of the criteria's window; all time if there is no window."""
        if criteria.window is None:
            return [ALWAYS]
        try:
            return [self._window(criteria.window)]
        except UnknownChoice:
            if not self._lenient:
                raise
            return []

    def _window(self, window: Window) -> Interval:
        bounds, zero = self._summary.bounds, 0
        if window.relative:
            if bounds is None:
                raise BadSelection("A window can't be relative to a trace without timed events.")
            zero = bounds["start_ns"]
        start = ALWAYS[0] if window.start_ns is None else zero + window.start_ns
        end = ALWAYS[1] if window.end_ns is None else zero + window.end_ns
        if window.from_ is not None:
            start, _ = self._first_slice(window.from_, ALWAYS[0])
        if window.to is not None:
            _, end = self._first_slice(window.to, start)
        if end <= start:
            detail = f"The window ends at {end} ns, which is not after its start at {start} ns."
            raise BadSelection(detail, bounds=bounds)
        return max(start, ALWAYS[0]), min(end, ALWAYS[1])

    def _first_slice(self, name: str, since: int) -> Interval:
        """Return the span of the first slice with a name that begins at time `since` or later."""
        for index in range(len(self._parts)):
            span = self._parts.span(index, "ts_ns")
            if span is None or span[1] < since:
                continue
            for part in self._parts.read(("ph", "name", "ts_ns", "dur_ns"), [index]):
                starts = part.starts
                matches = part.which("name", {name}.__contains__) & part.slices
                matches &= (starts >= since) & (starts != UNTIMED)
                if matches.any():
                    first = int(matches.argmax())
                    return int(starts[first]), max(int(part.ends[first]), int(starts[first]) + 1)
        later = f" that begins at {since} ns or later" if since != ALWAYS[0] else ""
        raise UnknownChoice(f"The trace has no slice {name[:100]!r}{later}.")

    def times_of_steps(self, numbers: Collection[int], ranks: Collection[int] | None) -> list[Interval]:
        """Return the time that the annotations of the given steps cover, of some ranks or of all."""
        steps = self._summary.steps
        if ranks is not None and self._summary.ranks:
            pids = {pid for pid, rank in ranks_by_pid(self._summary.ranks).items() if rank in ranks}
            steps = [step for step in steps if step["pid"] in pids]
        return union(
            (step["start_ns"], max(step["end_ns"], step["start_ns"] + 1)) for step in steps if step["number"] in numbers
        )

    # -- predicates ----------------------------------------------------------------------------------------------------

    def predicates(self, criteria: Criteria) -> list[Predicate]:
        """Return a predicate for each criterion except the window."""
        compilers: dict[str, Callable[[Any], Predicate]] = {
            "steps": self._steps,
            "ranks": self.in_ranks,
            "devices": self._devices,
            "streams": self._streams,
            "threads": self._threads,
            "processes": self._processes,
            "categories": lambda wanted: self._words("categories", "cat", wanted),
            "names": self._names,
            "phases": lambda wanted: self._words("phases", "ph", wanted),
            "min_dur_ns": self._at_least,
        }
        values = {name: getattr(criteria, name) for name in compilers}
        return [compilers[name](value) for name, value in values.items() if value is not None]

    def _checked_values(self, criterion: str, wanted: Iterable[Value], known: Collection[Value]) -> list[Value]:
        """Return the wanted values that the trace has; raise `UnknownChoice`, with the known values, for any other."""
        unknown = [value for value in wanted if value not in known]
        if unknown and not self._lenient:
            raise _unknown_choice(criterion, unknown[0], known)
        return [value for value in wanted if value in known]

    def _steps(self, wanted: list[int]) -> Predicate:
        numbers = self._checked_values("steps", wanted, {step["number"] for step in self._summary.steps})
        self.columns.update(EventSteps.columns)
        return lambda part: np.isin(self._event_steps.of(part), numbers)

    def in_ranks(self, wanted: list[int]) -> Predicate:
        """Return the predicate of the events of some ranks."""
        merged = self._summary.ranks
        numbers = [rank["rank"] for rank in merged] if merged else [self._summary.rank]
        known = {number for number in numbers if number is not None}
        ranks = self._checked_values("ranks", wanted, known)
        if not merged:
            return lambda part: np.full(len(part), bool(ranks))
        self.columns.add("rank")
        return lambda part: part.has("rank") & np.isin(part.ints("rank"), ranks)

    def _at_least(self, duration_ns: int) -> Predicate:
        self.columns.update(("ph", "dur_ns"))
        return lambda part: part.slices & (np.maximum(part.ints("dur_ns"), 0) >= duration_ns)

    def _devices(self, wanted: list[int]) -> Predicate:
        known = {device["id"] for device in self._summary.devices if device["events"]}
        return self._on_devices([(device, None) for device in self._checked_values("devices", wanted, known)])

    def _streams(self, wanted: list[str]) -> Predicate:
        places = (stream.split("/") for stream in self._checked_values("streams", wanted, self._summary.streams))
        return self._on_devices([(int(device), int(stream)) for device, stream in places])

    def _on_devices(self, places: list[tuple[int, int | None]]) -> Predicate:
        """Return the predicate of events on devices or streams.

        An event that lacks a device or a stream matches if its track has GPU work in one of the places.

        Args:
            places: pairs of a device and a stream; a stream of None means the whole device.
        """
        self.columns.update(("device", "stream", *Tracks.columns))
        tracks = self._tracks_of_work(places)

        def predicate(part: Part) -> Flags:
            own = part.has("device") & part.has("stream")
            on_track = self._tracks.where(part, tracks.__contains__)
            return np.where(own, _is_placed(part, places), on_track)

        return predicate

    def _tracks_of_work(self, places: list[tuple[int, int | None]]) -> set[tuple[Key, Key]]:
        """Return the tracks that have GPU work in one of the places."""
        if self._parts.work_tracks is not None:
            wanted = {*places}
            return {
                (work.pid, work.tid)
                for work in self._parts.work_tracks
                if (work.device, None) in wanted or (work.stream is not None and (work.device, work.stream) in wanted)
            }
        tracks: set[tuple[Key, Key]] = set()
        parts_with_devices = [index for index in range(len(self._parts)) if self._parts.span(index, "device")]
        for part in self._parts.read(("cat", "device", "stream", *Tracks.columns), parts_with_devices):
            work = part.which("cat", GPU_CATEGORIES.__contains__) & _is_placed(part, places)
            tracks.update(self._tracks.keys[track] for track in np.unique(self._tracks.of(part)[work]))
        return tracks

    def _threads(self, wanted: list[Key]) -> Predicate:
        threads = self._summary.threads
        names: dict[Key, list[tuple[Key, Key]]] = {}
        for thread in threads:
            track = thread["pid"], thread["tid"]
            for name in {thread["tid"], f"{track[0]}/{track[1]}", (thread["name"] or "").strip()} - {""}:
                names.setdefault(name, []).append(track)
        known = [f"{thread['pid']}/{thread['tid']}" for thread in threads]
        tracks = set(self._entities_named("threads", wanted, names, known))
        self.columns.update(Tracks.columns)
        return lambda part: self._tracks.where(part, tracks.__contains__)

    def _processes(self, wanted: list[Key]) -> Predicate:
        processes = [process for process in self._summary.processes if process["events"]]
        names: dict[Key, list[Key]] = {}
        for process in processes:
            for name in {process["pid"], (process["name"] or "").strip()} - {""}:
                names.setdefault(name, []).append(process["pid"])
        pids = set(self._entities_named("processes", wanted, names, [process["pid"] for process in processes]))
        self.columns.update(Tracks.columns)
        return lambda part: self._tracks.where(part, lambda track: track[0] in pids)

    def _entities_named(
        self, criterion: str, wanted: Iterable[Key], names: Mapping[Key, list[Entity]], known: Collection[Key]
    ) -> list[Entity]:
        """Return the entities with the wanted names; raise `UnknownChoice`, with the known values, for other names."""
        unknown = [name for name in wanted if name not in names]
        if unknown and not self._lenient:
            raise _unknown_choice(criterion, unknown[0], known)
        return [entity for name in wanted for entity in names.get(name, [])]

    def _words(self, criterion: str, column: str, wanted: list[str]) -> Predicate:
        """Return the predicate of the column ``ph`` or ``cat``; known words are those in the summary's ``counts``."""
        place = ("ph", "cat").index(column)
        known = {key.split("|", 1)[place] for key in self._summary.counts}
        words = set(self._checked_values(criterion, wanted, known))
        self.columns.add(column)
        return lambda part: part.which(column, lambda word: (word or "") in words)

    def _names(self, wanted: list[str]) -> Predicate:
        patterns = NamePatterns(wanted)
        self.columns.add("name")

        def predicate(part: Part) -> Flags:
            codes, names = part.coded("name")
            # the last flag is for events without a name, whose code is -1
            matches = np.array([*patterns.match(names), False])
            flags: Flags = matches[codes]
            return flags

        return predicate


def _is_placed(part: Part, places: Iterable[tuple[int, int | None]]) -> Flags:
    """Flag the events whose own device and stream are one of the places."""
    flags = np.zeros(len(part), np.bool_)
    devices, streams = part.numbers("device"), part.numbers("stream")
    for device, stream in places:
        flags |= (devices == device) & (True if stream is None else (streams == stream) & part.has("stream"))
    flags &= part.has("device")
    return flags


def _unknown_choice(criterion: str, value: Key, known: Collection[Key]) -> UnknownChoice:
    short = (other for other in known if len(str(other)) <= _SHOWN_CHARACTERS_MAX)
    shown = sorted(short, key=lambda other: (isinstance(other, str), other))
    if len(shown) > SHOWN_MAX:
        compared = [str(other) for other in shown[:_COMPARED_MAX]]
        similar = difflib.get_close_matches(str(value)[:_SHOWN_CHARACTERS_MAX], compared, SHOWN_MAX, 0)
        shown = [other for other in shown if str(other) in similar]
    listed = ", ".join(str(other) or "'' (empty)" for other in shown[:8]) + (", …" if len(known) > 8 else "")
    detail = f"The trace has no {_SINGULARS[criterion]} {str(value)[:100]!r}; it has {listed or 'none'}."
    return UnknownChoice(detail, **{f"known_{criterion}": shown[:SHOWN_MAX]})

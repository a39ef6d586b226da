"""A selection against a trace: its time in intervals, and its criteria as what they let pass of a part of the columns.

Which events come along with others is `service.cutting.rows`'s.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from service.cutting.names import NamePatterns
from service.cutting.steps import EventSteps
from service.store.parts import UNTIMED, Flags, Ints, Part, Parts, Tracks
from service.trace.errors import BadSelection, UnknownChoice
from service.trace.selection import ALWAYS, Criteria, Interval, Selection, Window, difference, intersection, union
from service.trace.summary import GPU_CATEGORIES, Key

Choice = TypeVar("Choice", int, str)
Thing = TypeVar("Thing")
Test = Callable[[Part], Flags]

SHOWN_MAX = 50
"""Choices that an error lists."""
_SHOWN_CHARACTERS_MAX = 256
_COMPARED_MAX = 5000

_ONE_OF = {
    "steps": "step", "ranks": "rank", "devices": "device", "streams": "stream", "threads": "thread",
    "processes": "process", "categories": "category", "phases": "phase",
}  # fmt: skip


class Time:
    """Some intervals of time, sorted and apart."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.intervals = tuple(intervals)
        self._starts, self._ends = (np.array(edges, np.int64) for edges in zip(*self.intervals, strict=True))

    @property
    def is_limited(self) -> bool:
        """Whether there is time outside of them."""
        return self.intervals != (ALWAYS,)

    def may_meet(self, span: Interval) -> bool:
        """Whether an event may be in them that is in a span, both of whose ends may be in it."""
        return bool(span[0] < self._ends[-1] and span[1] >= self._starts[0])

    def begins(self, starts: Ints) -> Flags:
        """Which moments are in them."""
        return self.meet(starts, starts)

    def meet(self, starts: Ints, ends: Ints) -> Flags:
        """Which spans share time with them, or, if they last no time, are in them."""
        at = np.searchsorted(self._starts, ends - (ends > starts), "right") - 1
        flags: Flags = (at >= 0) & (self._ends[at] > starts)
        return flags

    def enclosed(self, starts: Ints, ends: Ints) -> Flags:
        """Which spans have a whole interval within them."""
        at = np.minimum(np.searchsorted(self._starts, starts), len(self._starts) - 1)
        flags: Flags = (self._starts[at] >= starts) & (self._ends[at] <= ends)
        return flags

    def clipped(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Spans that share time with them, from the first interval that they meet to the last."""
        last = np.searchsorted(self._starts, ends - (ends > starts), "right") - 1
        first = np.searchsorted(self._ends, starts, "right")
        return np.maximum(starts, self._starts[first]), np.minimum(ends, self._ends[last])


class Asked:
    """What a selection asks of single events.

    Args:
        parts: the trace's columns.
        tracks: their tracks.
        steps: of their events.
        selection: what to keep.
        summary: of the trace, as the catalog has it.

    Attributes:
        time: of the window, without that of the excluded window.
        around: the window and the steps, which annotations that come along enclose; None where neither is given.

    Raises:
        BadSelection: its windows leave no time, or a pattern is none.
        UnknownChoice: it names what the trace does not have.
    """

    def __init__(
        self, parts: Parts, tracks: Tracks, steps: EventSteps, selection: Selection, summary: Mapping[str, Any]
    ) -> None:
        told, excluded = _Told(parts, tracks, steps, summary), selection.exclude
        intervals = told.window(selection)
        self.selection = selection
        self._tests = told.tests(selection)
        self._exclusions: list[Test] = []
        if excluded:
            lenient = _Told(parts, tracks, steps, summary, lenient=True)
            if excluded.window:
                intervals = difference(intervals, lenient.window(excluded))
            self._exclusions = lenient.tests(excluded)
        if not intervals:
            raise BadSelection("The selection leaves no time: all of it is excluded.", bounds=summary["bounds"])
        self.time = Time(intervals)
        around = intervals if selection.steps is None else intersection(intervals, told.times_of_steps(selection.steps))
        limited = around and around != [ALWAYS]
        self.around = Time(around) if limited else None
        self.columns = told.columns | (lenient.columns if excluded else set())
        self._linked = None if selection.steps is None else steps.parts_with_linked(selection.steps)

    def may_meet(self, index: int, span: Interval) -> bool:
        """Whether a part, whose events lie in a span of time, may have events that it asks for."""
        if not self.time.may_meet(span):
            return False
        return self._linked is None or index in self._linked or bool(self.around and self.around.may_meet(span))

    @property
    def is_everything(self) -> bool:
        """Whether every event is asked for."""
        return not (self.time.is_limited or self._tests or self._exclusions)

    @property
    def excludes(self) -> bool:
        """Whether any event is to be left out whatever it belongs to."""
        return bool(self._exclusions)

    def of_kind(self, part: Part) -> Flags:
        """Which events meet all criteria but the time."""
        flags = ~self.excluded(part)
        for test in self._tests:
            flags &= test(part)
        return flags

    def excluded(self, part: Part) -> Flags:
        """Which events are to be left out."""
        flags = np.zeros(len(part), np.bool_)
        for test in self._exclusions:
            flags |= test(part)
        return flags


class _Told:
    """Criteria against what is known of a trace; if `lenient`, what it does not have may be named.

    `columns` are those that the tests made so far look at.
    """

    def __init__(
        self, parts: Parts, tracks: Tracks, steps: EventSteps, summary: Mapping[str, Any], *, lenient: bool = False
    ) -> None:
        self._parts = parts
        self._tracks = tracks
        self._event_steps = steps
        self._summary = summary
        self._lenient = lenient
        self.columns: set[str] = set()

    # -- time ---------------------------------------------------------------------------------------------------------

    def window(self, criteria: Criteria) -> list[Interval]:
        """The time of a window; all time where none is given."""
        if criteria.window is None:
            return [ALWAYS]
        try:
            return [self._window(criteria.window)]
        except UnknownChoice:
            if not self._lenient:
                raise
            return []

    def _window(self, window: Window) -> Interval:
        bounds, zero = self._summary["bounds"], 0
        if window.relative:
            if bounds is None:
                raise BadSelection("A window can't be relative to a trace in which nothing has a time.")
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
        """The first slice of that name that begins at a time or later."""
        for index in range(len(self._parts)):
            begins = self._parts.span(index, "ts_ns")
            if begins is None or begins[1] < since:
                continue
            for part in self._parts.read(("ph", "name", "ts_ns", "dur_ns"), [index]):
                starts = part.starts
                found = part.which("name", {name}.__contains__) & part.slices
                found &= (starts >= since) & (starts != UNTIMED)
                if found.any():
                    first = int(found.argmax())
                    return int(starts[first]), max(int(part.ends[first]), int(starts[first]) + 1)
        later = f" that begins at {since} ns or later" if since != ALWAYS[0] else ""
        raise UnknownChoice(f"The trace has no slice {name[:100]!r}{later}.")

    def times_of_steps(self, numbers: Collection[int]) -> list[Interval]:
        """From the start to the end of the annotations of some steps."""
        return union(
            (step["start_ns"], max(step["end_ns"], step["start_ns"] + 1))
            for step in self._summary["steps"]
            if step["number"] in numbers
        )

    # -- all else -----------------------------------------------------------------------------------------------------

    def tests(self, criteria: Criteria) -> list[Test]:
        """A test for each criterion but the window."""
        makers: dict[str, Callable[[Any], Test]] = {
            "steps": self._steps,
            "ranks": self._ranks,
            "devices": self._devices,
            "streams": self._streams,
            "threads": self._threads,
            "processes": self._processes,
            "categories": lambda wanted: self._words("categories", "cat", wanted),
            "names": self._names,
            "phases": lambda wanted: self._words("phases", "ph", wanted),
            "min_dur_ns": self._lasting,
        }
        given = {name: getattr(criteria, name) for name in makers}
        return [makers[name](value) for name, value in given.items() if value is not None]

    def _known(self, what: str, wanted: Iterable[Choice], there: Collection[Choice]) -> list[Choice]:
        """Those of the wanted that there are; raises `UnknownChoice` if one is not, and names what is."""
        unknown = [one for one in wanted if one not in there]
        if unknown and not self._lenient:
            raise _unknown(what, unknown[0], there)
        return [one for one in wanted if one in there]

    def _steps(self, wanted: list[int]) -> Test:
        numbers = self._known("steps", wanted, {step["number"] for step in self._summary["steps"]})
        self.columns.update(EventSteps.columns)
        return lambda part: np.isin(self._event_steps.of(part), numbers)

    def _ranks(self, wanted: list[int]) -> Test:
        merged = self._summary.get("ranks")
        there = {one["rank"] for one in merged} if merged else {self._summary["rank"]} - {None}
        ranks = self._known("ranks", wanted, there)
        if not merged:
            return lambda part: np.full(len(part), bool(ranks))
        self.columns.add("rank")
        return lambda part: part.has("rank") & np.isin(part.ints("rank"), ranks)

    def _lasting(self, least: int) -> Test:
        self.columns.update(("ph", "dur_ns"))
        return lambda part: part.slices & (np.maximum(part.ints("dur_ns"), 0) >= least)

    def _devices(self, wanted: list[int]) -> Test:
        chosen = self._known("devices", wanted, {one["id"] for one in self._summary["devices"] if one["events"]})
        return self._placed([(device, None) for device in chosen])

    def _streams(self, wanted: list[str]) -> Test:
        chosen = (one.split("/") for one in self._known("streams", wanted, self._summary["streams"]))
        return self._placed([(int(device), int(stream)) for device, stream in chosen])

    def _placed(self, places: list[tuple[int, int | None]]) -> Test:
        """What its own device and stream place there; what tells none, where work that is there has its track.

        Args:
            places: devices and streams, or whole devices.
        """
        self.columns.update(("device", "stream", *Tracks.columns))
        there: set[tuple[Key, Key]] = set()
        placing = [index for index in range(len(self._parts)) if self._parts.span(index, "device")]
        for part in self._parts.read(("cat", "device", "stream", *Tracks.columns), placing):
            work = part.which("cat", GPU_CATEGORIES.__contains__) & _is_placed(part, places)
            there.update(self._tracks.keys[track] for track in np.unique(self._tracks.of(part)[work]))

        def test(part: Part) -> Flags:
            own = part.has("device") & part.has("stream")
            on_track = self._tracks.where(part, there.__contains__)
            return np.where(own, _is_placed(part, places), on_track)

        return test

    def _threads(self, wanted: list[Key]) -> Test:
        threads = self._summary["threads"]
        names: dict[Key, list[tuple[Key, Key]]] = {}
        for one in threads:
            for name in {one["tid"], f"{one['pid']}/{one['tid']}", (one["name"] or "").strip()} - {""}:
                names.setdefault(name, []).append((one["pid"], one["tid"]))
        tracks = set(self._named("threads", wanted, names, [f"{one['pid']}/{one['tid']}" for one in threads]))
        self.columns.update(Tracks.columns)
        return lambda part: self._tracks.where(part, tracks.__contains__)

    def _processes(self, wanted: list[Key]) -> Test:
        processes = [one for one in self._summary["processes"] if one["events"]]
        names: dict[Key, list[Key]] = {}
        for one in processes:
            for name in {one["pid"], (one["name"] or "").strip()} - {""}:
                names.setdefault(name, []).append(one["pid"])
        pids = set(self._named("processes", wanted, names, [one["pid"] for one in processes]))
        self.columns.update(Tracks.columns)
        return lambda part: self._tracks.where(part, lambda track: track[0] in pids)

    def _named(
        self, what: str, wanted: Iterable[Key], names: Mapping[Key, list[Thing]], shown: Collection[Key]
    ) -> list[Thing]:
        unknown = [one for one in wanted if one not in names]
        if unknown and not self._lenient:
            raise _unknown(what, unknown[0], shown)
        return [thing for one in wanted for thing in names.get(one, [])]

    def _words(self, what: str, column: str, wanted: list[str]) -> Test:
        """Words by which the summary counts events, as ``phase|category``."""
        place = ("ph", "cat").index(column)
        chosen = set(self._known(what, wanted, {key.split("|", 1)[place] for key in self._summary["counts"]}))
        self.columns.add(column)
        return lambda part: part.which(column, lambda word: (word or "") in chosen)

    def _names(self, wanted: list[str]) -> Test:
        patterns = NamePatterns(wanted)
        self.columns.add("name")

        def test(part: Part) -> Flags:
            codes, names = part.coded("name")
            flags: Flags = np.array([*patterns.match(names), False])[codes]  # the last is that of no name, coded -1
            return flags

        return test


def _is_placed(part: Part, places: Iterable[tuple[int, int | None]]) -> Flags:
    """Which events tell one of some devices and streams."""
    flags = np.zeros(len(part), np.bool_)
    devices, streams = part.ints("device"), part.ints("stream")
    for device, stream in places:
        flags |= (devices == device) & (True if stream is None else (streams == stream) & part.has("stream"))
    flags &= part.has("device")
    return flags


def _unknown(what: str, one: Key, there: Collection[Key]) -> UnknownChoice:
    short = (other for other in there if len(str(other)) <= _SHOWN_CHARACTERS_MAX)
    known = sorted(short, key=lambda other: (isinstance(other, str), other))
    if len(known) > SHOWN_MAX:
        compared = [str(other) for other in known[:_COMPARED_MAX]]  # to compare all could take minutes
        near = difflib.get_close_matches(str(one)[:_SHOWN_CHARACTERS_MAX], compared, SHOWN_MAX, 0)
        known = [other for other in known if str(other) in near]
    some = ", ".join(str(other) for other in known[:8]) + (", …" if len(there) > 8 else "")
    detail = f"The trace has no {_ONE_OF[what]} {str(one)[:100]!r}; it has {some or 'none'}."
    return UnknownChoice(detail, **{f"known_{what}": known[:SHOWN_MAX]})

"""Which events of a document a selection keeps, worked out by plain Python: what `service.cutting` is held to.

Nothing here is shared with the service. A selection is the JSON that a client sends. Of what the trace does not have
nothing is said here: it is in the tests of errors.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from tests.attribution.oracle import AttributionOracle

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"}
LAUNCH = re.compile("Runtime|.*_(runtime|driver)")
ANNOTATIONS = {"user_annotation", "User"}
ENDS = {"s", "t", "f"}
OF_PROCESS = {"process_name", "process_labels", "process_sort_index", "process_uptime_seconds"}
CLOSURE = ("metadata", "flows", "launches", "kernels", "annotations")
MICROSECONDS_MAX = (1 << 62) // 1000

Key = int | str
Track = tuple[Key, Key]
Interval = tuple[float, float]  # of integers, or infinite
Test = Callable[["Event"], bool]


class UnknownSlice(Exception):
    """No slice has the name that a window names."""


class NoTime(Exception):
    """The selection leaves no time, or an edge of its window is not there."""


@dataclass(frozen=True, slots=True)
class Event:
    """What is asked of an event."""

    index: int
    ph: str
    cat: str
    name: str | None
    track: Track
    start: int | None
    lasts: int
    device: int | None
    stream: int | None
    correlation: int | None
    external: int | None
    id: Hashable

    @property
    def end(self) -> int:
        assert self.start is not None
        return self.start + self.lasts

    @property
    def is_launch(self) -> bool:
        return bool(LAUNCH.fullmatch(self.cat))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 10**18 else None


def _ns(value: Any) -> int | None:
    is_time = type(value) in (int, Decimal) and abs(value) <= MICROSECONDS_MAX
    return math.floor(value * 1000) if is_time else None


def _key(value: Any) -> Key:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value if isinstance(value, str) or _whole(value) is not None else str(value)
    return str(value) if isinstance(value, Decimal) else ""


def event_of(index: int, told: Mapping[str, Any]) -> Event:
    """An event as its members tell it."""
    ph, cat = _string(told.get("ph")) or "", _string(told.get("cat")) or ""
    pid, tid = _key(told.get("pid")), _key(told.get("tid"))
    args = told["args"] if isinstance(told.get("args"), dict) else {}
    numbers = {key.lower(): _whole(args[key]) for key in args if key in {"External id", "external id"}}
    numbers |= {key: _whole(args.get(key)) for key in ("device", "stream", "correlation")}
    if cat in GPU:
        named = re.fullmatch(r"(?:stream )?(\d{1,18}) ?", tid) if isinstance(tid, str) else None
        at = {"device": pid, "stream": int(named[1]) if named else tid}
        numbers |= {key: _whole(value) for key, value in at.items() if numbers[key] is None}
    flow = told.get("id")
    is_id = isinstance(flow, str | Decimal) or type(flow) is int
    return Event(
        index=index,
        ph=ph,
        cat=cat,
        name=_string(told.get("name")),
        track=(pid, tid),
        start=None if ph == "M" else _ns(told.get("ts")),
        lasts=max(_ns(told.get("dur")) or 0, 0) if ph == "X" else 0,
        device=numbers["device"],
        stream=numbers["stream"],
        correlation=numbers["correlation"],
        external=numbers.get("external id"),
        id=(type(flow), flow) if is_id else None,
    )


class Document:
    """A trace, read once for many selections."""

    def __init__(self, text: str | bytes) -> None:
        told = json.loads(text, parse_float=Decimal)
        members = told["traceEvents"] if isinstance(told, dict) else told
        info = told.get("distributedInfo") if isinstance(told, dict) else None
        self.rank = info.get("rank") if isinstance(info, dict) else None
        self.events = [event_of(index, one) for index, one in enumerate(members)]
        self.happened = [one for one in self.events if one.ph != "M"]
        self.slices = sorted(
            (one for one in self.events if one.ph == "X" and one.start is not None),
            key=lambda one: (one.start, one.index),
        )
        self.first = min(
            (one.start for one in self.events if one.start is not None and one.ph not in {"s", "t", "f", "C"}),
            default=None,
        )
        self.tracks = {one.track for one in self.happened}
        self.order = {one.index: place for place, one in enumerate(self.events)}
        self.attributed = AttributionOracle(self)
        self.steps = self._steps()
        self.names = self._names(members)
        linked = (one for one in self.events if one.ph == "X" and one.correlation is not None)
        ends = (one for one in self.events if one.ph in ENDS)
        self.begun = _grouped(self.slices, lambda one: (one.track, one.start))
        self.linked = _grouped(linked, lambda one: (one.track, one.correlation))
        self.flows = _grouped(ends, lambda one: (one.cat, one.id or one.index))

    def _steps(self) -> dict[int, list[Interval]]:
        steps: dict[int, list[Interval]] = defaultdict(list)
        for one in self.slices:
            found = re.fullmatch(r"ProfilerStep#(\d{1,18})", one.name or "")
            if found and one.start is not None and one.cat not in GPU | {"gpu_user_annotation"}:
                steps[int(found[1])].append((one.start, max(one.end, one.start + 1)))
        return steps

    def _names(self, members: list[Any]) -> dict[tuple[Key, ...], str]:
        """The last name of each process, by its pid, and of each thread, by its track."""
        names: dict[tuple[Key, ...], str] = {}
        for event, member in zip(self.events, members, strict=True):
            args = member.get("args")
            if event.ph == "M" and isinstance(args, dict) and isinstance(args.get("name"), str):
                if event.name == "process_name":
                    names[event.track[:1]] = args["name"].strip()
                elif event.name == "thread_name":
                    names[event.track] = args["name"].strip()
        return names

    def stands_on(self, end: Event) -> list[Event]:
        """The slices that the end of an arrow stands on."""
        if end.start is None or not (there := self.begun.get((end.track, end.start))):
            number = end.id[1] if isinstance(end.id, tuple) and end.id[0] is int else None
            return self.linked.get((end.track, _whole(number)), []) if end.cat in {"ac2g", "async"} else []
        return there


def _grouped(events: Iterable[Event], key: Callable[[Event], Hashable]) -> dict[Hashable, list[Event]]:
    groups: dict[Hashable, list[Event]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return dict(groups)


# -- time -------------------------------------------------------------------------------------------------------


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    made: list[Interval] = []
    for start, end in sorted(intervals):
        before = made.pop() if made and made[-1][1] >= start else (start, end)
        made.append((before[0], max(before[1], end)))
    return made


def _shared(ones: list[Interval], others: list[Interval]) -> list[Interval]:
    both = ((max(one[0], other[0]), min(one[1], other[1])) for one in ones for other in others)
    return _joined(one for one in both if one[0] < one[1])


def _window(document: Document, window: Mapping[str, Any]) -> Interval:
    zero = 0
    if window.get("relative"):
        if document.first is None:
            raise NoTime
        zero = document.first
    start = zero + window["start_ns"] if window.get("start_ns") is not None else -math.inf
    end = zero + window["end_ns"] if window.get("end_ns") is not None else math.inf
    if window.get("from") is not None:
        named = (one for one in document.slices if one.name == window["from"])
        start = next((one.start for one in named if one.start is not None), math.inf)
        if start == math.inf:
            raise UnknownSlice
    if window.get("to") is not None:
        named = (one for one in document.slices if one.name == window["to"])
        later = (one for one in named if one.start is not None and one.start >= start)
        end = next((max(one.end, one.end - one.lasts + 1) for one in later), -math.inf)
        if end == -math.inf:
            raise UnknownSlice
    if start >= end:
        raise NoTime
    return start, end


def _time(document: Document, criteria: Mapping[str, Any]) -> list[Interval] | None:
    """The time of a window; None where there is none."""
    return [_window(document, criteria["window"])] if criteria.get("window") is not None else None


def time_of(document: Document, selection: Mapping[str, Any]) -> list[Interval]:
    """When the window is, without an excluded one.

    Raises:
        NoTime: at no time.
        UnknownSlice: it is told by a slice that is not there.
    """
    time = _time(document, selection)
    time = [(-math.inf, math.inf)] if time is None else time
    for start, end in _left_out(document, selection.get("exclude") or {}):
        time = _shared(time, [(-math.inf, start), (end, math.inf)])
    if not time:
        raise NoTime
    return time


def _left_out(document: Document, criteria: Mapping[str, Any]) -> list[Interval]:
    try:
        return _time(document, criteria) or []
    except UnknownSlice:  # what is not there need not be left out
        return []


def _is_in(event: Event, time: list[Interval], straddle: str) -> bool:
    if event.start is None:
        return time[0][0] == -math.inf
    if straddle == "start" or not event.lasts:
        return any(start <= event.start < end for start, end in time)
    return any(event.start < end and event.end > start for start, end in time)


# -- all else ---------------------------------------------------------------------------------------------------


def _tests(document: Document, criteria: Mapping[str, Any]) -> list[Test]:
    """A test for each criterion but time."""
    tests: dict[str, Callable[[Any], Test]] = {
        "categories": lambda wanted: lambda one: one.cat in wanted,
        "phases": lambda wanted: lambda one: one.ph in wanted,
        "names": _named,
        "min_dur_ns": lambda least: lambda one: one.ph == "X" and one.lasts >= least,
        "threads": lambda wanted: _on(document, lambda track: _answers(document, track, wanted)),
        "processes": lambda wanted: _on(
            document, lambda track: track[0] in wanted or document.names.get(track[:1]) in wanted
        ),
        "devices": lambda wanted: _placed(document, lambda one: one.device in wanted),
        "streams": lambda wanted: _placed(document, lambda one: f"{one.device}/{one.stream}" in wanted),
        "ranks": lambda wanted: lambda _: document.rank in wanted,
        "steps": lambda wanted: lambda one: document.attributed.step(one) in wanted,
    }
    return [make(criteria[name]) for name, make in tests.items() if criteria.get(name) is not None]


def _on(document: Document, holds: Callable[[Track], bool]) -> Test:
    tracks = {track for track in document.tracks if holds(track)}
    return lambda one: one.track in tracks


def _answers(document: Document, track: Track, wanted: list[Key]) -> bool:
    called = {track[1], f"{track[0]}/{track[1]}", document.names.get(track, "")} - {""}
    return not called.isdisjoint(wanted)


def _placed(document: Document, holds: Test) -> Test:
    there = {one.track for one in document.events if one.cat in GPU and one.device is not None and holds(one)}
    return lambda one: holds(one) if None not in (one.device, one.stream) else one.track in there


def _named(patterns: list[str]) -> Test:
    @cache
    def holds(name: str | None) -> bool:
        return name is not None and any(matches(pattern, name) for pattern in patterns)

    return lambda one: holds(one.name)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern means a name."""
    if pattern.startswith("re:"):
        return re.search(pattern[3:], name) is not None
    signs = {"*": ".*", "?": "."}
    return re.fullmatch("".join(signs.get(sign, re.escape(sign)) for sign in pattern), name, re.DOTALL) is not None


# -- what is kept -----------------------------------------------------------------------------------------------


def kept(document: Document, selection: Mapping[str, Any]) -> list[int]:
    """The indices of the events that a selection keeps.

    Raises:
        NoTime: it leaves none.
        UnknownSlice: it names one that is not there.
    """
    closure = {**dict.fromkeys(CLOSURE, True), **selection.get("closure", {})}
    time, straddle = time_of(document, selection), selection.get("straddle", "keep")
    tests, exclusions = _tests(document, selection), _tests(document, selection.get("exclude") or {})
    stays = document.happened
    if exclusions:
        stays = [one for one in stays if not any(test(one) for test in exclusions)]
    found = {one.index for one in stays if _is_in(one, time, straddle) and all(test(one) for test in tests)}
    asked_flows = {one.index for one in stays if one.ph in ENDS and one.index in found} if closure["flows"] else set()
    found -= asked_flows
    if closure["flows"]:
        stays = [one for one in stays if one.ph not in ENDS]
    within = time
    if selection.get("steps") is not None:
        within = _shared(
            time, _joined(span for number in selection["steps"] for span in document.steps.get(number, []))
        )
    if closure["annotations"] and within != [(-math.inf, math.inf)]:
        around = (one for one in stays if one.ph == "X" and one.cat in ANNOTATIONS and one.start is not None)
        found |= {one.index for one in around if _surrounds(one, within)}
    may_stay, links = {one.index for one in stays}, document.attributed
    if closure["kernels"]:
        launches = ((one.index, links.launch(one)) for one in links.work)
        found |= {index for index, launch in launches if launch and launch.index in found} & may_stay
    if closure["launches"]:
        work = [one for one in links.work if one.index in found]
        causes = [*map(links.launch, work), *map(links.operator, work)]
        found |= {one.index for one in causes if one} & may_stay
    if closure["flows"]:
        left_out = {one.index for one in document.happened if any(test(one) for test in exclusions)}
        found |= _whole_flows(document, found, asked_flows, left_out)
    if closure["metadata"] and (found or selection.get("steps") is None):
        found |= _metadata(document, found)
    return sorted(found)


def _surrounds(event: Event, time: list[Interval]) -> bool:
    assert event.start is not None
    return any(event.start <= start and event.end >= end for start, end in time)


def _whole_flows(document: Document, found: set[int], asked: set[int], left_out: set[int]) -> set[int]:
    def is_kept(end: Event) -> bool:
        if end.index in left_out:
            return False
        there = document.stands_on(end)
        return any(one.index in found for one in there) if there else end.index in asked

    return {end.index for ends in document.flows.values() if all(map(is_kept, ends)) for end in ends}


def _metadata(document: Document, found: set[int]) -> set[int]:
    left = {document.events[index].track for index in found}
    lost = document.tracks - left
    lost_pids = {pid for pid, _ in document.tracks} - {pid for pid, _ in left}
    return {
        one.index
        for one in document.events
        if one.ph == "M" and one.track[0] not in lost_pids and (one.name in OF_PROCESS or one.track not in lost)
    }

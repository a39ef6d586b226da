"""The events of a document that a selection keeps, computed in plain Python: the oracle of `service.cutting`.

This module shares no code with the service. A selection is the JSON that a client sends. Selections of values that
the trace does not have are not supported: the tests of errors cover them.
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
Interval = tuple[float, float]  # ns: integers, or infinite
Test = Callable[["Event"], bool]


class UnknownSlice(Exception):
    """No slice has the name of an edge of a window."""


class NoTime(Exception):
    """The selection leaves no time, or the trace has none to which its window is relative."""


@dataclass(frozen=True, slots=True)
class Event:
    """The fields of an event that selections test."""

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


def event_of(index: int, fields: Mapping[str, Any]) -> Event:
    """Build an event from its JSON members."""
    ph, cat = _string(fields.get("ph")) or "", _string(fields.get("cat")) or ""
    pid, tid = _key(fields.get("pid")), _key(fields.get("tid"))
    args = fields["args"] if isinstance(fields.get("args"), dict) else {}
    numbers = {key.lower(): _whole(args[key]) for key in args if key in {"External id", "external id"}}
    numbers |= {key: _whole(args.get(key)) for key in ("device", "stream", "correlation")}
    if cat in GPU:
        match = re.fullmatch(r"(?:stream )?(\d{1,18}) ?", tid) if isinstance(tid, str) else None
        at = {"device": pid, "stream": int(match[1]) if match else tid}
        numbers |= {key: _whole(value) for key, value in at.items() if numbers[key] is None}
    flow = fields.get("id")
    is_id = isinstance(flow, str | Decimal) or type(flow) is int
    return Event(
        index=index,
        ph=ph,
        cat=cat,
        name=_string(fields.get("name")),
        track=(pid, tid),
        start=None if ph == "M" else _ns(fields.get("ts")),
        lasts=max(_ns(fields.get("dur")) or 0, 0) if ph == "X" else 0,
        device=numbers["device"],
        stream=numbers["stream"],
        correlation=numbers["correlation"],
        external=numbers.get("external id"),
        id=(type(flow), flow) if is_id else None,
    )


class Document:
    """A trace, parsed once for many selections."""

    def __init__(self, text: str | bytes) -> None:
        document = json.loads(text, parse_float=Decimal)
        members = document["traceEvents"] if isinstance(document, dict) else document
        info = document.get("distributedInfo") if isinstance(document, dict) else None
        self.rank = info.get("rank") if isinstance(info, dict) else None
        self.events = [event_of(index, member) for index, member in enumerate(members)]
        self.happened = [event for event in self.events if event.ph != "M"]
        self.slices = sorted(
            (event for event in self.events if event.ph == "X" and event.start is not None),
            key=lambda event: (event.start, event.index),
        )
        self.first = min(
            (event.start for event in self.events if event.start is not None and event.ph not in {"s", "t", "f", "C"}),
            default=None,
        )
        self.tracks = {event.track for event in self.happened}
        self.order = {event.index: place for place, event in enumerate(self.events)}
        self.attributed = AttributionOracle(self)
        self.steps = self._steps()
        self.names = self._names(members)
        linked = (event for event in self.events if event.ph == "X" and event.correlation is not None)
        ends = (event for event in self.events if event.ph in ENDS)
        self.slices_by_start = _grouped(self.slices, lambda event: (event.track, event.start))
        self.linked = _grouped(linked, lambda event: (event.track, event.correlation))
        self.flows = _grouped(ends, lambda event: (event.cat, event.id or event.index))

    def _steps(self) -> dict[int, list[Interval]]:
        steps: dict[int, list[Interval]] = defaultdict(list)
        for event in self.slices:
            match = re.fullmatch(r"ProfilerStep#(\d{1,18})", event.name or "")
            if match and event.start is not None and event.cat not in GPU | {"gpu_user_annotation"}:
                steps[int(match[1])].append((event.start, max(event.end, event.start + 1)))
        return steps

    def _names(self, members: list[Any]) -> dict[tuple[Key, ...], str]:
        """Return the last name of each process by its pid, and of each thread by its track."""
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
        """Return the slices to which the end of an arrow belongs."""
        if end.start is None or not (slices := self.slices_by_start.get((end.track, end.start))):
            number = end.id[1] if isinstance(end.id, tuple) and end.id[0] is int else None
            return self.linked.get((end.track, _whole(number)), []) if end.cat in {"ac2g", "async"} else []
        return slices


def _grouped(events: Iterable[Event], key: Callable[[Event], Hashable]) -> dict[Hashable, list[Event]]:
    groups: dict[Hashable, list[Event]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return dict(groups)


# -- time -------------------------------------------------------------------------------------------------------


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    union: list[Interval] = []
    for start, end in sorted(intervals):
        last = union.pop() if union and union[-1][1] >= start else (start, end)
        union.append((last[0], max(last[1], end)))
    return union


def _intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    overlaps = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return _union(overlap for overlap in overlaps if overlap[0] < overlap[1])


def _window(document: Document, window: Mapping[str, Any]) -> Interval:
    zero = 0
    if window.get("relative"):
        if document.first is None:
            raise NoTime
        zero = document.first
    start = zero + window["start_ns"] if window.get("start_ns") is not None else -math.inf
    end = zero + window["end_ns"] if window.get("end_ns") is not None else math.inf
    if window.get("from") is not None:
        named = (event for event in document.slices if event.name == window["from"])
        start = next((event.start for event in named if event.start is not None), math.inf)
        if start == math.inf:
            raise UnknownSlice
    if window.get("to") is not None:
        named = (event for event in document.slices if event.name == window["to"])
        later = (event for event in named if event.start is not None and event.start >= start)
        end = next((max(event.end, event.end - event.lasts + 1) for event in later), -math.inf)
        if end == -math.inf:
            raise UnknownSlice
    if start >= end:
        raise NoTime
    return start, end


def _time(document: Document, criteria: Mapping[str, Any]) -> list[Interval] | None:
    """Return the time of the window, None if the criteria have no window."""
    return [_window(document, criteria["window"])] if criteria.get("window") is not None else None


def time_of(document: Document, selection: Mapping[str, Any]) -> list[Interval]:
    """Return the time of the window minus that of an excluded window.

    Raises:
        NoTime: no time is left.
        UnknownSlice: no slice has the name of an edge.
    """
    time = _time(document, selection)
    time = [(-math.inf, math.inf)] if time is None else time
    for start, end in _left_out(document, selection.get("exclude") or {}):
        time = _intersection(time, [(-math.inf, start), (end, math.inf)])
    if not time:
        raise NoTime
    return time


def _left_out(document: Document, criteria: Mapping[str, Any]) -> list[Interval]:
    try:
        return _time(document, criteria) or []
    except UnknownSlice:  # an unknown slice excludes no time
        return []


def _is_in(event: Event, time: list[Interval], straddle: str) -> bool:
    if event.start is None:
        return time[0][0] == -math.inf
    if straddle == "start" or not event.lasts:
        return any(start <= event.start < end for start, end in time)
    return any(event.start < end and event.end > start for start, end in time)


# -- other criteria ---------------------------------------------------------------------------------------------


def _tests(document: Document, criteria: Mapping[str, Any]) -> list[Test]:
    """A test for each criterion except time."""
    tests: dict[str, Callable[[Any], Test]] = {
        "categories": lambda categories: lambda event: event.cat in categories,
        "phases": lambda phases: lambda event: event.ph in phases,
        "names": _name_test,
        "min_dur_ns": lambda least: lambda event: event.ph == "X" and event.lasts >= least,
        "threads": lambda keys: _track_test(document, lambda track: _answers(document, track, keys)),
        "processes": lambda keys: _track_test(
            document, lambda track: track[0] in keys or document.names.get(track[:1]) in keys
        ),
        "devices": lambda devices: _placement_test(document, lambda event: event.device in devices),
        "streams": lambda streams: _placement_test(document, lambda event: f"{event.device}/{event.stream}" in streams),
        "ranks": lambda ranks: lambda _: document.rank in ranks,
        "steps": lambda steps: lambda event: document.attributed.step(event) in steps,
    }
    return [make(criteria[name]) for name, make in tests.items() if criteria.get(name) is not None]


def _track_test(document: Document, holds: Callable[[Track], bool]) -> Test:
    tracks = {track for track in document.tracks if holds(track)}
    return lambda event: event.track in tracks


def _answers(document: Document, track: Track, keys: list[Key]) -> bool:
    names = {track[1], f"{track[0]}/{track[1]}", document.names.get(track, "")} - {""}
    return not names.isdisjoint(keys)


def _placement_test(document: Document, holds: Test) -> Test:
    tracks = {
        event.track for event in document.events if event.cat in GPU and event.device is not None and holds(event)
    }
    return lambda event: holds(event) if None not in (event.device, event.stream) else event.track in tracks


def _name_test(patterns: list[str]) -> Test:
    @cache
    def holds(name: str | None) -> bool:
        return name is not None and any(matches(pattern, name) for pattern in patterns)

    return lambda event: holds(event.name)


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name."""
    if pattern.startswith("re:"):
        regex = re.sub(r"(?<!\\)((?:\\\\)*)\$$", r"\1\\Z", pattern[3:])  # `$` of RE2 is the end of the text alone
        return re.search(regex, name) is not None
    signs = {"*": ".*", "?": "."}
    return re.fullmatch("".join(signs.get(sign, re.escape(sign)) for sign in pattern), name, re.DOTALL) is not None


# -- kept events ------------------------------------------------------------------------------------------------


def kept(document: Document, selection: Mapping[str, Any]) -> list[int]:
    """Return the indices of the events that a selection keeps.

    Raises:
        NoTime: the selection leaves no time.
        UnknownSlice: no slice has the name of an edge.
    """
    closure = {**dict.fromkeys(CLOSURE, True), **selection.get("closure", {})}
    time, straddle = time_of(document, selection), selection.get("straddle", "keep")
    tests, exclusions = _tests(document, selection), _tests(document, selection.get("exclude") or {})
    stays = document.happened
    if exclusions:
        stays = [event for event in stays if not any(test(event) for test in exclusions)]
    kept_indices = {
        event.index for event in stays if _is_in(event, time, straddle) and all(test(event) for test in tests)
    }
    matched_flows = (
        {event.index for event in stays if event.ph in ENDS and event.index in kept_indices}
        if closure["flows"]
        else set()
    )
    kept_indices -= matched_flows
    if closure["flows"]:
        stays = [event for event in stays if event.ph not in ENDS]
    spans = time
    if selection.get("steps") is not None:
        spans = _intersection(
            time, _union(span for number in selection["steps"] for span in document.steps.get(number, []))
        )
    if closure["annotations"] and spans != [(-math.inf, math.inf)]:
        around = (event for event in stays if event.ph == "X" and event.cat in ANNOTATIONS and event.start is not None)
        kept_indices |= {event.index for event in around if _surrounds(event, spans)}
    may_stay, links = {event.index for event in stays}, document.attributed
    if closure["kernels"]:
        launches = ((event.index, links.launch(event)) for event in links.work)
        kept_indices |= {index for index, launch in launches if launch and launch.index in kept_indices} & may_stay
    if closure["launches"]:
        work = [event for event in links.work if event.index in kept_indices]
        causes = [*map(links.launch, work), *map(links.operator, work)]
        kept_indices |= {event.index for event in causes if event} & may_stay
    if closure["annotations"]:
        kept_indices |= {
            annotation.index
            for event in document.happened
            if event.index in kept_indices
            for annotation in links.deciding_annotations(event)
        } & may_stay
    if closure["flows"]:
        left_out = {event.index for event in document.happened if any(test(event) for test in exclusions)}
        kept_indices |= _whole_flows(document, kept_indices, matched_flows, left_out)
    if closure["metadata"] and (kept_indices or selection.get("steps") is None):
        kept_indices |= _metadata(document, kept_indices)
    return sorted(kept_indices)


def _surrounds(event: Event, time: list[Interval]) -> bool:
    assert event.start is not None
    return any(event.start <= start and event.end >= end for start, end in time)


def _whole_flows(document: Document, kept_indices: set[int], matched_flows: set[int], left_out: set[int]) -> set[int]:
    def is_kept(end: Event) -> bool:
        if end.index in left_out:
            return False
        slices = document.stands_on(end)
        return any(event.index in kept_indices for event in slices) if slices else end.index in matched_flows

    return {end.index for ends in document.flows.values() if all(map(is_kept, ends)) for end in ends}


def _metadata(document: Document, kept_indices: set[int]) -> set[int]:
    kept_tracks = {document.events[index].track for index in kept_indices}
    emptied_tracks = document.tracks - kept_tracks
    emptied_pids = {pid for pid, _ in document.tracks} - {pid for pid, _ in kept_tracks}
    return {
        event.index
        for event in document.events
        if event.ph == "M"
        and event.track[0] not in emptied_pids
        and (event.name in OF_PROCESS or event.track not in emptied_tracks)
    }

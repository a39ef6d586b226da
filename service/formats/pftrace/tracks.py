"""The tracks of a trace as the processes and threads of its events."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from service.formats.pftrace.sequences import Budget
from service.formats.pftrace.written import place_described

NO_PROCESS = "Tracks"
"""The process of tracks that belong to none."""

_GPU = re.compile(r"GPU (\d{1,9})\Z")
_STREAM = re.compile(r"stream (-?\d{1,18})\s*\Z")
_OVERHEAD = re.compile(r"(?:CUPTI )?Overhead\Z")
_FIRST_LANE = 1_000_000_000  # above the thread ids of all systems
_DEPTH_MAX = 64
_GPU_ORDER = 5_000_000  # Kineto's order of processes: devices come last


@dataclass(frozen=True)
class Place:
    """The process and thread of a track's events.

    Attributes:
        number: of the place, in the order of first use.
        pid, tid: of its events; a text if the process is none of the system's.
        name: of the thread or the lane, if it is known.
        device, stream: if it is a stream of a GPU.
        is_overhead: whether the track has the profiler's own work.
        is_described: whether the track's description has the pid and tid: then its events have all that they had in
            the document.
    """

    number: int
    pid: int | str
    tid: int | str
    name: str | None = None
    device: int | None = None
    stream: int | None = None
    is_overhead: bool = False
    is_described: bool = False

    @cached_property
    def members(self) -> str:
        """The members of an event's JSON that say where it is."""
        return f'"pid":{_json(self.pid)},"tid":{_json(self.tid)}'


class Counter(NamedTuple):
    """A counter: its name, the factor of its values, and whether they are increments."""

    name: str
    factor: int
    is_incremental: bool


class _Track(NamedTuple):
    parent: int
    name: str
    pid: int | None
    tid: int | None
    process: str | None
    labels: str
    counter: Counter | None
    described: tuple[int | str, int | str] | None


class Tracks:
    """The tracks of a trace, by their descriptions, which come before their events.

    Args:
        budget: the memory that descriptions may take.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._tracks: dict[int, _Track] = {}
        self._processes: dict[int, int] = {}
        self._of_uuids: dict[int, Place] = {}
        self._of_streams: dict[tuple[int, int], Place] = {}
        self._numbers: dict[int, int] = {}
        self._lanes: dict[int, int] = {}
        self.places: list[Place] = []

    def __contains__(self, uuid: int) -> bool:
        return uuid in self._tracks

    def describe(self, track: Any, decode: Any) -> None:
        """Add the description of a track, or replace it."""
        name = track.name or track.static_name
        process, thread = (track.HasField(kind) for kind in ("process", "thread"))
        label = track.process.process_name if process else track.thread.thread_name if thread else b""
        self._budget.take(len(name) + len(label))
        counter = Counter(decode(name), track.counter.unit_multiplier or 1, track.counter.is_incremental)
        described = _Track(
            parent=track.parent_uuid,
            name=decode(track.thread.thread_name or name) if thread else decode(name),
            pid=track.thread.pid if thread else track.process.pid if process else None,
            tid=track.thread.tid if thread else None,
            process=decode(track.process.process_name or name) if process else None,
            labels=decode(b",".join(track.process.process_labels)) if process else "",
            counter=counter if track.HasField("counter") else None,
            described=place_described(decode(track.description)) if track.description else None,
        )
        if process:
            self._processes[track.process.pid] = track.uuid
        if self._tracks.get(track.uuid) != described:
            self._tracks[track.uuid] = described
            self._of_uuids.pop(track.uuid, None)

    def number(self, uuid: int) -> int:
        """Return the number of a track, in the order of first use."""
        return self._numbers.setdefault(uuid, len(self._numbers))

    def place(self, uuid: int) -> Place:
        """Return the place of a track's events."""
        place = self._of_uuids.get(uuid)
        if place is None:
            place = self._of_uuids[uuid] = self._new_place(uuid)
        return place

    def counter(self, uuid: int) -> Counter:
        """Return the counter of a track; one that is not described as a counter has its name."""
        track = self._tracks.get(uuid)
        return track.counter if track and track.counter else Counter(track.name if track else "", 1, False)

    def stream(self, device: int, stream: int, name: str | None) -> Place:
        """Return the place of a stream of a GPU."""
        place = self._of_streams.get((device, stream))
        if place is None:
            place = Place(len(self.places), device, stream, name or f"stream {stream}", device, stream)
            self._of_streams[device, stream] = place
            self.places.append(place)
        return place

    def process(self, name: str) -> Place:
        """Return the place of a process that is none of the system's, by its name."""
        place = Place(len(self.places), name, 0)
        self.places.append(place)
        return place

    def name_events(self) -> Iterator[str]:
        """Yield the events that name processes and threads, as JSON."""
        devices = {place.device for place in self.places if place.device is not None}
        others = {place.pid for place in self.places if place.device is None} - devices
        for track in self._tracks.values():
            if track.process is None or track.pid is None:
                continue
            if track.pid in others or not _GPU.match(track.process):
                yield _name_event("process_name", track.pid, 0, name=track.process)
                yield _name_event("process_labels", track.pid, 0, labels=track.labels or "CPU")
        for device in sorted(devices):
            yield _name_event("process_name", device, 0, name=f"GPU {device}")
            yield _name_event("process_labels", device, 0, labels=f"GPU {device}")
            yield _name_event("process_sort_index", device, 0, sort_index=_GPU_ORDER + device)
        for place in self.places:
            if place.name:
                yield _name_event("thread_name", place.pid, place.tid, name=place.name)

    def _new_place(self, uuid: int) -> Place:
        track = self._tracks.get(uuid)
        if track and track.described:
            place = Place(len(self.places), *track.described, is_described=True)
            self.places.append(place)
            return place
        process = self._process_of(track) if track else None
        gpu = _GPU.match((process.process or process.name) if process else "")
        stream = _STREAM.match(track.name) if track else None
        if gpu and stream and track:
            return self.stream(int(gpu[1]), int(stream[1]), track.name)
        is_overhead = bool(process and _OVERHEAD.match(process.process or process.name))
        pid = self._pid_of(track) if track else None
        tid = track.tid if track else None
        if tid is None:
            tid = _FIRST_LANE + self._lanes.setdefault(uuid, len(self._lanes))
        place = Place(
            len(self.places),
            NO_PROCESS if pid is None else pid,
            tid,
            track.name if track else None,
            is_overhead=is_overhead,
        )
        self._budget.take(0)
        self.places.append(place)
        return place

    def _process_of(self, track: _Track) -> _Track | None:
        """Return the track of the process around a track: its outermost ancestor, or that of its pid."""
        ancestors = [*self._ancestors(track)]
        if len(ancestors) == 1 and track.pid is not None:
            return self._tracks.get(self._processes.get(track.pid, -1), track)
        return ancestors[-1]

    def _pid_of(self, track: _Track) -> int | None:
        return next((ancestor.pid for ancestor in self._ancestors(track) if ancestor.pid is not None), None)

    def _ancestors(self, track: _Track) -> Iterator[_Track]:
        """Yield a track, its parent and so on; parents that form a circle end."""
        at: _Track | None = track
        for _ in range(_DEPTH_MAX):
            if at is None:
                return
            yield at
            at = self._tracks.get(at.parent) if at.parent else None


def _name_event(event: str, pid: int | str, tid: int | str, **arguments: str | int) -> str:
    """Return a metadata event as JSON."""
    return f'{{"ph":"M","name":"{event}","pid":{_json(pid)},"tid":{_json(tid)},"args":{_json(arguments)}}}'


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()

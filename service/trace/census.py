"""What a trace holds, counted event by event: the first thing that anyone asks of it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from service.trace.rank import distributed_info, rank_of, whole_number, world_size_of
from service.trace.time import Microseconds, is_time, plus, to_ns

GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"})
"""Categories of work on a device; the capital ones were written before April 2022."""

TIMELESS_PHASES = frozenset({"M", "s", "t", "f", "C"})
"""Metadata, flows and counters: they describe or join what happened, and do not stretch a trace's bounds."""

_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_STREAM = re.compile(r"(?:stream )?(\d{1,18}) ?")  # as a tid, before April 2022
Key = str | int
Track = tuple[Key, Key]
AnyKey = TypeVar("AnyKey", bound=tuple[Key, ...])


@dataclass(slots=True)
class Extent:
    """A number of events and the time they span, in the trace's own µs."""

    events: int = 0
    start: Microseconds | None = None
    end: Microseconds | None = None

    def stretch(self, start: Microseconds, end: Microseconds) -> None:
        """Make the span reach from `start` to `end`."""
        if self.start is None or start < self.start:
            self.start = start
        if self.end is None or end > self.end:
            self.end = end

    def bounds(self) -> dict[str, int] | None:
        """``start_ns`` and ``end_ns``, or None without a single time."""
        if self.start is None or self.end is None:
            return None
        return {"start_ns": to_ns(self.start), "end_ns": to_ns(self.end)}


@dataclass(frozen=True)
class Step:
    """One iteration as the profiler's schedule marked it on the host; times in ns."""

    number: int
    name: str
    start_ns: int
    end_ns: int


@dataclass
class Summary:
    """What ingest found in a trace; times in ns, in the trace's own clock (`base_ns` is its zero since the epoch)."""

    format: str
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    bounds: dict[str, int] | None = None
    base_ns: int | None = None
    events: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    threads: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    health: dict[str, Any] = field(default_factory=dict)


class Census:
    """Counts the events of one trace as they stream by; its size grows with the tracks, not with the events."""

    def __init__(self) -> None:
        self.seen = 0
        self.refused = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._tracks: Counter[Track] = Counter()
        self._names: dict[tuple[str, *tuple[Key, ...]], str] = {}
        self._all = Extent()
        self._devices: dict[Key, Extent] = {}
        self._streams: set[Track] = set()
        self._steps: list[Step] = []
        self._untimed = 0

    def add(self, event: Any) -> None:
        """Count one element of the events array; one that is no object is refused, and counted so."""
        self.seen += 1
        if type(event) is not dict:
            self.refused += 1
            return
        phase, category = _text(event.get("ph")), _text(event.get("cat"))
        self._counts[phase, category] += 1
        if phase == "M":
            self._name(event)
            return
        track = _key(event.get("pid")), _key(event.get("tid"))
        self._tracks[track] += 1
        if phase not in TIMELESS_PHASES:
            self._time(event, phase, category, track)

    def _time(self, event: dict[str, Any], phase: str, category: str, track: Track) -> None:
        start, duration = event.get("ts"), event.get("dur", 0)
        if not is_time(start) or not is_time(duration):
            self._untimed += 1
            return
        end = plus(start, duration) if duration > 0 else start
        self._all.stretch(start, end)
        if category in GPU_CATEGORIES:
            self._count_gpu_work(event, track, start, end)
        elif phase == "X" and category != "gpu_user_annotation":
            name = event.get("name")
            if type(name) is str and (step := _STEP.fullmatch(name)):
                self._steps.append(Step(int(step[1]), name, to_ns(start), to_ns(end)))

    def _count_gpu_work(self, event: dict[str, Any], track: Track, start: Microseconds, end: Microseconds) -> None:
        args = event.get("args")
        told = args if type(args) is dict else {}
        device, stream = _key(told.get("device", track[0])), _key(told.get("stream", track[1]))
        if type(stream) is str and (named := _STREAM.fullmatch(stream)):
            stream = int(named[1])
        extent = self._devices.get(device)
        if extent is None:
            extent = self._devices[device] = Extent()
        extent.events += 1
        extent.stretch(start, end)
        self._streams.add((device, stream))

    def _name(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        if type(args) is not dict:
            return
        pid, tid = _key(event.get("pid")), _key(event.get("tid"))
        match event.get("name"):
            case "process_name" if type(args.get("name")) is str:
                self._names["process", pid] = args["name"]
            case "process_labels" if type(args.get("labels")) is str:
                self._names["labels", pid] = args["labels"]
            case "thread_name" if type(args.get("name")) is str:
                self._names["thread", pid, tid] = args["name"]

    def summary(self, envelope: Mapping[str, Any], *, file_name: str, packed: str) -> Summary:
        """All that was counted, with what the envelope tells.

        Args:
            envelope: the document's keys beside its events.
            file_name: the trace's name; it may tell the rank.
            packed: the file's format.
        """
        base, host = envelope.get("baseTimeNanoseconds"), envelope.get("host_name")
        backend = distributed_info(envelope).get("backend")
        return Summary(
            format=packed,
            rank=rank_of(envelope, file_name),
            world_size=world_size_of(envelope),
            backend=backend if isinstance(backend, str) else None,
            host=host if isinstance(host, str) else None,
            bounds=self._all.bounds(),
            base_ns=base if type(base) is int and 0 <= base < 1 << 63 else None,
            events={"in": self.seen, "kept": self.seen - self.refused, "refused": self.refused},
            counts={f"{ph}|{cat}": n for (ph, cat), n in sorted(self._counts.items())},
            processes=self._processes(),
            threads=self._threads(),
            devices=self._device_facts(envelope.get("deviceProperties")),
            streams=[f"{device}/{stream}" for device, stream in _in_order(self._streams)],
            steps=[asdict(step) for step in sorted(self._steps, key=lambda s: (s.start_ns, s.number))],
            health={"notes": self._notes()},
        )

    def _processes(self) -> list[dict[str, Any]]:
        events: Counter[Key] = Counter()
        for (pid, _), n in self._tracks.items():
            events[pid] += n
        return [
            {
                "pid": pid,
                "name": self._names.get(("process", pid)),
                "labels": self._names.get(("labels", pid)),
                "events": n,
            }
            for (pid,), n in _counted_in_order({(pid,): n for pid, n in events.items()})
        ]

    def _threads(self) -> list[dict[str, Any]]:
        return [
            {"pid": pid, "tid": tid, "name": self._names.get(("thread", pid, tid)), "events": n}
            for (pid, tid), n in _counted_in_order(self._tracks)
        ]

    def _device_facts(self, properties: object) -> list[dict[str, Any]]:
        told = {
            _key(one["id"]): one
            for one in (properties if isinstance(properties, list) else [])
            if isinstance(one, Mapping) and "id" in one
        }
        facts = []
        for (device,) in _in_order({(device,) for device in {*told, *self._devices}}):
            one, extent = told.get(device, {}), self._devices.get(device, Extent())
            name, memory = one.get("name"), whole_number(one.get("totalGlobalMem"))
            facts.append(
                {
                    "id": device,
                    "name": name if isinstance(name, str) and name else None,
                    "memory_bytes": memory,
                    "events": extent.events,
                    "bounds": extent.bounds(),
                }
            )
        return facts

    def _notes(self) -> list[dict[str, str]]:
        notes = []
        if self.refused:
            notes.append({"code": "not_an_event", "detail": f"{self.refused} elements are no objects."})
        if self._untimed:
            notes.append({"code": "no_time", "detail": f"{self._untimed} events have no time that is a number."})
        return notes


def _text(value: object) -> str:
    return value if type(value) is str else ""


def _key(value: object) -> Key:
    """A pid or tid as an integer of 64 bits or a string, the two that all JSON readers keep; "" if it is neither."""
    if type(value) is str or (type(value) is int and -(1 << 63) <= value < 1 << 63):
        return value
    return str(value) if isinstance(value, int | Decimal) else ""


def _in_order(keys: Iterable[AnyKey]) -> list[AnyKey]:
    """Integers before strings, each in their own order."""
    return sorted(keys, key=lambda key: [(type(part) is str, part) for part in key])


def _counted_in_order(counts: dict[AnyKey, int]) -> list[tuple[AnyKey, int]]:
    return [(key, counts[key]) for key in _in_order(counts)]

"""Census of a trace: its summary, from its events while they are written."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from service.store.anomalies import note_anomalies
from service.store.event_classes import EventClasses
from service.store.folder import EVENTS
from service.store.parts import METADATA, Flags, Ints, Part, Parts, rows_at
from service.store.step_annotations import StepAnnotations
from service.store.tally import Tally
from service.store.tally_sums import Extent, TallySums, Track
from service.trace.health import Health
from service.trace.rank import distributed_info, merged_ranks, rank_of, whole_number, world_size_of
from service.trace.summary import (
    Device,
    Key,
    Summary,
    Thread,
    key_of,
)
from service.trace.text import without_halves

_ROWS_AT_ONCE = 10_000

_NAMING = {"process_name": "name", "process_labels": "labels", "thread_name": "name"}
"""Metadata events that name a process or thread, and the argument that holds the name."""

_NAME_COLUMNS = ("name", "pid", "pid_text", "tid", "tid_text", "args", "position")


class Census:
    """The census of a trace. Takes all of its events, in order of time.

    Args:
        classes: the classes of the events.
    """

    def __init__(self, classes: EventClasses) -> None:
        self._tally = Tally(classes)
        self._names: dict[tuple[Key, ...], tuple[int, str]] = {}
        self._steps = StepAnnotations()

    def add(self, part: Part) -> None:
        """Add the next events, at least one."""
        self._tally.add(part)
        for kind, *row in _rows(part, _NAME_COLUMNS, part.which("ph", METADATA) & part.has("args")):
            if kind in _NAMING:
                self._add_name(kind, *row)
        self._steps.add(part)

    def _add_name(
        self, kind: str, pid: int | None, pid_text: str | None, tid: int | None, tid_text: str | None, args: str,
        position: int,
    ) -> None:  # fmt: skip
        """Note the name in a metadata event; of several names, the last one in the file counts."""
        arguments = json.loads(args, parse_int=float)  # integers may be longer than Python accepts
        name = arguments.get(_NAMING[kind]) if isinstance(arguments, dict) else None
        if isinstance(name, str):
            key = (kind, key_of(pid, pid_text)) + ((key_of(tid, tid_text),) if kind == "thread_name" else ())
            before, _ = self._names.get(key, (position, ""))
            if before <= position:
                self._names[key] = position, without_halves(name)

    def summary(
        self,
        folder: Path,
        envelope: Mapping[str, Any],
        health: Health,
        unlaunched: Ints,
        *,
        file_name: str,
        packed: str | None,
    ) -> Summary:
        """Return the summary of the trace.

        Args:
            folder: folder of its columns, which are written.
            envelope: the document's members except for its events.
            health: the trace's health so far, to which anomalies of the events are added.
            unlaunched: rows of the work that has no launch, in ascending order.
            file_name: name of the trace's file, which may contain the rank.
            packed: format of the trace's file, or None if there is no file.

        Raises:
            ExportFailed: the columns can't be read.
        """
        host, backend = envelope.get("host_name"), distributed_info(envelope).get("backend")
        sums = TallySums(self._tally.rows())
        processes: Counter[Key] = Counter()
        for (pid, _), track in sums.tracks.items():
            processes[pid] += track.events
        summary = Summary(
            format=packed,
            rank=rank_of(envelope, file_name),
            world_size=world_size_of(envelope),
            backend=backend if isinstance(backend, str) else None,
            host=host if isinstance(host, str) else None,
            bounds=sums.timed.bounds,
            base_ns=whole_number(envelope.get("baseTimeNanoseconds")),
            counts={f"{ph}|{cat}": events for (ph, cat), events in sorted(sums.counts.items())},
            processes=[
                {
                    "pid": pid,
                    "name": self._name("process_name", pid),
                    "labels": self._name("process_labels", pid),
                    "events": processes[pid],
                }
                for pid in sorted(processes, key=lambda pid: _ordered([pid]))
            ],
            threads=[
                _thread(pid, tid, self._name("thread_name", pid, tid), sums.tracks[pid, tid])
                for pid, tid in sorted(sums.tracks, key=_ordered)
            ],
            devices=_devices(sums.devices, envelope.get("deviceProperties")),
            streams=[f"{device}/{stream}" for device, stream in sorted(sums.streams)],
            steps=self._steps.steps(),
            ranks=merged_ranks(envelope),
        )
        with closing(Parts(folder / EVENTS)) as parts:
            note_anomalies(parts, sums, unlaunched, envelope, summary, health)
        return summary

    def _name(self, *key: Key) -> str | None:
        return self._names[key][1] if key in self._names else None


def _rows(part: Part, columns: Sequence[str], chosen: Flags) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns of the chosen events."""
    rows = np.flatnonzero(chosen)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        yield from rows_at(part, columns, rows[first : first + _ROWS_AT_ONCE])


def _thread(pid: Key, tid: Key, name: str | None, track: Track) -> Thread:
    return {
        "pid": pid,
        "tid": tid,
        "name": name,
        "events": track.events,
        "device": track.device,
        "host": track.host,
    }


def _devices(work: Mapping[int, Extent], properties: object) -> list[Device]:
    described = {
        entry["id"]: entry
        for entry in (properties if isinstance(properties, list) else [])
        if isinstance(entry, Mapping) and type(entry.get("id")) is int and abs(entry["id"]) < 1 << 63
    }
    devices: list[Device] = []
    for device in sorted({*described, *work}):
        fields, extent = described.get(device, {}), work.get(device, Extent())
        name, memory = fields.get("name"), whole_number(fields.get("totalGlobalMem"))
        devices.append(
            {
                "id": device,
                "name": name if isinstance(name, str) and name else None,
                "memory_bytes": memory,
                "events": extent.events,
                "bounds": extent.bounds,
            }
        )
    return devices


def _ordered(track: Iterable[Key]) -> list[tuple[bool, Key]]:
    """Return a sort key by which integers come before strings."""
    return [(type(part) is str, part) for part in track]

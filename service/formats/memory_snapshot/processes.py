"""Processes of a memory snapshot's events: their names, their annotations and their clock."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.formats.events import MICROSECONDS, events
from service.formats.memory_snapshot.layout import Ints
from service.formats.memory_snapshot.snapshot import Annotation, Trace

BLOCKS_PID, ANNOTATIONS_PID = 1_000_000, 2_000_000
"""Offsets from a device's number to the pid of its blocks and of its annotations."""

_PROCESSES = ((0, "memory"), (BLOCKS_PID, "largest blocks"), (ANNOTATIONS_PID, "annotations"))


class Clock(NamedTuple):
    """Zero of the trace's clock in µs since 1970; None if the snapshot has no times."""

    zero_us: int | None

    def times(self, times_us: Ints) -> Ints:
        """Return the times of entries in ns; if times are unknown, entry n is at n µs."""
        times = np.arange(len(times_us)) if self.zero_us is None else times_us - self.zero_us
        np.maximum.accumulate(times, out=times)
        times *= 1000
        return times


def metadata(traces: Sequence[Trace]) -> pa.RecordBatch:
    """Return the events that name processes."""
    names = {trace.device + pid: f"GPU {trace.device} {what}" for trace in traces for pid, what in _PROCESSES}
    return events(
        len(names),
        ph="M",
        name="process_name",
        pid=np.array([*names], np.int64),
        tid=np.zeros(len(names), np.int64),
        args=pa.array([json.dumps({"name": name}) for name in names.values()], pa.string()),
    )


def annotation_events(annotations: Sequence[Annotation], clock: Clock) -> pa.RecordBatch:
    """Return annotations as slices; those without a begin or an end are instants.

    If the entries have no times, the first annotation is at 0.
    """
    open_: dict[tuple[int, str], list[int]] = {}
    rows: list[tuple[str, int, str, int, int | None]] = []
    zero = min((note.time for note in annotations), default=0) if clock.zero_us is None else clock.zero_us
    for note in annotations:
        pending = open_.setdefault((note.device, note.name), [])
        if note.begins:
            pending.append(note.time)
        elif pending:
            start = pending.pop()
            rows.append(("X", note.device, note.name, start, max(note.time - start, 0)))
        else:
            rows.append(("i", note.device, note.name, note.time, None))
    rows += [("i", device, name, start, None) for (device, name), starts in open_.items() for start in starts]
    phases, devices, names, starts, durations = zip(*rows, strict=True) if rows else ([], [], [], [], [])
    return events(
        len(rows),
        ph=pa.array(phases, pa.string()).dictionary_encode(),
        cat="user_annotation",
        name=pa.array(names, pa.string()).dictionary_encode(),
        ts=(np.array(starts, np.int64) - zero) * 1000,
        dur=pa.array([None if duration is None else duration * 1000 for duration in durations], pa.int64()),
        digits=MICROSECONDS,
        pid=np.array(devices, np.int64) + ANNOTATIONS_PID,
        tid=np.zeros(len(rows), np.int64),
    )

"""Reader of a memory snapshot: its events, and the document around them."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from service.formats.memory_snapshot import layout
from service.formats.memory_snapshot.contents import contents_of
from service.formats.memory_snapshot.events import DeviceEvents
from service.formats.memory_snapshot.opcodes import unpickled
from service.formats.memory_snapshot.processes import Clock, annotation_events, metadata
from service.formats.memory_snapshot.replay import Held, replay
from service.formats.memory_snapshot.snapshot import Snapshot, Trace
from service.formats.memory_snapshot.stacks import Stacks
from service.trace.errors import NotATrace
from service.trace.health import Health

MEMBER = "memorySnapshot"
"""Member of the document that has the stacks, segments and settings."""

_SEGMENTS_MAX = 50_000
_EMPTY_EVENTS = '"traceEvents": []'


class SnapshotReader:
    """The `TraceReader` of memory snapshots.

    Args:
        chunks: the pickle's bytes, in order.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.health = Health()
        self.kept = 0
        self.refused = 0
        self._chunks = chunks
        self._members: dict[str, Any] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events: by device, in the order of the trace.

        Raises:
            IngestError: the pickle has opcodes or values that no snapshot has, or ends early.
            NotATrace: the pickle is not a memory snapshot.
        """
        for batch in self._events():
            self.kept += len(batch)
            yield batch

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the document with the stacks, segments and settings, and its members."""
        text = json.dumps(self._members, separators=(",", ":"))
        return f"{text[:-1]}, {_EMPTY_EVENTS}}}".encode(), self._members

    def _events(self) -> Iterator[pa.RecordBatch]:
        snapshot = self._read()
        clock = Clock(self._zero(snapshot))
        stacks = Stacks(snapshot.frames, snapshot.stacks)
        traces = _traces_of_all_devices(snapshot)
        if not traces:
            raise NotATrace("The memory snapshot has no device: nothing was allocated or recorded.")
        devices = []
        yield metadata(traces)
        snapshot.traces.clear()  # each trace is freed once its events are made
        while traces:
            trace = traces.pop(0)
            result = replay(trace, held_blocks(snapshot, trace.device), reserved_bytes(snapshot, trace.device))
            for what, count in result.contradictions.items():
                self.health.add("replay_contradiction", count=count, text=f"GPU {trace.device}: {what}: {count}")
            devices.append(
                {
                    "device": trace.device,
                    "entries": len(trace.actions),
                    **dict(zip(("start_active", "start_allocated", "start_reserved"), result.start, strict=True)),
                }
            )
            events = DeviceEvents(trace, result, snapshot.actions, stacks, clock)
            del trace, result
            yield from events.batches()
            del events
        yield annotation_events(snapshot.annotations, clock)
        self._members = {
            "schemaVersion": 1,
            **({} if clock.zero_us is None else {"baseTimeNanoseconds": clock.zero_us * 1000}),
            MEMBER: {
                "version": 1,
                "devices": devices,
                "segments": _segments_of(snapshot),
                "settings": snapshot.settings,
                **stacks.as_members(),
            },
        }

    def _read(self) -> Snapshot:
        reader, rest = unpickled(self._chunks)
        if rest:
            self.health.add("envelope", offset=reader.offset, text="bytes after the end of the pickle")
        return contents_of(reader)

    def _zero(self, snapshot: Snapshot) -> int | None:
        """Return the zero of the clock; None, with a note, if entries have no times."""
        times = [trace.times for trace in snapshot.traces if len(trace.times)]
        untimed = sum(int((part < 0).sum()) for part in times)
        if untimed:
            self.health.add("entry_numbers", count=untimed)
            return None
        backwards = sum(int((np.diff(part) < 0).sum()) for part in times)
        if backwards:
            self.health.add("unordered_times", count=backwards)
        starts = [int(part.min()) for part in times] + [note.time for note in snapshot.annotations]
        return min(starts, default=0)


def _traces_of_all_devices(snapshot: Snapshot) -> list[Trace]:
    """Return the traces of devices with entries or segments; a device without entries has an empty trace."""
    with_segments = {*np.unique(snapshot.segments.rows[:, layout.SEG_DEVICE]).tolist()}
    traces = {trace.device: trace for trace in snapshot.traces if len(trace.actions) or trace.device in with_segments}
    nothing = np.zeros(0, np.int64)
    for device in sorted(with_segments - traces.keys()):
        codes, stacks = np.zeros(0, np.uint8), np.zeros(0, np.int32)
        traces[device] = Trace(device, codes, nothing, nothing, nothing, nothing, stacks)
    return [*traces.values()]


def held_blocks(snapshot: Snapshot, device: int) -> Held:
    """Return the active blocks of a device at the end."""
    segments, blocks = snapshot.segments.rows, snapshot.blocks
    chosen = (segments[blocks.segments, layout.SEG_DEVICE] == device) & blocks.active
    return Held(
        blocks.addresses[chosen],
        blocks.requested[chosen],
        blocks.pending[chosen],
        blocks.stacks[chosen],
        segments[blocks.segments[chosen], layout.SEG_STREAM],
    )


def reserved_bytes(snapshot: Snapshot, device: int) -> int:
    """Return the bytes of all segments of a device at the end."""
    rows = snapshot.segments.rows
    return int(rows[rows[:, layout.SEG_DEVICE] == device, layout.SEG_TOTAL].sum())


def _segments_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the largest segments as JSON values, with the sums of their blocks."""
    rows, blocks = snapshot.segments.rows, snapshot.blocks
    count = len(rows)
    free = ~blocks.active
    sums = {
        "blocks": np.bincount(blocks.segments, minlength=count),
        "free_blocks": np.bincount(blocks.segments[free], minlength=count),
    }
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, blocks.segments[free], blocks.sizes[free])
    active, requested = (np.zeros(count, np.int64) for _ in range(2))
    np.add.at(active, blocks.segments[~free], blocks.sizes[~free])
    np.add.at(requested, blocks.segments[~free], blocks.requested[~free])
    chosen = np.sort(np.argsort(-rows[:, layout.SEG_TOTAL], kind="stable")[:_SEGMENTS_MAX])
    types = rows[chosen, layout.SEG_TYPE].tolist()
    return {
        "device": rows[chosen, layout.SEG_DEVICE].tolist(),
        "address": [hex(address & (1 << 64) - 1) for address in rows[chosen, layout.SEG_ADDRESS].tolist()],
        "stream": rows[chosen, layout.SEG_STREAM].tolist(),
        "type": [snapshot.types.get(number) for number in types],
        "expandable": (rows[chosen, layout.SEG_EXPANDABLE] != 0).tolist(),
        "total": rows[chosen, layout.SEG_TOTAL].tolist(),
        "active": active[chosen].tolist(),
        "requested": requested[chosen].tolist(),
        "largest_free": largest[chosen].tolist(),
        **{name: values[chosen].tolist() for name, values in sums.items()},
        "stack": rows[chosen, layout.SEG_STACK].tolist(),
    }

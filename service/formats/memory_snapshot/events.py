"""Events of a memory snapshot as columns: allocations and frees in the form of PyTorch's profiler, and what surrounds them."""

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.formats.memory_snapshot.contents import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    MARKER,
    OOM,
    Annotation,
    Trace,
)
from service.formats.memory_snapshot.layout import Ints
from service.formats.memory_snapshot.replay import Replay
from service.formats.memory_snapshot.stacks import Stacks
from service.formats.memory_snapshot.text import Texts, arguments
from service.streaming.schema import SCHEMA

MEMORY, OUT_OF_MEMORY, ALIVE = "[memory]", "[OutOfMemory]", "[alive at start]"
"""Names of events; the first two are those of PyTorch's profiler."""
CATEGORY, SNAPSHOT, BLOCK = "cpu_instant_event", "memory_snapshot", "memory_block"
"""Categories of events: as in the profiler's traces, of other entries, and of blocks."""
BLOCKS_PID, ANNOTATIONS_PID = 1_000_000, 2_000_000
"""What is added to a device's number for the process of its blocks and of its annotations."""

_ROWS = 1 << 15
_LARGEST = 2000
_POINTS = 10_000
_CUDA = 1
_INSTANT = '{"s":"t"}'
_NAMES_MAX = 200
_KEYS = Texts(
    [
        f"{json.dumps(key)}: ".encode()
        for key in (
            *("Device Type", "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved"),
            *("device", "stream", "Device Free"),
        )
    ]
)
_TYPE, _ID, _ADDRESS, _BYTES, _ALLOCATED, _RESERVED, _DEVICE, _STREAM, _FREE = (1 << bit for bit in range(9))
_PLACED = _TYPE | _ID | _DEVICE | _STREAM
_CHANGE = _PLACED | _ADDRESS | _BYTES | _ALLOCATED | _RESERVED
_FAILURE = _PLACED | _BYTES | _ALLOCATED | _RESERVED | _FREE


class Clock(NamedTuple):
    """Zero of the trace's clock in µs since 1970; None if the snapshot has no times."""

    zero_us: int | None

    def times(self, times_us: Ints) -> Ints:
        """Return the times of entries in ns; the number of an entry stands for an unknown time in µs."""
        times = np.arange(len(times_us)) if self.zero_us is None else times_us - self.zero_us
        return np.maximum.accumulate(times) * 1000 if len(times) else times


def metadata(traces: Sequence[Trace]) -> pa.RecordBatch:
    """Return the events that name processes."""
    names = {trace.device + pid: f"GPU {trace.device} {what}" for trace in traces for pid, what in _PROCESSES}
    return _batch(
        {
            "ph": _word("M", len(names)),
            "name": _word("process_name", len(names)),
            "pid": np.array([*names], np.int64),
            "tid": np.zeros(len(names), np.int64),
            "args": pa.array([json.dumps({"name": name}) for name in names.values()], pa.string()),
        },
        len(names),
    )


_PROCESSES = ((0, "memory"), (BLOCKS_PID, "largest blocks"), (ANNOTATIONS_PID, "annotations"))


class DeviceEvents:
    """Events of one device.

    Args:
        trace: its trace.
        replay: its replay.
        actions: names of the actions, by code.
        stacks: stacks of the snapshot.
        clock: clock of the snapshot.
    """

    def __init__(self, trace: Trace, replay: Replay, actions: Sequence[str], stacks: Stacks, clock: Clock) -> None:
        self._trace = trace
        self._replay = replay
        self._stacks = stacks
        self._tails = stacks.tails()
        self._times = clock.times(trace.times)
        self._names = pa.array(
            [
                *(MEMORY if code in (ALLOC, FREE_COMPLETED) else OUT_OF_MEMORY if code == OOM else name[:_NAMES_MAX]
                for code, name in enumerate(actions)),
            ],
            pa.string(),
        )  # fmt: skip

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the blocks that are alive at the start, the entries, counters, and the largest blocks."""
        yield from self._alive()
        yield from self._entries()
        yield self._counters()
        yield self._largest()

    def _alive(self) -> Iterator[pa.RecordBatch]:
        blocks = self._replay.blocks
        at_start = np.flatnonzero(blocks.at_start)
        for first in range(0, len(at_start), _ROWS):
            rows = at_start[first : first + _ROWS]
            nothing = np.zeros(len(rows), np.int64)
            columns = (blocks.addresses[rows], blocks.sizes[rows], nothing, nothing, blocks.streams[rows])
            args = self._args(*columns, blocks.stacks[rows], np.full(len(rows), _PLACED | _ADDRESS | _BYTES))
            yield self._instants(
                _word(ALIVE, len(rows)), _word(SNAPSHOT, len(rows)), self._start, columns[4], columns[1], args
            )

    def _entries(self) -> Iterator[pa.RecordBatch]:
        trace, replay = self._trace, self._replay
        merged = np.zeros(len(trace.actions), bool)  # requests directly before the completion of the same free
        merged[:-1] = (trace.actions[:-1] == FREE_REQUESTED) & (trace.actions[1:] == FREE_COMPLETED)
        merged[:-1] &= trace.addresses[:-1] == trace.addresses[1:]
        chosen = np.flatnonzero(~merged)
        flags = np.full(256, _CHANGE)
        flags[OOM], flags[MARKER] = _FAILURE, _PLACED
        is_memory = np.zeros(256, np.int32)
        is_memory[[ALLOC, FREE_COMPLETED, OOM]] = 1
        categories = pa.array([SNAPSHOT, CATEGORY])
        for first in range(0, len(chosen), _ROWS):
            rows = chosen[first : first + _ROWS]
            actions, streams = trace.actions[rows], trace.streams[rows]
            sizes = np.where(actions == FREE_COMPLETED, -trace.sizes[rows], trace.sizes[rows])
            args = self._args(
                *(trace.addresses[rows], sizes, replay.active[rows], replay.reserved[rows], streams),
                *(trace.stacks[rows].astype(np.int64), flags[actions]),
            )
            names = pa.DictionaryArray.from_arrays(pa.array(actions.astype(np.int32)), self._names)
            kinds = pa.DictionaryArray.from_arrays(pa.array(is_memory[actions]), categories)
            yield self._instants(names, kinds, self._times[rows], streams, sizes, args)

    def _args(
        self, addresses: Ints, sizes: Ints, active: Ints, reserved: Ints, streams: Ints, stacks: Ints, flags: Ints
    ) -> pa.Array:
        device, types = np.full(len(sizes), self._trace.device), np.full(len(sizes), _CUDA)
        columns = (types, device, addresses, sizes, active, reserved, device, streams, addresses)
        return arguments(np.stack(columns, 1), flags, _KEYS, stacks, self._tails)

    def _instants(
        self, names: pa.Array, categories: pa.Array, times: Ints | int, streams: Ints, sizes: Ints, args: pa.Array
    ) -> pa.RecordBatch:
        count = len(sizes)
        device = np.full(count, self._trace.device)
        return _batch(
            {
                "ph": _word("i", count),
                "cat": categories,
                "name": names,
                "pid": device,
                "tid": streams,
                "ts_ns": np.broadcast_to(times, count),
                "device": device,
                "stream": streams,
                "bytes": sizes,
                "args": args,
                "rest": pa.array([_INSTANT]).take(pa.array(np.zeros(count, np.int32))),
            },
            count,
        )

    @property
    def _start(self) -> int:
        return int(self._times[0]) if len(self._times) else 0

    @property
    def _end(self) -> int:
        return int(self._times[-1]) if len(self._times) else 0

    def _counters(self) -> pa.RecordBatch:
        """Return counters of active and reserved bytes: the start, and at most `_POINTS` of the entries' values."""
        replay = self._replay
        rows = _thinned(replay.active, _POINTS)
        times = [self._start, *self._times[rows].tolist()]
        active = [replay.start[0], *replay.active[rows].tolist()]
        reserved = [replay.start[2], *replay.reserved[rows].tolist()]
        args = [
            f'{{"active bytes": {one}, "reserved bytes": {other}}}'
            for one, other in zip(active, reserved, strict=True)
        ]
        return _batch(
            {
                "ph": _word("C", len(times)),
                "name": _word("memory", len(times)),
                "pid": np.full(len(times), self._trace.device),
                "tid": np.zeros(len(times), np.int64),
                "ts_ns": np.array(times, np.int64),
                "args": pa.array(args, pa.string()),
            },
            len(times),
        )

    def _largest(self) -> pa.RecordBatch:
        """Return the largest blocks as slices; those that overlap are on different threads."""
        blocks = self._replay.blocks
        chosen = np.argsort(-blocks.sizes, kind="stable")[:_LARGEST]
        chosen = chosen[np.argsort(blocks.begins[chosen], kind="stable")]
        padded = np.append(self._times, [self._end, self._start])  # at -2 and -1: never freed, and alive at the start
        starts = padded[np.where(blocks.begins[chosen] >= 0, blocks.begins[chosen], -1)]
        ends = padded[np.where(blocks.ends[chosen] >= 0, blocks.ends[chosen], -2)]
        stacks, count = blocks.stacks[chosen], len(chosen)
        nothing = np.zeros(count, np.int64)
        sites = [self._stacks.site(number) or "block" for number in stacks.tolist()]
        args = self._args(
            *(blocks.addresses[chosen], blocks.sizes[chosen], nothing, nothing, blocks.streams[chosen], stacks),
            np.full(count, _PLACED | _ADDRESS | _BYTES),
        )
        device = np.full(count, self._trace.device)
        return _batch(
            {
                "ph": _word("X", count),
                "cat": _word(BLOCK, count),
                "name": pa.array(sites, pa.string()).dictionary_encode(),
                "pid": device + BLOCKS_PID,
                "tid": _lanes(starts.tolist(), ends.tolist()),
                "ts_ns": starts,
                "dur_ns": ends - starts,
                "device": device,
                "stream": blocks.streams[chosen],
                "bytes": blocks.sizes[chosen],
                "args": args,
            },
            count,
        )


def annotation_events(annotations: Sequence[Annotation], clock: Clock) -> pa.RecordBatch:
    """Return annotations as slices; those without a begin or an end are instants."""
    open_: dict[tuple[int, str], list[int]] = {}
    rows: list[tuple[str, int, str, int, int | None]] = []
    zero = clock.zero_us or 0
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
    return _batch(
        {
            "ph": pa.array(phases, pa.string()).dictionary_encode(),
            "cat": _word("user_annotation", len(rows)),
            "name": pa.array(names, pa.string()).dictionary_encode(),
            "pid": np.array(devices, np.int64) + ANNOTATIONS_PID,
            "tid": np.zeros(len(rows), np.int64),
            "ts_ns": (np.array(starts, np.int64) - zero) * 1000,
            "dur_ns": pa.array([None if duration is None else duration * 1000 for duration in durations], pa.int64()),
        },
        len(rows),
    )


def _lanes(starts: Sequence[int], ends: Sequence[int]) -> Ints:
    """Return a lane for each slice, by start, so that the slices of a lane do not overlap."""
    lanes, free, busy = [], list[int](), list[tuple[int, int]]()
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (max(end, start + 1), lane))
        lanes.append(lane)
    return np.array(lanes, np.int64)


def _thinned(values: Ints, points: int) -> Ints:
    """Return the rows of all values or, if there are more than `points`, of the extremes of equal intervals."""
    if len(values) <= points:
        return np.arange(len(values))
    borders = np.linspace(0, len(values), points // 2, endpoint=False).astype(np.int64)
    rows = [len(values) - 1]
    for first, end in zip(borders.tolist(), [*borders[1:].tolist(), len(values)], strict=True):
        part = values[first:end]
        rows += (first + int(part.argmin()), first + int(part.argmax()))
    return np.unique(rows)


def _word(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _batch(columns: Mapping[str, Any], count: int) -> pa.RecordBatch:
    """Return a batch of `SCHEMA`; columns that are not given are empty, and times are whole µs."""
    given = {"position": np.arange(count), "verbatim": np.zeros(count, bool), **columns}
    for time, digits in (("ts_ns", "ts_digits"), ("dur_ns", "dur_digits")):
        if time in columns:
            missing: npt.NDArray[np.bool_] | None = None
            if isinstance(columns[time], pa.Array):
                missing = columns[time].is_null().to_numpy(zero_copy_only=False)
            given[digits] = pa.array(np.zeros(count, np.int8), mask=missing)
    arrays = []
    for column in SCHEMA:
        values = given.get(column.name)
        if values is None:
            arrays.append(pa.nulls(count, column.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

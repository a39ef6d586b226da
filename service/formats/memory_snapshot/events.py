"""Events of a device: allocations and frees in the form of PyTorch's profiler, counters and the largest blocks."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from service.formats.events import MICROSECONDS, events
from service.formats.memory_snapshot.columns import lanes_of, thinned
from service.formats.memory_snapshot.layout import Ints
from service.formats.memory_snapshot.processes import BLOCKS_PID, Clock
from service.formats.memory_snapshot.replay import NO_BLOCKS, BlockTable, Replay
from service.formats.memory_snapshot.snapshot import ALLOC, FREE_COMPLETED, FREE_REQUESTED, MARKER, OOM, Trace, compact
from service.formats.memory_snapshot.stacks import Stacks
from service.formats.memory_snapshot.text import Texts, arguments
from service.trace.summary import BLOCK_CATEGORY, SNAPSHOT_CATEGORY

MEMORY, OUT_OF_MEMORY, ALIVE = "[memory]", "[OutOfMemory]", "[alive at start]"
"""Names of events; the first two are those of PyTorch's profiler."""
CATEGORY = "cpu_instant_event"
"""Category of events that are as in the profiler's traces."""

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


class DeviceEvents:
    """Events of one device. They drop parts of the trace and its replay as soon as they need them no longer.

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
        """Yield the blocks that are alive at the start, the largest blocks, counters, and the entries."""
        yield from self._alive(self._replay.blocks)
        yield self._largest(self._replay.blocks)
        yield self._counters()
        self._drop_merged()
        yield from self._entries()

    def _alive(self, blocks: BlockTable) -> Iterator[pa.RecordBatch]:
        at_start = np.flatnonzero(blocks.at_start)
        for first in range(0, len(at_start), _ROWS):
            rows = at_start[first : first + _ROWS]
            nothing = np.zeros(len(rows), np.int64)
            columns = (blocks.addresses[rows], blocks.sizes[rows], nothing, nothing, blocks.streams[rows])
            args = self._args(*columns, blocks.stacks[rows], np.full(len(rows), _PLACED | _ADDRESS | _BYTES))
            yield self._instants(ALIVE, SNAPSHOT_CATEGORY, self._start, columns[4], columns[1], args)

    def _drop_merged(self) -> None:
        """Keep only the entries that become events: not requests directly before the completion of the same free."""
        trace, replay = self._trace, self._replay
        merged = np.zeros(len(trace.actions), bool)
        merged[:-1] = (trace.actions[:-1] == FREE_REQUESTED) & (trace.actions[1:] == FREE_COMPLETED)
        merged[:-1] &= trace.addresses[:-1] == trace.addresses[1:]
        kept = np.flatnonzero(~merged).astype(np.int32)
        self._times = self._times[kept]
        self._trace = Trace(
            trace.device,
            trace.actions[kept],
            trace.addresses[kept],
            trace.sizes[kept],
            compact(trace.streams[kept]),
            self._times,
            trace.stacks[kept],
        )
        self._replay = replace(
            replay, blocks=NO_BLOCKS, active=replay.active[kept], reserved=compact(replay.reserved[kept])
        )

    def _entries(self) -> Iterator[pa.RecordBatch]:
        trace, replay = self._trace, self._replay
        flags = np.full(256, _CHANGE)
        flags[OOM], flags[MARKER] = _FAILURE, _PLACED
        is_memory = np.zeros(256, np.int32)
        is_memory[[ALLOC, FREE_COMPLETED, OOM]] = 1
        categories = pa.array([SNAPSHOT_CATEGORY, CATEGORY])
        for first in range(0, len(trace.actions), _ROWS):
            rows = slice(first, first + _ROWS)
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
        self,
        names: pa.Array | str,
        categories: pa.Array | str,
        times: Ints | int,
        streams: Ints,
        sizes: Ints,
        args: pa.Array,
    ) -> pa.RecordBatch:
        count = len(sizes)
        device = np.full(count, self._trace.device)
        return events(
            count,
            ph="i",
            cat=categories,
            name=names,
            ts=np.broadcast_to(times, count),
            digits=MICROSECONDS,
            pid=device,
            tid=streams,
            device=device,
            stream=streams,
            bytes=sizes,
            args=args,
            rest=_INSTANT,
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
        rows = thinned(replay.active, _POINTS)
        times = [self._start, *self._times[rows].tolist()]
        active = [replay.start[0], *replay.active[rows].tolist()]
        reserved = [replay.start[2], *replay.reserved[rows].tolist()]
        args = [
            f'{{"active bytes": {one}, "reserved bytes": {other}}}' for one, other in zip(active, reserved, strict=True)
        ]
        return events(
            len(times),
            ph="C",
            name="memory",
            ts=np.array(times, np.int64),
            digits=MICROSECONDS,
            pid=np.full(len(times), self._trace.device),
            tid=np.zeros(len(times), np.int64),
            args=pa.array(args, pa.string()),
        )

    def _largest(self, blocks: BlockTable) -> pa.RecordBatch:
        """Return the largest blocks as slices; those that overlap are on different threads."""
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
        return events(
            count,
            cat=BLOCK_CATEGORY,
            name=pa.array(sites, pa.string()).dictionary_encode(),
            ts=starts,
            dur=ends - starts,
            digits=MICROSECONDS,
            pid=device + BLOCKS_PID,
            tid=lanes_of(starts.tolist(), ends.tolist()),
            device=device,
            stream=blocks.streams[chosen],
            bytes=blocks.sizes[chosen],
            args=args,
        )

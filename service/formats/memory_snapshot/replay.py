"""Replay of a device's trace: blocks, and the memory after each entry. All sizes are requested bytes."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.formats.memory_snapshot import pairing
from service.formats.memory_snapshot.layout import Ints, ShortInts
from service.formats.memory_snapshot.pairing import NONE
from service.formats.memory_snapshot.snapshot import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, Trace

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Held:
    """Active blocks of a device at the end: addresses, requested sizes, pending frees and stacks."""

    addresses: Ints
    sizes: Ints
    pending: Flags
    stacks: Ints
    streams: Ints


@dataclass(frozen=True)
class BlockTable:
    """Blocks of a device: those of the trace, then those that were alive from before its start until after its end.

    Attributes:
        begins: entry that allocates the block, or -1 if it was alive at the start.
        requests: entry that requests its free, or -1.
        ends: entry that completes its free, or -1 if it is alive at the end.
        sizes: requested bytes.
        addresses: address.
        streams: stream.
        stacks: number of the stack of the allocation or, if that is before the trace, of the free or the end; or -1.
    """

    begins: ShortInts
    requests: ShortInts
    ends: ShortInts
    sizes: Ints
    addresses: Ints
    streams: Ints
    stacks: Ints

    @property
    def at_start(self) -> Flags:
        """Flags of the blocks that were alive at the start."""
        return self.begins < 0

    def live(self, entry: int) -> Flags:
        """Flag the blocks that are active after an entry; -1 stands for the start."""
        return (self.begins <= entry) & ((self.ends < 0) | (self.ends > entry))


_NOTHING = np.zeros(0, np.int64)
_NO_ENTRIES = np.zeros(0, np.int32)
NO_BLOCKS = BlockTable(_NO_ENTRIES, _NO_ENTRIES, _NO_ENTRIES, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
"""The table without blocks."""


@dataclass(frozen=True)
class Replay:
    """The memory of a device. Each curve has the bytes after each entry.

    Attributes:
        blocks: blocks.
        active: bytes of active blocks: allocated ones, and those whose free is requested but not complete.
        reserved: bytes of segments.
        start: active, allocated and reserved bytes before the first entry.
        contradictions: numbers of contradictions between the trace and the segments, by description.
    """

    blocks: BlockTable
    active: Ints
    reserved: Ints
    start: tuple[int, int, int]
    contradictions: Counter[str]

    def allocated(self) -> Ints:
        """Return the bytes of allocated blocks after each entry; a block whose free is requested is not allocated."""
        blocks = self.blocks
        unrequested = (blocks.requests < 0) & (blocks.begins >= 0)
        released = np.where(unrequested, blocks.ends, blocks.requests)
        return self.start[1] + _curve(len(self.active), blocks, released)

    @property
    def peak(self) -> int:
        """The first entry after which the active bytes are highest; -1 if they are at the start."""
        if not len(self.active) or self.active.max() <= self.start[0]:
            return NONE
        return int(self.active.argmax())


def replay(trace: Trace, held: Held, reserved: int) -> Replay:
    """Replay a trace.

    Args:
        trace: the trace.
        held: active blocks at the end.
        reserved: bytes of all segments at the end.
    """
    count = len(trace.actions)
    pairs = pairing.paired(trace.actions, trace.addresses, trace.sizes)
    begins, requests, ends = pairs.begins, pairs.requests, pairs.ends
    latest = pairs.latest(held.addresses)

    contradictions = Counter[str]()
    known = latest >= 0
    is_alive = known.copy()
    is_alive[known] = ends[latest[known]] < 0
    entries = np.where(begins >= 0, begins, np.where(requests >= 0, requests, ends))
    unheld = ends < 0
    unheld[latest[is_alive]] = False
    contradictions["blocks at the end that the trace has freed"] = int((known & ~is_alive).sum())
    contradictions["blocks that the trace leaves alive, but no segment has"] = int(unheld.sum())
    differs = trace.sizes[entries[latest[is_alive]]] != held.sizes[is_alive]
    contradictions["blocks with another size at the end than in the trace"] = int(differs.sum())
    double, unmatched, resized = pairs.contradictions
    contradictions["allocations at an address that is in use"] = double
    contradictions["frees of blocks that are not in use"] = unmatched
    contradictions["frees with another size than the allocation"] = resized

    before = ~known
    nothing = np.full(int(before.sum()), NONE, np.int32)
    blocks = BlockTable(
        np.concatenate([begins, nothing]),
        np.concatenate([requests, nothing]),
        np.concatenate([ends, nothing]),
        np.concatenate([trace.sizes[entries], held.sizes[before]]),
        np.concatenate([trace.addresses[entries], held.addresses[before]]),
        np.concatenate([trace.streams[entries], held.streams[before]]),
        np.concatenate([trace.stacks[entries], held.stacks[before]]).astype(np.int64),
    )
    pending = np.concatenate([(requests < 0) & (begins < 0), held.pending[before]])
    active = _curve(count, blocks, blocks.ends)
    active_at_start = int(blocks.sizes[blocks.at_start].sum())
    active += active_at_start
    allocated_at_start = int(blocks.sizes[blocks.at_start & ~pending].sum())
    grows = np.isin(trace.actions, (SEGMENT_ALLOC, SEGMENT_MAP))
    shrinks = np.isin(trace.actions, (SEGMENT_FREE, SEGMENT_UNMAP))
    reserving = np.cumsum(trace.sizes * (grows.astype(np.int8) - shrinks))
    start_reserved = reserved - int(reserving[-1]) if count else reserved
    reserving += start_reserved
    contradictions["entries after which more is active than reserved"] = int((active > reserving).sum())
    contradictions["starts with negative reserved bytes"] = int(start_reserved < 0)
    start = (active_at_start, allocated_at_start, start_reserved)
    return Replay(blocks, active, reserving, start, +contradictions)


def _curve(count: int, blocks: BlockTable, ends: ShortInts) -> Ints:
    """Return the growth since the start after each entry."""
    change = np.zeros(count, np.int64)
    begun, ended = blocks.begins >= 0, ends >= 0
    change[blocks.begins[begun]] += blocks.sizes[begun]
    np.subtract.at(change, ends[ended], blocks.sizes[ended])
    return np.cumsum(change, out=change)

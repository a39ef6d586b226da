"""The memory of a snapshot's devices: blocks with their stacks, paired from allocations and frees."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.scope import Scope
from service.analysis.facts.snapshot_changes import Rows, SnapshotChanges, snapshot_changes_of
from service.analysis.facts.snapshot_document import NO_SNAPSHOT, snapshot_member
from service.formats.memory_snapshot import pairing
from service.formats.memory_snapshot.pairing import NONE
from service.formats.memory_snapshot.stacks import Frame, frame_text, is_python, site_of
from service.streaming.integers import ints
from service.trace.errors import NotApplicable

FRAMES_MAX = 40
"""Largest number of frames of a stack's text."""
UNKNOWN = "unknown stack"
"""Name of the frame of blocks without a stack."""

_ALIVE = """
SELECT device, stream, bytes, try_cast(args->>'Addr' AS BIGINT) AS address, try_cast(args->>'Stack' AS BIGINT) AS stack
FROM events WHERE name = '[alive at start]' AND device NOTNULL AND bytes NOTNULL ORDER BY position
"""
_ALLOCATES, _COMPLETES, _SKIPPED = np.array([pairing.ALLOCATES, pairing.COMPLETES, 3], np.uint8)
"""Kinds of changes as codes of `pairing`, of which 3 is none."""


class DeviceMemory:
    """The memory of a device.

    Args:
        changes: the allocations and frees of all devices.
        rows: those of this device.
        alive: the blocks that were alive at the start.

    Attributes:
        at: time of each change in ns.
        bytes: its size in bytes, negative for a free.
        begins: the change that allocates each block, or -1 if it was alive at the start.
        ends: the change that frees each block, or -1.
        sizes: size of each block in bytes.
        stacks: number of each block's stack, or -1.
    """

    def __init__(self, changes: SnapshotChanges, rows: Rows, alive: pa.Table) -> None:
        self._changes, self._rows = changes, rows
        self.at, self.bytes = self._column("at"), self._column("bytes")
        kinds = np.where(self.bytes > 0, _ALLOCATES, np.where(self.bytes < 0, _COMPLETES, _SKIPPED))
        pairs = pairing.paired(kinds, self._column("address"), self.bytes)  # sizes matter to contradictions only
        unchanged = pairs.latest(ints(alive["address"], 0)) < 0  # they are not freed within the trace
        nothing = np.full(int(unchanged.sum()), NONE, np.int32)
        self.begins, self.ends = (np.concatenate([part, nothing]) for part in (pairs.begins, pairs.ends))
        self._entries = entries = np.where(pairs.begins >= 0, pairs.begins, pairs.ends)
        self._alive = alive = alive.filter(pa.array(unchanged))
        self.sizes = np.concatenate([np.abs(self.bytes[entries]), ints(alive["bytes"], 0)])
        self.stacks = np.concatenate([self._column("stack", NONE)[entries], ints(alive["stack"], NONE)])

    def _column(self, name: str, missing: int = 0) -> Ints:
        """Return a column of the changes."""
        return self._changes.ints(name, missing)[self._rows]

    @cached_property
    def active(self) -> Ints:
        """Active bytes from each change on."""
        return self._column("allocated")

    @cached_property
    def reserved(self) -> Ints:
        """Reserved bytes from each change on."""
        return self._column("reserved")

    def addresses(self, blocks: Ints) -> Ints:
        """Return the addresses of blocks; 0 where they are not known."""
        return self._of_blocks(blocks, self._addresses, ints(self._alive["address"], 0))

    def streams(self, blocks: Ints) -> Ints:
        """Return the streams of blocks; 0 where they are not known."""
        return self._of_blocks(blocks, self._streams, ints(self._alive["stream"], 0))

    @cached_property
    def _addresses(self) -> Ints:
        return self._column("address")

    @cached_property
    def _streams(self) -> Ints:
        return self._column("stream")

    def _of_blocks(self, blocks: Ints, of_changes: Ints, of_alive: Ints) -> Ints:
        """Return the values of blocks from those of the changes, and of the blocks that no change has."""
        values = np.empty(len(blocks), np.int64)
        changed = blocks < len(self._entries)
        values[changed] = of_changes[self._entries[blocks[changed]]]
        values[~changed] = of_alive[blocks[~changed] - len(self._entries)]
        return values

    def largest(self, most: int) -> Ints:
        """Return the largest blocks by falling size."""
        sizes = self.sizes
        least = np.partition(sizes, -most)[-most] if len(sizes) > most else 0
        blocks = np.flatnonzero(sizes >= least)
        return blocks[np.argsort(-sizes[blocks], kind="stable")][:most]

    @property
    def at_start(self) -> int:
        """Active bytes before the first change."""
        if not len(self.at):
            return int(self.sizes.sum())
        return int(self.active[0] - self.bytes[0])

    @cached_property
    def peak(self) -> int:
        """The first change after which the most is active; -1 if that is the start."""
        if not len(self.at) or self.active.max() <= self.at_start:
            return NONE
        return int(self.active.argmax())

    def change_at(self, time: int) -> int:
        """Return the last change until a time in ns; -1 if there is none."""
        return int(np.searchsorted(self.at, time, side="right")) - 1

    def active_after(self, change: int) -> int:
        """Return the active bytes after a change; -1 stands for the start."""
        return int(self.active[change]) if change >= 0 else self.at_start

    def live(self, change: int) -> Any:
        """Flag the blocks that are active after a change; -1 stands for the start."""
        return (self.begins <= change) & ((self.ends < 0) | (self.ends > change))

    def by_stack(self, change: int) -> tuple[Ints, Ints, Ints]:
        """Return stacks, numbers of blocks and bytes after a change, by falling bytes.

        Bytes whose blocks are not known, as in a part of a snapshot, have the stack -1.
        """
        live = self.live(change)
        stacks, sizes = self.stacks[live] + 1, self.sizes[live]
        counts = np.bincount(stacks, minlength=1)
        totals = np.zeros(len(counts), np.int64)
        np.add.at(totals, stacks, sizes)
        totals[0] += self.active_after(change) - int(sizes.sum())
        present = np.flatnonzero((counts > 0) | (totals != 0))
        order = present[np.argsort(-totals[present], kind="stable")]
        return order - 1, counts[order], totals[order]

    @cached_property
    def stream_peaks(self) -> list[tuple[int, int, int | None, int]]:
        """Stream, peak in bytes, time of the peak (None for the start) and bytes at the end of each stream."""
        distinct = {*self._changes.distinct("stream"), *ints(self._alive["stream"], 0).tolist()}
        if len(distinct) == 1:  # as mostly; without a sort
            return [self._peak_of_only_stream(distinct.pop())]
        before = self.begins < 0
        begun, ended = self.begins >= 0, self.ends >= 0
        of_blocks = self.streams(np.arange(len(self.sizes)))
        streams = np.concatenate([of_blocks[before], of_blocks[begun], of_blocks[ended]])
        changes = np.concatenate([self.begins[before], self.begins[begun], self.ends[ended]])
        sizes = np.concatenate([self.sizes[before], self.sizes[begun], -self.sizes[ended]])
        order = np.lexsort((changes, streams))
        streams, changes, growth = streams[order], changes[order], np.cumsum(sizes[order])
        firsts = np.flatnonzero(np.diff(streams, prepend=streams[:1] - 1))
        rows = []
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(streams)], strict=True):
            values = growth[first:end] - (growth[first - 1] if first else 0)
            top = int(values.argmax())
            change = int(changes[first + top])
            rows.append(
                (int(streams[first]), int(values[top]), int(self.at[change]) if change >= 0 else None, int(values[-1]))
            )
        return rows

    def _peak_of_only_stream(self, stream: int) -> tuple[int, int, int | None, int]:
        """Return the row of the only stream; see `stream_peaks`."""
        growth = np.zeros(len(self.at) + 1, np.int64)  # first that of the start
        growth[0] = self.sizes[self.begins < 0].sum()
        begun, ended = self.begins >= 0, self.ends >= 0
        growth[self.begins[begun] + 1] += self.sizes[begun]
        growth[self.ends[ended] + 1] -= self.sizes[ended]
        np.cumsum(growth, out=growth)
        top = int(growth.argmax())
        return stream, int(growth[top]), int(self.at[top - 1]) if top else None, int(growth[-1])


class SnapshotMemory:
    """The memory of all devices of a snapshot, and its stacks.

    Attributes:
        devices: the memory of each device, by its number.
        segments: columns of the segments at the end.
    """

    def __init__(self, scope: Scope, member: Mapping[str, Any]) -> None:
        changes, alive = snapshot_changes_of(scope), scope.table(_ALIVE)
        of_devices, alive_devices = changes.devices(), alive["device"].to_numpy()
        self.devices = {
            number: DeviceMemory(changes, of_devices.get(number, slice(0)), alive.filter(alive_devices == number))
            for number in sorted({*of_devices, *alive_devices.tolist()})
        }
        self.segments: Mapping[str, list[Any]] = member["segments"]
        self._frames: list[Frame] = [(name, file, int(line)) for name, file, line in member["frames"]]
        self._stacks: Sequence[Sequence[float]] = member["stacks"]

    @cached_property
    def frames(self) -> list[str]:
        """The frames as text, and last `UNKNOWN`, which stands for the frame of a stack that is not known."""
        return [*map(frame_text, self._frames), UNKNOWN]

    def site(self, stack: int) -> str | None:
        """Return the site of a stack; None if there is no such stack. See `site_of`."""
        return site_of(self._frames_of(stack))

    def text(self, stack: int, most: int | None = FRAMES_MAX) -> str | None:
        """Return the innermost frames of a stack as text, a line for each; None if there is no such stack."""
        frames = self._frames_of(stack)
        return "\n".join(map(frame_text, frames[:most])) if frames else None

    def paths(self, stacks: Ints) -> tuple[Ints, Ints]:
        """Return the frames of stacks from the outermost: numbers of `frames`, and the end of each stack among them.

        If a stack has frames of Python, its other frames are left out.
        """
        all_frames, starts, ends = self._all_frames
        unknown = len(ends) - 1
        chosen = np.where((stacks < 0) | (stacks > unknown), unknown, stacks)
        chosen = np.where(starts[chosen] == ends[chosen], unknown, chosen)
        last, lengths = ends[chosen], ends[chosen] - starts[chosen]
        owners = np.repeat(np.arange(len(stacks)), lengths)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        frames = all_frames[last[owners] - 1 - places]
        is_python_frame = self._is_python[frames]
        kept = is_python_frame | ~(np.bincount(owners, is_python_frame, len(stacks)) > 0)[owners]
        return frames[kept], np.cumsum(np.bincount(owners[kept], minlength=len(stacks)))

    @cached_property
    def _all_frames(self) -> tuple[Ints, Ints, Ints]:
        """Numbers of the frames of all stacks, and where each stack starts and ends; the last stack is `UNKNOWN`."""
        stacks = [*self._stacks, [len(self._frames)]]
        lengths = np.array([*map(len, stacks)], np.int64)
        ends = np.cumsum(lengths)
        return np.fromiter((int(number) for stack in stacks for number in stack), np.int64), ends - lengths, ends

    @cached_property
    def _is_python(self) -> Flags:
        return np.array([*map(is_python, self._frames), False])

    def _frames_of(self, stack: int) -> list[Frame]:
        return [self._frames[int(number)] for number in self._stacks[stack]] if 0 <= stack < len(self._stacks) else []


def snapshot_memory_of(scope: Scope) -> SnapshotMemory:
    """Return the memory of a snapshot.

    Raises:
        NotApplicable: the trace has no `snapshot_member`.
    """
    if (member := snapshot_member(scope)) is None:
        raise NotApplicable(NO_SNAPSHOT)
    return scope.cached("memory snapshot", lambda: SnapshotMemory(scope, member))

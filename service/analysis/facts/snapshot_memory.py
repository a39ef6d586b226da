"""The memory of a snapshot's devices: blocks with their stacks, paired from allocations and frees."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.memory_changes import memory_changes_of
from service.analysis.facts.scope import Scope
from service.analysis.facts.snapshot_document import NO_SNAPSHOT, snapshot_member
from service.formats.memory_snapshot import pairing
from service.formats.memory_snapshot.pairing import NONE
from service.formats.memory_snapshot.stacks import Frame, frame_text, is_python, site_of
from service.trace.errors import NotApplicable

FRAMES_MAX = 40
"""Largest number of frames of a stack's text."""
UNKNOWN = "unknown stack"
"""Name of the frame of blocks without a stack."""

_ALIVE = """
SELECT device, stream, bytes, try_cast(args->>'Addr' AS BIGINT) AS address, try_cast(args->>'Stack' AS BIGINT) AS stack
FROM events WHERE name = '[alive at start]' AND device NOTNULL AND bytes NOTNULL ORDER BY position
"""
_COLUMNS = ("at", "bytes", "allocated", "reserved", "device_id", "address", "stack", "stream")
_SKIPPED = 3  # no code of `pairing`


class DeviceMemory:
    """The memory of a device.

    Args:
        changes: the device's allocations and frees, in order of time; see `memory_changes_of`.
        alive: the blocks that were alive at the start.

    Attributes:
        at: time of each change in ns.
        bytes: its size in bytes, negative for a free.
        active: active bytes from then on.
        reserved: reserved bytes from then on.
        begins: the change that allocates each block, or -1 if it was alive at the start.
        ends: the change that frees each block, or -1.
        sizes: size of each block in bytes.
        addresses: address of each block.
        streams: stream of each block.
        stacks: number of each block's stack, or -1.
    """

    def __init__(self, changes: pa.Table, alive: pa.Table) -> None:
        self.at, self.bytes = changes["at"].to_numpy(), changes["bytes"].to_numpy()
        self.active, self.reserved, addresses = (_ints(changes[key], 0) for key in ("allocated", "reserved", "address"))
        streams, stacks = _ints(changes["stream"], 0), _ints(changes["stack"], NONE)
        kinds = np.where(self.bytes > 0, pairing.ALLOCATES, np.where(self.bytes < 0, pairing.COMPLETES, _SKIPPED))
        pairs = pairing.paired(kinds.astype(np.uint8), addresses, np.abs(self.bytes))
        unchanged = pairs.latest(_ints(alive["address"], 0)) < 0  # they are not freed within the trace
        entries = np.where(pairs.begins >= 0, pairs.begins, pairs.ends)
        nothing = np.full(int(unchanged.sum()), NONE)
        self.begins, self.ends = (np.concatenate([part, nothing]) for part in (pairs.begins, pairs.ends))

        def joined(of_changes: Ints, column: str, missing: int = 0) -> Ints:
            return np.concatenate([of_changes[entries], _ints(alive[column], missing)[unchanged]])

        self.sizes = joined(np.abs(self.bytes), "bytes")
        self.addresses = joined(addresses, "address")
        self.streams = joined(streams, "stream")
        self.stacks = joined(stacks, "stack", NONE)

    @property
    def at_start(self) -> int:
        """Active bytes before the first change."""
        if not len(self.at):
            return int(self.sizes.sum())
        return int(self.active[0] - self.bytes[0])

    @property
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
    def by_size(self) -> Ints:
        """The blocks by falling size."""
        return np.argsort(-self.sizes, kind="stable")

    @cached_property
    def stream_peaks(self) -> list[tuple[int, int, int | None, int]]:
        """Stream, peak in bytes, time of the peak (None for the start) and bytes at the end of each stream."""
        if len(self.streams) and self.streams.min() == self.streams.max():  # as mostly; without a sort
            return [self._peak_of_only_stream()]
        before = self.begins < 0
        begun, ended = self.begins >= 0, self.ends >= 0
        streams = np.concatenate([self.streams[before], self.streams[begun], self.streams[ended]])
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

    def _peak_of_only_stream(self) -> tuple[int, int, int | None, int]:
        """Return the row of the only stream; see `stream_peaks`."""
        growth = np.zeros(len(self.at) + 1, np.int64)  # first that of the start
        growth[0] = self.sizes[self.begins < 0].sum()
        begun, ended = self.begins >= 0, self.ends >= 0
        growth[self.begins[begun] + 1] += self.sizes[begun]
        growth[self.ends[ended] + 1] -= self.sizes[ended]
        np.cumsum(growth, out=growth)
        top = int(growth.argmax())
        return int(self.streams[0]), int(growth[top]), int(self.at[top - 1]) if top else None, int(growth[-1])


class SnapshotMemory:
    """The memory of all devices of a snapshot, and its stacks.

    Attributes:
        devices: the memory of each device, by its number.
        segments: columns of the segments at the end.
    """

    def __init__(self, scope: Scope, member: Mapping[str, Any]) -> None:
        changes, alive = memory_changes_of(scope, _COLUMNS), scope.table(_ALIVE)
        numbers = {*changes["device_id"].unique().to_pylist(), *alive["device"].unique().to_pylist()}
        self.devices = {
            int(number): DeviceMemory(_of_device(changes, "device_id", number), _of_device(alive, "device", number))
            for number in sorted(numbers)
        }
        self.segments: Mapping[str, list[Any]] = member["segments"]
        self._frames: list[Frame] = [(name, file, int(line)) for name, file, line in member["frames"]]
        self._stacks: Sequence[Sequence[float]] = member["stacks"]

    @cached_property
    def frames(self) -> list[str]:
        """The frames as text, and last `UNKNOWN`, which stands for the frame of a stack that is not known."""
        return [*map(frame_text, self._frames), UNKNOWN]

    def site(self, stack: int) -> str | None:
        """Return the innermost Python frame of a stack as text; None if there is no such stack."""
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


def _of_device(table: pa.Table, column: str, number: int) -> pa.Table:
    """Return the rows of a device, without a copy if all are."""
    flags = table[column].to_numpy() == number
    return table if flags.all() else table.filter(flags)


def _ints(column: pa.ChunkedArray, missing: int) -> Ints:
    values: Ints = (column.fill_null(missing) if column.null_count else column).to_numpy()
    return values

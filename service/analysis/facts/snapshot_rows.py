"""Rows of tables about the memory of a device in a snapshot."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from service.analysis.facts.levels import thinned
from service.analysis.facts.snapshot_frames import frame_tree
from service.analysis.facts.snapshot_memory import DeviceMemory, SnapshotMemory
from service.analysis.facts.snapshot_steps import SnapshotSteps, leaking_stacks, memory_of_steps

Rows = Iterator[list[Any]]

_SEGMENT_SUMS = ("total", "active", "requested", "largest_free", "blocks", "free_blocks", "stream", "stack")


class DeviceRows:
    """Rows of a device. Each method yields those of a table, without the rank and the device.

    Args:
        snapshot: the snapshot.
        number: number of the device.
        top: the largest number of stacks, blocks and segments in a table.
    """

    def __init__(self, snapshot: SnapshotMemory, number: int, top: int) -> None:
        self._snapshot = snapshot
        self._device: DeviceMemory = snapshot.devices[number]
        self._top = top
        of_segments = snapshot.segments
        places = [place for place, of in enumerate(of_segments["device"]) if of == number]
        self._segments = sorted(places, key=lambda place: -of_segments["total"][place])

    @property
    def last(self) -> int:
        """The last change; -1 if there is none."""
        return len(self._device.at) - 1

    def totals(self) -> dict[str, int | float | None]:
        """Return the sums of the device by their columns, without the number of its failures."""
        device, peak, last = self._device, self._device.peak, self.last
        columns = self._snapshot.segments
        total, active = (int(sum(columns[name][place] for place in self._segments)) for name in ("total", "active"))
        return {
            "allocations": int((device.bytes > 0).sum()),
            "frees": int((device.bytes < 0).sum()),
            "start_bytes": device.at_start,
            "peak_bytes": device.active_after(peak),
            "peak_at_ns": self._time(peak),
            "peak_reserved_then_bytes": int(device.reserved[peak]) if peak >= 0 else None,
            "peak_reserved_bytes": int(device.reserved.max()) if last >= 0 else None,
            "end_bytes": device.active_after(last),
            "segments": len(self._segments),
            "segments_bytes": total,
            "unused_bytes": total - active,
            "unused_pct": 100 * (total - active) / total if total else None,
            "largest_unused_bytes": int(max((columns["largest_free"][place] for place in self._segments), default=0)),
        }

    def curve(self, points: int) -> Rows:
        """Yield time, active and reserved bytes: at the start, and from each change on that is kept."""
        device = self._device
        if self.last >= 0:
            yield [int(device.at[0]), device.at_start, int(device.reserved[0])]
        kept = np.union1d(*(thinned(device.at, level, points) for level in (device.active, device.reserved)))
        for row in kept.tolist():
            yield [int(device.at[row]), int(device.active[row]), int(device.reserved[row])]

    def streams(self) -> Rows:
        """Yield the peak and the end of each stream."""
        yield from map(list, self._device.stream_peaks)

    def stacks(self, change: int, at: int | None = None) -> Rows:
        """Yield the stacks with the most bytes after a change, at its time or at another one that is given."""
        snapshot, active = self._snapshot, self._device.active_after(change)
        time = self._time(change) if at is None else at
        for stack, blocks, size in zip(
            *(part[: self._top].tolist() for part in self._device.by_stack(change)), strict=True
        ):
            share = 100 * size / active if active else None
            yield [time, *self._named(stack), blocks, size, share, snapshot.text(stack)]

    def frames(self, change: int, moment: str, most: int, at: int | None = None) -> Rows:
        """Yield the frames with the most bytes after a change."""
        tree = frame_tree(self._snapshot, self._device.by_stack(change), most)
        time = self._time(change) if at is None else at
        columns = (tree.parents.tolist(), tree.names, tree.blocks.tolist(), tree.bytes.tolist())
        for row, (parent, name, blocks, size) in enumerate(zip(*columns, strict=True)):
            yield [moment, time, row, None if parent < 0 else parent, name, blocks, size]

    def blocks(self) -> Rows:
        """Yield the largest blocks."""
        device = self._device
        largest = device.largest(self._top)
        columns = (largest, device.streams(largest), device.addresses(largest))
        for block, stream, address in zip(*(column.tolist() for column in columns), strict=True):
            begin, end = int(device.begins[block]), int(device.ends[block])
            yield [
                stream,
                int(device.sizes[block]),
                int(device.at[begin]) if begin >= 0 else None,
                int(device.at[end]) if end >= 0 else None,
                address,
                *self._named(int(device.stacks[block])),
            ]

    def segments(self) -> Rows:
        """Yield the largest segments."""
        columns = self._snapshot.segments
        for place in self._segments[: self._top]:
            total, active, requested, largest, blocks, free, stream, stack = (
                int(columns[name][place]) for name in _SEGMENT_SUMS
            )
            yield [
                *(columns["address"][place], stream, columns["type"][place], int(columns["expandable"][place])),
                *(total, active, requested, total - active, largest, blocks, free, self._snapshot.site(stack)),
            ]

    def segment_blocks(self, most: int) -> Rows:
        """Yield the blocks that are active at the end in the segments of `segments`, by address."""
        columns, device = self._snapshot.segments, self._device
        places = sorted(self._segments[: self._top], key=lambda place: int(columns["address"][place], 16))
        starts = np.array([int(columns["address"][place], 16) for place in places], np.uint64)
        ends = starts + np.array([int(columns["total"][place]) for place in places], np.uint64)
        alive = np.flatnonzero(device.live(self.last))
        addresses = device.addresses(alive).view(np.uint64)
        segments = np.searchsorted(starts, addresses, side="right") - 1
        inside = (segments >= 0) & (addresses < np.append(ends, np.uint64(0))[segments])
        alive, segments, addresses = alive[inside], segments[inside], addresses[inside]
        largest = np.argsort(-device.sizes[alive], kind="stable")[:most]
        for row in largest[np.argsort(addresses[largest], kind="stable")].tolist():
            segment, block = int(segments[row]), int(alive[row])
            yield [
                columns["address"][places[segment]],
                int(addresses[row] - starts[segment]),
                int(device.sizes[block]),
                *self._named(int(device.stacks[block])),
            ]

    def steps(self, steps: SnapshotSteps) -> Rows:
        """Yield the memory of each step."""
        if not steps.names:
            return
        named = zip(steps.names, steps.starts.tolist(), steps.ends.tolist(), strict=True)
        for index, (bounds, memory) in enumerate(zip(named, memory_of_steps(self._device, steps), strict=True)):
            yield [index, *bounds, *memory]

    def leaks(self, steps: SnapshotSteps) -> Rows:
        """Yield the stacks that leave blocks in several steps; blocks without a stack are left out."""
        if not steps.names:
            return
        leaks = [leak for leak in leaking_stacks(self._device, steps) if self._snapshot.site(leak.stack) is not None]
        for leak in leaks[: self._top]:
            yield [
                *(*self._named(leak.stack), leak.steps, len(steps.names) - 1),
                *(leak.blocks, leak.bytes, leak.bytes / leak.steps, self._snapshot.text(leak.stack)),
            ]

    def _time(self, change: int) -> int | None:
        """Return the time of a change; None for the start."""
        return int(self._device.at[change]) if change >= 0 else None

    def _named(self, stack: int) -> tuple[int | None, str | None]:
        """Return the number and the site of a stack."""
        return (stack if stack >= 0 else None), self._snapshot.site(stack)

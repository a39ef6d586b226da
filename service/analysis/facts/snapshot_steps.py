"""Steps of a memory snapshot: the most that is active in each, and the blocks that outlive them."""

from typing import NamedTuple

import numpy as np

from service.analysis.facts.intervals import Ints, percentage
from service.analysis.facts.snapshot_memory import DeviceMemory

_NONE = -1


class SnapshotSteps(NamedTuple):
    """Steps in order of time: each lasts until the next one starts, and the last until its annotation ends.

    Attributes:
        names: names of the annotations that begin the steps.
        starts: start of each step in ns.
        ends: end of each step in ns.
    """

    names: list[str]
    starts: Ints
    ends: Ints

    def of_times(self, times: Ints) -> Ints:
        """Return the index of the step of each time, or -1."""
        steps = np.searchsorted(self.starts, times, side="right") - 1
        return np.where((steps >= 0) & (times < np.append(self.ends, 0)[steps]), steps, _NONE)


class StepMemory(NamedTuple):
    """Memory of a device in a step.

    It has sums of bytes, the time of the peak in ns, which is None if it is the start, and the percentage of the step
    from the device's first to its last change, which is None without changes.
    """

    at_start: int
    peak: int
    peak_at: int | None
    at_end: int
    allocated: int
    kept: int
    recorded_pct: float | None


class LeakingStack(NamedTuple):
    """A stack whose blocks outlive their steps: in how many steps it allocated them, and their number and bytes."""

    stack: int
    steps: int
    blocks: int
    bytes: int


def memory_of_steps(device: DeviceMemory, steps: SnapshotSteps) -> list[StepMemory]:
    """Return the memory of each step."""
    begun, of_blocks = _begun(device, steps)
    count = len(steps.names)
    allocated, kept = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(allocated, of_blocks, device.sizes[begun])
    alive = device.ends[begun] < 0
    np.add.at(kept, of_blocks[alive], device.sizes[begun][alive])
    rows = []
    for step, bounds in enumerate(zip(steps.starts, steps.ends, strict=True)):
        first, end = (int(np.searchsorted(device.at, bound)) for bound in bounds)
        at_start, inside = device.active_after(first - 1), device.active[first:end]
        top = first + int(inside.argmax()) if len(inside) and inside.max() > at_start else None
        peak, peak_at = (at_start, None) if top is None else (int(device.active[top]), int(device.at[top]))
        sums = (device.active_after(end - 1), int(allocated[step]), int(kept[step]))
        rows.append(StepMemory(at_start, peak, peak_at, *sums, _recorded_pct(device.at, *map(int, bounds))))
    return rows


def _recorded_pct(changes: Ints, start: int, end: int) -> float | None:
    """Return the percentage of a step between the first and the last change; None without changes."""
    if not len(changes):
        return None
    recorded = min(end, int(changes[-1])) - max(start, int(changes[0]))
    return percentage(max(recorded, 0), end - start)


def leaking_stacks(device: DeviceMemory, steps: SnapshotSteps) -> list[LeakingStack]:
    """Return the stacks that leave blocks in two steps or more, by falling number of steps and bytes.

    A block is left if it is alive at the end. The last step does not count: its blocks may still be in use.
    """
    begun, of_blocks = _begun(device, steps)
    left = (device.ends[begun] < 0) & (of_blocks < len(steps.names) - 1)
    stacks, of_blocks, sizes = device.stacks[begun][left], of_blocks[left], device.sizes[begun][left]
    present, codes = np.unique(stacks, return_inverse=True)
    pairs = np.unique(np.stack([codes, of_blocks]), axis=1)
    step_counts = np.bincount(pairs[0], minlength=len(present))
    blocks, sums = np.bincount(codes, minlength=len(present)), np.zeros(len(present), np.int64)
    np.add.at(sums, codes, sizes)
    order = np.lexsort((-sums, -step_counts))
    columns = (part[order].tolist() for part in (present, step_counts, blocks, sums))
    return [LeakingStack(*row) for row in zip(*columns, strict=True) if row[1] > 1]


def _begun(device: DeviceMemory, steps: SnapshotSteps) -> tuple[Ints, Ints]:
    """Return the blocks that are allocated in a step, and the index of the step of each."""
    begun = np.flatnonzero(device.begins >= 0)
    of_blocks = steps.of_times(device.at[device.begins[begun]])
    return begun[of_blocks >= 0], of_blocks[of_blocks >= 0]

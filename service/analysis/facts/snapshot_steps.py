"""Steps of a memory snapshot: the most that is active in each, and the blocks that outlive them."""

from typing import NamedTuple

import numpy as np

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.facts.snapshot_memory import DeviceMemory

DEFAULT_NAMES = ("ProfilerStep#*", "Optimizer.step#*")
"""Names of annotations that begin steps, as patterns; the first that is there counts."""

_NONE = -1
_BEGINNING = """
SELECT name, ts_ns, ts_ns + dur_ns AS end_ns
FROM events WHERE cat = 'user_annotation' AND ts_ns NOTNULL AND dur_ns NOTNULL AND name LIKE $pattern ESCAPE '\\'
ORDER BY ts_ns, position
"""


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


def steps_of(scope: Scope, name: str | None) -> SnapshotSteps:
    """Return the steps of a snapshot; none if no annotation begins them.

    Args:
        scope: scope of the rank.
        name: name of the annotations that begin steps, in which ``*`` stands for any text; by default the first of
            `DEFAULT_NAMES` that is there.
    """
    for pattern in DEFAULT_NAMES if name is None else (name,):
        found = scope.table(_BEGINNING, pattern=_like(pattern))
        if len(found):
            break
    starts, ends = found["ts_ns"].to_numpy(), found["end_ns"].to_numpy()
    return SnapshotSteps(found["name"].to_pylist(), starts, np.append(starts[1:], ends[-1:]))


def _like(pattern: str) -> str:
    """Return a pattern of SQL's LIKE for one in which ``*`` stands for any text."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")


class StepMemory(NamedTuple):
    """Memory of a device in a step: sums of bytes, and the time of the peak in ns, which is None if it is the start."""

    at_start: int
    peak: int
    peak_at: int | None
    at_end: int
    allocated: int
    kept: int


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
        rows.append(
            StepMemory(at_start, peak, peak_at, device.active_after(end - 1), int(allocated[step]), int(kept[step]))
        )
    return rows


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

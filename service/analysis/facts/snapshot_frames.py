"""The tree of the frames whose blocks hold memory, from the outermost frame to the innermost."""

from typing import NamedTuple

import numpy as np

from service.analysis.facts.intervals import Ints
from service.analysis.facts.snapshot_memory import SnapshotMemory
from service.attribution import nesting


class FrameTree(NamedTuple):
    """Rows of a call tree, the most bytes first. Each row is a frame under its caller.

    Attributes:
        parents: the row of the caller, or -1.
        names: the frames as text.
        blocks: number of blocks that were allocated in the frame or in what it calls.
        bytes: their sum.
    """

    parents: Ints
    names: list[str]
    blocks: Ints
    bytes: Ints


def frame_tree(snapshot: SnapshotMemory, held: tuple[Ints, Ints, Ints], most: int) -> FrameTree:
    """Return the rows with the most bytes.

    Args:
        snapshot: the snapshot.
        held: stacks, numbers of blocks and bytes, as from `DeviceMemory.by_stack`.
        most: the largest number of rows.
    """
    stacks, blocks, sizes = (part[held[2] > 0] for part in held)
    numbers, ends = snapshot.paths(stacks)
    names = numbers.astype(np.int32)
    parents = np.arange(-1, len(names) - 1, dtype=np.int32)
    parents[ends[:-1]] = nesting.NONE
    rows, count = nesting.path_codes(parents, names)
    firsts = nesting.first_indices(rows, count)
    callers = np.append(rows, np.int32(nesting.NONE))[parents[firsts]]
    sums = [nesting.subtree_sums(callers, nesting.sum_by_key(rows[ends - 1], part, count)) for part in (blocks, sizes)]
    listed = np.argsort(-sums[1], kind="stable")[:most]  # a caller has no fewer bytes, and a lower number
    number = np.full(count + 1, nesting.NONE, np.int64)
    number[listed] = np.arange(len(listed))
    return FrameTree(
        number[callers[listed]],
        [snapshot.frames[name] for name in names[firsts[listed]].tolist()],
        *(part[listed] for part in sums),
    )

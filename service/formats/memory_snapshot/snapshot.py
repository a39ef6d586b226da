"""Content of a memory snapshot: traces of devices, segments, blocks, stacks and annotations, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.formats.memory_snapshot.layout import Ints, ShortInts

ACTIONS = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_map", "segment_free", "segment_unmap"),
    *("oom", "snapshot"),
)
"""Known actions of entries. The code of an action is its index; further actions follow."""
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_MAP, SEGMENT_FREE, SEGMENT_UNMAP, OOM, MARKER = range(9)


class Trace(NamedTuple):
    """The trace of a device: an array of each field, with an item for each entry.

    `times` are in µs since 1970, or -1; `stacks` are numbers of stacks, or -1.
    """

    device: int
    actions: npt.NDArray[np.uint8]
    addresses: Ints
    sizes: Ints
    streams: Ints
    times: Ints
    stacks: ShortInts


class Segments(NamedTuple):
    """Segments at the end: rows of `Tables.segments` (see `layout`), and for each its first block and the end of it."""

    rows: Ints
    first_blocks: Ints
    last_blocks: Ints


class Blocks(NamedTuple):
    """Blocks at the end, in the order of the segments, with their sizes and requested sizes in bytes."""

    segments: Ints
    addresses: Ints
    sizes: Ints
    requested: Ints
    active: npt.NDArray[np.bool_]
    pending: npt.NDArray[np.bool_]
    stacks: Ints


class Annotation(NamedTuple):
    """Begin or end of an annotation; the time is in µs since 1970."""

    begins: bool
    name: str
    device: int
    time: int


@dataclass
class Snapshot:
    """A memory snapshot.

    Attributes:
        traces: traces of the devices, in the order of the file; some may have no entry.
        actions: names of the actions, by code.
        segments: segments at the end.
        blocks: blocks at the end.
        frames: frames as function, file and line.
        stacks: numbers of the frames of each stack, innermost first.
        types: names of the types of segments, by their numbers in `segments`.
        annotations: annotations in the order of the file.
        settings: the allocator's settings.
    """

    traces: list[Trace]
    actions: list[str]
    segments: Segments
    blocks: Blocks
    frames: list[tuple[str, str, int]]
    stacks: list[list[int]]
    types: Mapping[int, str]
    annotations: list[Annotation] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)


def compact(values: Ints) -> Ints:
    """Return the values in the memory of one, if they are all the same."""
    same = len(values) > 0 and int(values.min()) == int(values.max())
    return np.broadcast_to(values[:1].copy(), len(values)) if same else values

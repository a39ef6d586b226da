"""Counter of slices of a thread that are not nested as calls on a stack would be."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.integers import ints
from service.streaming.scan.compiled import compiled

_NONE = -1
_TEXT = -(1 << 62)  # ids that are not integers get the numbers from this one downwards
_TRACKS, _OVERLAPS, _TIES, _OPEN = range(4)  # indexes of the counts
Ints = npt.NDArray[np.int64]


@compiled
def _slot(tracks: Any, pid: int, tid: int) -> int:
    """Return the row of a track in the hash table, or the free row at which to add it."""
    mask: int = tracks.shape[0] - 1
    slot = (pid * 0x2545F4914F6CDD1D ^ tid * 0x5851F42D4C957F2D) >> 20 & mask
    while tracks[slot, 0] and (tracks[slot, 1] != pid or tracks[slot, 2] != tid):
        slot = (slot + 1) & mask
    return slot


@compiled
def _nest(pids: Ints, tids: Ints, starts: Ints, ends: Ints, tracks: Any, slices: Any, counts: Any) -> None:
    """Put slices on the stacks of their tracks, and count those that do not nest.

    Args:
        pids: the slices' pids; the slices are in order of time.
        tids: the slices' tids.
        starts: the slices' starts in ns.
        ends: the slices' ends in ns.
        tracks: a hash table with rows of (used, pid, tid, index of the topmost open slice plus one).
        slices: rows of (start, end, index of the slice below); the first row is the head of the list of free rows.
        counts: the counts of tracks, overlaps, ties and open slices, at `_TRACKS` and so on; updated.
    """
    for index in range(len(pids)):
        start, end = starts[index], ends[index]
        slot = _slot(tracks, pids[index], tids[index])
        if not tracks[slot, 0]:
            tracks[slot, 0], tracks[slot, 1], tracks[slot, 2], tracks[slot, 3] = 1, pids[index], tids[index], 0
            counts[_TRACKS] += 1
        top = tracks[slot, 3] - 1
        while top >= 0 and slices[top, 1] <= start:  # the topmost slice has ended
            below = slices[top, 2]
            slices[top, 2], slices[0, 2] = slices[0, 2], top
            counts[_OPEN] -= 1
            top = below
        above, below = _NONE, top  # shorter slices with the same start belong above this slice
        while below >= 0 and slices[below, 0] == start and slices[below, 1] < end:
            above, below = below, slices[below, 2]
        if below >= 0 and slices[below, 1] < end:
            counts[_OVERLAPS] += 1  # the slice is not put on the stack
        else:
            counts[_TIES] += above >= 0
            free = slices[0, 2]
            slices[0, 2] = slices[free, 2]
            counts[_OPEN] += 1
            slices[free, 0], slices[free, 1], slices[free, 2] = start, end, below
            if above >= 0:
                slices[above, 2] = free
            else:
                top = free
        tracks[slot, 3] = top + 1


class Nesting:
    """Counter of slices that do not nest. Its memory grows with the tracks and the slices that are open at a time."""

    def __init__(self) -> None:
        self._tracks = np.zeros((1 << 10, 4), np.int64)
        self._slices = grow_slices(np.zeros((1, 3), np.int64), 1 << 10)
        self._counts = np.zeros(4, np.int64)
        self._texts: dict[str | None, int] = {}

    @property
    def overlaps(self) -> int:
        """Number of slices that begin within another of their track and end after it."""
        return int(self._counts[_OVERLAPS])

    @property
    def ties(self) -> int:
        """Number of slices that the file lists after a shorter slice of their track with the same start."""
        return int(self._counts[_TIES])

    def add(self, events: pa.Table) -> None:
        """Count the slices of the next events, in order of time and then of the file."""
        phases = events["ph"].combine_chunks()
        is_slice = np.array([*(phase == "X" for phase in phases.dictionary.to_pylist()), False])
        durations = ints(events["dur_ns"], _NONE)
        is_whole = (durations >= 0) & events["ts_ns"].is_valid().to_numpy()
        chosen = np.flatnonzero(is_whole & is_slice[phases.indices.fill_null(-1).to_numpy()])
        starts = ints(events["ts_ns"])[chosen]
        ends = starts + durations[chosen]
        pids, tids = (self._ids(events, key)[chosen] for key in ("pid", "tid"))
        self._make_room(len(starts))
        _nest(pids, tids, starts, ends, self._tracks, self._slices, self._counts)

    def _ids(self, events: pa.Table, key: str) -> Ints:
        """Return the pids or tids of the events; those that are not integers get numbers from `_TEXT` downwards."""
        ids, texts = events[key], events[f"{key}_text"].combine_chunks()
        filled = ints(ids, _TEXT)
        if ids.null_count:
            codes = [self._texts.setdefault(text, len(self._texts)) for text in [*texts.dictionary.to_pylist(), None]]
            row_codes = np.array(codes)[texts.indices.fill_null(len(codes) - 1).to_numpy()]
            filled = np.where(ids.is_null().to_numpy(), _TEXT - row_codes, filled)
        return filled

    def _make_room(self, count: int) -> None:
        """Grow the tables to hold `count` additional tracks and open slices."""
        tracks = int(self._counts[_TRACKS])
        if 2 * (tracks + count) > len(self._tracks):
            old = self._tracks[self._tracks[:, 0] != 0]
            self._tracks = np.zeros((1 << (2 * (tracks + count)).bit_length(), 4), np.int64)
            for row in old:
                self._tracks[_slot(self._tracks, row[1], row[2])] = row
        if int(self._counts[_OPEN]) + count >= len(self._slices):
            self._slices = grow_slices(self._slices, len(self._slices) + count)


def grow_slices(slices: Any, size: int) -> Any:
    """Return the table of slices with `size` rows; the new rows are free."""
    grown = np.zeros((size, 3), np.int64)
    grown[: len(slices)] = slices
    new = np.arange(len(slices), size)
    grown[new, 2] = [*new[1:], slices[0, 2]]
    grown[0, 2] = new[0]
    return grown

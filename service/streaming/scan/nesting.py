"""Counter of slices of a thread that are not nested as calls on a stack would be."""

from typing import Any

import numpy as np
import numpy.typing as npt

from service.streaming.buffers import fixed
from service.streaming.scan.compiled import compiled

NONE = -1
"""Track of events that are left out; also stands for no slice."""
_OVERLAPS, _TIES, _OPEN = range(3)  # indexes of the counts
Ints = npt.NDArray[np.int64]


@compiled
def _nest(tracks: Ints, starts: Ints, ends: Ints, tops: Ints, slices: Any, counts: Ints) -> None:
    """Put slices on the stacks of their tracks, and count those that do not nest.

    Args:
        tracks: the numbers of the slices' tracks, or `NONE` to leave one out; the slices are in order of time.
        starts: the slices' starts in ns.
        ends: the slices' ends in ns.
        tops: the index of the topmost open slice of each track, or `NONE`; updated.
        slices: rows of (start, end, index of the slice below); the first row is the head of the list of free rows.
        counts: the counts of overlaps, ties and open slices, at `_OVERLAPS` and so on; updated.
    """
    for index in range(len(tracks)):
        if tracks[index] == NONE:
            continue
        start, end = starts[index], ends[index]
        top = tops[tracks[index]]
        while top >= 0 and slices[top, 1] <= start:  # the topmost slice has ended
            below = slices[top, 2]
            slices[top, 2], slices[0, 2] = slices[0, 2], top
            counts[_OPEN] -= 1
            top = below
        above, below = NONE, top  # shorter slices with the same start belong above this slice
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
        tops[tracks[index]] = top


class Nesting:
    """Counter of slices that do not nest. Its memory grows with the tracks and the slices that are open at a time."""

    def __init__(self) -> None:
        self._tops = np.empty(0, np.int64)
        self._slices = grow_slices(np.zeros((1, 3), np.int64), 1 << 10)
        self._counts = np.zeros(3, np.int64)

    @property
    def overlaps(self) -> int:
        """Number of slices that begin within another of their track and end after it."""
        return int(self._counts[_OVERLAPS])

    @property
    def ties(self) -> int:
        """Number of slices that the file lists after a shorter slice of their track with the same start."""
        return int(self._counts[_TIES])

    def add(self, tracks: Ints, starts: Ints, ends: Ints) -> None:
        """Count the next slices, in order of time and then of the file.

        Args:
            tracks: the numbers of their tracks, or `NONE` for events that are left out.
            starts: their starts in ns.
            ends: their ends in ns.
        """
        tracks_max = int(tracks.max(initial=NONE))
        if tracks_max >= len(self._tops):
            tops = np.full(2 * tracks_max + 1, NONE)
            tops[: len(self._tops)] = self._tops
            self._tops = tops
        if int(self._counts[_OPEN]) + len(starts) >= len(self._slices):
            self._slices = grow_slices(self._slices, len(self._slices) + len(starts))
        _nest(tracks, fixed(starts), fixed(ends), self._tops, self._slices, self._counts)


def grow_slices(slices: Any, size: int) -> Any:
    """Return the table of slices with `size` rows; the new rows are free."""
    grown = np.zeros((size, 3), np.int64)
    grown[: len(slices)] = slices
    new = np.arange(len(slices), size)
    grown[new, 2] = [*new[1:], slices[0, 2]]
    grown[0, 2] = new[0]
    return grown

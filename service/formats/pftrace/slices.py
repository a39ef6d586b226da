"""The durations of slices, whose begins and ends are different packets.

The ends of a track need not be in order: PyTorch writes the begins of all activities of a kind, then all their
ends.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

OPEN = -1
"""The duration of a slice that has no end."""

_HELD = 3 << 15  # numbers that wait for the next write
_END = -1


class Marks:
    """The begins and ends of slices, in the order of the file, in a file of their own.

    Args:
        path: path of the new file.

    Attributes:
        slices: number of begins.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")
        self._held = array("q")
        self.slices = 0

    def begin(self, sequence: int, track: int, time: int) -> None:
        """Add the begin of the next slice."""
        self._add(sequence, track, time, self.slices)
        self.slices += 1

    def end(self, sequence: int, track: int, time: int) -> None:
        """Add an end."""
        self._add(sequence, track, time, _END)

    def durations(self) -> tuple[Ints, int]:
        """Return the duration of each slice in ns, or `OPEN`, and the number of ends without a begin."""
        self._held.tofile(self._file)
        self._file.close()
        durations = np.full(self.slices, OPEN, np.int64)
        rows = np.fromfile(self._path, np.int64).reshape(-1, 3)
        left = np.ones(len(rows), np.bool_)
        for chosen in _by_sequence(rows):
            if pairs := _listed_pairs(rows[chosen]):
                begins, ends = (chosen[place] for place in pairs)
                durations[rows[begins, 2]] = rows[ends, 1] - rows[begins, 1]
                left[chosen] = False
        places = np.flatnonzero(left)
        order = places[np.lexsort((rows[places, 1], rows[places, 0] & 0xFFFFFFFF))]  # stable: equal times stay in order
        unmatched = 0
        borders = np.flatnonzero(np.diff(rows[order, 0] & 0xFFFFFFFF)) + 1
        for track in np.split(order, borders) if len(order) else ():
            begins, ends, without = _nested_pairs(rows[track, 2] != _END)
            durations[rows[track[begins], 2]] = rows[track[ends], 1] - rows[track[begins], 1]
            unmatched += without
        return durations, unmatched

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _add(self, sequence: int, track: int, time: int, number: int) -> None:
        self._held.extend((sequence << 32 | track, time, number))
        if len(self._held) >= _HELD:
            self._held.tofile(self._file)
            del self._held[:]


def _by_sequence(rows: Ints) -> Iterator[Ints]:
    """Yield the places of the marks of each sequence, in the order of the file."""
    sequences = rows[:, 0] >> 32
    order = np.argsort(sequences, kind="stable")
    borders = np.flatnonzero(np.diff(sequences[order])) + 1
    yield from np.split(order, borders) if len(order) else ()


def _listed_pairs(marks: Ints) -> tuple[Ints, Ints] | None:
    """Return the places of the begins and ends of slices that are listed as PyTorch does it; None for other lists.

    Such a list has many begins and then as many ends, in the same order. A file that is cut lacks the last ends.
    """
    begins = marks[:, 2] != _END
    if (np.diff(marks[:, 1]) >= 0).all():
        return None  # in the order of time, as all other programs write: slices are nested
    runs = np.diff(np.concatenate(([0], np.flatnonzero(np.diff(begins)) + 1, [len(marks)])))
    opened, closed = runs[::2], runs[1::2]
    if not begins[0] or (opened[: len(closed) - 1] != closed[:-1]).any():
        return None
    if len(closed) and closed[-1] > opened[len(closed) - 1]:
        return None
    if len(closed) and closed[-1] < opened[len(closed) - 1] and len(opened) > len(closed):
        return None
    ends = np.flatnonzero(~begins)
    starts = np.flatnonzero(begins)[: len(ends)]
    one_track = (marks[starts, 0] == marks[ends, 0]).all()
    return (starts, ends) if one_track and (marks[starts, 1] <= marks[ends, 1]).all() else None


def _nested_pairs(begins: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, int]:
    """Return the places of begins and of their ends on a track, and the number of ends without a begin.

    Args:
        begins: whether each mark of the track, in the order of time, is a begin. An end closes the latest open slice.
    """
    total = np.cumsum(np.where(begins, 1, -1))
    lowest = np.minimum.accumulate(np.minimum(total, 0))
    without = ~begins & (total < np.concatenate(([0], lowest[:-1])))
    levels = total - lowest + ~begins  # of the slice that the mark belongs to
    kept = np.flatnonzero(~without)
    order = kept[np.argsort(levels[kept], kind="stable")]
    pairs = np.flatnonzero(begins[order[:-1]] & ~begins[order[1:]] & (levels[order[:-1]] == levels[order[1:]]))
    return order[pairs], order[pairs + 1], int(without.sum())

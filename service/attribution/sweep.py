"""The innermost operator around each call, found in one sweep over a trace's events in order of time. Compiled."""

import numpy as np

from service.attribution.nesting import NONE, Flags, Ints
from service.streaming.scan.compiled import compiled

_END, _ROW, _ID, _BELOW = range(4)
"""Columns of open operators: when each ends, its row and External id, and the one below it on its thread."""

_ROOM = 1 << 10


class OpenOperators:
    """The operators that have begun, thread by thread, while the sweep goes on."""

    def __init__(self) -> None:
        self._open = np.empty((_ROOM, 4), np.int64)
        self._free = np.arange(_ROOM - 1, NONE - 1, -1, dtype=np.int64)  # a stack; its last item is its height
        self._free[-1] = _ROOM
        self._tops = np.empty(0, np.int64)

    def around(self, is_call: Flags, threads: Ints, starts: Ints, ends: Ints, ids: Ints, rows: Ints) -> Ints:
        """The innermost operator around the start of each call, as its row and its External id; `NONE` for no operator.

        Args:
            is_call: whether a slice is a call; all others are operators. The slices follow those of the last time.
            threads: the number of the thread of each.
            starts: in order; of those that begin at once the longest first.
            ends: likewise.
            ids: External ids.
            rows: by which operators are told.
        """
        more = int(threads.max(initial=NONE)) + 1 - len(self._tops)
        if more > 0:
            self._tops = np.append(self._tops, np.full(more, NONE, np.int64))
        found = np.full((int(is_call.sum()), 2), NONE, np.int64)
        slice_, call = 0, 0
        while True:
            slice_, call = _sweep(
                slice_, call, is_call, threads, starts, ends, ids, rows, self._open, self._free, self._tops, found
            )
            if slice_ == len(rows):
                return found
            self._grow()

    def _grow(self) -> None:
        """Make room for twice as many; there is none left."""
        room = len(self._open)
        self._open = np.concatenate([self._open, np.empty_like(self._open)])
        self._free = np.arange(2 * room - 1, NONE - 1, -1, dtype=np.int64)
        self._free[-1] = room


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code passes all it needs: objects would cost more
    first: int, call: int, is_call: Flags, threads: Ints, starts: Ints, ends: Ints, ids: Ints, rows: Ints,
    opened: Ints, free: Ints, tops: Ints, found: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Go on from a slice and a call; returns where it stopped, which is before the end where there is no room."""
    for index in range(first, len(rows)):
        thread, start = threads[index], starts[index]
        top = tops[thread]
        while top >= 0 and opened[top, _END] <= start:
            below = opened[top, _BELOW]
            free[free[-1]] = top
            free[-1] += 1
            top = below
        tops[thread] = top
        if not is_call[index]:
            if free[-1] == 0:
                return index, call
            free[-1] -= 1
            place = free[free[-1]]
            opened[place, _END], opened[place, _ROW], opened[place, _ID] = ends[index], rows[index], ids[index]
            opened[place, _BELOW], tops[thread] = top, place
            continue
        while top >= 0 and opened[top, _END] <= start:  # one that is over may lie below one that is not
            top = opened[top, _BELOW]
        if top >= 0:
            found[call, 0], found[call, 1] = opened[top, _ROW], opened[top, _ID]
        call += 1
    return len(rows), call

"""Compiled lookup of the innermost operator around each call: one sweep over a trace's events in order of time."""

import numpy as np

from service.attribution.nesting import NONE, Flags, Ints
from service.streaming.scan.compiled import compiled

_END, _ROW, _ID, _BELOW = range(4)
"""Columns of open operators: end, row, External id, and the open operator below on the same thread."""

_INITIAL_CAPACITY = 1 << 10


class OpenOperators:
    """Stacks of open operators, one for each thread, kept between the batches of a sweep."""

    def __init__(self) -> None:
        self._open = np.empty((_INITIAL_CAPACITY, 4), np.int64)
        self._free = np.arange(
            _INITIAL_CAPACITY - 1, NONE - 1, -1, dtype=np.int64
        )  # stack of free entries; the last item is the height of the stack
        self._free[-1] = _INITIAL_CAPACITY
        self._tops = np.empty(0, np.int64)

    def around(self, is_call: Flags, threads: Ints, starts: Ints, ends: Ints, ids: Ints, rows: Ints) -> Ints:
        """Return the innermost operator around the start of each call.

        The slices of a batch start after those of the previous batch.

        Args:
            is_call: slices that are calls; all others are operators.
            threads: thread number of each slice.
            starts: start of each slice, in ascending order; of equal starts the longest first.
            ends: end of each slice.
            ids: External id of each slice.
            rows: row of each slice among the events.

        Returns:
            An array with a row for each call and two columns: the operator's row and External id, or `NONE` in both.
        """
        new_threads = int(threads.max(initial=NONE)) + 1 - len(self._tops)
        if new_threads > 0:
            self._tops = np.append(self._tops, np.full(new_threads, NONE, np.int64))
        operators = np.full((int(is_call.sum()), 2), NONE, np.int64)
        slice_, call = 0, 0
        while True:
            slice_, call = _sweep(
                slice_, call, is_call, threads, starts, ends, ids, rows, self._open, self._free, self._tops, operators
            )
            if slice_ == len(rows):
                return operators
            self._grow()

    def _grow(self) -> None:
        """Double the full table of open operators."""
        capacity = len(self._open)
        self._open = np.concatenate([self._open, np.empty_like(self._open)])
        self._free = np.arange(2 * capacity - 1, NONE - 1, -1, dtype=np.int64)
        self._free[-1] = capacity


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    first: int, call: int, is_call: Flags, threads: Ints, starts: Ints, ends: Ints, ids: Ints, rows: Ints,
    opened: Ints, free: Ints, tops: Ints, operators: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Continue the sweep at a slice and a call; return the next slice and call. A full table stops the sweep early."""
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
            entry = free[free[-1]]
            opened[entry, _END], opened[entry, _ROW], opened[entry, _ID] = ends[index], rows[index], ids[index]
            opened[entry, _BELOW], tops[thread] = top, entry
            continue
        while top >= 0 and opened[top, _END] <= start:  # a closed operator may lie below an open one
            top = opened[top, _BELOW]
        if top >= 0:
            operators[call, 0], operators[call, 1] = opened[top, _ROW], opened[top, _ID]
        call += 1
    return len(rows), call

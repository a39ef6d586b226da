"""Compiled lookup of the innermost operator around each call: one sweep over a trace's events in order of time."""

import numpy as np

from service.attribution.nesting import NONE, Flags, Ints
from service.streaming.scan.compiled import compiled

CLASS, START, END, ROW, ID, CORRELATION, NAME = range(7)
"""Columns of slices: class, start, end, row among the events, External id, and the correlation of calls, above 0.

Operators have the correlation 0; names are numbered, and those of operators do not matter.
"""
WIDTH = NAME + 1

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

    def around(self, slices: Ints, threads: Ints, calls: int) -> Ints:
        """Return the innermost operator around the start of each call.

        The slices of a batch start after those of the previous batch.

        Args:
            slices: calls and operators, in ascending order of their starts; of equal starts the longest first.
            threads: thread number of each class.
            calls: number of calls.

        Returns:
            An array with a row for each call and two columns: the operator's row and External id, or `NONE` in both.
        """
        new_threads = int(threads.max(initial=NONE)) + 1 - len(self._tops)
        if new_threads > 0:
            self._tops = np.append(self._tops, np.full(new_threads, NONE, np.int64))
        operators = np.full((calls, 2), NONE, np.int64)
        slice_, call = 0, 0
        while True:
            slice_, call = _sweep(slice_, call, slices, threads, self._open, self._free, self._tops, operators)
            if slice_ == len(slices):
                return operators
            self._grow()

    def _grow(self) -> None:
        """Double the full table of open operators."""
        capacity = len(self._open)
        self._open = np.concatenate([self._open, np.empty_like(self._open)])
        self._free = np.arange(2 * capacity - 1, NONE - 1, -1, dtype=np.int64)
        self._free[-1] = capacity


@compiled
def gather(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    is_operator: Flags, is_call: Flags, classes: Ints, starts: Ints, ends: Ints, ids: Ints, correlations: Ints,
    first: int, slices: Ints,
) -> None:  # fmt: skip
    """Write the slices that are operators or calls, without names, from columns of events, which begin with a row."""
    count = 0
    for event in range(len(classes)):
        if is_operator[event] or is_call[event]:
            slice_ = slices[count]
            slice_[CLASS], slice_[START], slice_[END] = classes[event], starts[event], ends[event]
            slice_[ROW], slice_[ID] = first + event, ids[event]
            slice_[CORRELATION] = correlations[event] if is_call[event] else 0
            slice_[NAME] = NONE
            count += 1


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    first: int, call: int, slices: Ints, threads: Ints, opened: Ints, free: Ints, tops: Ints, operators: Ints
) -> tuple[int, int]:  # fmt: skip
    """Continue the sweep at a slice and a call; return the next slice and call. A full table stops the sweep early."""
    for index in range(first, len(slices)):
        slice_ = slices[index]
        thread, start = threads[slice_[CLASS]], slice_[START]
        top = tops[thread]
        while top >= 0 and opened[top, _END] <= start:
            below = opened[top, _BELOW]
            free[free[-1]] = top
            free[-1] += 1
            top = below
        tops[thread] = top
        if slice_[CORRELATION] == 0:
            if free[-1] == 0:
                return index, call
            free[-1] -= 1
            entry = free[free[-1]]
            opened[entry, _END], opened[entry, _ROW], opened[entry, _ID] = slice_[END], slice_[ROW], slice_[ID]
            opened[entry, _BELOW], tops[thread] = top, entry
            continue
        while top >= 0 and opened[top, _END] <= start:  # a closed operator may lie below an open one
            top = opened[top, _BELOW]
        if top >= 0:
            operators[call, 0], operators[call, 1] = opened[top, _ROW], opened[top, _ID]
        call += 1
    return len(slices), call

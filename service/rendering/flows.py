"""Ends of flow arrows without a start: the engine ignores them, but only after it has read them all."""

from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.parts import Flags
from service.streaming.scan.compiled import compiled

Keys = npt.NDArray[np.uint64]


@compiled
def _mark_loose(keys: Keys, starts: Flags, table: Keys, loose: Flags, count: Any) -> None:
    """Put the keys of starts into a hash table, and mark the ends whose keys it lacks; 0 marks a free place."""
    mask = np.uint64(len(table) - 1)
    for row in range(len(keys)):
        key = keys[row] | np.uint64(1)
        place = (key >> np.uint64(7)) & mask
        while table[place] != 0 and table[place] != key:
            place = (place + np.uint64(1)) & mask
        if table[place] == key:
            continue
        if starts[row]:
            table[place] = key
            count[0] += 1
        else:
            loose[row] = True


class FlowMatcher:
    """Finds ends without a start among flow events in order of time, by the engine's rules."""

    def __init__(self) -> None:
        self._table = np.zeros(1 << 12, np.uint64)
        self._count = np.zeros(1, np.int64)

    def loose(self, keys: Keys, starts: Flags) -> Flags:
        """Return which events are ends, or steps, of an arrow that has not begun.

        Args:
            keys: identify the arrow of each event; hashed, for their low bit is ignored.
            starts: the events that begin an arrow.
        """
        if 2 * (self._count[0] + len(keys)) > len(self._table):
            kept = self._table[self._table != 0]
            self._table = np.zeros(1 << int(4 * (len(kept) + len(keys))).bit_length(), np.uint64)
            self._count[0] = 0
            self.loose(kept, np.ones(len(kept), np.bool_))
        loose = np.zeros(len(keys), np.bool_)
        _mark_loose(keys, starts, self._table, loose, self._count)
        return loose

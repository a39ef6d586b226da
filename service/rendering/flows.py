"""Loose ends: flow events that end or continue an arrow without a start.

The engine ignores them, but only after it has read all of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.parts import Flags
from service.streaming.scan.compiled import compiled

Keys = npt.NDArray[np.uint64]


@compiled
def _mark_loose(keys: Keys, starts: Flags, table: Keys, loose: Flags, count: Any) -> None:
    """Add the keys of starts to a hash table; mark every other event whose key is not in the table.

    Args:
        keys: key of each event.
        starts: flags of the events that start an arrow.
        table: slots of the hash table; 0 is an empty slot.
        loose: receives the marks.
        count: an array of one integer, the number of keys in the table.
    """
    mask = np.uint64(len(table) - 1)
    for row in range(len(keys)):
        key = keys[row] | np.uint64(1)  # never 0
        slot = (key >> np.uint64(7)) & mask
        while table[slot] != 0 and table[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] == key:
            continue
        if starts[row]:
            table[slot] = key
            count[0] += 1
        else:
            loose[row] = True


class FlowMatcher:
    """Finds loose ends by the engine's rules; flow events must be passed in order of time."""

    def __init__(self) -> None:
        self._table = np.zeros(1 << 12, np.uint64)
        self._count = np.zeros(1, np.int64)

    def loose(self, keys: Keys, starts: Flags) -> Flags:
        """Flag the events that end or continue an arrow that has not started.

        Args:
            keys: hash of the identity of each event's arrow; the lowest bit is ignored.
            starts: flags of the events that start an arrow.
        """
        if 2 * (self._count[0] + len(keys)) > len(self._table):
            known = self._table[self._table != 0]
            self._table = np.zeros(1 << int(4 * (len(known) + len(keys))).bit_length(), np.uint64)
            self._count[0] = 0
            self.loose(known, np.ones(len(known), np.bool_))  # adds the known keys to the larger table
        loose = np.zeros(len(keys), np.bool_)
        _mark_loose(keys, starts, self._table, loose, self._count)
        return loose

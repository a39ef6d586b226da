"""Numbers of the tracks of a document's events.

`service.store.parts.Tracks` gives such numbers without compiled code, which the server does not load.
"""

from typing import Any

import numpy as np

from service.store.parts import MIXERS, Flags, Ints, Part, Words, track_ids, tracks_at
from service.streaming.buffers import fixed
from service.streaming.scan.compiled import compiled
from service.trace.summary import Key


@compiled
def _number(
    pids: Ints, tids: Ints, has_pid: Flags, has_tid: Flags, slots: Ints, pairs: Any, known: int, numbers: Ints,
    firsts: Ints,
) -> int:  # fmt: skip
    """Number the pairs of a pid and a tid in the order of first occurrence; return how many are known.

    Args:
        pids: the pid of each event, or the number of its text.
        tids: the tid of each event, likewise.
        has_pid: flags of the pids that are integers.
        has_tid: flags of the tids that are integers.
        slots: hash table of the numbers plus 1; 0 is a free slot. Updated.
        pairs: by number, the pid, the tid, and which of them are integers. Updated.
        known: how many were known before.
        numbers: output: the number of each event's pair.
        firsts: output: the row of the first event of each new pair.
    """
    before, mask = known, np.uint64(len(slots) - 1)
    for row in range(len(pids)):
        pid, tid, integers = pids[row], tids[row], int(has_pid[row]) + 2 * int(has_tid[row])
        mixed = ((np.uint64(pid) * MIXERS[0]) ^ np.uint64(tid)) * MIXERS[1]
        slot = (mixed ^ (mixed >> np.uint64(32))) & mask
        while slots[slot] != 0:
            pair = slots[slot] - 1
            if pairs[pair, 0] == pid and pairs[pair, 1] == tid and pairs[pair, 2] == integers:
                break
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] == 0:
            pairs[known, 0], pairs[known, 1], pairs[known, 2] = pid, tid, integers
            firsts[known - before] = row
            known += 1
            slots[slot] = known
        numbers[row] = slots[slot] - 1
    return known


class TrackNumbers:
    """Assigns numbers to tracks in the order of first occurrence; `keys` has the pid and the tid of each track."""

    def __init__(self) -> None:
        self.keys: list[tuple[Key, Key]] = []
        self._numbers: dict[tuple[Key, Key], int] = {}
        self._words = Words()
        self._slots = np.zeros(0, np.int64)
        self._pairs = np.zeros((0, 3), np.int64)
        self._of_pairs = np.zeros(0, np.int64)  # the track of each pair: a tid may be spelled in several ways

    def of(self, part: Part) -> Ints:
        """Return the number of each event's track."""
        known = len(self._of_pairs)
        if 2 * (known + len(part)) > len(self._slots):
            self._enlarge(known + len(part))
        pids, tids = (track_ids(part, name, self._words) for name in ("pid", "tid"))
        pairs, firsts = self._numbered(known, pids, tids, part.has("pid"), part.has("tid"))
        if len(firsts):
            tracks = tracks_at(part, firsts)
            for track in tracks:
                if self._numbers.setdefault(track, len(self.keys)) == len(self.keys):
                    self.keys.append(track)
            self._of_pairs = np.append(self._of_pairs, [self._numbers[track] for track in tracks])
        return self._of_pairs.take(pairs)

    def _numbered(self, known: int, pids: Ints, tids: Ints, has_pid: Flags, has_tid: Flags) -> tuple[Ints, Ints]:
        """Return the number of each event's pair, and the row of each new one."""
        numbers, firsts = np.empty(len(pids), np.int64), np.empty(len(pids), np.int64)
        count = _number(fixed(pids), fixed(tids), has_pid, has_tid, self._slots, self._pairs, known, numbers, firsts)
        return numbers, firsts[: count - known]

    def _enlarge(self, count: int) -> None:
        """Make room for so many pairs in a hash table that is at most half full."""
        pids, tids, integers = self._pairs[: len(self._of_pairs)].T.copy()
        self._slots = np.zeros(1 << (2 * count).bit_length(), np.int64)
        self._pairs = np.zeros((len(self._slots) // 2, 3), np.int64)
        self._numbered(0, pids, tids, integers & 1 > 0, integers & 2 > 0)

"""Numbers of arrows by which the engine knows their categories and names.

Records of arrows have neither. The engine looks both up by an arrow's number, among the numbers that it has given to
flow events of Perfetto's protobuf: 0 to the first one, and so on, if each has another id. So a packet with a flow event
introduces each number. The event shows nothing, since it has no track; the engine counts it in the statistic
``track_event_parser_errors``. An arrow that has ended leaves its number to the next one of the same category and name,
so that a few numbers serve all.

https://github.com/google/perfetto/blob/v54.0/src/trace_processor/importers/common/flow_tracker.cc
"""

from typing import Any

import numpy as np

from service.formats.pftrace.messages import Packet, framed
from service.rendering.arrows import Keys
from service.rendering.phases import CODES, PHASES
from service.rendering.placed import PlacedEvents
from service.rendering.sanitizing import plain
from service.store.parts import Flags, Ints, Words
from service.streaming.scan.compiled import compiled

_BEGIN, _STEP, _END = (CODES[phase] for phase in "stf")
_ARE_ENDS = np.array([code in {_BEGIN, _STEP, _END} for code in range(len(PHASES))])
_NONE = -1
_UNENDED = np.uint64(1 << 63)
"""Added to the keys of arrows that never end, whose numbers the engine does not look up."""
_SEQUENCE = 1
_PHASE = ord("f")
_NAME_BITS = 32


@compiled
def _slot(key: np.uint64, keys: Keys) -> int:
    """Return the slot of a key in a hash table, or the free slot for it; 0 is a free slot."""
    mask = np.uint64(len(keys) - 1)
    slot = (key >> np.uint64(7)) & mask
    while keys[slot] != 0 and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return int(slot)


@compiled
def _enter(arrows: Keys, keys: Keys) -> None:
    """Enter arrows into an empty hash table."""
    for arrow in arrows:
        keys[_slot(arrow, keys)] = arrow


@compiled
def _assign(
    arrows: Keys, kinds: Ints, phases: Ints, covered: Flags, keys: Keys, current: Any, left: Ints, table: Ints,
    known: int, out: Ints,
) -> int:  # fmt: skip
    """Give the places of arrows their numbers, in order of time; return the count of numbers.

    Args:
        arrows: the key of the arrow of each place.
        kinds: the index of its category and name.
        phases: the phase of its event.
        covered: flags of the places where a slice is. The engine ends no arrow elsewhere, and keeps its number.
        keys: hash table of the arrows that end.
        current: by slot, the number of the arrow; -1 for none. Updated.
        left: by kind, the number that was left last; -1 for none. Updated.
        table: by number, its kind, and the number of this kind that was left before it. Updated.
        known: the count of numbers before.
        out: output: the numbers; -1 for none.
    """
    for place in range(len(arrows)):
        out[place] = _NONE
        slot = _slot(arrows[place], keys)
        if keys[slot] == 0:
            continue
        kind = kinds[place]
        if phases[place] == _BEGIN and current[slot] == _NONE:
            current[slot] = left[kind]
            if current[slot] == _NONE:
                current[slot] = known
                table[known, 0] = kind
                known += 1
            else:
                left[kind] = table[current[slot], 1]
        number = current[slot]
        out[place] = number
        if phases[place] == _END and number != _NONE:
            current[slot] = _NONE
            if covered[place]:
                table[number, 1] = left[kind]
                left[kind] = number
    return known


class ArrowNumbers:
    """Gives numbers to the arrows of a document, whose events are passed in order of time.

    Args:
        ended: the keys of the arrows that go on or end somewhere.
    """

    def __init__(self, ended: Keys) -> None:
        self._keys = np.zeros(2 << len(ended).bit_length(), np.uint64)
        _enter(ended, self._keys)
        self._current = np.full(len(self._keys), _NONE, np.int32)
        self._left = np.zeros(0, np.int64)
        self._table = np.zeros((0, 2), np.int64)
        self._known = 0
        self._categories, self._names = Words(), Words()
        self._kinds: dict[int, int] = {}

    def of(self, events: PlacedEvents, rows: Ints, arrows: Keys) -> tuple[Keys, list[bytes]]:
        """Return the number of each record's arrow, and the packets that come before the records.

        An arrow that ends at the time 0 may get no category and no name: no packet can be earlier.

        Args:
            events: the events.
            rows: the row of each record's event; see `ArrowScan.split`.
            arrows: the key of each record's arrow.
        """
        numbers, phases = arrows | _UNENDED, events.phases[rows]
        places = np.flatnonzero(_ARE_ENDS.take(phases) & ~events.left_out[rows])
        if not len(places):
            return numbers, []
        places = places[np.argsort(events.starts[rows[places]], kind="stable")]
        kinds = self._kinds_of(events, rows[places])
        if len(self._table) < self._known + len(places):
            self._table = np.concatenate([self._table, np.zeros((len(self._table) + len(places), 2), np.int64)])
        first, out = self._known, np.empty(len(places), np.int64)
        self._known = _assign(
            arrows[places], kinds, phases[places], events.covered[rows[places]],
            self._keys, self._current, self._left, self._table, first, out,
        )  # fmt: skip
        has_number = out != _NONE
        numbers[places[has_number]] = out[has_number].astype(np.uint64)
        return numbers, self._packets(first, max(int(events.starts[rows[places[0]]]) - 1, 0))

    def _kinds_of(self, events: PlacedEvents, rows: Ints) -> Ints:
        """Return the indices of the categories and names of events."""
        categories = 1 + self._categories.of(events.part, "cat", rows)  # 0 is null
        names = 1 + self._names.of(events.part, "name", rows)
        pairs, kinds = np.unique(categories << _NAME_BITS | names, return_inverse=True)
        known = [self._kinds.setdefault(pair, len(self._kinds)) for pair in pairs.tolist()]
        self._left = np.append(self._left, np.full(len(self._kinds) - len(self._left), _NONE))
        return np.array(known)[kinds]

    def _packets(self, first: int, time: int) -> list[bytes]:
        """Return the packets that introduce the numbers from the first one on, at a time in ns."""
        kinds, packets = [*self._kinds], []
        categories, names = [None, *self._categories.listed], [None, *self._names.listed]
        for number in range(first, self._known):
            kind = kinds[self._table[number, 0]]
            category, name = categories[kind >> _NAME_BITS], names[kind & ((1 << _NAME_BITS) - 1)]
            packet = Packet(timestamp=time, trusted_packet_sequence_id=_SEQUENCE)
            if category:  # otherwise NULL, as in JSON
                packet.track_event.categories.append(plain(category).encode())
            if name:
                packet.track_event.name = plain(name).encode()
            packet.track_event.legacy_event.phase = _PHASE
            packet.track_event.legacy_event.unscoped_id = number
            packets.append(framed(packet.SerializeToString()))
        return packets

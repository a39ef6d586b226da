"""Compiled writing of events as packets."""

from typing import NamedTuple

import numpy as np

from service.formats.pftrace.messages import (
    INSTANT,
    NEEDS_STATE,
    PACKET,
    SLICE_BEGIN,
    SLICE_END,
    tag,
    varint,
)
from service.formats.pftrace.written import EXACT, SHOWN, WITH_ID
from service.rendering.pftrace.annotations import Annotations
from service.rendering.pftrace.wire import Bytes, close_message, put, put_slice, put_varint
from service.rendering.phases import PHASES
from service.rendering.text import PackedTexts
from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled

_SLICE, _COUNTER = PHASES.index("X"), PHASES.index("C")
_NONE = -1
_PACKET_SIZE = 96  # bytes of a packet beyond its words and annotations
_TYPES = np.array(
    [
        0 if phase in WITH_ID else {"X": SLICE_BEGIN, "B": SLICE_BEGIN, "E": SLICE_END}.get(phase, INSTANT)
        for phase in PHASES
    ],
    np.int64,
)
_LEGACY_PHASES = np.array([*map(ord, PHASES)], np.int64)

_TIMESTAMP, _EVENT = tag("Packet", "timestamp"), tag("Packet", "track_event")
_TYPE, _LEGACY = tag("TrackEvent", "type"), tag("TrackEvent", "legacy_event")
_PHASE, _ID, _BINDING = (tag("Legacy", field) for field in ("phase", "unscoped_id", "bind_to_enclosing"))
_HEADS = PackedTexts.of(
    [
        b"".join(
            (tag("Packet", "trusted_packet_sequence_id"), varint(sequence),
             tag("Packet", "sequence_flags"), varint(NEEDS_STATE))
        )
        for sequence in (EXACT, SHOWN)
    ]
)  # fmt: skip


class Fields(NamedTuple):
    """Fields of events that many of them share: their bytes, and the index of each event's field."""

    texts: PackedTexts
    of: Ints


class Events(NamedTuple):
    """Events to write as packets.

    Attributes:
        phases: indexes of their phases in `PHASES`.
        exact: flags of those whose packets hold all of them.
        starts: their starts on the clock of packets, in ns.
        ends: their ends.
        ids: their ids.
        binds: flags of the ends of arrows that belong to the slice around them.
        categories, names, tracks: fields of a track event.
        annotations: their arguments.
    """

    phases: Ints
    exact: Flags
    starts: Ints
    ends: Ints
    ids: Ints
    binds: Flags
    categories: Fields
    names: Fields
    tracks: Fields
    annotations: Annotations


def packets_of(events: Events) -> memoryview:
    """Return the packets of events except counters, by time; of slices at the same time, the longest is first.

    A slice without duration ends behind the ends of arrows that follow it on its lane, which belong to it.
    """
    is_slice = events.phases == _SLICE
    is_flow = np.isin(events.phases, [PHASES.index(phase) for phase in "stf"])
    owners = _owners(events, is_slice, is_flow)
    owned = owners != _NONE
    order = np.lexsort((np.where(owned, owners, np.arange(len(owners))), is_flow & ~owned, -events.ends, events.starts))
    out = np.empty(_size(events, is_slice), np.uint8)
    (categories, category_of), (names, name_of), (tracks, track_of) = events.categories, events.names, events.tracks
    end = _write(
        out, order, owners, events.phases, events.exact, events.starts, events.ends, events.ids, events.binds,
        _TYPES, _LEGACY_PHASES, _HEADS.values, _HEADS.starts, categories.values, categories.starts, category_of,
        names.values, names.starts, name_of, tracks.values, tracks.starts, track_of,
        events.annotations.values, events.annotations.starts, events.annotations.stops,
    )  # fmt: skip
    return out[:end].data


def _owners(events: Events, is_slice: Flags, is_flow: Flags) -> Ints:
    """Return, for each end of an arrow, the slice without duration before it at its time on its lane; else `_NONE`."""
    owners = np.full(len(is_slice), _NONE)
    is_empty = is_slice & (events.ends == events.starts)
    rows = np.flatnonzero(is_empty | is_flow)
    if not is_empty.any():
        return owners
    lanes, starts = events.tracks.of[rows], events.starts[rows]
    order = np.lexsort((lanes, starts))
    rows, lanes, starts = rows[order], lanes[order], starts[order]
    last = np.maximum.accumulate(np.where(is_empty[rows], np.arange(len(rows)), _NONE))
    same = (last != _NONE) & (lanes[last] == lanes) & (starts[last] == starts) & is_flow[rows]
    owners[rows[same]] = rows[last[same]]
    return owners


def _size(events: Events, is_slice: Flags) -> int:
    """Return a size in bytes that the packets do not exceed."""
    words = sum(int(texts.lengths[of].sum()) for texts, of in (events.categories, events.names, events.tracks))
    ends = int(events.tracks.texts.lengths[events.tracks.of[is_slice]].sum())
    annotations = int((events.annotations.stops - events.annotations.starts).sum())
    return words + ends + annotations + _PACKET_SIZE * (len(is_slice) + int(is_slice.sum()))


@compiled
def _write(
    out: Bytes, order: Ints, owners: Ints,
    phases: Ints, exact: Flags, starts: Ints, ends: Ints, ids: Ints, binds: Flags,
    types: Ints, legacy_phases: Ints, heads: Bytes, head_starts: Ints,
    categories: Bytes, category_starts: Ints, category_of: Ints,
    names: Bytes, name_starts: Ints, name_of: Ints,
    tracks: Bytes, track_starts: Ints, lanes: Ints,
    annotations: Bytes, annotation_starts: Ints, annotation_stops: Ints,
) -> int:  # fmt: skip
    """Write the packets of events except counters; return the number of bytes.

    The end of a slice follows its begin and the ends of arrows that it owns: readers sort packets by time, and keep
    the order of those at the same time.
    """
    end, begun = 0, _NONE
    for place in range(len(order) + 1):
        row = order[place] if place < len(order) else _NONE
        if begun != _NONE and (row == _NONE or owners[row] != begun):
            head, lane = 0 if exact[begun] else 1, lanes[begun]
            packet = put(out, end, PACKET) + 1
            end = put_varint(out, put(out, packet, _TIMESTAMP), ends[begun])
            end = put_slice(out, end, heads, head_starts[head], head_starts[head + 1])
            event = put(out, end, _EVENT) + 1
            end = put_varint(out, put(out, event, _TYPE), SLICE_END)
            end = put_slice(out, end, tracks, track_starts[lane], track_starts[lane + 1])
            end = close_message(out, packet, close_message(out, event, end))
            begun = _NONE
        if row == _NONE:
            break
        phase = phases[row]
        if phase == _COUNTER:
            continue
        head = 0 if exact[row] else 1
        lane = lanes[row]
        packet = put(out, end, PACKET) + 1
        end = put_varint(out, put(out, packet, _TIMESTAMP), starts[row])
        end = put_slice(out, end, heads, head_starts[head], head_starts[head + 1])
        event = put(out, end, _EVENT) + 1
        code = category_of[row]
        end = put_slice(out, event, categories, category_starts[code], category_starts[code + 1])
        end = put_slice(out, end, annotations, annotation_starts[row], annotation_stops[row])
        if types[phase]:
            end = put_varint(out, put(out, end, _TYPE), types[phase])
        else:
            legacy = put(out, end, _LEGACY) + 1
            end = put_varint(out, put(out, legacy, _PHASE), legacy_phases[phase])
            end = put_varint(out, put(out, end, _ID), ids[row])
            if binds[row]:
                end = put_varint(out, put(out, end, _BINDING), 1)
            end = close_message(out, legacy, end)
        code = name_of[row]
        end = put_slice(out, end, names, name_starts[code], name_starts[code + 1])
        end = put_slice(out, end, tracks, track_starts[lane], track_starts[lane + 1])
        end = close_message(out, packet, close_message(out, event, end))
        if phase == _SLICE:
            begun = row
    return end

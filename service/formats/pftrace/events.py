"""The packets of a trace as the events that Kineto writes for the same activity, in JSON."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from google.protobuf.message import DecodeError

from service.formats.pftrace import messages, packets
from service.formats.pftrace.arguments import Arguments
from service.formats.pftrace.categories import STAGES, category_of
from service.formats.pftrace.clocks import TIME_MAX, Clocks
from service.formats.pftrace.flows import Flows, microseconds
from service.formats.pftrace.sequences import Budget, Sequence
from service.formats.pftrace.slices import Marks
from service.formats.pftrace.tracks import Counter, Place, Tracks
from service.formats.pftrace.unread import UnreadPackets
from service.formats.pftrace.written import SHOWN, WITH_ID, Document
from service.trace.health import Health

_TEXTS_KEPT = 4096
_ASCII_END = 128
_UNKNOWN = "unknown"
_PLACED = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


class EventWriter:
    """Turns packets into events. A slice without a duration gets it from `marks`, once all packets are read.

    Args:
        health: notes on what is left out.
        marks: path of a new file for the begins and ends of slices.
        copies: path of a new file for the events that the trace has as JSON.

    Attributes:
        document: what the trace has of the document that Tracedock wrote it from.
        unread: the packets that do not become events.
        texts: the events that were not taken yet, as JSON.
        size: number of their characters.
        refused: number of packets and events that were left out.
        last: the latest time of all events in ns.
    """

    def __init__(self, health: Health, marks: Path, copies: Path) -> None:
        budget = Budget()
        self._health = health
        self._budget = budget
        self._arguments = Arguments(health)
        self._sequences: dict[int, Sequence] = {}
        self._counted: dict[int, float] = {}
        self._counter_places: dict[int, Place] = {}
        self.clocks = Clocks()
        self.tracks = Tracks(budget)
        self.flows = Flows()
        self.marks = Marks(marks)
        self.document = Document(copies, budget)
        self.unread = UnreadPackets()
        self.texts: list[str] = []
        self.size = 0
        self.refused = 0
        self.last = 0

    def take(self) -> list[str]:
        """Return the events since the last call."""
        texts, self.texts, self.size = self.texts, [], 0
        return texts

    def add(self, packet: packets.Packet, *, is_inner: bool = False) -> None:
        """Add the events of a packet to `texts`.

        Args:
            packet: the packet.
            is_inner: whether it was in a packet of compressed packets.
        """
        offset = packet.offset
        if packet.damage == "unread_packets":
            self.unread.add(packet.reason, offset)
            return
        if packet.damage:
            self._health.add(packet.damage, offset=offset, text=packet.reason)
            self.refused += 1
            return
        self._arguments.offset = offset
        try:
            message = messages.Packet.FromString(packet.content)
            if not message.HasField("compressed_packets"):
                self._add(offset, message)
                return
        except DecodeError as error:
            self._refuse(offset, f"{error}")
            return
        if is_inner:
            self._refuse(offset, "compressed packets within compressed packets")
            return
        for inner in packets.compressed_packets(offset, message.compressed_packets):
            self.add(inner, is_inner=True)

    def _add(self, offset: int, packet: Any) -> None:
        number = packet.trusted_packet_sequence_id
        if number == SHOWN and self.document.is_written:
            return
        sequence = self._sequences.get(number)
        if sequence is None:
            self._budget.take(0)
            sequence = Sequence(len(self._sequences), self._arguments.text, self._budget)
            self._sequences[number] = sequence
        sequence.update(packet)
        if packet.HasField("track_event"):
            self._track_event(offset, packet, sequence)
        elif packet.HasField("track_descriptor"):
            self.tracks.describe(packet.track_descriptor, self._arguments.text)
        elif packet.HasField("gpu_render_stage_event"):
            self._stage(offset, packet, sequence)
        elif packet.HasField("gpu_counter_event"):
            self._gpu_counters(offset, packet, sequence)
        elif packet.HasField("chrome_events"):
            self._chrome_events(offset, packet)
        elif packet.HasField("clock_snapshot"):
            self.clocks.add_snapshot(sequence.number, packet.clock_snapshot)
        else:
            self.unread.add_packet(packet, offset)

    def _time(self, offset: int, packet: Any, sequence: Sequence) -> int | None:
        """Return the time of a packet's event; None, with a note, if it is unknown."""
        if not packet.HasField("timestamp") or packet.timestamp >= TIME_MAX:
            self._refuse(offset, "an event without a time that can be")
            return None
        clock = packet.timestamp_clock_id or sequence.clock_id
        time = self.clocks.time(sequence.number, clock, packet.timestamp)
        if time is None:
            self.refused += 1
            self._health.add("unknown_clock", offset=offset, text=f"clock {clock}")
            return None
        self.last = max(self.last, time)
        return time

    def _track_event(self, offset: int, packet: Any, sequence: Sequence) -> None:
        event = packet.track_event
        time = self._time(offset, packet, sequence)
        if time is None:
            return
        uuid = event.track_uuid if event.HasField("track_uuid") else sequence.track_uuid
        place = self.tracks.place(uuid)
        if event.HasField("legacy_event") and not event.type:
            self._event_of_phase(offset, event, place, time, sequence)
            return
        match event.type:
            case messages.SLICE_END:
                self.marks.end(sequence.number, self.tracks.number(uuid), time)
                return
            case messages.SLICE_BEGIN:
                phase = "X"
            case messages.INSTANT:
                phase = "i"
            case messages.COUNTER:
                self._counter(uuid, place, time, event)
                return
            case _:
                self.unread.add_recorded(f"track_event of type {event.type}", offset)
                return
        if uuid not in self.tracks:
            self._health.add("unknown_tracks", offset=offset, text=f"track {uuid}")
        arguments = self._arguments.of_event(event.debug_annotations, sequence)
        name = self._name(offset, event, sequence)
        category = self._category(event, sequence)
        if not place.is_described:
            category = category or category_of(name, arguments, place)
        if place.device is not None and category in _PLACED:
            arguments.setdefault("device", place.device)
            arguments.setdefault("stream", place.stream)
        self._add_flows(event, place, time)
        if phase == "X":
            self.marks.begin(sequence.number, self.tracks.number(uuid), time)
        self._write(phase, category, name, place, time, arguments)

    def _event_of_phase(self, offset: int, event: Any, place: Place, time: int, sequence: Sequence) -> None:
        """Add an event that is described by the phase that it has in a JSON document, such as the end of an arrow."""
        legacy = event.legacy_event
        phase = chr(legacy.phase) if 0 < legacy.phase < _ASCII_END else ""
        if phase not in WITH_ID or not legacy.HasField("unscoped_id"):
            self.unread.add_recorded(f"legacy_event of phase {legacy.phase}", offset)
            return
        category, arguments = (
            self._category(event, sequence),
            self._arguments.of_event(event.debug_annotations, sequence),
        )
        binding = ',"bp":"e"' if legacy.bind_to_enclosing else ""
        more = f',"id":{legacy.unscoped_id}{binding}'
        self._write(phase, category, self._name(offset, event, sequence), place, time, arguments, more=more)

    def _chrome_events(self, offset: int, packet: Any) -> None:
        """Add the document that Tracedock wrote the trace from; metadata of other programs are not read."""
        document, events = self.document, packet.chrome_events
        for member in events.metadata:
            if not document.add_member(self._arguments.text(member.name), member.json_value):
                self.unread.add(messages.CHROME_EVENTS, offset)
        if document.is_written:
            self.clocks.set_zero(document.zero_ns)
            for piece in events.legacy_json_trace:
                document.add_events(offset, piece.data)
        elif events.legacy_json_trace:
            self.unread.add_recorded(messages.CHROME_EVENTS, offset)

    def _add_flows(self, event: Any, place: Place, time: int) -> None:
        for flow in event.flow_ids:
            self.flows.add(flow, place, time)
        for flow in event.terminating_flow_ids:
            self.flows.add(flow, place, time, terminating=True)
        if event.HasField("gpu_correlation"):
            for stage in event.gpu_correlation.stage_event_ids:
                self.flows.add_launch(stage, place, time)

    def _stage(self, offset: int, packet: Any, sequence: Sequence) -> None:
        stage = packet.gpu_render_stage_event
        time = self._time(offset, packet, sequence)
        if time is None:
            return
        if stage.duration >= TIME_MAX:
            self._refuse(offset, f"a GPU stage of {stage.duration} ns")
            return
        kind = sequence.stages.get(stage.stage_iid, "")
        name = (
            sequence.names.get(stage.name_iid)
            or self._arguments.text(stage.name)
            or sequence.kernels.get(stage.kernel_iid)
            or kind
        )
        if not name:
            self._health.add("unknown_names", offset=offset, text=f"GPU stage {stage.event_id}")
        arguments = self._arguments.of_stage(stage, sequence)
        place = self._stream(stage, sequence, arguments)
        self.last = max(self.last, time + stage.duration)
        self.flows.add_stage(stage.event_id, place, time)
        self._write("X", STAGES.get(kind), name or _UNKNOWN, place, time, arguments, stage.duration)

    def _stream(self, stage: Any, sequence: Sequence, arguments: dict[str, Any]) -> Place:
        """Return the place of a GPU stage: its stream, or its hardware queue."""
        queue = sequence.stages.get(stage.hw_queue_iid)
        stream = arguments.get("stream")
        if not isinstance(stream, int):
            stream = stage.hw_queue_iid & 0x7FFFFFFF
            return self.tracks.stream(stage.gpu_id, stream, queue or f"queue {stream}")
        arguments.setdefault("device", stage.gpu_id)
        return self.tracks.stream(stage.gpu_id, stream, f"stream {stream}")

    def _gpu_counters(self, offset: int, packet: Any, sequence: Sequence) -> None:
        event = packet.gpu_counter_event
        time = self._time(offset, packet, sequence)
        if time is None:
            return
        inline = {spec.counter_id: self._arguments.text(spec.name) for spec in event.counter_descriptor.specs}
        for counter in event.counters:
            gpu, name = sequence.counters.get(
                (event.counter_descriptor_iid, counter.counter_id),
                (event.gpu_id, inline.get(counter.counter_id, f"counter {counter.counter_id}")),
            )
            value = counter.double_value if counter.HasField("double_value") else counter.int_value
            place = self._counter_places.get(gpu)
            if place is None:
                place = self._counter_places[gpu] = self.tracks.process(f"GPU {gpu} Counters")
            self._write("C", None, name, place, time, {"": _finite(value)})

    def _counter(self, uuid: int, place: Place, time: int, event: Any) -> None:
        counter: Counter = self.tracks.counter(uuid)
        value: float = event.double_counter_value if event.HasField("double_counter_value") else event.counter_value
        value *= counter.factor
        if counter.is_incremental:
            value = self._counted[uuid] = self._counted.get(uuid, 0) + value
        self._write("C", None, counter.name or _UNKNOWN, place, time, {"value": _finite(value)})

    def _name(self, offset: int, event: Any, sequence: Sequence) -> str:
        if event.HasField("name"):
            return self._arguments.text(event.name)
        name = sequence.names.get(event.name_iid)
        if name is None:
            self._health.add("unknown_names", offset=offset, text=f"name {event.name_iid}")
        return _UNKNOWN if name is None else name

    def _category(self, event: Any, sequence: Sequence) -> str | None:
        """Return the categories of an event; None if it has none."""
        if not event.categories and not event.category_iids:
            return None
        if not event.categories and len(event.category_iids) == 1:
            return sequence.categories.get(event.category_iids[0], _UNKNOWN)
        numbered = [sequence.categories.get(number, _UNKNOWN) for number in event.category_iids]
        return ",".join([*numbered, *map(self._arguments.text, event.categories)])

    def _refuse(self, offset: int, reason: str) -> None:
        self.refused += 1
        self._health.add("unreadable_event", offset=offset, text=reason)

    def _write(  # noqa: PLR0913 - the members of an event
        self,
        phase: str,
        category: str | None,
        name: str,
        place: Place,
        time: int,
        arguments: Mapping[str, Any],
        duration: int | None = None,
        *,
        more: str = "",
    ) -> None:
        """Add an event with further members to `texts`; an instant is one of its thread."""
        kind = "" if category is None else f'"cat":{_text(category)},'
        lasting = "" if duration is None else f',"dur":{microseconds(duration)}'
        scope = ',"s":"t"' if phase == "i" else ""
        given = f',"args":{_json(arguments)}' if arguments else ""
        when = f'"ts":{microseconds(time)}{lasting}'
        text = f'{{"ph":"{phase}",{kind}"name":{_text(name)},{place.members},{when}{more}{scope}{given}}}'
        self.texts.append(text)
        self.size += len(text)


def _finite(value: float) -> float | str:
    return value if -float("inf") < value < float("inf") else str(value)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


_text = lru_cache(_TEXTS_KEPT)(_json)  # names and categories repeat

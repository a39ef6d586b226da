"""The packets of a trace that do not become events, by their kind."""

from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from service.formats.pftrace import messages
from service.trace.health import Health

_KINDS_MAX = 64
"""Maximum number of kinds that are counted; a damaged trace may have millions."""
_EXAMPLES_MAX = 10
_OTHER = "other fields"
_VARINT, _MESSAGE = 0, 2  # types on the wire
_USER = 3  # number of `trusted_uid`, which only early recordings have without a number of the sequence


class UnreadPackets:
    """Counts packets, and the first place of each kind.

    Attributes:
        has_data: whether the original has data for trace_processor: a packet of a named kind with the time, the
            sequence or the user that recorders write. Other protobufs may have messages in fields of these numbers.
    """

    def __init__(self) -> None:
        self.has_data = False
        self._counts: dict[str, int] = {}
        self._offsets: dict[str, int] = {}

    def add(self, kind: str, offset: int) -> None:
        """Count a packet or an event, whose packet begins at an offset."""
        if kind not in self._counts and len(self._counts) >= _KINDS_MAX:
            kind = _OTHER
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._offsets.setdefault(kind, offset)

    def add_recorded(self, kind: str, offset: int) -> None:
        """Count an event or a packet of a recorder, which trace_processor may read."""
        self.has_data = True
        self.add(kind, offset)

    def add_packet(self, packet: Any, offset: int) -> None:
        """Count the fields of a packet that have data."""
        unknown: Any = UnknownFieldSet(packet)
        fields = [(field.field_number, field.wire_type) for field in unknown]
        is_recorded = (
            packet.HasField("timestamp") or packet.HasField("trusted_packet_sequence_id") or (_USER, _VARINT) in fields
        )
        for number, wire_type in fields:
            if number in messages.NO_DATA:
                continue
            kind = messages.KINDS.get(number)
            if kind and is_recorded and wire_type == _MESSAGE:
                self.add_recorded(kind, offset)
            else:
                self.add(kind or f"field {number}", offset)

    def note(self, health: Health) -> None:
        """Note the number of packets, and the most frequent kinds with their numbers."""
        if not self._counts:
            return
        health.add("unread_packets", count=sum(self._counts.values()))
        for kind, count in sorted(self._counts.items(), key=lambda item: -item[1])[:_EXAMPLES_MAX]:
            text = f"{kind}: {count}"
            health.add_example("unread_packets", offset=self._offsets[kind], text=text, examples_max=_EXAMPLES_MAX)

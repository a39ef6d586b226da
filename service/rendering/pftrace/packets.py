"""Packets that describe a trace: its interned texts, tracks, document and events as JSON."""

from collections.abc import Iterable, Iterator
from typing import Any

from service.formats.pftrace.messages import NEEDS_STATE, STATE_CLEARED, USER_TRACE, Packet, framed
from service.formats.pftrace.written import EXACT, SHOWN, described
from service.rendering.render_report import EngineTrack
from service.trace.summary import Key

NAMES_MAX = 1 << 17
"""Number of names, and of categories, that are written once; further ones are written in full with each event."""


def state_cleared() -> bytes:
    """Return the packets that begin the sequences."""
    return b"".join(_framed(Packet(trusted_packet_sequence_id=number, sequence_flags=STATE_CLEARED))
                    for number in (EXACT, SHOWN))  # fmt: skip


def interned(sequence: int, **entries: list[tuple[int, bytes]]) -> bytes:
    """Return the packet with new interned texts of a sequence, by the field that has them.

    Args:
        sequence: number of the sequence.
        entries: numbers and texts.
    """
    packet = Packet(trusted_packet_sequence_id=sequence, sequence_flags=NEEDS_STATE)
    for field, texts in entries.items():
        table = getattr(packet.interned_data, field)
        for number, text in texts:
            table.add(iid=number, name=text)
    return _framed(packet)


def members(texts: Iterable[tuple[str, str]]) -> bytes:
    """Return a packet with members of the document: the name and the JSON of each.

    The engine adds a number to the names of the members of further packets, so that all are in one.
    """
    packet = _of_sequence()
    for name, text in texts:
        packet.chrome_events.metadata.add(name=_bytes(name), json_value=_bytes(text))
    return _framed(packet)


def events_as_json(content: bytes) -> bytes:
    """Return a packet with events as JSON, with a comma and a line break between them."""
    packet = _of_sequence()
    packet.chrome_events.legacy_json_trace.add(type=USER_TRACE, data=content)
    return _framed(packet)


class TrackPackets:
    """Describes tracks: the processes and threads of lanes, and counters.

    Attributes:
        threads: the number of each lane's track.
    """

    def __init__(self) -> None:
        self.threads: list[int] = []
        self._processes: dict[int, int] = {}
        self._counters: dict[tuple[int, str], int] = {}
        self._last = 0

    def threads_of(self, lanes: Iterable[EngineTrack]) -> Iterator[bytes]:
        """Yield the packets that describe new lanes, and their processes."""
        for lane in lanes:
            yield from self._process(lane)
            packet, track = self._track()
            track.thread.pid, track.thread.tid = lane.pid, lane.tid
            track.thread.thread_name = _bytes(lane.name or _named(lane.own_tid, lane.tid))
            track.parent_uuid = self._processes[lane.pid]
            track.description = described(lane.own_pid, lane.own_tid, lane.lane)
            self.threads.append(track.uuid)
            yield _framed(packet)

    def counter(self, track: EngineTrack, name: str) -> tuple[int, bytes]:
        """Return the number of a counter's track, and the packet that describes it, empty if it was described."""
        key = track.pid, name
        if key in self._counters:
            return self._counters[key], b""
        packet, described_track = self._track()
        described_track.name = _bytes(name)
        described_track.parent_uuid = self._processes[track.pid]
        described_track.counter.SetInParent()
        self._counters[key] = described_track.uuid
        return described_track.uuid, _framed(packet)

    def _process(self, lane: EngineTrack) -> Iterator[bytes]:
        if lane.pid in self._processes:
            return
        packet, track = self._track()
        track.process.pid = lane.pid
        track.process.process_name = _bytes(lane.process or _named(lane.own_pid, lane.pid))
        self._processes[lane.pid] = track.uuid
        yield _framed(packet)

    def _track(self) -> tuple[Any, Any]:
        self._last += 1
        packet = Packet()
        packet.track_descriptor.uuid = self._last
        return packet, packet.track_descriptor


def _named(own: Key, number: int) -> str:
    """Return the name of a process or thread that has none: its number in the trace, if it has another one here."""
    return "" if own == number else f"{own}"


def _of_sequence() -> Any:
    return Packet(trusted_packet_sequence_id=EXACT)


def _framed(packet: Any) -> bytes:
    return framed(packet.SerializeToString())


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")

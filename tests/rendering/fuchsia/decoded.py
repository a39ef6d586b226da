"""A plain reader of Fuchsia's trace format, after its description.

https://fuchsia.dev/fuchsia-src/reference/tracing/trace-format
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

MAGIC = 0x0016547846040010
RECORD_MAX = 8 * ((1 << 12) - 1)
"""Largest size of a record in bytes."""


@dataclass
class Event:
    """An event: its type, thread, category, name, time in ns and arguments, and the word after these, if any."""

    kind: int
    pid: int
    tid: int
    category: str
    name: str
    ts: int
    args: list[tuple[str, Any]]
    last: int | None


class Decoder:
    """Reads a document, whose `strings` are those that its records have defined so far.

    Of its packets of Perfetto's protobuf, `releases` has the times of those with nothing else, and `introduced` the
    category and name of each arrow's number. `numbered` is how many texts of events were numbers of strings.
    """

    def __init__(self, document: bytes) -> None:
        self._document = document
        self._at = 0
        self.strings = {0: ""}
        self.releases: list[int] = []
        self.introduced: list[tuple[str | None, str | None]] = []
        self.numbered = 0

    def events(self) -> Iterator[Event]:
        """Yield the events in order."""
        assert self._word() == MAGIC
        while self._at < len(self._document):
            start, header = self._at, self._word()
            end = start + 8 * (header >> 4 & 0xFFF)
            assert start < end <= len(self._document)
            match header & 0xF:
                case 1:
                    assert self._word() == 10**9
                case 2:
                    self.strings[header >> 16 & 0x7FFF] = self._text(header >> 32 & 0x7FFF)
                case 4:
                    yield self._event(header, end)
                case 5:
                    assert header >> 48 & 0xFF == 3
                    [packet] = Trace.FromString(self._blob(header >> 32 & 0x7FFF)).packet
                    if packet.HasField("track_event"):
                        self._introduce(packet.track_event)
                    else:
                        self.releases.append(packet.timestamp)
                case _:
                    self._at = end
            assert self._at == end

    def _introduce(self, event: TrackEvent) -> None:
        assert event.legacy_event.unscoped_id == len(self.introduced)
        name = event.name if event.HasField("name") else None
        self.introduced.append((next(iter(event.categories), None), name))

    def _word(self) -> int:
        (word,) = struct.unpack_from("<Q", self._document, self._at)
        self._at += 8
        return int(word)

    def _text(self, size: int) -> str:
        return self._blob(size).decode()

    def _blob(self, size: int) -> bytes:
        content = self._document[self._at : self._at + size]
        self._at += -(-size // 8) * 8
        return content

    def _string(self, reference: int) -> str:
        if reference & 0x8000:
            return self._text(reference & 0x7FFF)
        self.numbered += reference > 0
        return self.strings[reference]

    def _event(self, header: int, end: int) -> Event:
        ts, pid, tid = self._word(), self._word(), self._word()
        assert header >> 24 & 0xFF == 0  # no number of a thread
        category, name = self._string(header >> 32 & 0xFFFF), self._string(header >> 48)
        args = [self._arg() for _ in range(header >> 20 & 0xF)]
        return Event(
            header >> 16 & 0xF, pid, tid, category, name, ts, args, self._word() if self._at < end else None
        )  # fmt: skip

    def _arg(self) -> tuple[str, Any]:
        start, header = self._at, self._word()
        name, high = self._string(header >> 16 & 0xFFFF), header >> 32
        value: Any
        match header & 0xF:
            case 1:
                value = high - (high >> 31 << 32)
            case 3:
                word = self._word()
                value = word - (word >> 63 << 64)
            case 5:
                (value,) = struct.unpack("<d", struct.pack("<Q", self._word()))
            case 6:
                value = self._string(high & 0xFFFF)
            case 9:
                value = bool(high)
            case kind:
                raise AssertionError(kind)
        assert self._at == start + 8 * (header >> 4 & 0xFFF)
        return name, value

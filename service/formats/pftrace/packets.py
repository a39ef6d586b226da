"""The packets of a trace, split from a stream of bytes."""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from service.streaming.codec import PIECE_SIZE
from service.trace.errors import BadCompression, Truncated

PACKET_MAX = 64 << 20
"""Largest size of a packet in bytes."""

_PACKET = 0x0A  # field 1, length-delimited
_VARINT_MAX = 10  # bytes


class Packet(NamedTuple):
    """A packet, or damage in its place.

    Attributes:
        offset: where it starts in the decompressed file.
        content: its bytes; empty for damage.
        damage: code of `service.trace.health.CASES`, or None. After ``cut``, ``bad_compression`` and
            ``damaged_packets`` nothing follows.
        reason: what is damaged.
    """

    offset: int
    content: bytes
    damage: str | None = None
    reason: str = ""


def packets(chunks: Iterable[bytes]) -> Iterator[Packet]:
    """Yield the packets of a trace, in order, and damage where it occurs.

    Args:
        chunks: the decompressed file, in order.
    """
    stream = _Stream(chunks)
    while True:
        offset = stream.offset
        if (content := stream.whole_packet()) is not None:
            yield Packet(offset, content)
            continue
        try:
            found = _next(stream, offset)
        except Truncated as error:
            yield Packet(offset, b"", "cut", error.detail)
            return
        except BadCompression as error:
            yield Packet(offset, b"", "bad_compression", error.detail)
            return
        if found is None:
            return
        yield found
        if found.damage == "damaged_packets":
            return


def compressed_packets(offset: int, content: bytes) -> Iterator[Packet]:
    """Yield the packets of a field ``compressed_packets``; their offset is that of the packet around them."""
    for packet in packets(_inflated(content)):
        yield packet._replace(offset=offset)


def _inflated(content: bytes) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    while content and not inflate.eof:
        try:
            piece = inflate.decompress(content, PIECE_SIZE)
        except zlib.error as error:
            raise BadCompression(f"A packet of compressed packets is damaged: {error}.") from error
        content = inflate.unconsumed_tail
        yield piece
    if not inflate.eof:
        raise Truncated("A packet of compressed packets ends early.")


def _next(stream: "_Stream", offset: int) -> Packet | None:
    """Return the next field of the trace as a packet; None at the end of the file."""
    tag = stream.varint(at_end=True)
    if tag is None:
        return None
    kind, number = tag & 7, tag >> 3
    if tag < 0 or not number or kind not in (0, 1, 2, 5):
        return Packet(offset, b"", "damaged_packets", "no packet starts here")
    size = {1: 8, 5: 4}.get(kind, 0)
    if kind in (0, 2):
        value = stream.varint()
        if value is None or value < 0:
            return Packet(offset, b"", "damaged_packets", "a size or a number of more than 64 bits")
        size = value if kind == 2 else 0
    if tag == _PACKET and size <= PACKET_MAX:
        return Packet(offset, stream.take(size, offset))
    stream.skip(size, offset)
    if tag == _PACKET:
        return Packet(offset, b"", "event_too_large", f"a packet of {size} bytes")
    return Packet(offset, b"", "unread_packets", f"field {number} of the trace")


class _Stream:
    """Bytes that arrive in pieces.

    Attributes:
        offset: number of bytes that were taken.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""
        self._at = 0
        self.offset = 0

    def whole_packet(self) -> bytes | None:
        """Take the next packet if it is small and has arrived, as nearly all are; else None."""
        buffer, at = self._buffer, self._at
        if at + 3 > len(buffer) or buffer[at] != _PACKET:
            return None
        size, start = buffer[at + 1], at + 2
        if size >= 0x80:
            size, start = size & 0x7F | buffer[at + 2] << 7, at + 3
            if size >= 1 << 14:
                return None
        end = start + size
        if end > len(buffer):
            return None
        self._at = end
        self.offset += end - at
        return buffer[start:end]

    def varint(self, *, at_end: bool = False) -> int | None:
        """Take a number; return -1 if it has more than 64 bits, and None at the end of the file if that may be."""
        value = 0
        for place in range(_VARINT_MAX):
            if self._at == len(self._buffer) and not self._fill():
                if at_end and not place:
                    return None
                raise Truncated(f"The file ends at byte {self.offset}, within the size of a packet.")
            byte = self._buffer[self._at]
            self._at += 1
            self.offset += 1
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value if value < 1 << 64 else -1
        return -1

    def take(self, size: int, start: int) -> bytes:
        """Take the next bytes, of a packet that starts at an offset."""
        if self._at + size <= len(self._buffer):
            piece = self._buffer[self._at : self._at + size]
            self._at += size
            self.offset += size
            return piece
        return b"".join(self._pieces(size, start))

    def skip(self, size: int, start: int) -> None:
        """Take the next bytes without keeping them."""
        for _ in self._pieces(size, start):
            pass

    def _pieces(self, size: int, start: int) -> Iterator[bytes]:
        left = size
        while left:
            if self._at == len(self._buffer) and not self._fill():
                raise Truncated(
                    f"The file ends at byte {self.offset}, within the {size} bytes of the packet at byte {start}."
                )
            piece = self._buffer[self._at : self._at + left]
            self._at += len(piece)
            self.offset += len(piece)
            left -= len(piece)
            yield piece

    def _fill(self) -> bool:
        self._buffer, self._at = next(self._chunks, b""), 0
        while not self._buffer:
            piece = next(self._chunks, None)
            if piece is None:
                return False
            self._buffer = piece
        return True

"""Compressed bytes to plain bytes, in bounded pieces. The format is read off the magic bytes, never off a name."""

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from io import BufferedReader
from typing import Protocol

from isal import isal_zlib

from service.streaming.source import HEAD_SIZE
from service.trace.errors import BadCompression, NotJson, Truncated

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_SIZE = 1 << 16
PIECE_SIZE = 1 << 16  # small enough that a piece and its events stay in the processor's cache

_GzipError: type[Exception] = isal_zlib.error  # type: ignore[assignment] # its stub calls the class an instance
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after any one byte; pzstd begins with such a frame
_NOT_TRACES = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x80\x02": "a pickle, as memory snapshots are",
    b"\x80\x04": "a pickle, as memory snapshots are",
    b"\x80\x05": "a pickle, as memory snapshots are",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


class Format(StrEnum):
    """How a trace's bytes are packed."""

    JSON = "json"
    GZIP = "json.gz"
    ZSTD = "json.zst"


class Decoder(Protocol):
    """One compressed stream, fed in order.

    `plain_chunks` calls `decode` for each piece it reads from the file, then `flush` once at the end of the file.
    """

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the plain bytes of the next compressed ones, in pieces of at most `PIECE_SIZE`."""

    def flush(self) -> None:
        """Raise `Truncated` if the stream is not complete."""


class PlainDecoder:
    """Bytes that are not compressed."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the bytes as they are."""
        yield chunk

    def flush(self) -> None:
        """Any end is a good end."""


class GzipDecoder:
    """Gzip of one or more members, padded with zeros or not (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._member = isal_zlib.decompressobj(wbits=31)
        self._between = False
        self._taken = 0

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield plain bytes; raises `BadCompression` with the compressed offset."""
        self._taken += len(chunk)
        while chunk:
            if self._between:
                chunk = self._next_member(chunk)
                if not chunk:
                    return
            try:
                piece = self._member.decompress(chunk, PIECE_SIZE)
            except _GzipError as error:
                offset = self._taken - len(chunk)
                raise BadCompression(
                    f"The gzip stream is damaged in the {len(chunk)} bytes after byte {offset}: {error}.",
                    offset=offset,
                ) from error
            if piece:
                yield piece
            self._between = self._member.eof
            chunk = self._member.unused_data if self._between else self._member.unconsumed_tail

    def _next_member(self, chunk: bytes) -> bytes:
        chunk = chunk.lstrip(b"\0")
        if chunk and not _GZIP_MAGIC.startswith(chunk[:2]):
            offset = self._taken - len(chunk)
            raise BadCompression(f"After a complete gzip member, byte {offset} starts none.", offset=offset)
        if chunk:
            self._member = isal_zlib.decompressobj(wbits=31)
            self._between = False
        return chunk

    def flush(self) -> None:
        """Raise `Truncated` if the last member has no end."""
        if not self._between:
            raise Truncated(f"The gzip stream ends at byte {self._taken}, before its end.", offset=self._taken)


class ZstdDecoder:
    """Zstandard of one or more frames."""

    def __init__(self) -> None:
        self._frame = zstd.ZstdDecompressor()
        self._started = False
        self._taken = 0

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield plain bytes; raises `BadCompression` with the compressed offset."""
        self._taken += len(chunk)
        while chunk or not self._frame.needs_input:
            if self._frame.eof:
                chunk = self._frame.unused_data + chunk
                if not chunk:
                    return
                self._frame, self._started = zstd.ZstdDecompressor(), False
            self._started = True
            try:
                piece = self._frame.decompress(chunk, PIECE_SIZE)
            except zstd.ZstdError as error:
                offset = self._taken - len(chunk)
                raise BadCompression(
                    f"The zstd stream is damaged in the {len(chunk)} bytes after byte {offset}: {error}.",
                    offset=offset,
                ) from error
            chunk = b""
            if piece:
                yield piece

    def flush(self) -> None:
        """Raise `Truncated` if the last frame has no end."""
        if self._started and not self._frame.eof:
            raise Truncated(f"The zstd stream ends at byte {self._taken}, before its end.", offset=self._taken)


_DECODERS: dict[Format, Callable[[], Decoder]] = {
    Format.JSON: PlainDecoder,
    Format.GZIP: GzipDecoder,
    Format.ZSTD: ZstdDecoder,
}


def sniff(head: bytes) -> Format:
    """The format that the first bytes of a file tell; raises `NotJson` for one that is known and no trace."""
    if head.startswith(_GZIP_MAGIC):
        return Format.GZIP
    if head.startswith(_ZSTD_MAGIC) or head.startswith(_ZSTD_SKIPPABLE, 1):
        return Format.ZSTD
    for magic, what in _NOT_TRACES.items():
        if head.startswith(magic):
            raise NotJson(f"The file is {what}, not a JSON trace (plain, gzip or zstd).", offset=0)
    return Format.JSON


def format_of(file: BufferedReader) -> Format:
    """The format of a file that is not begun yet; its bytes are still to be read."""
    return sniff(file.peek(HEAD_SIZE)[:HEAD_SIZE])


def plain_chunks(file: BufferedReader, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Stream the plain bytes of a file, decompressed as its magic bytes say, as they become readable.

    Args:
        file: the file, from its beginning; it is never sought in.
        on_read: is told the number of the file's bytes read so far, after each read.

    Raises:
        BadCompression, Truncated: the compressed stream is damaged or cut; every sound piece before was yielded.
        NotJson: the file is of a format known to hold no JSON.
    """
    decoder = _DECODERS[format_of(file)]()
    taken = 0
    while chunk := file.read1(READ_SIZE):
        taken += len(chunk)
        if on_read:
            on_read(taken)
        yield from decoder.decode(chunk)
    decoder.flush()

"""Decompression in bounded pieces. The compression is detected by magic bytes, never by the file name."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from io import BufferedReader
from typing import Protocol

from isal import igzip_lib

from service.streaming.source import HEAD_SIZE
from service.streaming.zstandard import zstd
from service.trace.errors import BadCompression, NotJson, Truncated

READ_SIZE = 1 << 16
PIECE_SIZE = 1 << 16  # small enough that a piece and its events fit in the CPU cache
_GZIP_TRAILER_SIZE = 8  # a checksum and the size of the content

_GzipError: type[Exception] = igzip_lib.error  # type: ignore[assignment] # the stub declares the class as an instance
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # at offset 1; pzstd files start with such a frame
_NSYS_REPORT = b"NVIDIA Tegra Pro"  # of "NVIDIA Tegra Profiler Report", with which .nsys-rep and .qdrep files start
_FOREIGN_MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x80\x02": "a pickle, as memory snapshots are",
    b"\x80\x04": "a pickle, as memory snapshots are",
    b"\x80\x05": "a pickle, as memory snapshots are",
    b"SQLite format 3": "an SQLite database",
    _NSYS_REPORT: "a report of Nsight Systems",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_ADVICE = {
    _NSYS_REPORT: " Export it with `nsys export --type sqlite --output out.sqlite report.nsys-rep`, and upload that."
}


class Compression(StrEnum):
    """Compression of a file; the value is the suffix that it adds to a file name."""

    NONE = ""
    GZIP = ".gz"
    ZSTD = ".zst"


class Decoder(Protocol):
    """Incremental decoder of one compressed stream.

    `decompressed` calls `decode` for each chunk that it reads from the file, then `flush` once at the file's end.
    """

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the plain bytes of the next compressed chunk, in pieces of at most `PIECE_SIZE`."""

    def flush(self) -> None:
        """Raise `Truncated` if the stream is not complete."""


class PlainDecoder:
    """Decoder of uncompressed bytes."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the chunk unchanged."""
        yield chunk

    def flush(self) -> None:
        """Do nothing: plain bytes may end anywhere."""


class GzipDecoder:
    """Decoder of gzip files with one or more members and optional zero padding (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._member = _new_member()
        self._consumed = 0

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the plain bytes; raises `BadCompression` with the offset in the compressed stream."""
        self._consumed += len(chunk)
        size = len(chunk)
        while chunk or not self._member.needs_input:
            if self._member.eof:
                chunk = (self._member.unused_data + chunk).lstrip(b"\0")
                if not chunk:
                    return
                self._start_member(chunk)
            try:
                piece = self._member.decompress(chunk, PIECE_SIZE)
            except _GzipError as error:
                offset = self._consumed - size
                raise BadCompression(
                    f"The gzip stream is damaged in the {size} bytes after byte {offset}: {error}.", offset=offset
                ) from error
            chunk = b""
            if piece:
                yield piece

    def _start_member(self, chunk: bytes) -> None:
        if not _GZIP_MAGIC.startswith(chunk[:2]):
            offset = self._consumed - len(chunk)
            raise BadCompression(f"No gzip member starts at byte {offset}, after a complete one.", offset=offset)
        self._member = _new_member()

    def flush(self) -> None:
        """Raise `Truncated` if the last member is incomplete."""
        if not self._member.eof:
            raise Truncated(f"The gzip stream ends at byte {self._consumed}, before its end.", offset=self._consumed)


def _new_member() -> igzip_lib.IgzipDecompressor:
    return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)


class ZstdDecoder:
    """Decoder of Zstandard files with one or more frames."""

    def __init__(self) -> None:
        self._frame = zstd.ZstdDecompressor()
        self._started = False
        self._consumed = 0

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the plain bytes; raises `BadCompression` with the offset in the compressed stream."""
        self._consumed += len(chunk)
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
                offset = self._consumed - len(chunk)
                raise BadCompression(
                    f"The zstd stream is damaged in the {len(chunk)} bytes after byte {offset}: {error}.",
                    offset=offset,
                ) from error
            chunk = b""
            if piece:
                yield piece

    def flush(self) -> None:
        """Raise `Truncated` if the last frame is incomplete."""
        if self._started and not self._frame.eof:
            raise Truncated(f"The zstd stream ends at byte {self._consumed}, before its end.", offset=self._consumed)


_DECODERS: dict[Compression, Callable[[], Decoder]] = {
    Compression.NONE: PlainDecoder,
    Compression.GZIP: GzipDecoder,
    Compression.ZSTD: ZstdDecoder,
}


def file_head(file: BufferedReader) -> bytes:
    """Return the first bytes of a file that has not been read yet, without consuming them."""
    return file.peek(HEAD_SIZE)[:HEAD_SIZE]


def compression_of(head: bytes) -> Compression:
    """Detect the compression of a file by its first bytes."""
    if head.startswith(_GZIP_MAGIC):
        return Compression.GZIP
    if head.startswith(_ZSTD_MAGIC) or head.startswith(_ZSTD_SKIPPABLE, 1):
        return Compression.ZSTD
    return Compression.NONE


def is_foreign(head: bytes) -> bool:
    """Return whether a file starts with the magic bytes of a known format that is not JSON."""
    return any(head.startswith(magic) for magic in _FOREIGN_MAGIC)


def check_not_foreign(head: bytes) -> None:
    """Raise `NotJson` if `is_foreign` returns True."""
    for magic, description in _FOREIGN_MAGIC.items():
        if head.startswith(magic):
            advice = _ADVICE.get(magic, "")
            raise NotJson(f"The file is {description}, not a trace (plain, gzip or zstd).{advice}", offset=0)


def plain_chunks(file: BufferedReader, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Yield the plain bytes of a file of JSON text or of a tar archive; see `decompressed`.

    Raises:
        NotJson: the file has a known format that is neither of the two.
        BadCompression, Truncated: see `decompressed`.
    """
    check_not_foreign(file_head(file))
    yield from decompressed(file, on_read)


def decompressed(file: BufferedReader, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file as they become readable; its magic bytes determine the compression.

    Args:
        file: the file, at its beginning; it need not be seekable.
        on_read: called after each read with the number of the file's bytes read so far.

    Raises:
        BadCompression, Truncated: the compressed stream is damaged or cut; all earlier, valid pieces were yielded.
    """
    compression = compression_of(file_head(file))
    decoder = _DECODERS[compression]()
    trailer_size = _GZIP_TRAILER_SIZE if compression is Compression.GZIP else 0
    consumed, held = 0, b""  # a trailer is decoded alone: a decoder drops the bytes that come with a wrong checksum
    while chunk := file.read1(READ_SIZE):
        consumed += len(chunk)
        if on_read:
            on_read(consumed)
        if trailer_size:
            if len(chunk) < trailer_size:
                held, chunk = held[:-trailer_size], held[-trailer_size:] + chunk
            held, chunk = chunk, held
        if chunk:
            yield from decoder.decode(chunk)
    for chunk in (held[:-trailer_size], held[-trailer_size:]):
        if chunk:
            yield from decoder.decode(chunk)
    decoder.flush()

"""Codecs detect compression by magic bytes, decompress in bounded pieces, and never pass damage as content."""

import bz2
import gzip
import json
import lzma
import pickle
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.streaming import codec
from service.streaming.codec import (
    PIECE_SIZE,
    Compression,
    Decoder,
    GzipDecoder,
    PlainDecoder,
    ZstdDecoder,
    plain_chunks,
)
from service.trace.errors import BadCompression, IngestError, NotJson, Truncated
from tests.columns import events_of, parsed
from tests.events import read_chunks

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b'{"schemaVersion": 1, "traceEvents": [' + b",".join(
    json.dumps({"ph": "X", "name": f"op {n}", "ts": n * 1.5, "dur": n % 7}).encode() for n in range(12)
) + b']}\n'  # fmt: skip
MEGABYTES_OF_ZEROS = 200


def zstd_frame(plain: bytes) -> bytes:
    """Return a frame that ends with a checksum, as the `zstd` command writes it."""
    return zstd.compress(plain, options={zstd.CompressionParameter.checksum_flag: 1})


def gzip_member(plain: bytes) -> bytes:
    return gzip.compress(plain, mtime=0)


PACKERS: dict[Compression, Callable[[bytes], bytes]] = {Compression.GZIP: gzip_member, Compression.ZSTD: zstd_frame}
MAKERS: dict[Compression, Callable[[], Decoder]] = {Compression.GZIP: GzipDecoder, Compression.ZSTD: ZstdDecoder}
each_compression = pytest.mark.parametrize("packed", PACKERS)


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], bytes]:
    """Return a function that writes bytes to a file and returns the decompressed content."""

    def read_file(content: bytes) -> bytes:
        path = tmp_path / "a name that tells nothing"
        path.write_bytes(content)
        return plain(path)

    return read_file


def plain(path: Path) -> bytes:
    with path.open("rb") as file:
        return b"".join(plain_chunks(file))


def decoded(decoder: Decoder, chunks: Iterator[bytes]) -> bytes:
    pieces = [piece for chunk in chunks for piece in decoder.decode(chunk)]
    decoder.flush()
    assert all(len(piece) <= codec.PIECE_SIZE for piece in pieces)
    return b"".join(pieces)


def cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


# -- the formats ----------------------------------------------------------------------------------------------

Read = Callable[[bytes], bytes]


def test_plain_bytes_are_unchanged(read: Read) -> None:
    assert read(TEXT) == TEXT
    assert read(b"") == b""


@each_compression
def test_compressed_bytes_are_decompressed(read: Read, packed: Compression) -> None:
    assert read(PACKERS[packed](TEXT)) == TEXT
    assert read(PACKERS[packed](b"")) == b""


@each_compression
def test_concatenated_members_are_read_as_one(read: Read, packed: Compression) -> None:
    pack = PACKERS[packed]

    assert read(pack(TEXT[:100]) + pack(b"") + pack(TEXT[100:101]) + pack(TEXT[101:])) == TEXT


@pytest.mark.parametrize("zeros", [1, 7, 511, 1 << 19])
def test_gzip_may_be_padded_with_zeros(read: Read, zeros: int) -> None:
    assert read(gzip_member(TEXT) + bytes(zeros)) == TEXT


def test_gzip_may_carry_a_name_a_comment_and_extra_fields(read: Read) -> None:
    head, body = gzip_member(TEXT)[:10], gzip_member(TEXT)[10:]
    fields = b"\x03\x00abc" + b"rank0.json\0" + b"a comment\0"

    assert read(head[:3] + bytes([4 | 8 | 16]) + head[4:] + fields + body) == TEXT


def test_zstd_may_hold_skippable_frames_and_begin_with_one(read: Read) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"

    assert read(skippable + zstd_frame(TEXT) + skippable + zstd_frame(TEXT) + skippable) == TEXT + TEXT


@given(
    plain=st.binary(max_size=300) | st.integers(0, 3000).map(bytes),
    packed=st.sampled_from(list(PACKERS)),
    members=st.integers(1, 3),
    size=st.integers(1, 50),
    piece=st.integers(1, 200),
)
def test_chunk_and_piece_sizes_do_not_change_the_bytes(
    plain: bytes, packed: Compression, members: int, size: int, piece: int
) -> None:
    content = PACKERS[packed](plain) * members

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "PIECE_SIZE", piece)

        assert decoded(MAKERS[packed](), cut(content, size)) == plain * members


def test_progress_is_reported_after_each_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b" " * (codec.READ_SIZE * 2 + 5))
    sizes: list[int] = []

    with path.open("rb") as file:
        for _ in plain_chunks(file, sizes.append):
            assert sizes[-1] == file.tell()

    assert sizes[-1] == codec.READ_SIZE * 2 + 5


@pytest.mark.parametrize("size", [1, 3, 50])
def test_gzip_is_decoded_while_it_arrives_however_small_its_pieces_are(tmp_path: Path, size: int) -> None:
    text = random.Random(5).randbytes(3000)  # so that each byte of the file holds about one of the text
    path = tmp_path / "t"
    path.write_bytes(gzip_member(text))
    read, count = [0], 0

    class Arriving(BufferedReader):
        def read1(self, _: int = -1, /) -> bytes:
            return super().read1(size)

    with Arriving(FileIO(path)) as file:
        for piece in plain_chunks(file, read.append):
            assert read[-1] - count < 100 + size + len(piece)
            assert len(piece) < 100 + size
            count += len(piece)
    assert count == len(text)


# -- compression is detected by magic bytes ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.json.zst", "t", "t.zip"])
def test_file_name_does_not_matter(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for content, compression in [
        (TEXT, Compression.NONE),
        (gzip_member(TEXT), Compression.GZIP),
        (zstd_frame(TEXT), Compression.ZSTD),
    ]:
        path.write_bytes(content)

        with path.open("rb") as file:
            assert codec.compression_of(codec.file_head(file)) is compression
            assert b"".join(plain_chunks(file)) == TEXT


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"PK\x03\x04\x14\x00", "zip"),
        (bz2.compress(TEXT), "bzip2"),
        (lzma.compress(TEXT), "xz"),
        *((pickle.dumps([{}], protocol), "pickle") for protocol in (2, 4, 5)),
        (b"SQLite format 3\x00", "SQLite"),
        ("\ufeff{}".encode("utf-16-le"), "UTF-16"),
        ("\ufeff{}".encode("utf-16-be"), "UTF-16"),
    ],
)
def test_known_foreign_format_is_refused_and_named(read: Read, content: bytes, name: str) -> None:
    with pytest.raises(NotJson, match=name) as caught:
        read(content)

    assert caught.value.extra == {"offset": 0}


# -- damage ---------------------------------------------------------------------------------------------------


@each_compression
@pytest.mark.parametrize("members", [1, 2])
def test_every_cut_of_compressed_bytes_is_reported(packed: Compression, members: int) -> None:
    content = PACKERS[packed](TEXT) * members
    size = len(content) // members
    for end in range(1, len(content)):
        if end % size == 0:  # a cut between two members cannot be detected
            continue
        with pytest.raises(Truncated) as caught:
            decoded(MAKERS[packed](), iter([content[:end]]))

        assert caught.value.extra == {"offset": end}


@each_compression
def test_bytes_before_a_cut_are_yielded(packed: Compression) -> None:
    plain = random.Random(1).randbytes(1 << 20)
    content = PACKERS[packed](plain)
    decoder, plain_part = MAKERS[packed](), bytearray()

    with pytest.raises(Truncated):  # noqa: PT012 - a reader loops in the same way
        for chunk in cut(content[: len(content) // 2], 1 << 16):
            for piece in decoder.decode(chunk):
                plain_part += piece
        decoder.flush()

    assert len(plain_part) > len(plain) // 3
    assert plain.startswith(plain_part)


@each_compression
def test_flipped_bit_is_reported_or_changes_nothing(tmp_path: Path, packed: Compression) -> None:
    packed_text = PACKERS[packed](TEXT)
    path = tmp_path / "t"
    reported = 0
    for at in range(len(packed_text)):
        for bit in range(8):
            path.write_bytes(packed_text[:at] + bytes([packed_text[at] ^ 1 << bit]) + packed_text[at + 1 :])
            try:
                reading = read_chunks([plain(path)])
            except IngestError:
                reported += 1
                continue
            assert reading.events == events_of(parsed(TEXT))
            assert reading.members == {"schemaVersion": 1}
    assert reported > len(packed_text) * 7  # unreported flips are in times, flags or the window size


@pytest.mark.parametrize("at", [-6, -1], ids=["checksum", "size"])
@pytest.mark.parametrize("text", [TEXT, random.Random(3).randbytes(1 << 18)], ids=["one read", "several reads"])
def test_wrong_checksum_costs_no_byte(tmp_path: Path, text: bytes, at: int) -> None:
    content = bytearray(gzip_member(text))
    content[at] ^= 1
    tmp_path.joinpath("t").write_bytes(content)
    pieces: list[bytes] = []

    with tmp_path.joinpath("t").open("rb") as file, pytest.raises(BadCompression) as caught:
        pieces += plain_chunks(file)  # keeps what comes before the error

    assert b"".join(pieces) == text
    assert caught.value.extra["offset"] == len(content) - 8


@each_compression
@pytest.mark.parametrize("garbage", [b"x", b"{}", b"\x1f\x8c", b"\x28\xb5\x2f\xfe", b"\x01" * 600])
def test_garbage_after_a_member_is_reported_with_its_offset(packed: Compression, garbage: bytes) -> None:
    content = PACKERS[packed](TEXT)

    with pytest.raises((BadCompression, Truncated)) as caught:
        decoded(MAKERS[packed](), iter([content + garbage]))

    assert len(content) <= caught.value.extra["offset"] <= len(content + garbage)


def test_damage_in_the_middle_is_reported_near_its_offset() -> None:
    content = bytearray(gzip_member(random.Random(2).randbytes(1 << 20)))
    content[500_000:500_100] = zlib.compress(b"x" * 100)[:100].ljust(100, b"\xff")

    with pytest.raises(BadCompression) as caught:
        decoded(GzipDecoder(), cut(bytes(content), 1 << 16))

    assert caught.value.extra["offset"] <= len(content)


# -- bounds ---------------------------------------------------------------------------------------------------


def zeros_gzip() -> bytes:
    packer = zlib.compressobj(6, wbits=31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(MEGABYTES_OF_ZEROS)) + packer.flush()


def zeros_zstd() -> bytes:
    packer = zstd.ZstdCompressor()
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(MEGABYTES_OF_ZEROS)) + packer.flush()


@pytest.mark.parametrize("bomb", [zeros_gzip, zeros_zstd])
def test_bomb_is_decompressed_in_bounded_pieces_and_memory(tmp_path: Path, bomb: Callable[[], bytes]) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(bomb())
    assert path.stat().st_size < 1 << 18
    total = 0

    tracemalloc.start()
    with path.open("rb") as file:
        for piece in plain_chunks(file):
            assert len(piece) <= PIECE_SIZE
            total += len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert total == MEGABYTES_OF_ZEROS << 20
    assert peak < 4 << 20


def test_plain_file_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b" " * (PIECE_SIZE * 3 + 1))

    with path.open("rb") as file:
        sizes = [len(piece) for piece in plain_chunks(file)]

    assert sum(sizes) == PIECE_SIZE * 3 + 1
    assert max(sizes) <= PIECE_SIZE


def test_plain_bytes_may_end_anywhere() -> None:
    assert decoded(PlainDecoder(), iter([b"[", b"1"])) == b"[1"

"""A growing file reads like a complete one: reads wait for bytes, and end at the end of the file."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from io import BufferedReader
from pathlib import Path

import pytest

from service.streaming import codec
from service.streaming.codec import plain_chunks
from service.streaming.source import HEAD_SIZE, GrowingFile
from tests.traces import Compression, TraceShape, write_trace
from tests.waiting import PATIENCE_S

WAITS_S = 0.05  # a read that has not returned after this time is waiting


class Growing:
    """A growing file, and a thread that reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self.raw = GrowingFile(path)
        self.file: BufferedReader = BufferedReader(self.raw)
        self._thread = ThreadPoolExecutor(1)

    def write(self, content: bytes, *, reported: bool = True) -> None:
        with self._path.open("ab") as file:
            file.write(content)
        if reported:
            self.raw.grow(self._path.stat().st_size)

    def read(self, size: int = 1 << 16) -> "Future[bytes]":
        return self._thread.submit(self.file.read1, size)

    def close(self) -> None:
        self.raw.finish()
        self._thread.shutdown()
        self.file.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    growing = Growing(tmp_path / "growing")
    yield growing
    growing.close()


def waits(reading: "Future[bytes]") -> bool:
    with pytest.raises(NotYet):
        reading.result(WAITS_S)
    return True


def test_read_returns_available_bytes_and_the_next_waits(growing: Growing) -> None:
    growing.write(b"x" * 100)

    assert growing.read().result(PATIENCE_S) == b"x" * 100
    reading = growing.read()
    assert waits(reading)
    growing.write(b"y")
    assert reading.result(PATIENCE_S) == b"y"


def test_unreported_bytes_are_not_read(growing: Growing) -> None:
    growing.write(b"x" * 100)
    growing.write(b"y" * 100, reported=False)

    assert growing.read().result(PATIENCE_S) == b"x" * 100
    assert waits(growing.read())


def test_growing_file_ends_only_when_complete(growing: Growing) -> None:
    growing.write(b"x" * 100)
    growing.read().result(PATIENCE_S)
    reading = growing.read()
    assert waits(reading)

    growing.raw.finish()

    assert reading.result(PATIENCE_S) == b""


def test_complete_file_is_read_to_its_end_regardless_of_reports(growing: Growing) -> None:
    growing.write(b"x" * 100, reported=False)
    growing.raw.finish()

    assert growing.read().result(PATIENCE_S) == b"x" * 100
    assert growing.read().result(PATIENCE_S) == b""


def test_magic_bytes_arrive_in_one_piece(growing: Growing) -> None:
    growing.write(b"SQLite")
    reading = growing.read()
    assert waits(reading)

    growing.write(b" format 3".ljust(HEAD_SIZE))

    assert reading.result(PATIENCE_S).startswith(b"SQLite format 3")


def test_growing_file_may_be_renamed_while_read(growing: Growing, tmp_path: Path) -> None:
    growing.write(b"x" * 100)
    (tmp_path / "growing").rename(tmp_path / "kept")
    growing.raw.finish()

    assert growing.read().result(PATIENCE_S) == b"x" * 100


@pytest.mark.parametrize(
    ("compress", "expected"),
    [("none", codec.Compression.NONE), ("gzip", codec.Compression.GZIP), ("zstd", codec.Compression.ZSTD)],
    ids=str,
)
def test_growing_compressed_file_decompresses_like_a_complete_one(
    growing: Growing, tmp_path: Path, compress: Compression, expected: codec.Compression
) -> None:
    plain = write_trace(tmp_path / "plain", TraceShape(steps=20)).read_bytes()
    packed = write_trace(tmp_path / "packed", TraceShape(steps=20), compress=compress).read_bytes()
    reading = growing._thread.submit(
        lambda: (codec.compression_of(codec.file_head(growing.file)), b"".join(plain_chunks(growing.file)))
    )
    for at in range(0, len(packed), 777):
        growing.write(packed[at : at + 777])
    growing.raw.finish()

    assert reading.result(PATIENCE_S) == (expected, plain)

"""A file that grows reads like one that is whole: reads wait for bytes, and end where the file does."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from io import BufferedReader
from pathlib import Path

import pytest

from service.streaming.codec import Format, format_of, plain_chunks
from service.streaming.source import HEAD_SIZE, GrowingFile
from tests.traces import Compression, TraceShape, write_trace

WAITS_S = 0.05  # a read that has not ended by then waits
ENDS_S = 20


class Growing:
    """A file that grows, and a thread that reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self.raw = GrowingFile(path)
        self.file: BufferedReader = BufferedReader(self.raw)
        self._thread = ThreadPoolExecutor(1)

    def write(self, content: bytes, *, told: bool = True) -> None:
        with self._path.open("ab") as file:
            file.write(content)
        if told:
            self.raw.grow(self._path.stat().st_size)

    def read(self, size: int = 1 << 16) -> "Future[bytes]":
        return self._thread.submit(self.file.read1, size)

    def close(self) -> None:
        self.raw.finish()
        self._thread.shutdown()
        self.file.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    one = Growing(tmp_path / "growing")
    yield one
    one.close()


def waits(reading: "Future[bytes]") -> bool:
    with pytest.raises(NotYet):
        reading.result(WAITS_S)
    return True


def test_a_read_gives_what_is_there_and_the_next_waits(growing: Growing) -> None:
    growing.write(b"x" * 100)

    assert growing.read().result(ENDS_S) == b"x" * 100
    reading = growing.read()
    assert waits(reading)
    growing.write(b"y")
    assert reading.result(ENDS_S) == b"y"


def test_bytes_that_were_not_told_of_are_not_read(growing: Growing) -> None:
    growing.write(b"x" * 100)
    growing.write(b"y" * 100, told=False)

    assert growing.read().result(ENDS_S) == b"x" * 100
    assert waits(growing.read())


def test_it_ends_only_when_it_is_complete(growing: Growing) -> None:
    growing.write(b"x" * 100)
    growing.read().result(ENDS_S)
    reading = growing.read()
    assert waits(reading)

    growing.raw.finish()

    assert reading.result(ENDS_S) == b""


def test_a_complete_file_is_read_to_its_end_whatever_was_told(growing: Growing) -> None:
    growing.write(b"x" * 100, told=False)
    growing.raw.finish()

    assert growing.read().result(ENDS_S) == b"x" * 100
    assert growing.read().result(ENDS_S) == b""


def test_the_magic_bytes_come_in_one_piece(growing: Growing) -> None:
    growing.write(b"SQLite")
    reading = growing.read()
    assert waits(reading)

    growing.write(b" format 3".ljust(HEAD_SIZE))

    assert reading.result(ENDS_S).startswith(b"SQLite format 3")


def test_it_may_be_renamed_while_it_is_read(growing: Growing, tmp_path: Path) -> None:
    growing.write(b"x" * 100)
    (tmp_path / "growing").rename(tmp_path / "kept")
    growing.raw.finish()

    assert growing.read().result(ENDS_S) == b"x" * 100


@pytest.mark.parametrize(
    ("compress", "told"), [("none", Format.JSON), ("gzip", Format.GZIP), ("zstd", Format.ZSTD)], ids=str
)
def test_its_plain_bytes_are_those_of_the_whole(
    growing: Growing, tmp_path: Path, compress: Compression, told: Format
) -> None:
    plain = write_trace(tmp_path / "plain", TraceShape(steps=20)).read_bytes()
    packed = write_trace(tmp_path / "packed", TraceShape(steps=20), compress=compress).read_bytes()
    reading = growing._thread.submit(lambda: (format_of(growing.file), b"".join(plain_chunks(growing.file))))
    for at in range(0, len(packed), 777):
        growing.write(packed[at : at + 777])
    growing.raw.finish()

    assert reading.result(ENDS_S) == (told, plain)

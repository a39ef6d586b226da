"""Sources of uploads: a file, or a binary stream of unknown length; a part of either can be read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Optional, Protocol, Union

PIECE = 1 << 20
"""Bytes that are read and sent at a time."""
CHUNK = 32 << 20
"""Maximum bytes of a request, of a file."""
STREAM_CHUNK = 8 << 20
"""Maximum bytes of a request, of a stream. They stay in memory until the server has them, with as many after them."""


class Source(Protocol):
    """The bytes of an upload.

    Attributes:
        name: name of the file; None if it has none.
        size: number of bytes; None if the end was not read yet.
    """

    name: Optional[str]
    size: Optional[int]

    def extent(self, start: int) -> int:
        """Return the end of the chunk that starts at an offset. The server has all bytes before `start`."""

    def read(self, start: int, size: int) -> bytes:
        """Return at most `size` bytes of the chunk from an offset, at least one."""


class FileSource:
    """A file, up to the size that it has when it is opened."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name: Optional[str] = name
        self._file = file
        self.size: Optional[int] = os.fstat(file.fileno()).st_size

    def extent(self, start: int) -> int:
        """Return the end of the chunk that starts at an offset."""
        return min(start + CHUNK, self.size or 0)

    def read(self, start: int, size: int) -> bytes:
        """Return at most `size` bytes from an offset; raises `OSError` if the file was truncated."""
        self._file.seek(start)
        piece = self._file.read(size)
        if not piece:
            raise OSError(None, f"the file was truncated during the upload ({start} of {self.size} bytes)", self.name)
        return piece


class StreamSource:
    """A binary stream, such as a pipe, of which the chunk that is sent and the next one are in memory."""

    def __init__(self, stream: BinaryIO) -> None:
        self.name: Optional[str] = None
        self.size: Optional[int] = None
        self._stream = stream
        self._start = 0
        self._held = bytearray()

    def extent(self, start: int) -> int:
        """Return the end of the chunk that starts at an offset, and drop the bytes before it.

        Raises:
            TypeError: the stream is not binary.
            BlockingIOError: the stream does not wait for bytes.
        """
        del self._held[: start - self._start]
        self._start = start
        # one byte more shows whether the chunk is the last one
        while self.size is None and len(self._held) <= STREAM_CHUNK:
            self._take(self._stream.read(PIECE))
        return start + min(STREAM_CHUNK, len(self._held))

    def read(self, start: int, size: int) -> bytes:
        """Return at most `size` bytes of the chunk from an offset."""
        offset = start - self._start
        return bytes(self._held[offset : offset + size])

    def _take(self, block: Optional[bytes]) -> None:
        if block is None:
            raise BlockingIOError("the stream does not wait for bytes; an upload needs a blocking stream")
        if not isinstance(block, (bytes, bytearray, memoryview)):
            raise TypeError(f"the stream returns {type(block).__name__}, not bytes; open it in binary mode")
        self._held += block
        if not block:
            self.size = self._start + len(self._held)


@contextmanager
def opened(source: Union[str, os.PathLike[str], BinaryIO]) -> Iterator[Source]:
    """Open a file by its path, or take a binary stream, which stays open."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        with path.open("rb") as file:
            yield FileSource(file, path.name)
    else:
        yield StreamSource(source)

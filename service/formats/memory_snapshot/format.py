"""Recognition of memory snapshots."""

from collections.abc import Iterable
from pathlib import Path

from service.formats.memory_snapshot.page import pickle_in, starts_page
from service.formats.memory_snapshot.reader import SnapshotReader
from service.formats.reader import Head

_PROTOCOLS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_OLD = (b"(dp", b"(lp", b"(d.", b"}q", b"]q")


class MemorySnapshot:
    """The format of the pickles that `torch.cuda.memory._dump_snapshot` writes, and of pages that contain one.

    The reader refuses other pickles: no other format reads them.
    """

    name = "pickle"

    def recognises(self, head: Head) -> bool:
        """Return whether a file is a pickle or an HTML page."""
        plain = head.plain
        return plain == b"\x80" or plain.startswith((*_PROTOCOLS, *_OLD)) or starts_page(plain)

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> SnapshotReader:  # noqa: ARG002 - it needs no files
        """Return the reader of a snapshot."""
        iterator = iter(chunks)
        return SnapshotReader(_plain(iterator))


def _plain(chunks: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the bytes of the pickle: of the file, or in the page."""
    iterator = iter(chunks)
    first = next(iterator, b"")

    def again() -> Iterable[bytes]:
        yield first
        yield from iterator

    yield from pickle_in(again()) if starts_page(first) else again()


FORMAT = MemorySnapshot()

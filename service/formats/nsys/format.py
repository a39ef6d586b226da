"""Recognition of SQLite exports of Nsight Systems."""

from collections.abc import Iterable
from pathlib import Path

from service.formats.nsys.reader import NsysReader
from service.formats.nsys.spooled import starts_database
from service.formats.reader import Head


class NsysSqlite:
    """The format of SQLite databases; the reader refuses those that are not exports of Nsight Systems."""

    name = "sqlite"

    def recognises(self, head: Head) -> bool:
        """Return whether the decompressed content starts like an SQLite database."""
        return starts_database(head.plain)

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> NsysReader:
        """Return the reader of an export."""
        return NsysReader(chunks, scratch)


FORMAT = NsysSqlite()

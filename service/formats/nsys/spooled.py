"""Spooling of an SQLite database: a file that arrives in order becomes one that can be read in any order."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from service.trace.errors import BadCompression, NotATrace, Truncated

MAGIC = b"SQLite format 3\0"
"""The first bytes of each SQLite database; see https://www.sqlite.org/fileformat2.html."""

_HEADER_SIZE = 100
_PAGE_SIZES = frozenset(1 << power for power in range(9, 17))


def starts_database(plain: bytes) -> bool:
    """Return whether the first bytes of a decompressed file, which may be few, are those of an SQLite database."""
    start = plain[: len(MAGIC)]
    return bool(start) and MAGIC.startswith(start)


class Spooled(NamedTuple):
    """A spooled database.

    Attributes:
        path: path of the file.
        missing: the reason why its end is missing, or None. Missing pages are zeros, which SQLite takes for damage.
        size: number of bytes that arrived.
    """

    path: Path
    missing: str | None
    size: int


def spool(chunks: Iterable[bytes], path: Path) -> Spooled:
    """Write a database to a new file.

    Args:
        chunks: the content, in order, which may still be arriving.
        path: path of the file.

    Raises:
        Truncated, BadCompression: the content ends within the header.
        NotATrace: the content is no SQLite database.
    """
    size, head = 0, b""
    error: Truncated | BadCompression | None = None
    with path.open("xb") as file:
        try:
            for chunk in chunks:
                head += chunk[: _HEADER_SIZE - len(head)]
                size += len(chunk)
                file.write(chunk)
        except (Truncated, BadCompression) as early:
            error = early
        if len(head) < _HEADER_SIZE:
            raise error or Truncated(f"The SQLite file ends at byte {size}, within its header.", offset=size)
        declared = _declared_size(head)
        if size >= declared and not error:
            return Spooled(path, None, size)
        reason = error.detail if error else f"The SQLite file ends at byte {size} of {declared}."
        with suppress(OSError):  # a sparse file of this size may be impossible; then SQLite refuses to open the file
            file.truncate(max(size, declared))
    return Spooled(path, reason, size)


def _declared_size(head: bytes) -> int:
    """Return the size in bytes that the header declares; 0 if it declares none. Raises `NotATrace`."""
    page_size = int.from_bytes(head[16:18], "big")
    page_size = 1 << 16 if page_size == 1 else page_size
    if not head.startswith(MAGIC) or page_size not in _PAGE_SIZES:
        raise NotATrace("The file starts like an SQLite database, but its header is damaged.", offset=0)
    is_current = head[24:28] == head[92:96]  # else an old version of SQLite wrote the file, and not this size
    return page_size * int.from_bytes(head[28:32], "big") if is_current else 0

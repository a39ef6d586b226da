"""The input formats that ingest reads, and the choice of a format by the content of a file."""

from collections.abc import Callable, Iterator
from importlib import import_module
from io import BufferedReader
from pathlib import Path

from service.formats.names import FOLDERS
from service.formats.reader import Head, TraceFormat, TraceReader
from service.formats.unread import check_is_not_unread
from service.streaming.codec import check_not_foreign, compression_of, decompressed, file_head
from service.trace.errors import BadCompression, NotATrace, Truncated

FORMATS: tuple[TraceFormat, ...] = tuple(
    import_module(f"service.formats.{folder}.format").FORMAT for folders in FOLDERS.values() for folder in folders
)
"""The readers of all input formats. The first one that recognises a file reads it."""


def open_trace(
    file: BufferedReader, scratch: Path, on_read: Callable[[int], None] | None = None
) -> tuple[TraceReader, str]:
    """Return the reader of a file, and the name of its format with the suffix of its compression, like ``json.gz``.

    Args:
        file: the file, at its beginning; it may still be growing.
        scratch: an empty folder for temporary files, which the caller removes.
        on_read: called after each read with the number of the file's bytes read so far.

    Raises:
        NotJson: no format recognises the file, but it has another known format.
        NotATrace: no format recognises the file, and its format is unknown, or it is one of `UNREAD`.
    """
    start = file_head(file)
    compression = compression_of(start)
    plain, chunks = _peeked(decompressed(file, on_read))
    check_is_not_unread(plain)
    head = Head(start, plain)
    for trace_format in FORMATS:
        if trace_format.recognises(head):
            return trace_format.reader(chunks, scratch), f"{trace_format.name}{compression}"
    check_not_foreign(start)
    raise NotATrace("The file has none of the known trace formats.")


def _peeked(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first piece of a stream, and an iterator over the whole stream that raises errors where they occur."""
    pieces: list[bytes] = []
    error: BadCompression | Truncated | None = None
    try:
        if (piece := next(chunks, None)) is not None:
            pieces.append(piece)
    except (BadCompression, Truncated) as early:
        error = early

    def again() -> Iterator[bytes]:
        yield from pieces
        if error:
            raise error
        yield from chunks

    return b"".join(pieces), again()

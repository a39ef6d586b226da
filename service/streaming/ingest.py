"""One streaming pass over a trace: from the original's bytes to what the catalog tells of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.streaming.codec import format_of, plain_chunks
from service.streaming.document import Document
from service.trace.census import Census, Summary
from service.trace.errors import NotATrace


@dataclass
class Progress:
    """How far a pass has come: bytes of the original, and events."""

    bytes: int = 0
    events: int = 0


def survey(original: Path, *, file_name: str, on_progress: Callable[[Progress], Any]) -> tuple[Summary, bytes]:
    """Read the whole trace once.

    Args:
        original: the file, packed as its magic bytes say.
        file_name: the name the trace was given; it may tell the rank.
        on_progress: is called after each piece read, up to thousands of times a second.

    Returns:
        The summary, and the text of the document around its events.

    Raises:
        IngestError: the file can't be read as a trace.
    """
    progress = Progress()
    census = Census()

    def on_read(taken: int) -> None:
        progress.bytes, progress.events = taken, census.seen
        on_progress(progress)

    document = Document(plain_chunks(original, on_read))
    add = census.add
    for event in document.events():
        add(event)
    envelope = document.envelope()
    if census.seen and census.refused == census.seen:
        raise NotATrace(f"None of the {census.seen} elements of the array is a trace event.")
    progress.events = census.seen
    on_progress(progress)
    return census.summary(envelope, file_name=file_name, packed=format_of(original)), document.envelope_text()

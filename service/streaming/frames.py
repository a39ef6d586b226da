"""The array of events in frames, read by several threads at once.

A frame is cut where an element seems to begin, and read before anyone knows whether one does. What proves it is the
frame before, which then ends with a comma; where it does not, the two are read again as one.
"""

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from service.streaming.scan.events import ELEMENT, ELEMENT_OR_CLOSE
from service.streaming.scan.grammar import OK, find_blanks_end, find_key_end, new_stack, value_end
from service.streaming.scan.machine import PADDING
from service.streaming.scan.reader import ELEMENT_MAX, Events, Reader, padded
from service.trace.errors import BadCompression, Truncated

FRAME_SIZE = 4 << 20
THREADS_MAX = 8


def processors() -> int:
    """How many threads are worth having here."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, THREADS_MAX)


class Feed:
    """The plain bytes of a document on their way in: `text` is what is there of them, and starts at byte `offset`.

    Args:
        chunks: the bytes, in order; a compressed stream that breaks is an end like another, and kept as `error`.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.text = b""
        self.offset = 0
        self.ended = False
        self.error: BadCompression | Truncated | None = None

    def fill(self, size: int) -> None:
        """Wait until there are so many bytes, or no more to come."""
        pieces, length = [self.text], len(self.text)
        while length < size and not self.ended:
            try:
                piece = next(self._chunks, None)
            except (BadCompression, Truncated) as error:
                self.error, piece = error, None
            if piece is None:
                self.ended = True
                break
            pieces.append(piece)
            length += len(piece)
        self.text = b"".join(pieces)

    def skip(self, size: int) -> None:
        """Be done with so many bytes."""
        self.text = self.text[size:]
        self.offset += size

    def put_back(self, text: bytes) -> None:
        """Have bytes again that were taken last."""
        self.text = text + self.text
        self.offset -= len(text)


@dataclass
class _Frame:
    text: bytes
    offset: int
    last: bool
    at_border: bool
    """Cut where an element seems to begin, so that the next frame starts with one."""
    events: Future[Events] | None = None


class Pool:
    """Threads that read frames, each with a reader of its own."""

    def __init__(self, threads: int) -> None:
        self.ahead = threads + 1
        self._local = threading.local()
        self._threads = ThreadPoolExecutor(threads, "reader")

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def submit(self, frame: _Frame, state: int) -> "Future[Events]":
        """Read a frame in one of the threads."""
        return self._threads.submit(self._read, frame, state)

    def _read(self, frame: _Frame, state: int) -> Events:
        reader = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader()
        return reader.read(frame.text, frame.offset, state, last=frame.last)


class Frames:
    """One array of events.

    Iterate over it to its end; the feed then stands behind the array, or at the end of the file.

    Args:
        feed: stands behind the array's opening bracket.
        pool: who reads.
    """

    def __init__(self, feed: Feed, pool: Pool) -> None:
        self._feed = feed
        self._pool = pool
        self._border = b""
        self._ahead: deque[_Frame] = deque()

    def __iter__(self) -> Iterator[Events]:
        self._feed.fill(FRAME_SIZE)
        self._border = _border(self._feed.text)
        left, state, starts_well = b"", ELEMENT_OR_CLOSE, True
        while True:
            self._look_ahead(state, starts_well=starts_well)
            frame = self._ahead.popleft()
            if left or frame.events is None or (state != ELEMENT and not starts_well):
                frame.text, frame.offset = left + frame.text, frame.offset - len(left)
                frame.events = self._pool.submit(frame, state)
            events = frame.events.result()
            left, state, starts_well = frame.text[events.at :], events.state, False
            if len(left) > ELEMENT_MAX and not events.closed:
                events.refuse("event_too_large", frame.offset + events.at, left[:100])
                left, state = b"", ELEMENT
            yield events
            if events.closed or frame.last:
                behind = b"".join([left, *(later.text for later in self._ahead)])
                self._ahead.clear()
                self._feed.put_back(behind)
                return

    def _look_ahead(self, state: int, *, starts_well: bool) -> None:
        """Cut frames and have them read, as many as there are threads for."""
        while len(self._ahead) < self._pool.ahead and not (self._ahead and self._ahead[-1].last):
            frame = self._cut()
            if starts_well and not self._ahead:
                frame.events = self._pool.submit(frame, state)
            elif self._ahead and self._ahead[-1].at_border:
                frame.events = self._pool.submit(frame, ELEMENT)
            self._ahead.append(frame)

    def _cut(self) -> _Frame:
        self._feed.fill(FRAME_SIZE + 1)
        text, offset = self._feed.text, self._feed.offset
        if len(text) <= FRAME_SIZE:
            size, last, at_border = len(text), True, False
        else:
            at = text.rfind(self._border, 0, FRAME_SIZE) if self._border else -1
            last, at_border = False, at > 0
            size = text.index(b",", at) + 1 if at_border else FRAME_SIZE
        self._feed.skip(size)
        return _Frame(text[:size], offset, last, at_border)


def _border(document: bytes) -> bytes:
    """What stands between the first two events, from the bracket that closes one to the other's first key; or b""."""
    text, stack = padded(document), new_stack()
    end = len(text) - PADDING
    first = find_blanks_end(text, 0, end)
    if first >= end:
        return b""
    at, verdict = value_end(text, first, end, stack)
    if verdict != OK or document[at - 1 : at] != b"}":
        return b""
    comma = find_blanks_end(text, at, end)
    start = find_blanks_end(text, comma + 1, end)
    if document[comma : comma + 1] != b"," or document[start : start + 1] != b"{":
        return b""
    key = find_blanks_end(text, start + 1, end)
    if key >= end:
        return b""
    _, verdict, stop = find_key_end(text, key, end)
    return document[at - 1 : stop + 1] if verdict == OK else b""

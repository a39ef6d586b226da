"""Parallel reading of an array of events, in frames.

A frame starts where an element seems to begin, and is read before that start is certain. The start is confirmed once
the previous frame has been read exactly to its final comma. Otherwise, the frame is read again, together with the
unread rest of the previous frame before it.
"""

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

FRAME_SIZE = 8 << 20


class Feed:
    """Buffer of a document's decompressed bytes as they arrive.

    Args:
        chunks: the bytes, in order. Damage or the early end of a compressed stream ends the feed and sets `error`.

    Attributes:
        text: the next bytes.
        is_ascii: whether all of them are ASCII; each piece is tested while it is in the processor's cache.
        offset: offset of `text` in the document.
        ended: whether all chunks have been read.
        error: the reason why the feed ended early, else None.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.text = b""
        self.is_ascii = True
        self.offset = 0
        self.ended = False
        self.error: BadCompression | Truncated | None = None

    def fill(self, size: int) -> None:
        """Wait until `text` has at least `size` bytes, or the document ends."""
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
            self.is_ascii &= piece.isascii()
            length += len(piece)
        self.text = b"".join(pieces)

    def skip(self, size: int) -> None:
        """Drop the first `size` bytes of `text`."""
        self.text = self.text[size:]
        self.is_ascii |= self.text.isascii()
        self.offset += size

    def put_back(self, text: bytes) -> None:
        """Put the last skipped bytes back in front of `text`."""
        self.text = text + self.text
        self.is_ascii &= text.isascii()
        self.offset -= len(text)


@dataclass
class _Frame:
    """A frame of the document.

    Attributes:
        text: the frame's bytes; others may follow them.
        is_ascii: whether all bytes of `text` are ASCII.
        size: number of the frame's bytes.
        offset: offset of `text` in the document.
        last: whether the document ends with the frame.
        ends_at_border: whether the frame ends where an element seems to begin; the next frame starts with that element.
        events: the frame's events, once it is submitted.
    """

    text: bytes
    is_ascii: bool
    size: int
    offset: int
    last: bool
    ends_at_border: bool
    events: Future[Events] | None = None


class Pool:
    """A pool of threads that read frames, each with its own reader.

    Args:
        threads: number of threads.

    Attributes:
        frames_ahead_max: largest number of frames to cut ahead.
    """

    def __init__(self, threads: int) -> None:
        self.frames_ahead_max = threads + 1
        self._local = threading.local()
        self._threads = ThreadPoolExecutor(threads, "reader")

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def submit(self, frame: _Frame, state: int) -> "Future[Events]":
        """Start to read a frame in one of the threads; return the future of its events.

        Args:
            frame: the frame.
            state: state of the scan at the frame's start; see `service.streaming.scan.events`.
        """
        return self._threads.submit(self._read, frame, state)

    def _read(self, frame: _Frame, state: int) -> Events:
        reader = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader()
        return reader.read(frame.text, frame.offset, state, last=frame.last, size=frame.size, is_ascii=frame.is_ascii)


class Frames:
    """Iterator over the events of one array, frame by frame.

    After the iteration, the feed is directly after the array, or at the end of the file.

    Args:
        feed: the document, directly after the array's opening bracket.
        pool: the threads that read.
    """

    def __init__(self, feed: Feed, pool: Pool) -> None:
        self._feed = feed
        self._pool = pool
        self._border = b""
        self._ahead: deque[_Frame] = deque()

    def __iter__(self) -> Iterator[Events]:
        self._feed.fill(FRAME_SIZE)
        self._border = _find_border(self._feed.text)
        unread, state, first_frame = b"", ELEMENT_OR_CLOSE, True
        while True:
            self._submit_ahead(state, first_frame=first_frame)
            frame = self._ahead.popleft()
            starts_with_element = not unread and (first_frame or state == ELEMENT)
            if frame.events is None or not starts_with_element:  # no start was guessed, or the guess was wrong
                frame.text, frame.offset = unread + frame.text, frame.offset - len(unread)
                frame.size += len(unread)
                frame.is_ascii &= unread.isascii()
                frame.events = self._pool.submit(frame, state)
            events = frame.events.result()
            unread, state, first_frame = frame.text[events.at : frame.size], events.state, False
            if len(unread) > ELEMENT_MAX and not events.closed:
                events.refuse("event_too_large", frame.offset + events.at, unread[:100])
                unread, state = b"", ELEMENT
            yield events
            if events.closed or frame.last:
                text_after_array = b"".join([unread, *(later.text[: later.size] for later in self._ahead)])
                self._ahead.clear()
                self._feed.put_back(text_after_array)
                return

    def _submit_ahead(self, state: int, *, first_frame: bool) -> None:
        """Cut frames ahead, up to `Pool.frames_ahead_max`, and submit those that seem to start with an element."""
        while len(self._ahead) < self._pool.frames_ahead_max and not (self._ahead and self._ahead[-1].last):
            frame = self._cut()
            if first_frame and not self._ahead:
                frame.events = self._pool.submit(frame, state)
            elif self._ahead and self._ahead[-1].ends_at_border:
                frame.events = self._pool.submit(frame, ELEMENT)
            self._ahead.append(frame)

    def _cut(self) -> _Frame:
        """Cut the next frame off the feed: at the last border, or at `FRAME_SIZE` if there is none."""
        self._feed.fill(FRAME_SIZE + 1)
        text, is_ascii, offset = self._feed.text, self._feed.is_ascii, self._feed.offset
        if len(text) <= FRAME_SIZE:
            size, last, ends_at_border = len(text), True, False
        else:
            border_start = text.rfind(self._border, 0, FRAME_SIZE) if self._border else -1
            last, ends_at_border = False, border_start > 0
            size = text.index(b",", border_start) + 1 if ends_at_border else FRAME_SIZE
        self._feed.skip(size)
        return _Frame(text, is_ascii, size, offset, last, ends_at_border)


def _find_border(elements: bytes) -> bytes:
    """Return the text from the closing bracket of the first event to the first key of the second; b"" if unknown."""
    text, stack = padded(elements), new_stack()
    end = len(text) - PADDING
    first_start = find_blanks_end(text, 0, end)
    if first_start >= end:
        return b""
    first_end, verdict = value_end(text, first_start, end, stack)
    if verdict != OK or elements[first_end - 1 : first_end] != b"}":
        return b""
    comma = find_blanks_end(text, first_end, end)
    second_start = find_blanks_end(text, comma + 1, end)
    if elements[comma : comma + 1] != b"," or elements[second_start : second_start + 1] != b"{":
        return b""
    key_start = find_blanks_end(text, second_start + 1, end)
    if key_start >= end:
        return b""
    _, verdict, closing_quote = find_key_end(text, key_start, end)
    return elements[first_end - 1 : closing_quote + 1] if verdict == OK else b""

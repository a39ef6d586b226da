"""Streaming reader of a trace document: yields the events in batches, and the envelope, the text around the events."""

import json
import re
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import ijson
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.chrome_json.frames import Feed, Frames, Pool
from service.formats.chrome_json.outline import Stop, StopReason, events_after_damage, read_members
from service.streaming.processors import processor_count
from service.streaming.repair import Unrepairable, repair_json
from service.streaming.scan.grammar import OK, new_stack, value_end
from service.streaming.scan.reader import Events, padded
from service.trace.errors import IngestError, NotATrace, NotJson, Truncated
from service.trace.health import TEXT_MAX, Health
from service.trace.text import without_halves

ENVELOPE_MAX = 64 << 20
"""Largest size in bytes of the text before the events, and of the text after them."""
ARRAYS_MAX = 1000
"""Largest number of arrays of events in a file. Each array takes some time, even a short one."""

_FIRST_READ = 1 << 16
_REFUSED_MAX = 1000  # number of refused elements beyond which a file without any event is refused as a whole
_MARGIN = 64  # bytes before the damage in which an array may begin
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_EMPTY_DOCUMENT = b'{"traceEvents": []}'
_DIGITS_MAX = 640  # the smallest limit that Python's integer parser can be set to
_BEYOND_IJSON = re.compile(rb"\d{%d}|\\u[dD][89a-fA-F]" % (_DIGITS_MAX + 1))
"""Text that ijson's C parser can't read: it crashes on such long integers, and turns half a surrogate pair into "?"."""


class Document:
    """The `TraceReader` of Chrome JSON. A file of several documents is read as one.

    Args:
        chunks: the document's plain bytes, in order.
        threads: number of threads that read events; by default as many as `processor_count` returns.
    """

    def __init__(self, chunks: Iterable[bytes], *, threads: int | None = None) -> None:
        self.health = Health()
        self.kept = 0
        self.refused = 0
        self._feed = Feed(chunks)
        self._pool = Pool(threads or processor_count())
        self._envelope: list[bytes] = []
        self._arrays = 0
        self._documents = 0
        self._is_trace = False
        """True once events are a member of an object, or one of them has a phase or a time."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events in batches, in the order of the file; raises as `events` does."""
        for events in self.events():
            yield from events.batches

    def events(self) -> Iterator[Events]:
        """Yield the events, frame by frame, in the order of the file.

        Raises:
            NotJson: the file is not JSON; ``offset`` is the offset of the damage in the decompressed document.
            Truncated, BadCompression: the file ends before its first event.
            NotATrace: the document has no array of events, or no element of the array is an event.
        """
        feed = self._feed
        with self._pool:
            self._begin()
            while feed.text:
                yield from self._next_part()
                self._skip_blanks()
        if feed.error:
            if feed.error.code == "bad_compression":
                self.health.add("bad_compression", offset=feed.error.extra["offset"], text=feed.error.detail)
            elif not self.health.count("cut"):
                self.health.add("cut", offset=feed.offset, text=feed.error.detail)
        self._check_has_events()

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the document's text with an empty array of events, and its other members, parsed.

        The text is valid JSON. Damaged text is repaired or, if that fails, replaced by a document that has only the
        empty array.
        """
        text = b"".join(self._envelope)
        try:
            document = _parsed(text)
        except ValueError:
            text = self._repaired(text)
            document = _parsed(text)
        if not isinstance(document, dict):
            return b"[]", {}
        if "traceEvents" not in document:  # its key is damaged
            text = text.removesuffix(b"}") + (b", " if document else b"") + b'"traceEvents": []}'
        elif document["traceEvents"] != []:
            self.health.add("envelope")
            return _EMPTY_DOCUMENT, {}
        document.pop("traceEvents", None)
        return text, document

    def _begin(self) -> None:
        self._feed.fill(_FIRST_READ)
        if self._feed.text.startswith(_BOM):
            self.health.add("byte_order_mark", offset=0)
            self._feed.skip(len(_BOM))
        self._skip_blanks()
        if not self._feed.text:
            empty = NotJson("The file holds no JSON document: it is empty.", offset=self._feed.offset)
            raise self._feed.error or empty

    def _skip_blanks(self) -> None:
        feed = self._feed
        while True:
            feed.skip(len(feed.text) - len(feed.text.lstrip(_BLANKS)))
            if feed.text or feed.ended:
                return
            feed.fill(_FIRST_READ)

    def _next_part(self) -> Iterator[Events]:
        """Read a document, or the text after one: more events, another document or unreadable text."""
        opens_document = self._feed.text.startswith((b"{", b"["))
        if self._documents and not self._arrays:
            self._feed.skip(self._find_events(0))
            yield from self._array()
        elif self._arrays and self._events_continue(anywhere=not opens_document):
            yield from self._events_after_close()
        elif self._documents and not opens_document:
            self._skip_rest()
        else:
            yield from self._document()

    def _document(self) -> Iterator[Events]:
        if self._documents:
            self.health.add("several_documents", offset=self._feed.offset)
        self._documents += 1
        try:
            yield from self._array_alone() if self._feed.text.startswith(b"[") else self._object()
        except IngestError:
            if not self.kept or self._arrays > ARRAYS_MAX:
                raise
            self._skip_rest()

    def _skip_rest(self) -> None:
        feed = self._feed
        self.health.add("envelope", offset=feed.offset, text=feed.text[:TEXT_MAX].decode("utf-8", "replace"))
        feed.skip(len(feed.text))

    def _events_continue(self, *, anywhere: bool) -> bool:
        """Return whether an event follows, so that the array of events seems to have been closed too early.

        Args:
            anywhere: whether other text may come before the event.
        """
        self._feed.fill(_FIRST_READ)
        start = events_after_damage(self._feed.text, 0)
        return start is not None and (anywhere or start == 0)

    def _events_after_close(self) -> Generator[Events, None, bool]:
        """Read events after a bracket that seemed to close their array; return whether it was closed again."""
        self.health.add("wrong_bracket", offset=self._feed.offset)
        return (yield from self._array())

    def _keep(self, text: bytes) -> None:
        """Add text to the envelope, unless it is text of a later document: only the first one has an envelope."""
        if self._documents == 1:
            self._envelope.append(text)
        if sum(map(len, self._envelope)) > ENVELOPE_MAX:
            raise NotATrace(
                f"More than {ENVELOPE_MAX} bytes stand around the trace events before byte {self._feed.offset}.",
                offset=self._feed.offset,
                limit=ENVELOPE_MAX,
            )

    def _array_alone(self) -> Iterator[Events]:
        self._keep(b"[")
        self._feed.skip(1)
        yield from self._array()
        self._keep(b"]")

    def _object(self) -> Iterator[Events]:
        """Read a document that is an object, with all its arrays of events."""
        feed, arrays, size = self._feed, 0, _FIRST_READ
        at_start = valid = feed.text.startswith(b"{")
        if not valid:
            self.health.add("wrong_bracket", offset=feed.offset)
        self._keep(b"{")
        feed.skip(int(valid))
        while True:
            feed.fill(size)
            stop = read_members(feed.text, at_start=at_start) if valid else Stop(StopReason.DAMAGE, 0)
            valid, size = True, _FIRST_READ
            if stop.reason is StopReason.END:
                self._keep(feed.text[: stop.at])
                feed.skip(stop.at)
                return
            too_long = len(feed.text) > ENVELOPE_MAX
            if stop.reason is StopReason.UNFINISHED and not (feed.ended or too_long):
                self._keep(feed.text[: stop.at])
                feed.skip(stop.at)
                at_start, size = stop.at_start, 2 * max(len(feed.text), _FIRST_READ)
                continue
            if stop.reason is StopReason.UNFINISHED:
                if self._documents == 1 and not arrays:
                    feed.put_back(b"".join(self._envelope[1:]))
                    self._envelope = [b"{"]
                if arrays or events_after_damage(feed.text, 0) is None:
                    self._end_unfinished(stop.at, arrays)
                    return
                stop = Stop(StopReason.DAMAGE, 0)  # a bracket before the events was left open
            if stop.reason is StopReason.DAMAGE and arrays:
                if not self._events_continue(anywhere=True):
                    feed.fill(ENVELOPE_MAX)
                    self._keep(feed.text)
                    feed.skip(len(feed.text))
                    return
                closed = yield from self._events_after_close()
            else:
                closed = yield from self._array_in(stop, arrays)
            if not closed:
                self._keep(b"}")
                return
            at_start, arrays = False, arrays + 1

    def _array_in(self, stop: Stop, arrays: int) -> Generator[Events, None, bool]:
        """Read the array of events of an object, found as a member or after damage; return whether it was closed."""
        feed = self._feed
        start = stop.at if stop.reason is StopReason.ARRAY else self._find_events(stop.at)
        if arrays:
            self.health.add("several_arrays", offset=feed.offset + stop.key)
            self._keep(feed.text[: stop.key].rstrip(_BLANKS + b","))
        else:
            self._keep(feed.text[:start])
        feed.skip(start)
        self._is_trace = True
        closed = yield from self._array()
        self._keep(b"" if arrays else b"]")
        return closed

    def _end_unfinished(self, whole: int, arrays: int) -> None:
        """Handle a document that ends, or exceeds the limit, within a member."""
        feed = self._feed
        if not feed.ended:
            raise NotATrace(
                f"A member does not end in the {len(feed.text)} bytes after byte {feed.offset}: at most {ENVELOPE_MAX}"
                " bytes may stand around the trace events.",
                offset=feed.offset,
                limit=ENVELOPE_MAX,
            )
        end = feed.offset + len(feed.text)
        if not arrays and not self._arrays:
            raise feed.error or Truncated(f"The JSON document ends at byte {end}, before its end.", offset=end)
        self.health.add("cut", offset=end)
        self._keep(feed.text[:whole] + b"}")
        feed.skip(len(feed.text))

    def _find_events(self, damage: int) -> int:
        """Return the offset in the feed's text of the first event after damage."""
        feed = self._feed
        while True:
            start = events_after_damage(feed.text, max(damage - _MARGIN, 0))
            if start is not None:
                return start
            if feed.ended or len(feed.text) > ENVELOPE_MAX:
                break
            feed.fill(2 * max(len(feed.text), _FIRST_READ))
        offset = feed.offset + damage
        raise feed.error or NotJson(
            f"The document is not JSON at byte {offset}, and no array of trace events follows.", offset=offset
        )

    def _array(self) -> Generator[Events, None, bool]:
        """Read an array of events; return whether it was closed."""
        self._arrays += 1
        if self._arrays > ARRAYS_MAX:
            raise NotATrace(
                f"More than {ARRAYS_MAX} arrays of trace events stand before byte {self._feed.offset}.",
                offset=self._feed.offset,
                limit=ARRAYS_MAX,
            )
        closed = False
        for events in Frames(self._feed, self._pool):
            self.kept += events.kept
            self.refused += events.refused
            self.health.join(events.health)
            self._is_trace = self._is_trace or any(map(_has_event, events.batches))
            if not self.kept and self.refused > _REFUSED_MAX:
                self._check_has_events()
            yield events
            closed = events.closed
        return closed

    def _check_has_events(self) -> None:
        """Refuse the file as a whole if no event of it can be read."""
        feed = self._feed
        if not self._arrays:
            raise NotATrace("The JSON document has no array `traceEvents`.")
        if self.kept and self._is_trace:
            return
        if self.kept:
            raise NotATrace(f"None of the {self.kept} objects of the list has a phase (`ph`) or a time (`ts`).")
        if feed.error:
            raise feed.error
        if self.health.count("cut"):
            raise Truncated(
                f"The file ends at byte {feed.offset}, before the end of its first event.", offset=feed.offset
            )
        if self.refused:
            raise NotATrace(f"None of the first {self.refused} elements of the array is a trace event.")

    def _repaired(self, text: bytes) -> bytes:
        try:
            repaired = repair_json(text)
            (value,) = repaired.values
        except (Unrepairable, ValueError):
            self.health.add("envelope")
            return b"[]" if text.startswith(b"[") else _EMPTY_DOCUMENT
        for change in repaired.repairs:
            self.health.add(change.damage)
        return value


def _has_event(batch: pa.RecordBatch) -> bool:
    """Return whether an event of a batch has, or may have, a phase or a time; objects of other lists have neither."""
    may_have = pc.any(batch["verbatim"]).as_py()  # such as with an escaped key
    return may_have or any(batch[name].null_count < len(batch) for name in ("ph", "ts_ns"))


def _parsed(text: bytes) -> Any:
    """Return the value of a JSON text; raises `ValueError` if the text is not valid or nested too deep."""
    text.decode()
    if value_end(padded(text), 0, len(text), new_stack()) != (len(text), OK):
        raise ValueError("the text is no JSON")
    if _BEYOND_IJSON.search(text):
        return _parsed_leniently(text)
    try:
        (document,) = ijson.items(text, "")
    except ArithmeticError:  # an exponent that Decimal can't represent
        return _parsed_leniently(text)
    return document


def _parsed_leniently(text: bytes) -> Any:
    """Parse JSON that ijson can't read: huge numbers become infinite, and half a surrogate pair becomes U+FFFD."""
    document = json.loads(text, parse_int=_whole)
    again = json.dumps(document, ensure_ascii=False)
    return json.loads(without_halves(again))


def _whole(number: str) -> int | float:
    return int(number) if len(number) <= _DIGITS_MAX else float(number)

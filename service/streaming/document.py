"""A trace document as a stream: its events in batches, and its envelope, which is all that stands around them."""

import json
import re
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import ijson

from service.streaming.frames import Feed, Frames, Pool, processors
from service.streaming.outline import Landmark, Step, events_behind_damage, read_members
from service.streaming.repair import Unmendable, mend
from service.streaming.scan.grammar import OK, new_stack, value_end
from service.streaming.scan.reader import Events, padded
from service.trace.errors import IngestError, NotATrace, NotJson, Truncated
from service.trace.health import TEXT_MAX, Health
from service.trace.text import without_halves

ENVELOPE_MAX = 64 << 20
"""Bytes that may stand before the events, and behind them."""
ARRAYS_MAX = 1000
"""Arrays of events in a file; each costs some time, however short it is."""

_FIRST_LOOK = 1 << 16
_REFUSED_ENOUGH = 1000  # elements, none of them an event: this is something else
_MARGIN = 64  # bytes before damage that an array may begin in
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_NOTHING = b'{"traceEvents": []}'
_DIGITS_MAX = 640  # as few as Python can be told to read
_BEYOND_IJSON = re.compile(rb"\d{%d}|\\u[dD][89a-fA-F]" % (_DIGITS_MAX + 1))
"""Of a number that Python refuses to make, ijson's C parser dies; of half a surrogate pair it makes a question mark."""


class Document:
    """One trace document, read once; a file that holds several is read as one.

    Iterate `events` to its end, then ask for the `envelope`.

    Args:
        chunks: the document's plain bytes, in order.
        threads: how many read events at the same time.
    """

    def __init__(self, chunks: Iterable[bytes], *, threads: int | None = None) -> None:
        self.health = Health()
        self.kept = 0
        self.refused = 0
        self._feed = Feed(chunks)
        self._pool = Pool(threads or processors())
        self._envelope: list[bytes] = []
        self._arrays = 0
        self._documents = 0

    def events(self) -> Iterator[Events]:
        """Yield the events, frame by frame, in the order of the file.

        Raises:
            NotJson: the file is no JSON; ``offset`` is the byte of the document.
            Truncated, BadCompression: it ends before its first event.
            NotATrace: there is no array of events, or nothing in it is an event.
        """
        feed = self._feed
        with self._pool:
            self._begin()
            while feed.text:
                yield from self._next()
                self._skip_blanks()
        if feed.error:
            if feed.error.code == "bad_compression":
                self.health.add("bad_compression", offset=feed.error.extra["offset"], text=feed.error.detail)
            elif not self.health.count("cut"):
                self.health.add("cut", offset=feed.offset, text=feed.error.detail)
        self._judge()

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """What stands around the events: the document's text with an empty array of them, and its other members.

        The text is sound JSON; where it was not, it is mended, or empty but for the array if it can't be.
        """
        text = b"".join(self._envelope)
        try:
            document = _parsed(text)
        except ValueError:
            text = self._mended(text)
            document = _parsed(text)
        if not isinstance(document, dict):
            return b"[]", {}
        if "traceEvents" not in document:  # its key is damaged
            text = text.removesuffix(b"}") + (b", " if document else b"") + b'"traceEvents": []}'
        elif document["traceEvents"] != []:
            self.health.add("envelope")
            return _NOTHING, {}
        document.pop("traceEvents", None)
        return text, document

    def _begin(self) -> None:
        self._feed.fill(_FIRST_LOOK)
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
            feed.fill(_FIRST_LOOK)

    def _next(self) -> Iterator[Events]:
        """Read a document, or what follows one: more events, another document or what can't be read."""
        starts_well = self._feed.text.startswith((b"{", b"["))
        if self._documents and not self._arrays:
            self._feed.skip(self._find_events(0))
            yield from self._array()
        elif self._arrays and self._events_go_on(anywhere=not starts_well):
            yield from self._more_events()
        elif self._documents and not starts_well:
            self._leave_out()
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
            self._leave_out()

    def _leave_out(self) -> None:
        feed = self._feed
        self.health.add("envelope", offset=feed.offset, text=feed.text[:TEXT_MAX].decode("utf-8", "replace"))
        feed.skip(len(feed.text))

    def _events_go_on(self, *, anywhere: bool) -> bool:
        """Whether the array of events seems to have ended too early: an event stands right here, or anywhere."""
        self._feed.fill(_FIRST_LOOK)
        start = events_behind_damage(self._feed.text, 0)
        return start is not None and (anywhere or start == 0)

    def _more_events(self) -> Generator[Events, None, bool]:
        """Read events behind a bracket that seemed to close their array."""
        self.health.add("wrong_bracket", offset=self._feed.offset)
        return (yield from self._array())

    def _keep(self, text: bytes) -> None:
        """Make a piece of the first document part of the envelope; those of later ones are left out."""
        if self._documents == 1:
            self._envelope.append(text)
        if sum(map(len, self._envelope)) > ENVELOPE_MAX:
            raise NotATrace(
                f"More than {ENVELOPE_MAX} bytes before byte {self._feed.offset} stand around the trace events.",
                offset=self._feed.offset,
                limit=ENVELOPE_MAX,
            )

    def _array_alone(self) -> Iterator[Events]:
        self._keep(b"[")
        self._feed.skip(1)
        yield from self._array()
        self._keep(b"]")

    def _object(self) -> Iterator[Events]:
        """Read a document that is an object, with as many arrays of events as it has."""
        feed, arrays, look = self._feed, 0, _FIRST_LOOK
        fresh = sound = feed.text.startswith(b"{")
        if not sound:
            self.health.add("wrong_bracket", offset=feed.offset)
        self._keep(b"{")
        feed.skip(int(sound))
        while True:
            feed.fill(look)
            step = read_members(feed.text, fresh=fresh) if sound else Step(Landmark.DAMAGE, 0)
            sound, look = True, _FIRST_LOOK
            if step.landmark is Landmark.END:
                self._keep(feed.text[: step.at])
                feed.skip(step.at)
                return
            too_long = len(feed.text) > ENVELOPE_MAX
            if step.landmark is Landmark.UNFINISHED and not (feed.ended or too_long):
                self._keep(feed.text[: step.at])
                feed.skip(step.at)
                fresh, look = step.fresh, 2 * max(len(feed.text), _FIRST_LOOK)
                continue
            if step.landmark is Landmark.UNFINISHED:
                if self._documents == 1 and not arrays:
                    feed.put_back(b"".join(self._envelope[1:]))
                    self._envelope = [b"{"]
                if arrays or events_behind_damage(feed.text, 0) is None:
                    self._end_unfinished(step.at, arrays)
                    return
                step = Step(Landmark.DAMAGE, 0)  # a bracket was left open before the events
            if step.landmark is Landmark.DAMAGE and arrays:
                if not self._events_go_on(anywhere=True):
                    feed.fill(ENVELOPE_MAX)
                    self._keep(feed.text)
                    feed.skip(len(feed.text))
                    return
                closed = yield from self._more_events()
            else:
                closed = yield from self._array_in(step, arrays)
            if not closed:
                self._keep(b"}")
                return
            fresh, arrays = False, arrays + 1

    def _array_in(self, step: Step, arrays: int) -> Generator[Events, None, bool]:
        """Read the array of events of an object, which is found or stands behind damage."""
        feed = self._feed
        start = step.at if step.landmark is Landmark.ARRAY else self._find_events(step.at)
        if arrays:
            self.health.add("several_arrays", offset=feed.offset + step.key)
            self._keep(feed.text[: step.key].rstrip(_BLANKS + b","))
        else:
            self._keep(feed.text[:start])
        feed.skip(start)
        closed = yield from self._array()
        self._keep(b"" if arrays else b"]")
        return closed

    def _end_unfinished(self, whole: int, arrays: int) -> None:
        """The document ends, or goes on for too long, in a member."""
        feed = self._feed
        if not feed.ended:
            raise NotATrace(
                f"The {len(feed.text)} bytes after byte {feed.offset} hold no end of a member: at most {ENVELOPE_MAX}"
                " may stand around the trace events.",
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
        """Where the events begin, somewhere behind the damage."""
        feed = self._feed
        while True:
            start = events_behind_damage(feed.text, max(damage - _MARGIN, 0))
            if start is not None:
                return start
            if feed.ended or len(feed.text) > ENVELOPE_MAX:
                break
            feed.fill(2 * max(len(feed.text), _FIRST_LOOK))
        offset = feed.offset + damage
        raise feed.error or NotJson(
            f"The document is not JSON at byte {offset}, and no array of trace events follows.", offset=offset
        )

    def _array(self) -> Generator[Events, None, bool]:
        """Read an array of events; whether it is closed."""
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
            if not self.kept and self.refused > _REFUSED_ENOUGH:
                self._judge()
            yield events
            closed = events.closed
        return closed

    def _judge(self) -> None:
        """Refuse the file as a whole if nothing in it can be read."""
        feed = self._feed
        if not self._arrays:
            raise NotATrace("The JSON document has no array `traceEvents`.")
        if self.kept:
            return
        if feed.error:
            raise feed.error
        if self.health.count("cut"):
            raise Truncated(
                f"The file ends at byte {feed.offset}, before the end of its first event.", offset=feed.offset
            )
        if self.refused:
            raise NotATrace(f"None of the first {self.refused} elements of the array is a trace event.")

    def _mended(self, text: bytes) -> bytes:
        try:
            mended = mend(text)
            (value,) = mended.values
        except (Unmendable, ValueError):
            self.health.add("envelope")
            return b"[]" if text.startswith(b"[") else _NOTHING
        for repair in mended.repairs:
            self.health.add(repair.damage)
        return value


def _parsed(text: bytes) -> Any:
    """The value of a JSON text; raises ValueError if it is none, or nested deeper than an event may be."""
    text.decode()
    if value_end(padded(text), 0, len(text), new_stack()) != (len(text), OK):
        raise ValueError("the text is no JSON")
    if _BEYOND_IJSON.search(text):
        return _parsed_leniently(text)
    try:
        (document,) = ijson.items(text, "")
    except ArithmeticError:  # an exponent beyond all use
        return _parsed_leniently(text)
    return document


def _parsed_leniently(text: bytes) -> Any:
    """Likewise, where ijson can't: a number beyond all use is infinite, and half a surrogate pair is U+FFFD."""
    document = json.loads(text, parse_int=_whole)
    again = json.dumps(document, ensure_ascii=False)
    return json.loads(without_halves(again))


def _whole(number: str) -> int | float:
    return int(number) if len(number) <= _DIGITS_MAX else float(number)

"""One frame of the events array to arrow batches: scanned as it is, or mended first where it is damaged."""

import codecs
import re
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.streaming.repair import Unmendable, mend
from service.streaming.scan.columns import Builder
from service.streaming.scan.events import (
    CLOSED,
    COMMA_OR_CLOSE,
    ELEMENT,
    FULL,
    HAS_MEMBER,
    PH,
    Found,
    Scratch,
    new_scratch,
    scanned,
)
from service.streaming.scan.grammar import BAD, MORE, OK, Text, find_blanks_end, find_key_end, new_stack, value_end
from service.streaming.scan.machine import PADDING
from service.trace.health import Health

ELEMENT_MAX = 64 << 20
"""Bytes of the largest element that is read."""

_OBJECT = re.compile(rb'\{\s*"')
_KINETO = re.compile(rb'\{\s*"ph"\s*:\s*"')
_OPENS_EVENTS = re.compile(rb'\[\s*\{\s*"ph"')
_BLANKS = b" \t\r\n"
_SAMPLE = 60  # bytes of a sample, before and from the damage on


@dataclass
class Events:
    """What a frame held."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    kept: int = 0
    refused: int = 0
    health: Health = field(default_factory=Health)
    at: int = 0
    """Bytes of the frame that are done with: from there on stands an unfinished element, or what follows the array."""
    closed: bool = False
    state: int = ELEMENT
    """What may come next at the end of the frame, if the array is not closed."""

    def refuse(self, code: str, offset: int, text: bytes, count: int = 1) -> None:
        """Leave elements out."""
        self.refused += count
        self.health.add(code, count=count, offset=offset, text=text.decode("utf-8", "replace"))


class Reader:
    """Reads frames, one after the other, with the same scratch memory; one for each thread."""

    def __init__(self) -> None:
        self._scratch = new_scratch()
        self._builder = Builder()

    def read(self, frame: bytes, offset: int, state: int, *, last: bool) -> Events:
        """Read the elements of a frame.

        Args:
            frame: a piece of the document that starts between two elements of the array.
            offset: the byte of the document that it starts with.
            state: what may come next there.
            last: nothing follows in the document.
        """
        events = Events(state=state)
        frame, ill_formed = _well_formed(frame)

        def where(at: int) -> int:
            return offset + _before(ill_formed, at)

        found = self._scan(padded(frame), 0, state, events, where, keep=True)
        events.at, events.state, events.closed = found.at, found.state, found.verdict == CLOSED
        if _is_stuck(found, frame, last=last):
            self._mend(frame, events, found.verdict, where, last=last)
        if last and not events.closed:
            if rest := frame[events.at :].strip(_BLANKS):
                events.refuse("cut", where(events.at), rest)
            elif not events.health.count("cut"):
                events.health.add("cut", offset=where(len(frame)))
            events.at = len(frame)
        for place in ill_formed:
            if place.at < events.at:
                events.health.add("invalid_utf8", offset=offset + place.was_at, text=_sample(frame, place.at))
        events.at = where(events.at) - offset
        return events

    def _scan(
        self, text: Text, at: int, state: int, events: Events, where: Callable[[int], int] | None, *, keep: bool
    ) -> Found:
        """Scan as far as the text is sound, and count what is no event; with `keep`, keep what is. The last ending."""
        end = len(text) - PADDING
        while True:
            found = scanned(text, at, end, state, self._scratch)
            if found.events and keep:
                rows, rest = self._scratch.events[: found.events], self._scratch.rest[: found.rest]
                events.batches.append(self._builder.batch(text, rows, rest))
                events.kept += found.events
            if found.others and where:
                first = found.first_other
                sample = text[first : min(first + _SAMPLE, end)].tobytes()
                events.refuse("not_an_event", where(first), sample, count=found.others)
            if found.verdict != FULL:
                return found
            if not found.events:  # one event with more members than there is room for
                self._scratch = new_scratch(len(self._scratch.events), 2 * len(self._scratch.rest))
            at, state = found.at, found.state

    def _mend(self, frame: bytes, events: Events, verdict: int, where: Callable[[int], int], *, last: bool) -> None:
        """Go on from the damage to the frame's end: what is mended and what is sound is then scanned as one text."""
        pieces: list[bytes] = []
        text, at, state = padded(frame), events.at, events.state
        while True:
            if (after := self._step_over(frame, at, state, events, where)) is not None:
                at, state = after
            else:
                end = next_event(frame, text, at + 1, self._scratch)
                if end is None and not last:
                    break
                if end is None:
                    end = _array_end(text, at) if verdict == BAD else len(frame)
                pieces += self._mended(frame[at:end], events, where(at), at_end=end == len(frame))
                at, state = end, ELEMENT if frame[end : end + 1] == b"{" else COMMA_OR_CLOSE
            found = self._scan(text, at, state, events, where, keep=False)
            sound = frame[at : found.at].rstrip(_BLANKS)
            pieces.append(sound.removesuffix(b"]") if found.verdict == CLOSED else sound)
            at, state, verdict, events.closed = found.at, found.state, found.verdict, found.verdict == CLOSED
            if not _is_stuck(found, frame, last=last):
                break
        events.at, events.state = at, state
        clean = b",".join(filter(None, (piece.strip(_BLANKS + b",") for piece in pieces)))
        again = self._scan(padded(clean), 0, ELEMENT, events, None, keep=True)
        if clean and (again.verdict != MORE or again.at != len(clean)):
            raise RuntimeError(f"mended text is not sound at {again.broken}: {clean[again.broken - 50 :][:100]!r}")

    @staticmethod
    def _step_over(
        frame: bytes, at: int, state: int, events: Events, where: Callable[[int], int]
    ) -> tuple[int, int] | None:
        """Where reading goes on if a comma or a bracket is all that is wrong, and what may come there."""
        byte = frame[at : at + 1]
        if state == COMMA_OR_CLOSE and byte == b"{":
            events.health.add("missing_comma", offset=where(at), text=_sample(frame, at))
            return at, ELEMENT
        if byte == b"," or (byte == b"]" and state == ELEMENT):
            events.health.add("extra_comma", offset=where(at), text=_sample(frame, at))
            return (at + 1, ELEMENT) if byte == b"," else (at, COMMA_OR_CLOSE)
        if state != COMMA_OR_CLOSE and _OPENS_EVENTS.match(frame, at):
            events.health.add("wrong_bracket", offset=where(at), text=_sample(frame, at))
            return at + 1, ELEMENT
        return None

    @staticmethod
    def _mended(piece: bytes, events: Events, offset: int, *, at_end: bool) -> list[bytes]:
        """The events that a damaged piece holds; what can't be mended is refused."""
        try:
            mended = mend(piece, at_end=at_end)
        except Unmendable:
            events.refuse("cut" if at_end else "unreadable_event", offset, piece[: 2 * _SAMPLE])
            return []
        for repair in mended.repairs:
            events.health.add(repair.damage, offset=offset + repair.offset, text=_sample(piece, repair.offset))
        for value in mended.values:
            if not value.startswith(b"{"):
                events.refuse("not_an_event", offset, value)
        return [value for value in mended.values if value.startswith(b"{")]


def _is_stuck(found: Found, frame: bytes, *, last: bool) -> bool:
    """Whether reading can't go on, here or with what follows: by then, an element that has not ended is damaged."""
    too_long = len(frame) - found.at > ELEMENT_MAX
    return found.verdict == BAD or (found.verdict == MORE and found.at < len(frame) and (last or too_long))


def padded(text: bytes) -> Text:
    """The text with what must follow one."""
    return np.frombuffer(text + bytes(PADDING), np.uint8)


def next_event(text: bytes, as_padded: Text, at: int, scratch: Scratch, *, behind: bytes = b":[") -> int | None:
    """Where the first event from `at` on starts: one as Kineto writes it, or one that is sound.

    One that stands behind one of the bytes `behind` is part of another value.
    """
    for match in _OBJECT.finditer(text, at):
        start = match.start()
        before = text[max(start - _SAMPLE, 0) : start].rstrip(_BLANKS)
        if before and before[-1] in behind:
            continue
        if _KINETO.match(text, start) or _is_event(as_padded, start, scratch):
            return start
    return None


def _is_event(text: Text, start: int, scratch: Scratch) -> bool:
    end, verdict = value_end(text, start, len(text) - PADDING, scratch.stack)
    if verdict != OK:
        return False
    scanned(text, start, end, ELEMENT, scratch)
    return bool(scratch.events[0, HAS_MEMBER] >> PH & 1)


class _Place(NamedTuple):
    """Where a replaced sequence stands in the new text, where it stood, and by how much it was longer."""

    at: int
    was_at: int
    lost: int


_REPLACED = threading.local()


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _REPLACED.spans.append((error.start, error.end))
    return "\ufffd", error.end


codecs.register_error("tracedock.note", _replace)


def _well_formed(text: bytes) -> tuple[bytes, list[_Place]]:
    """The text as UTF-8, with U+FFFD for each sequence that is none, and where these are."""
    if text.isascii():
        return text, []
    _REPLACED.spans = []
    decoded = text.decode("utf-8", "tracedock.note")
    if not _REPLACED.spans:
        return text, []
    places, grown = [], 0
    for start, end in _REPLACED.spans:
        lost = end - start - len("\ufffd".encode())
        places.append(_Place(start + grown, start, lost))
        grown -= lost
    return decoded.encode(), places


def _before(places: list[_Place], at: int) -> int:
    """The offset in the old text of one in the new text."""
    index = bisect_left(places, at, key=lambda place: place.at) - 1
    if index < 0:
        return at
    place = places[index]
    return place.was_at + at - place.at + place.lost


def _array_end(text: Text, at: int) -> int:
    """Where the bracket stands that closes the array: the document goes soundly to its end behind it. Else that end."""
    end, stack = len(text) - PADDING, new_stack()
    for match in re.finditer(rb"\]", text[at:end].tobytes()):
        behind = find_blanks_end(text, at + match.end(), end)
        verdict = OK
        while verdict == OK and behind < end and text[behind] == ord(","):
            behind, verdict, _ = find_key_end(text, find_blanks_end(text, behind + 1, end), end)
            if verdict == OK:
                behind, verdict = value_end(text, behind, end, stack)
                behind = find_blanks_end(text, behind, end)
        if verdict == OK and behind < end and text[behind] == ord("}"):
            behind = find_blanks_end(text, behind + 1, end)
        if verdict == OK and behind >= end:
            return at + match.start()
    return end


def _sample(text: bytes, at: int) -> str:
    """The text around an offset."""
    return text[max(at - _SAMPLE, 0) : at + _SAMPLE].decode("utf-8", "replace")

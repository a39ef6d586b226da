"""Reader of one frame of an array of events into Arrow batches; it repairs damaged text."""

import codecs
import re
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.streaming.repair import Unrepairable, repair_json
from service.streaming.scan.columns import Builder
from service.streaming.scan.events import (
    CLOSED,
    COMMA_OR_CLOSE,
    ELEMENT,
    FULL,
    HAS_MEMBER,
    PH,
    ScanResult,
    Scratch,
    new_scratch,
    scan_elements,
)
from service.streaming.scan.grammar import BAD, MORE, OK, Text, find_blanks_end, find_key_end, new_stack, value_end
from service.streaming.scan.machine import PADDING
from service.trace.health import Health

ELEMENT_MAX = 64 << 20
"""Largest size of an element in bytes."""

_OBJECT = re.compile(rb'\{\s*"')
_KINETO = re.compile(rb'\{\s*"ph"\s*:\s*"')
_OPENS_EVENTS = re.compile(rb'\[\s*\{\s*"ph"')
_BLANKS = b" \t\r\n"
_SAMPLE = 60  # bytes of a sample before the damage, and from it on


@dataclass
class Events:
    """Events of a frame, and the state in which reading ended."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    kept: int = 0
    refused: int = 0
    health: Health = field(default_factory=Health)
    at: int = 0
    """Number of bytes of the frame that were read. After them comes an unfinished element, or text after the array."""
    closed: bool = False
    state: int = ELEMENT
    """State of the scan at the end of the frame, if the array is not closed; see `service.streaming.scan.events`."""

    def refuse(self, code: str, offset: int, text: bytes, count: int = 1) -> None:
        """Record elements that are left out."""
        self.refused += count
        self.health.add(code, count=count, offset=offset, text=text.decode("utf-8", "replace"))


class Reader:
    """A reader of frames that reuses its scratch memory; each thread needs its own."""

    def __init__(self) -> None:
        self._scratch = new_scratch()
        self._builder = Builder()

    def read(
        self, frame: bytes, offset: int, state: int, *, last: bool, size: int | None = None, is_ascii: bool = False
    ) -> Events:
        """Read the elements of a frame.

        Args:
            frame: a piece of the document that starts between two elements of the array.
            offset: offset of the frame in the document.
            state: state of the scan at its start; see `service.streaming.scan.events`.
            last: whether the document ends with the frame.
            size: number of the frame's bytes; others may follow them, which saves a copy. None means all bytes.
            is_ascii: whether all bytes of `frame` are known to be ASCII.
        """
        events = Events(state=state)
        text, ill_formed = _as_text(frame, len(frame) if size is None else size, is_ascii=is_ascii)
        end = len(text) - PADDING

        def where(at: int) -> int:
            return offset + _offset_before(ill_formed, at)

        result = self._scan(text, 0, state, events, where, keep=True)
        events.at, events.state, events.closed = result.at, result.state, result.verdict == CLOSED
        if _is_stuck(result, end, last=last):
            self._repair(text, events, result.verdict, where, last=last)
        if last and not events.closed:
            if rest := text[events.at : end].tobytes().strip(_BLANKS):
                events.refuse("cut", where(events.at), rest)
            elif not events.health.count("cut"):
                events.health.add("cut", offset=where(end))
            events.at = end
        for place in ill_formed:
            if place.at < events.at:
                events.health.add("invalid_utf8", offset=offset + place.was_at, text=_sample(text[:end], place.at))
        events.at = where(events.at) - offset
        return events

    def _scan(
        self, text: Text, at: int, state: int, events: Events, where: Callable[[int], int] | None, *, keep: bool
    ) -> ScanResult:
        """Scan while the text is valid; count the elements that are not events and, with `keep`, keep the events.

        Returns:
            The result of the last scan.
        """
        end = len(text) - PADDING
        while True:
            if keep:
                result, batch = self._builder.read(text, at, end, state)
                events.kept += result.events
                if batch is not None:
                    events.batches.append(batch)
            else:
                result = scan_elements(text, at, end, state, self._scratch)
            if result.non_events and where:
                first = result.first_non_event
                sample = text[first : min(first + _SAMPLE, end)].tobytes()
                events.refuse("not_an_event", where(first), sample, count=result.non_events)
            if result.verdict != FULL:
                return result
            if not result.events:  # an event with more members than the table holds
                self._scratch = new_scratch(self._scratch.events.shape[1], 2 * len(self._scratch.rest))
            at, state = result.at, result.state

    def _repair(self, text: Text, events: Events, verdict: int, where: Callable[[int], int], *, last: bool) -> None:
        """Read on from the damage to the frame's end; then scan the repaired and the valid text together."""
        pieces: list[bytes] = []
        frame, at, state = text[:-PADDING].tobytes(), events.at, events.state
        while True:
            if (after := self._step_over(frame, at, state, events, where)) is not None:
                at, state = after
            else:
                end = next_event(frame, text, at + 1, self._scratch)
                if end is None and not last:
                    break
                if end is None:
                    end = _array_end(text, at) if verdict == BAD else len(frame)
                pieces += self._repaired(frame[at:end], events, where(at), at_end=end == len(frame))
                at, state = end, ELEMENT if frame[end : end + 1] == b"{" else COMMA_OR_CLOSE
            result = self._scan(text, at, state, events, where, keep=False)
            valid = frame[at : result.at].rstrip(_BLANKS)
            pieces.append(valid.removesuffix(b"]") if result.verdict == CLOSED else valid)
            at, state, verdict, events.closed = result.at, result.state, result.verdict, result.verdict == CLOSED
            if not _is_stuck(result, len(frame), last=last):
                break
        events.at, events.state = at, state
        clean = b",".join(filter(None, (piece.strip(_BLANKS + b",") for piece in pieces)))
        again = self._scan(padded(clean), 0, ELEMENT, events, None, keep=True)
        if clean and (again.verdict != MORE or again.at != len(clean)):
            raise RuntimeError(
                f"repaired text is not valid at {again.damage_at}: {clean[again.damage_at - 50 :][:100]!r}"
            )

    @staticmethod
    def _step_over(
        frame: bytes, at: int, state: int, events: Events, where: Callable[[int], int]
    ) -> tuple[int, int] | None:
        """Return the offset after a wrong comma or bracket, and the state there; None for other damage."""
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
    def _repaired(piece: bytes, events: Events, offset: int, *, at_end: bool) -> list[bytes]:
        """Return the texts of the events of a damaged piece; refuse a piece that can't be repaired."""
        try:
            repaired = repair_json(piece, at_end=at_end)
        except Unrepairable:
            events.refuse("cut" if at_end else "unreadable_event", offset, piece[: 2 * _SAMPLE])
            return []
        for change in repaired.repairs:
            events.health.add(change.damage, offset=offset + change.offset, text=_sample(piece, change.offset))
        for value in repaired.values:
            if not value.startswith(b"{"):
                events.refuse("not_an_event", offset, value)
        return [value for value in repaired.values if value.startswith(b"{")]


def _is_stuck(result: ScanResult, end: int, *, last: bool) -> bool:
    """Return whether reading can't go on, even with more text: the element at the end is damaged."""
    too_long = end - result.at > ELEMENT_MAX
    return result.verdict == BAD or (result.verdict == MORE and result.at < end and (last or too_long))


def padded(text: bytes) -> Text:
    """Return the text as an array with the padding that compiled functions need."""
    return np.frombuffer(text + bytes(PADDING), np.uint8)


def next_event(text: bytes, as_padded: Text, at: int, scratch: Scratch, *, after: bytes = b":[") -> int | None:
    """Return the offset, at `at` or later, of the first event that is valid or in Kineto's notation, or None.

    Args:
        text: the text to search.
        as_padded: the same text, padded.
        at: offset to start at.
        scratch: memory for scans.
        after: bytes; an object directly after one of them is part of another value, not an event.
    """
    for match in _OBJECT.finditer(text, at):
        start = match.start()
        before = text[max(start - _SAMPLE, 0) : start].rstrip(_BLANKS)
        if before and before[-1] in after:
            continue
        if _KINETO.match(text, start) or _is_event(as_padded, start, scratch):
            return start
    return None


def _is_event(text: Text, start: int, scratch: Scratch) -> bool:
    end, verdict = value_end(text, start, len(text) - PADDING, scratch.stack)
    if verdict != OK:
        return False
    scan_elements(text, start, end, ELEMENT, scratch)
    return bool(scratch.events[HAS_MEMBER, 0] >> PH & 1)


class _Place(NamedTuple):
    """Offsets of a replaced sequence in the new and in the old text, and the number of bytes by which it shrank."""

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


def _as_text(frame: bytes, size: int, *, is_ascii: bool) -> tuple[Text, list[_Place]]:
    """Return the first `size` bytes as padded, valid UTF-8, with U+FFFD in place of each ill-formed sequence.

    Returns:
        The text, and the places of the ill-formed sequences.
    """
    if is_ascii or frame.isascii():
        is_padded = size + PADDING <= len(frame)
        return np.frombuffer(frame, np.uint8, size + PADDING) if is_padded else padded(frame[:size]), []
    text = frame[:size]
    _REPLACED.spans = []
    decoded = text.decode("utf-8", "tracedock.note")
    if not _REPLACED.spans:
        return padded(text), []
    places, grown = [], 0
    for start, end in _REPLACED.spans:
        lost = end - start - len("\ufffd".encode())
        places.append(_Place(start + grown, start, lost))
        grown -= lost
    return padded(decoded.encode()), places


def _offset_before(places: list[_Place], at: int) -> int:
    """Return the offset in the old text of an offset in the new text."""
    index = bisect_left(places, at, key=lambda place: place.at) - 1
    if index < 0:
        return at
    place = places[index]
    return place.was_at + at - place.at + place.lost


def _array_end(text: Text, at: int) -> int:
    """Return the offset of the first bracket after which the document is valid to its end; the end if there is none."""
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


def _sample(text: bytes | Text, at: int) -> str:
    """Return the text around an offset."""
    return bytes(text[max(at - _SAMPLE, 0) : at + _SAMPLE]).decode("utf-8", "replace")

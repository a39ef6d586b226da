"""Search for the array of events in a document, member by member of its outermost object."""

import json
import re
from enum import Enum, auto
from typing import Any, NamedTuple

from service.streaming.scan.events import new_scratch
from service.streaming.scan.grammar import MORE, OK, find_blanks_end, find_key_end, new_stack, value_end
from service.streaming.scan.machine import PADDING
from service.streaming.scan.reader import next_event, padded

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')


class Landmark(Enum):
    """Reason for which the reading of an object's members stopped."""

    ARRAY = auto()  # the bracket that opens the array of events
    END = auto()  # the object's closing bracket
    UNFINISHED = auto()  # the end of the text, in or behind a member
    DAMAGE = auto()  # text that is not JSON


class Step(NamedTuple):
    """Position at which the reading of members stopped."""

    landmark: Landmark
    at: int
    """Offset behind the opening or closing bracket, of the damage, or behind the last complete member."""
    key: int = 0
    """Offset of the array's key."""
    fresh: bool = False
    """True if no member stands before `at`."""


def read_members(document: bytes, *, fresh: bool) -> Step:
    """Read members of the document's object until its events begin or it ends.

    Args:
        document: its text, from behind its opening bracket (`fresh`) or from behind one of its members.
        fresh: whether no member came before.
    """
    text, stack = padded(document), new_stack()
    end, at = len(text) - PADDING, 0
    while True:
        start = at
        at = find_blanks_end(text, at, end)
        if at < end and document[at : at + 1] == b"}":
            return Step(Landmark.END, at + 1)
        if at < end and not fresh:
            if document[at : at + 1] != b",":
                return Step(Landmark.DAMAGE, at)
            at = find_blanks_end(text, at + 1, end)
        if at >= end:
            return Step(Landmark.UNFINISHED, start, fresh=fresh)
        key = at
        at, verdict, stop = find_key_end(text, key, end)
        if verdict == OK:
            if document[at : at + 1] == b"[" and _text(document[key : stop + 1]) == "traceEvents":
                return Step(Landmark.ARRAY, at + 1, key)
            at, verdict = value_end(text, at, end, stack)
        if verdict == MORE:
            return Step(Landmark.UNFINISHED, start, fresh=fresh)
        if verdict != OK:
            return Step(Landmark.DAMAGE, at)
        fresh = False


def _text(string: bytes) -> Any:
    return json.loads(string.decode("utf-8", "replace"))


def events_behind_damage(document: bytes, at: int) -> int | None:
    """Return the offset from `at` on of the first element of an apparent array of events, or None."""
    event = next_event(document, padded(document), at, new_scratch(room=1), behind=b":")
    array = _ARRAY.search(document, at, event if event is not None else len(document))
    return array.end() if array else event

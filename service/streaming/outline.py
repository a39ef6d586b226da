"""Where the array of events stands in a document, found member by member of its outermost object."""

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
    """What the reading of an object's members came to."""

    ARRAY = auto()  # the bracket that opens the array of events
    END = auto()  # the object's closing bracket
    UNFINISHED = auto()  # the text's end, in or behind a member
    DAMAGE = auto()  # something that is no JSON


class Step(NamedTuple):
    """How far a reading came."""

    landmark: Landmark
    at: int
    """Behind the bracket that was found, where the damage is, or behind the last member that is whole."""
    key: int = 0
    """Where the array's key starts."""
    fresh: bool = False
    """Whether no member stands before `at`."""


def read_members(document: bytes, *, fresh: bool) -> Step:
    """Read members of the document's object until its events begin or it ends.

    Args:
        document: its text, from behind its opening bracket (`fresh`) or behind one of its members on.
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
    """Where the first element stands, from `at` on, of what looks like an array of events."""
    event = next_event(document, padded(document), at, new_scratch(room=1), behind=b":")
    array = _ARRAY.search(document, at, event if event is not None else len(document))
    return array.end() if array else event

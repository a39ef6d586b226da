"""Search for the array of events in a document, member by member of the outermost object."""

import json
import re
from enum import Enum, auto
from typing import Any, NamedTuple

from service.streaming.scan.events import new_scratch
from service.streaming.scan.grammar import MORE, OK, find_blanks_end, find_key_end, new_stack, value_end
from service.streaming.scan.machine import PADDING
from service.streaming.scan.reader import next_event, padded

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')


class StopReason(Enum):
    """Reason why reading the members of an object stopped."""

    ARRAY = auto()  # the bracket that opens the array of events
    END = auto()  # the object's closing bracket
    UNFINISHED = auto()  # the end of the text, within or after a member
    DAMAGE = auto()  # text that is not JSON


class Stop(NamedTuple):
    """Position at which reading the members stopped, and the reason."""

    reason: StopReason
    at: int
    """Offset after the opening or closing bracket, of the damage, or after the last complete member."""
    key: int = 0
    """Offset of the array's key, if the reason is `ARRAY`."""
    at_start: bool = False
    """True if there is no member before `at`."""


def read_members(document: bytes, *, at_start: bool) -> Stop:
    """Read members of the document's object until the array of events begins, the object ends, or reading must stop.

    Args:
        document: the text after the object's opening bracket or after one of its members.
        at_start: whether the text begins after the opening bracket.
    """
    text, stack = padded(document), new_stack()
    end, at = len(text) - PADDING, 0
    while True:
        start = at
        at = find_blanks_end(text, at, end)
        if at < end and document[at : at + 1] == b"}":
            return Stop(StopReason.END, at + 1)
        if at < end and not at_start:
            if document[at : at + 1] != b",":
                return Stop(StopReason.DAMAGE, at)
            at = find_blanks_end(text, at + 1, end)
        if at >= end:
            return Stop(StopReason.UNFINISHED, start, at_start=at_start)
        key = at
        at, verdict, stop = find_key_end(text, key, end)
        if verdict == OK:
            if document[at : at + 1] == b"[" and _parsed_key(document[key : stop + 1]) == "traceEvents":
                return Stop(StopReason.ARRAY, at + 1, key)
            at, verdict = value_end(text, at, end, stack)
        if verdict == MORE:
            return Stop(StopReason.UNFINISHED, start, at_start=at_start)
        if verdict != OK:
            return Stop(StopReason.DAMAGE, at)
        at_start = False


def _parsed_key(string: bytes) -> Any:
    return json.loads(string.decode("utf-8", "replace"))


def events_after_damage(document: bytes, at: int) -> int | None:
    """Search from `at` for an apparent array of events; return the offset of its first element, or None."""
    event = next_event(document, padded(document), at, new_scratch(room=1), after=b":")
    array = _ARRAY.search(document, at, event if event is not None else len(document))
    return array.end() if array else event

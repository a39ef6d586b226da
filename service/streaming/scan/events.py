"""Compiled scan of events: the offsets of their members in a text, and the values of their numbers."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.grammar import (
    BAD,
    LONE,
    MORE,
    OK,
    Stack,
    Text,
    key_end,
    new_stack,
    skip_blanks,
    string_end,
    value_end,
)
from service.streaming.scan.keys import FIRST, IS_ESCAPED, KEY, LENGTH, MEANING, Keys, enter_key, find_key, new_keys
from service.streaming.scan.machine import PADDING, WORD, byte_at, plain_run, word, word_at
from service.streaming.scan.numbers import read_integer, read_nanoseconds

CLOSED, FULL = 3, 4
"""Verdicts in addition to those of the grammar: the array of events has ended; the tables are full."""

ELEMENT_OR_CLOSE, ELEMENT, COMMA_OR_CLOSE = 0, 1, 2
"""States of a scan, named by what may come next; CLOSE stands for the closing bracket of the array."""

PH, CAT, NAME, PID, TID, ID, ARGS, TS, DUR = range(9)
"""Members that have columns in the table, each with its bit in `HAS_MEMBER`."""
PID_INT, TID_INT, ID_INT, TS_NS, DUR_NS, DEVICE, STREAM, CORRELATION, EXTERNAL_ID, BYTES = range(10)
"""Numbers of an event: each is both a column and the bit in `HAS_INT`."""
TS_DECIMALS, DUR_DECIMALS = 10, 11
"""Columns: numbers of decimals in the texts of ts and dur, valid if `HAS_INT` has the bit of `TS_NS` or `DUR_NS`."""
HAS_INT, HAS_MEMBER, VERBATIM = 12, 13, 14
"""Columns: bits of an event's numbers, bits of its members, and whether only its own text can reproduce it."""
START, END = 15, 16
"""Columns: start and end of the event in the text."""
SPANS = 17
"""First of the columns with the start and the end of each member's text, from PH to ARGS.

The texts of ph, cat and name exclude their quotes.
"""
WIDTH = SPANS + 2 * (ARGS + 1)
ROOM = (1 << 9) - 8
"""Largest number of events of one scan: a block, whose text and table stay in the processor's cache.

With a power of two, the columns of an event would compete for the same lines of the cache.
"""
MEMBERS = 8 * ROOM
"""Usual number of members without a column for which one scan has room."""

_OTHER = -1  # a member without a column
_QUOTE, _COMMA, _MINUS = b'",-'
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b"{}[]"
_ZERO, _NINE, _METADATA = b"09M"

_INT_BITS = np.zeros(DUR + 1, np.int64)
for _member_bit, _columns in (
    (PID, (PID_INT,)),
    (TID, (TID_INT,)),
    (ID, (ID_INT,)),
    (ARGS, (DEVICE, STREAM, CORRELATION, EXTERNAL_ID, BYTES)),
    (TS, (TS_NS,)),
    (DUR, (DUR_NS,)),
):
    _INT_BITS[_member_bit] = sum(1 << column for column in _columns)
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(WORD + 1)])
_PH, _CAT, _NAME, _PID, _TID, _ID, _ARGS, _TS, _DUR = map(
    word, (b"ph", b"cat", b"name", b"pid", b"tid", b"id", b"args", b"ts", b"dur")
)
_QUOTED_PH = word(b'"ph"')
_DEVICE, _STREAM, _BYTES, _BIG_BYTES = map(word, (b"device", b"stream", b"bytes", b"Bytes"))
_MEMBERS = (
    (_PH, PH),
    (_CAT, CAT),
    (_NAME, NAME),
    (_PID, PID),
    (_TID, TID),
    (_ID, ID),
    (_ARGS, ARGS),
    (_TS, TS),
    (_DUR, DUR),
)
_ARGUMENTS = ((_DEVICE, DEVICE), (_STREAM, STREAM), (_BYTES, BYTES), (_BIG_BYTES, BYTES))
_CORRELA, _TION, _EXTERNA, _BIG_EXTERNA, _L_ID = map(word, (b"correla", b"tion", b"externa", b"Externa", b"l id"))

Table = npt.NDArray[np.int64]
"""A table of integers: columns of events, one after the other, or a row (event, start, end) for each further member."""


class Scratch(NamedTuple):
    """Memory that scans fill and reuse."""

    events: Table  # (WIDTH, number of events)
    rest: Table  # (number of members, 3)
    keys: Keys
    stack: Stack


def new_scratch(room: int = ROOM, rest: int = MEMBERS) -> Scratch:
    """Allocate the memory for scans of `room` events and `rest` members without a column."""
    return Scratch(np.zeros((WIDTH, room), np.int64), np.zeros((rest, 3), np.int64), new_keys(), new_stack())


class ScanResult(NamedTuple):
    """Result of a scan."""

    events: int  # number of events in the table
    rest: int  # rows of the table of members without a column
    non_events: int  # valid elements that are not objects
    first_non_event: int  # start of the first such element, or -1
    at: int  # start of the element in which the scan stopped, or end of the text that was read
    verdict: int
    state: int
    damage_at: int  # offset of the damage if the verdict is `BAD`


@inlined
def _member(text: Text, at: int, length: int) -> int:
    """Return the member that a key names, or `_OTHER`."""
    if length > len(b"name"):
        return _OTHER
    key = word_at(text, at) & _MASKS[length]
    for name, member in _MEMBERS:
        if key == name:
            return member
    return _OTHER


@inlined
def _argument_column(text: Text, at: int, length: int) -> int:
    """Return the column of the number that a key in args names, or `_OTHER`."""
    key = word_at(text, at) & _MASKS[min(length, WORD)]
    if length == len(b"External id"):
        rest = word_at(text, at + WORD) & _MASKS[length - WORD]
        if rest == _TION and key == _CORRELA:
            return CORRELATION
        return EXTERNAL_ID if rest == _L_ID and (key == _EXTERNA or key == _BIG_EXTERNA) else _OTHER
    for name, column in _ARGUMENTS:
        if key == name:
            return column
    return _OTHER


@compiled
def _is_escaped(text: Text, at: int, end: int) -> bool:
    """Return whether a key has escapes. If it does, it may name any member once it is unescaped."""
    run = PADDING
    while run == PADDING and at < end:
        run = plain_run(text, at)
        at += run
    return at < end


@inlined
def _next_key(text: Text, at: int, end: int, last: int, keys: Keys, in_args: bool) -> tuple[int, int, int, int]:
    """Read from the end of a value, or from an opening bracket, up to the next value of the object.

    Args:
        text: the text.
        at: the offset of that end.
        end: end of the text.
        last: row of the last key in the table of keys, or `FIRST`.
        keys: the keys that were read in such objects.
        in_args: whether the object is an event's args, and no event.

    Returns:
        A verdict, which is `CLOSED` if the object ends; the offset after what was read; the offset of the key's quote;
        and its row.
    """
    row = find_key(text, at, end, last, keys)
    if row != FIRST:
        return OK, at + keys[row, LENGTH], at + keys[row, KEY], row
    start, at = at, skip_blanks(text, at, end)
    if at >= end:
        return MORE, at, at, row
    if byte_at(text, at) == _CLOSE_OBJECT:
        return CLOSED, at + 1, at, row
    if last != FIRST:
        if byte_at(text, at) != _COMMA:
            return BAD, at, at, row
        at = skip_blanks(text, at + 1, end)
        if at >= end:
            return MORE, at, at, row
    key = at
    at, verdict, stop = key_end(text, at, end)
    if verdict == OK:
        length = stop - key - 1
        meaning = _argument_column(text, key + 1, length) if in_args else _member(text, key + 1, length)
        row = enter_key(text, start, key, at, last, meaning, _is_escaped(text, key + 1, stop), keys)
    return verdict, at, key, row


@inlined
def _args_end(
    text: Text, at: int, end: int, events: Table, event: int, keys: Keys, stack: Stack
) -> tuple[int, int, int]:
    """Read the object of args, and store those of its numbers that have a column.

    Returns:
        The object's end, a verdict, and the bits of those numbers.
    """
    at, last, has_int = at + 1, FIRST, 0
    while True:
        verdict, at, _, last = _next_key(text, at, end, last, keys, True)
        if verdict != OK:
            return at, OK if verdict == CLOSED else verdict, has_int
        column, is_integer = keys[last, MEANING], False
        if column != _OTHER:
            at, number, is_integer = read_integer(text, at, end)
            events[column, event] = number
            has_int = has_int & ~(1 << column) | is_integer << column
        if not is_integer:
            at, verdict = value_end(text, at, end, stack)
            if verdict != OK:
                return at, verdict, has_int


@inlined
def _add_to_rest(rest: Table, rest_count: int, event: int, start: int, end: int) -> int:
    """Add a member without a column to `rest`; if `rest` is full, only count it. Return the new count."""
    if rest_count < rest.shape[0]:
        rest[rest_count, 0] = event
        rest[rest_count, 1] = start
        rest[rest_count, 2] = end
    return rest_count + 1


@inlined
def _number_end(text: Text, at: int, end: int, events: Table, event: int, member: int) -> tuple[int, int]:
    """Store the number of an id or a time in its column; return its end and its bit.

    Returns the same offset and 0 for a number that the column can't represent.
    """
    if member < TS:
        column = member - PID + PID_INT
        at, number, is_integer = read_integer(text, at, end)
        events[column, event] = number
        return at, is_integer << column
    column = member - TS + TS_NS
    at, nanoseconds, decimals = read_nanoseconds(text, at, end)
    events[column, event] = nanoseconds
    events[member - TS + TS_DECIMALS, event] = decimals
    return at, (decimals >= 0) << column


@inlined
def _event_end(
    text: Text, at: int, end: int, events: Table, event: int, rest: Table, rest_count: int, keys: Keys, stack: Stack
) -> tuple[int, int, int]:
    """Read an event that begins at `at`; return its end, a verdict, and the count of members without a column so far.

    That count exceeds the rows of `rest` if they do not suffice.
    """
    start, seen, ts_start, ts_end, is_metadata = at, 0, 0, 0, False
    has_int, has_member, verbatim = 0, 0, False
    at, last = at + 1, FIRST
    while True:
        verdict, at, key, last = _next_key(text, at, end, last, keys[0], False)
        if verdict == CLOSED:
            break
        if verdict != OK:
            return at, verdict, rest_count
        member, value, first, bits = keys[0, last, MEANING], at, byte_at(text, at), 0
        if member != _OTHER:
            verbatim |= seen >> member & 1 == 1
            seen |= 1 << member
            has_member &= ~(1 << member)  # the last of equal keys counts
            has_int &= ~_INT_BITS[member]
        else:  # a key with escapes may name any member once it is unescaped
            verbatim |= keys[0, last, IS_ESCAPED] != 0
        has_column = True
        if member != _OTHER and member <= NAME and first == _QUOTE:
            at, verdict, kind = string_end(text, at + 1, end)
            if verdict != OK:
                return at, verdict, rest_count
            events[SPANS + 2 * member, event] = value + 1
            events[SPANS + 2 * member + 1, event] = at
            verbatim |= kind == LONE
            if member == PH:
                is_metadata = at == value + 2 and byte_at(text, value + 1) == _METADATA
            at += 1
        else:
            if member == ARGS and first == _OPEN_OBJECT:
                at, verdict, bits = _args_end(text, at, end, events, event, keys[1], stack)
            elif member >= PID and member != ARGS and (first == _MINUS or _ZERO <= first <= _NINE):
                at, bits = _number_end(text, at, end, events, event, member)
                has_column = bits != 0 or member < TS
                verbatim |= not has_column
                if not bits:
                    at, verdict = value_end(text, at, end, stack)
            else:
                has_column = member == ARGS or (PID <= member <= ID and first == _QUOTE)
                at, verdict = value_end(text, at, end, stack)
            if verdict != OK:
                return at, verdict, rest_count
            has_int |= bits
            if PID <= member <= ARGS:
                events[SPANS + 2 * member, event] = value
                events[SPANS + 2 * member + 1, event] = at
            if member == TS:
                ts_start, ts_end = key, at
        if has_column:
            has_member |= 1 << member
        else:
            rest_count = _add_to_rest(rest, rest_count, event, key, at)
    if is_metadata and has_int >> TS_NS & 1:  # metadata has no time, even if it has a ts
        has_int &= ~(1 << TS_NS)
        rest_count = _add_to_rest(rest, rest_count, event, ts_start, ts_end)
    events[HAS_INT, event] = has_int
    events[HAS_MEMBER, event] = has_member
    events[VERBATIM, event] = verbatim
    events[START, event] = start
    events[END, event] = at
    return at, OK, rest_count


@compiled
def _opens_events(text: Text, at: int, end: int) -> bool:
    """Return whether the bracket at an offset opens another array of events, in Kineto's notation."""
    at = skip_blanks(text, at + 1, end)
    if at >= end or byte_at(text, at) != _OPEN_OBJECT:
        return False
    at = skip_blanks(text, at + 1, end)
    return at + 4 <= end and word_at(text, at) & _MASKS[4] == _QUOTED_PH


@compiled
def scan(
    text: Text, at: int, end: int, state: int, events: Table, rest: Table, keys: Keys, stack: Stack
) -> tuple[int, int, int, int, int, int, int, int]:
    """Read elements of an array of events until the array or the text ends, a table is full, or the text is damaged.

    Args:
        text: bytes, with `PADDING` more after `end`.
        at: offset to start at.
        end: end of the text.
        state: one of the states, at `at`.
        events: table to fill with the columns of each event.
        rest: table to fill, a row for each member of an event that has no column.
        keys: memory for the keys of events and of their args.
        stack: memory for `value_end`.

    Returns:
        The fields of `ScanResult`.
    """
    event, rest_count, non_events, first_non_event, start = 0, 0, 0, -1, at
    while True:
        at = skip_blanks(text, at, end)
        start = at
        if at >= end:
            return event, rest_count, non_events, first_non_event, end, MORE, state, at
        byte = byte_at(text, at)
        if byte == _CLOSE_ARRAY and state != ELEMENT:
            return event, rest_count, non_events, first_non_event, at + 1, CLOSED, state, at
        if state == COMMA_OR_CLOSE:
            if byte != _COMMA:
                return event, rest_count, non_events, first_non_event, at, BAD, state, at
            at, state = at + 1, ELEMENT
            continue
        if event == events.shape[1]:
            return event, rest_count, non_events, first_non_event, start, FULL, state, at
        if byte == _OPEN_OBJECT:
            at, verdict, new_count = _event_end(text, at, end, events, event, rest, rest_count, keys, stack)
            if verdict == OK and new_count > rest.shape[0]:
                verdict = FULL
            if verdict == OK:
                event, rest_count = event + 1, new_count
        elif byte == _OPEN_ARRAY and _opens_events(text, at, end):
            verdict = BAD  # the repair steps over the bracket; skipping the array would lose its events
        else:
            at, verdict = value_end(text, at, end, stack)
            if verdict == OK:
                non_events += 1
                if first_non_event < 0:
                    first_non_event = start
        if verdict != OK:
            return event, rest_count, non_events, first_non_event, start, verdict, state, at
        state = COMMA_OR_CLOSE


def scan_elements(text: Text, at: int, end: int, state: int, scratch: Scratch) -> ScanResult:
    """Run `scan` and name its results."""
    return ScanResult(*scan(text, at, end, state, *scratch))

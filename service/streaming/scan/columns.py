"""Builder of Arrow columns from the text of events.

Events are scanned in blocks, and the columns of a block are filled at once, while its text and its table are in the
processor's cache.
"""

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.events import (
    ARGS,
    BYTES,
    CAT,
    CORRELATION,
    DEVICE,
    DUR_DECIMALS,
    DUR_NS,
    END,
    EXTERNAL_ID,
    FULL,
    HAS_INT,
    HAS_MEMBER,
    ID,
    ID_INT,
    MEMBERS,
    NAME,
    PH,
    PID,
    PID_INT,
    ROOM,
    SPANS,
    START,
    STREAM,
    TID,
    TID_INT,
    TS_DECIMALS,
    TS_NS,
    VERBATIM,
    ScanResult,
    Scratch,
    Table,
    new_scratch,
    scan,
)
from service.streaming.scan.grammar import Text
from service.streaming.scan.keys import text_hash
from service.streaming.scan.machine import PADDING, byte_at, copy_lanes, word_at
from service.streaming.schema import SCHEMA
from service.streaming.words import known_words
from service.trace.summary import GPU_CATEGORIES
from service.trace.text import decoded
from service.trace.time import is_time, to_ns

_MEMBERS = ID + 1  # those whose texts are numbered: from PH to ID
_CODES = DUR_DECIMALS + 1  # first of the rows of flags of those members
_ARGS = _CODES + _MEMBERS
_REST = _ARGS + 1
_VERBATIM = _REST + 1
_NO_WORD = -1
_SLOTS_EACH = 2  # least size of a hash table, as a multiple of the number of words
_MARGIN = 1.1  # room for more events, and more text of them, than in the densest batch before
_FADING = 0.95  # what each batch leaves of that density
_SPARE = 1 << 16  # further bytes of such texts
_STREAM = re.compile(r'"(?:stream )?(\d{1,18}) ?"')  # a stream as tid, written before April 2022
_OPEN, _COMMA, _CLOSE, _BACKSLASH = b"{,}\\"
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class _Words(NamedTuple):
    """The distinct texts of each of the members from `PH` to `ID`, numbered in order of appearance: a row for each."""

    known: Ints  # (members,): the number of texts
    starts: Table  # (members, room): where each text begins
    lengths: Table  # likewise: its length
    following: Table  # likewise: the number of the text that came last after it
    places: Table  # likewise: its place in the hash table
    slots: npt.NDArray[np.int32]  # (members, size): hash tables of the numbers, empty between uses


class _Columns(NamedTuple):
    """Columns with room for some events.

    Attributes:
        values: numbers, in a row for each of the columns from `PID_INT` to `BYTES`.
        decimals: those of `TS_DECIMALS` and `DUR_DECIMALS`.
        codes: the number of each event's text, in a row for each of the members from `PH` to `ID`; 0 for none.
        starts: where the args of each event begin in `args`, and what has no column in `rest`.
        args: the texts of args.
        rest: the texts of members without a column.
        valid: flags of the events that have a value, in a row for each of `values`, `decimals`, `codes` and `starts`,
            and of those that are verbatim. Times in unusual notations have no decimals.
    """

    values: Table
    decimals: npt.NDArray[np.int8]
    codes: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    args: Text
    rest: Text
    valid: Flags


@inlined
def _equal(text: Text, left: int, right: int, length: int) -> bool:
    while length >= 8:
        if word_at(text, left) != word_at(text, right):
            return False
        left, right, length = left + 8, right + 8, length - 8
    mask = (1 << 8 * length) - 1
    return word_at(text, left) & mask == word_at(text, right) & mask


@compiled
def _find_word(text: Text, at: int, length: int, words: _Words, member: int) -> int:
    """Return the number of a member's text, which is entered if it is new."""
    starts, lengths, slots = words.starts[member], words.lengths[member], words.slots[member]
    slot = text_hash(text, at, at + length) & (slots.size - 1)
    while slots[slot] != _NO_WORD:
        word = int(slots[slot])
        if lengths[word] == length and _equal(text, starts[word], at, length):
            return word
        slot = (slot + 1) & (slots.size - 1)
    word = int(words.known[member])
    words.known[member] += 1
    slots[slot], words.places[member, word] = word, slot
    starts[word], lengths[word], words.following[member, word] = at, length, _NO_WORD
    return word


@inlined
def _encode(text: Text, events: Table, count: int, member: int, words: _Words, codes: Any, valid: Any) -> None:
    """Number the texts of a member of some events.

    Args:
        text: the text.
        events: the table of events.
        count: number of its events.
        member: the member.
        words: the texts that are known.
        codes: gets the number of each event's text; 0 for none.
        valid: gets flags of the events that have the member, and not as an integer in a column.
    """
    start, end = SPANS + 2 * member, SPANS + 2 * member + 1
    starts, lengths, following = words.starts[member], words.lengths[member], words.following[member]
    int_bit = 1 << member - PID + PID_INT if member >= PID else 0
    last = 0
    for event in range(count):
        codes[event] = 0
        valid[event] = events[HAS_MEMBER, event] >> member & 1 == 1 and events[HAS_INT, event] & int_bit == 0
        if not valid[event]:
            continue
        at, length = events[start, event], events[end, event] - events[start, event]
        word = following[last] if words.known[member] else _NO_WORD
        if word == _NO_WORD or lengths[word] != length or not _equal(text, starts[word], at, length):
            word = _find_word(text, at, length, words, member)
            following[last] = word
        codes[event] = last = word


@inlined
def _copy(text: Text, at: int, end: int, out: Text, to: int) -> int:
    """Copy a piece of the text, with up to `PADDING` bytes after it; return the offset after the piece in `out`."""
    behind = to + end - at
    while at < end:
        copy_lanes(text, at, out, to)
        at, to = at + PADDING, to + PADDING
    return behind


@inlined
def _args_length(events: Table, count: int) -> int:
    length = 0
    for event in range(count):
        if events[HAS_MEMBER, event] >> ARGS & 1:
            length += events[SPANS + 2 * ARGS + 1, event] - events[SPANS + 2 * ARGS, event]
    return length


@inlined
def _rest_length(events: Table, count: int, rest: Table) -> int:
    members = len(rest)
    length = 2 * members  # a bracket or comma before each member, and a bracket after some
    for event in range(count):
        if events[VERBATIM, event]:
            length += events[END, event] - events[START, event]
    for member in range(members):
        if not events[VERBATIM, rest[member, 0]]:
            length += rest[member, 2] - rest[member, 1]
    return length


@inlined
def _gather_args(text: Text, events: Table, count: int, starts: Any, has: Any, out: Text) -> None:
    """Write the args of events; `starts` has the offset of the first one in `out`."""
    to = int(starts[0])
    for event in range(count):
        starts[event], has[event] = to, events[HAS_MEMBER, event] >> ARGS & 1
        if has[event]:
            to = _copy(text, events[SPANS + 2 * ARGS, event], events[SPANS + 2 * ARGS + 1, event], out, to)
    starts[count] = to


@inlined
def _gather_rest(text: Text, events: Table, count: int, rest: Table, starts: Any, has: Any, out: Text) -> None:
    """Write, for each event, the JSON object of its members without a column, or the whole text if it is verbatim.

    `starts` has the offset of the first one in `out`.
    """
    to, member, members = int(starts[0]), 0, len(rest)
    for event in range(count):
        starts[event] = to
        first = to
        while member < members and rest[member, 0] == event:
            if not events[VERBATIM, event]:
                out[to] = _OPEN if to == first else _COMMA
                to = _copy(text, rest[member, 1], rest[member, 2], out, to + 1)
            member += 1
        if events[VERBATIM, event]:
            to = _copy(text, events[START, event], events[END, event], out, to)
        elif to > first:
            out[to] = _CLOSE
            to += 1
        has[event] = to > first
    starts[count] = to


@inlined
def _fill(text: Text, events: Table, count: int, rest: Table, words: _Words, columns: _Columns, first: int) -> None:
    """Fill the columns of a block of events.

    Args:
        text: the scanned text.
        events: the table of events.
        count: number of its events.
        rest: the table of their members without a column.
        words: the texts that are known.
        columns: the columns.
        first: the number of events before the block.
    """
    last, valid = first + count, columns.valid
    for column in range(BYTES + 1):
        for event in range(count):
            columns.values[column, first + event] = events[column, event]
            valid[column, first + event] = events[HAS_INT, event] >> column & 1
    for index in range(2):
        for event in range(count):
            number = events[TS_DECIMALS + index, event]
            columns.decimals[index, first + event] = number
            valid[TS_DECIMALS + index, first + event] = number >= 0 and events[HAS_INT, event] >> (TS_NS + index) & 1
    for member in range(_MEMBERS):
        _encode(
            text, events, count, member, words, columns.codes[member, first:last], valid[_CODES + member, first:last]
        )
    _gather_args(text, events, count, columns.starts[0, first:], valid[_ARGS, first:last], columns.args)
    _gather_rest(text, events, count, rest, columns.starts[1, first:], valid[_REST, first:last], columns.rest)
    for event in range(count):
        valid[_VERBATIM, first + event] = events[VERBATIM, event]


@compiled
def _read(
    text: Text, at: int, end: int, state: int, scratch: Scratch, words: _Words, columns: _Columns
) -> tuple[int, int, int, int, int, int, int, int]:
    """Scan events block by block, and fill their columns, until those are full or the scan can't go on.

    Returns:
        The fields of `ScanResult`; `rest` is 0.
    """
    events, rest, keys, stack = scratch
    total, non_events, first_non_event = 0, 0, -1
    columns.starts[:, 0], words.known[:] = 0, 0
    while True:
        count, rest_count, others, first_other, behind, verdict, next_state, damage_at = scan(
            text, at, end, state, events, rest, keys, stack
        )
        members = rest[:rest_count]
        args_end = columns.starts[0, total] + _args_length(events, count)
        rest_end = columns.starts[1, total] + _rest_length(events, count, members)
        if total + count >= columns.starts.shape[1] or max(
            args_end - len(columns.args), rest_end - len(columns.rest)
        ) > -PADDING:  # fmt: skip
            verdict = FULL
            break
        _fill(text, events, count, members, words, columns, total)
        if first_non_event < 0:
            first_non_event = first_other
        total, non_events, at, state = total + count, non_events + others, behind, next_state
        if verdict != FULL or count == 0:
            break
    for member in range(_MEMBERS):
        for word in range(words.known[member]):
            words.slots[member, words.places[member, word]] = _NO_WORD
    return total, 0, non_events, first_non_event, at, verdict, state, damage_at


@compiled
def _gather_words(text: Text, words: _Words, starts: Any, escaped: Any, out: Text) -> None:
    """Write the distinct texts of all members one after the other; flag the members that have backslashes in them."""
    to = 0
    for member in range(_MEMBERS):
        first = to
        for word in range(words.known[member]):
            starts[member, word] = to
            begin = words.starts[member, word]
            to = _copy(text, begin, begin + words.lengths[member, word], out, to)
        starts[member, words.known[member]] = to
        for at in range(first, to):
            escaped[member] |= byte_at(out, at) == _BACKSLASH


class _Density(NamedTuple):
    """Average numbers of events, of bytes of args, and of bytes of members without a column, in a byte of text."""

    events: float
    args: float
    rest: float


_USUAL = _Density(1 / 150, 0.5, 0.1)
_MOST = _Density(1 / 2, 1, 2)
"""No text is denser: an event takes two bytes and a comma, and a member without a column takes four and a comma."""
_EVENTS_MAX = 1 << 16
"""Largest number of events of a batch, unless a block has more."""


class Builder:
    """A builder of columns that reuses its scratch memory; each thread needs its own.

    Args:
        room: number of events in a block.
        members: number of members without a column in a block, at first.
    """

    def __init__(self, room: int = ROOM, members: int = MEMBERS) -> None:
        self._scratch = new_scratch(room, members)
        self._density = _USUAL
        self._words = _new_words(0)

    def read(self, text: Text, at: int, end: int, state: int) -> tuple[ScanResult, pa.RecordBatch | None]:
        """Read events until the array or the text ends, the columns are full, or the text is damaged.

        Args:
            text: the text, valid UTF-8, padded.
            at: offset to start at.
            end: end of the text.
            state: state of the scan at its start; see `service.streaming.scan.events`.

        Returns:
            The result of the scan, and a batch of `SCHEMA` in the order of the text, or None if there are no events.
            `position` counts from 0.
        """
        result, columns = self._read(text, at, end, state)
        if result.verdict == FULL and not result.events:  # the texts of a block take more than those before
            self._density = _MOST._replace(events=self._density.events)
            result, columns = self._read(text, at, end, state)
        while result.verdict == FULL and not result.events:  # an event has more members than the table holds
            self._scratch = new_scratch(self._scratch.events.shape[1], 2 * len(self._scratch.rest))
            result, columns = self._read(text, at, end, state)
        if not result.events:
            return result, None
        sizes = (result.events, *columns.starts[:, result.events].tolist())
        self._density = _Density(
            *(max(size / (result.at - at), _FADING * usual) for size, usual in zip(sizes, self._density, strict=True))
        )
        return result, self._batch(text, columns, result.events)

    def _read(self, text: Text, at: int, end: int, state: int) -> tuple[ScanResult, _Columns]:
        columns = _new_columns(self._density, end - at, self._scratch.events.shape[1])
        room = columns.values.shape[1]
        if room > self._words.starts.shape[1]:
            self._words = _new_words(room)
        return ScanResult(*_read(text, at, end, state, self._scratch, self._words, columns)), columns

    def _batch(self, text: Text, columns: _Columns, count: int) -> pa.RecordBatch:
        values, codes, valid = columns.values[:, :count], columns.codes[:, :count], columns.valid[:, :count]
        for event in np.flatnonzero(valid[_VERBATIM]).tolist():
            _keep_times(columns, event)
        words = self._distinct(text)
        _place(values, valid, codes, words)
        bits = [pa.py_buffer(row) for row in np.packbits(valid, axis=1, bitorder="little")]

        def ints(column: int) -> pa.Array:
            return _array(pa.int64(), values[column], bits[column])

        def digits(column: int) -> pa.Array:
            return _array(pa.int8(), columns.decimals[column - TS_DECIMALS, :count], bits[column])

        def member(of: int) -> pa.DictionaryArray:
            return known_words(_array(pa.int32(), codes[of], bits[_CODES + of]), words[of])

        def texts(index: int, out: Text) -> pa.StringArray:
            starts = pa.py_buffer(columns.starts[index, : count + 1])
            return pa.StringArray.from_buffers(count, starts, pa.py_buffer(out), bits[_ARGS + index])

        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(count)),
                member(PH),
                member(CAT),
                member(NAME),
                ints(PID_INT),
                member(PID),
                ints(TID_INT),
                member(TID),
                ints(TS_NS),
                digits(TS_DECIMALS),
                ints(DUR_NS),
                digits(DUR_DECIMALS),
                ints(ID_INT),
                member(ID),
                ints(DEVICE),
                ints(STREAM),
                ints(CORRELATION),
                ints(EXTERNAL_ID),
                ints(BYTES),
                texts(0, columns.args),
                texts(1, columns.rest),
                pa.Array.from_buffers(pa.bool_(), count, [None, bits[_VERBATIM]]),
            ],
            schema=SCHEMA,
        )

    def _distinct(self, text: Text) -> list[pa.StringArray]:
        """Return the distinct texts of each of the members from `PH` to `ID`, of which names are decoded."""
        known = self._words.known.tolist()
        length = sum(int(lengths[:count].sum()) for lengths, count in zip(self._words.lengths, known, strict=True))
        out = np.empty(length + PADDING, np.uint8)
        starts = np.empty((_MEMBERS, max(known) + 1), np.int32)
        escaped = np.zeros(_MEMBERS, np.bool_)
        _gather_words(text, self._words, starts, escaped, out)
        words = []
        for member, count in enumerate(known):
            texts = pa.StringArray.from_buffers(count, pa.py_buffer(starts[member]), pa.py_buffer(out))
            if escaped[member] and member < PID:  # others are JSON texts
                bounds = zip(starts[member, :count].tolist(), starts[member, 1 : count + 1].tolist(), strict=True)
                texts = pa.array([decoded(out[start:end].tobytes()) for start, end in bounds], pa.string())
            words.append(texts)
        return words


def _new_words(room: int) -> _Words:
    """Allocate memory for `room` texts of each member."""
    starts, lengths, following, places = np.zeros((4, _MEMBERS, room), np.int64)
    slots = np.full((_MEMBERS, 1 << (_SLOTS_EACH * room).bit_length()), _NO_WORD, np.int32)
    return _Words(np.zeros(_MEMBERS, np.int64), starts, lengths, following, places, slots)


def _new_columns(density: _Density, size: int, block: int) -> _Columns:
    """Allocate columns for the events of `size` bytes of text, with some room to spare; at least for a block."""
    spare = (2 * block, _SPARE, _SPARE)
    events, args, rest = (
        math.ceil(min(_MARGIN * usual * size + more, most * size)) + 1
        for usual, more, most in zip(density, spare, _MOST, strict=True)
    )
    events = min(events, max(_EVENTS_MAX, 2 * block))
    return _Columns(
        values=np.empty((BYTES + 1, events), np.int64),
        decimals=np.empty((2, events), np.int8),
        codes=np.empty((_MEMBERS, events), np.int32),
        starts=np.empty((2, events + 1), np.int32),
        args=np.empty(args + PADDING, np.uint8),
        rest=np.empty(rest + PADDING, np.uint8),
        valid=np.empty((_VERBATIM + 1, events), np.bool_),
    )


def _keep_times(columns: _Columns, event: int) -> None:
    """Fill in the times of a verbatim event that are in unusual notation, such as ``1e3`` or with picoseconds."""
    text = columns.rest[columns.starts[1, event] : columns.starts[1, event + 1]].tobytes()
    members = json.loads(text, parse_int=_decimal, parse_float=_decimal)
    for key, column in (("ts", TS_NS), ("dur", DUR_NS)):
        if is_time(time := members.get(key)) and (key, members.get("ph")) != ("ts", "M"):
            columns.values[column, event], columns.valid[column, event] = to_ns(time), True


def _decimal(number: str) -> Decimal | None:
    """Return the value of a number's text; None if its exponent is too large."""
    try:
        return Decimal(number)
    except InvalidOperation:
        return None


def _array(type_: pa.DataType, values: npt.NDArray[Any], valid: pa.Buffer) -> pa.Array:
    """Return an array of the values, which are not copied."""
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(values)])


def _place(values: Table, valid: Flags, codes: Any, words: Sequence[pa.StringArray]) -> None:
    """Take the device and the stream of GPU work that lacks them in its args from its pid and tid."""
    is_gpu = np.array([word in GPU_CATEGORIES for word in words[CAT].to_pylist()])
    if not is_gpu.any():
        return
    on_gpu = is_gpu[codes[CAT]] & valid[_CODES + CAT]
    if not (on_gpu & ~(valid[DEVICE] & valid[STREAM])).any():
        return
    for column, source in ((DEVICE, PID_INT), (STREAM, TID_INT)):
        lacking = on_gpu & ~valid[column] & valid[source]
        values[column, lacking], valid[column, lacking] = values[source, lacking], True
    named = [_STREAM.fullmatch(word) for word in words[TID].to_pylist()]
    numbers = np.array([int(match[1]) if match else -1 for match in named] or [-1])[codes[TID]]
    lacking = on_gpu & ~valid[STREAM] & valid[_CODES + TID] & (numbers >= 0)
    values[STREAM, lacking], valid[STREAM, lacking] = numbers[lacking], True

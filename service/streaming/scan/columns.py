"""Builder of Arrow columns from scanned events."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.scan.compiled import compiled
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
    HAS_INT,
    HAS_MEMBER,
    ID,
    ID_INT,
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
    Table,
)
from service.streaming.scan.grammar import Text
from service.streaming.scan.keys import text_hash
from service.streaming.scan.machine import PADDING, byte_at, copy_lanes, word_at
from service.streaming.schema import SCHEMA
from service.trace.summary import GPU_CATEGORIES
from service.trace.text import decoded
from service.trace.time import is_time, to_ns

_SLOTS_EACH = 4  # size of the hash table, as a multiple of the number of events
_CODES = DUR_DECIMALS + 1  # first of the rows of flags of the members from PH to ID
_ARGS = _CODES + ID + 1
_REST = _ARGS + 1
_VERBATIM = _REST + 1
_STREAM = re.compile(r'"(?:stream )?(\d{1,18}) ?"')  # a stream as tid, written before April 2022
_OPEN, _COMMA, _CLOSE, _BACKSLASH = b"{,}\\"
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@compiled
def _equal(text: Text, left: int, right: int, length: int) -> bool:
    while length >= 8:
        if word_at(text, left) != word_at(text, right):
            return False
        left, right, length = left + 8, right + 8, length - 8
    mask = (1 << 8 * length) - 1
    return word_at(text, left) & mask == word_at(text, right) & mask


@compiled
def _encode(text: Text, events: Table, count: int, member: int, codes: Any, slots: Any, words: Any) -> int:
    """Number the distinct texts of a member in order of appearance, and return how many there are.

    `codes` gets the number of each event's text, and -1 for an event without the member or with its value in an integer
    column. `words` gets the first event of each distinct text.
    """
    slots[:] = -1
    start, end, known = SPANS + 2 * member, SPANS + 2 * member + 1, 0
    int_bit = 1 << member - PID + PID_INT if member >= PID else 0
    for event in range(count):
        codes[event] = -1
        if not events[HAS_MEMBER, event] >> member & 1 or events[HAS_INT, event] & int_bit:
            continue
        at, length = events[start, event], events[end, event] - events[start, event]
        slot = text_hash(text, at, at + length) & (slots.size - 1)
        while slots[slot] >= 0:
            word = words[slots[slot]]
            if events[end, word] - events[start, word] == length and _equal(text, events[start, word], at, length):
                break
            slot = (slot + 1) & (slots.size - 1)
        if slots[slot] < 0:
            words[known] = event
            slots[slot] = known
            known += 1
        codes[event] = slots[slot]
    return known


@compiled
def _copy(text: Text, at: int, end: int, out: Text, to: int) -> int:
    """Copy a piece of the text, with up to `PADDING` bytes after it; return the offset after the piece in `out`."""
    behind = to + end - at
    while at < end:
        copy_lanes(text, at, out, to)
        at, to = at + PADDING, to + PADDING
    return behind


@compiled
def _args_length(events: Table, count: int) -> int:
    length = 0
    for event in range(count):
        if events[HAS_MEMBER, event] >> ARGS & 1:
            length += events[SPANS + 2 * ARGS + 1, event] - events[SPANS + 2 * ARGS, event]
    return length


@compiled
def _gather_args(text: Text, events: Table, count: int, starts: Any, has: Any, out: Text) -> None:
    to = 0
    for event in range(count):
        starts[event], has[event] = to, events[HAS_MEMBER, event] >> ARGS & 1
        if has[event]:
            to = _copy(text, events[SPANS + 2 * ARGS, event], events[SPANS + 2 * ARGS + 1, event], out, to)
    starts[count] = to


@compiled
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


@compiled
def _gather_rest(text: Text, events: Table, count: int, rest: Table, starts: Any, has: Any, out: Text) -> None:
    """Write, for each event, the JSON object of its members without a column, or the whole text if it is verbatim."""
    to, member, members = 0, 0, len(rest)
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


@compiled
def _fill(
    text: Text, events: Table, count: int, rest: Table, slots: Any, words: Any, known: Ints, values: Table,
    decimals: Any, codes: Any, starts: Any, args: Text, others: Text, valid: Any,
) -> None:  # fmt: skip
    """Fill all columns: one call, since each one releases Python's lock and waits for it again.

    Args:
        text: the scanned text.
        events: the table of events.
        count: number of its events.
        rest: the table of members without a column.
        slots: memory for a hash table.
        words: gets, in a row for each of the members from `PH` to `ID`, the first event of each distinct text.
        known: gets the numbers of distinct texts.
        values: gets the numbers, in a row for each of the columns from `PID_INT` to `BYTES`.
        decimals: gets those of `TS_DECIMALS` and `DUR_DECIMALS`.
        codes: gets, in a row for each of the members from `PH` to `ID`, the number of each event's text; 0 for none.
        starts: gets where the args of each event begin in `args`, and what has no column in `others`.
        args: gets the texts of args.
        others: gets the texts of members without a column.
        valid: gets flags of the events that have a value, in a row for each of `values`, `decimals`, `codes` and
            `starts`, and of those that are verbatim. Times in unusual notations have no decimals.
    """
    for column in range(BYTES + 1):
        for event in range(count):
            values[column, event] = events[column, event]
            valid[column, event] = events[HAS_INT, event] >> column & 1
    for index in range(2):
        for event in range(count):
            number = events[TS_DECIMALS + index, event]
            decimals[index, event] = number
            valid[TS_DECIMALS + index, event] = number >= 0 and events[HAS_INT, event] >> (TS_NS + index) & 1
    for member in range(PH, ID + 1):
        known[member] = _encode(text, events, count, member, codes[member], slots, words[member])
        for event in range(count):
            valid[_CODES + member, event] = codes[member, event] >= 0
            codes[member, event] = max(codes[member, event], 0)  # see `word_column`
    _gather_args(text, events, count, starts[0], valid[_ARGS], args)
    _gather_rest(text, events, count, rest, starts[1], valid[_REST], others)
    for event in range(count):
        valid[_VERBATIM, event] = events[VERBATIM, event]


@compiled
def _words_length(events: Table, words: Any, known: Ints) -> int:
    length = 0
    for member in range(PH, ID + 1):
        for index in range(known[member]):
            event = words[member, index]
            length += events[SPANS + 2 * member + 1, event] - events[SPANS + 2 * member, event]
    return length


@compiled
def _gather_words(text: Text, events: Table, words: Any, known: Ints, starts: Any, escaped: Any, out: Text) -> None:
    """Write the distinct texts of all members one after the other; flag the members that have backslashes in them."""
    to = 0
    for member in range(PH, ID + 1):
        first = to
        for index in range(known[member]):
            event = words[member, index]
            starts[member, index] = to
            to = _copy(text, events[SPANS + 2 * member, event], events[SPANS + 2 * member + 1, event], out, to)
        starts[member, known[member]] = to
        for at in range(first, to):
            escaped[member] |= byte_at(out, at) == _BACKSLASH


class Builder:
    """A builder of columns that reuses its scratch memory; each thread needs its own."""

    def __init__(self) -> None:
        self._slots = np.zeros(_SLOTS_EACH << (ROOM - 1).bit_length(), np.int32)
        self._words = np.zeros((ID + 1, ROOM), np.int64)
        self._known = np.zeros(ID + 1, np.int64)

    def batch(self, text: Text, events: Table, count: int, rest: Table) -> pa.RecordBatch:
        """Build the columns of scanned events.

        Args:
            text: the scanned text, valid UTF-8, padded.
            events: the table of events.
            count: number of events in it.
            rest: the rows that the scan filled in the table of members that have no column.

        Returns:
            A batch of `SCHEMA`, in the order of the text; `position` counts from 0.
        """
        for event in np.flatnonzero(events[VERBATIM, :count]):
            _keep_times(text, events[:, event])
        slots = self._slots[: _SLOTS_EACH << (count - 1).bit_length()]
        values, decimals = np.empty((BYTES + 1, count), np.int64), np.empty((2, count), np.int8)
        codes, starts = np.empty((ID + 1, count), np.int32), np.empty((2, count + 1), np.int32)
        args = np.empty(_args_length(events, count) + PADDING, np.uint8)
        others = np.empty(_rest_length(events, count, rest) + PADDING, np.uint8)
        valid = np.empty((_VERBATIM + 1, count), np.bool_)
        _fill(
            text, events, count, rest, slots, self._words, self._known, values, decimals, codes, starts, args, others,
            valid,
        )  # fmt: skip
        words = self._distinct(text, events)
        _place(values, valid, codes, words)
        bits = [pa.py_buffer(row) for row in np.packbits(valid, axis=1, bitorder="little")]

        def ints(column: int) -> pa.Array:
            return _array(pa.int64(), values[column], bits[column])

        def digits(column: int) -> pa.Array:
            return _array(pa.int8(), decimals[column - TS_DECIMALS], bits[column])

        def member(of: int) -> pa.DictionaryArray:
            return pa.DictionaryArray.from_arrays(_array(pa.int32(), codes[of], bits[_CODES + of]), words[of])

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
                pa.StringArray.from_buffers(count, pa.py_buffer(starts[0]), pa.py_buffer(args), bits[_ARGS]),
                pa.StringArray.from_buffers(count, pa.py_buffer(starts[1]), pa.py_buffer(others), bits[_REST]),
                pa.Array.from_buffers(pa.bool_(), count, [None, bits[_VERBATIM]]),
            ],
            schema=SCHEMA,
        )

    def _distinct(self, text: Text, events: Table) -> list[pa.StringArray]:
        """Return the distinct texts of each of the members from `PH` to `ID`, of which names are decoded."""
        out = np.empty(_words_length(events, self._words, self._known) + PADDING, np.uint8)
        starts = np.empty((ID + 1, int(self._known.max()) + 1), np.int32)
        escaped = np.zeros(ID + 1, np.bool_)
        _gather_words(text, events, self._words, self._known, starts, escaped, out)
        words = []
        for member, count in enumerate(self._known.tolist()):
            texts = pa.StringArray.from_buffers(count, pa.py_buffer(starts[member]), pa.py_buffer(out))
            if escaped[member] and member < PID:  # others are JSON texts
                bounds = zip(starts[member, :count].tolist(), starts[member, 1 : count + 1].tolist(), strict=True)
                texts = pa.array([decoded(out[start:end].tobytes()) for start, end in bounds], pa.string())
            words.append(texts)
        return words


def _keep_times(text: Text, event: Ints) -> None:
    """Fill in the times of an event that are in unusual notation, such as ``1e3`` or with picoseconds."""
    members = json.loads(text[event[START] : event[END]].tobytes(), parse_int=_decimal, parse_float=_decimal)
    for key, column in (("ts", TS_NS), ("dur", DUR_NS)):
        if is_time(time := members.get(key)) and (key, members.get("ph")) != ("ts", "M"):
            event[column] = to_ns(time)
            event[HAS_INT] |= 1 << column


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

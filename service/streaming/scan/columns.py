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
from service.streaming.scan.machine import PADDING, byte_at, copy_lanes, word_at
from service.streaming.schema import SCHEMA
from service.trace.summary import GPU_CATEGORIES
from service.trace.text import decoded
from service.trace.time import is_time, to_ns

_SLOTS_EACH = 4  # size of the hash table, as a multiple of the number of words
_STREAM = re.compile(r'"(?:stream )?(\d{1,18}) ?"')  # a stream as tid, written before April 2022
_OPEN, _COMMA, _CLOSE, _BACKSLASH = b"{,}\\"
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@compiled
def _hash(text: Text, at: int, end: int) -> int:
    value = end - at
    while at < end:
        word = word_at(text, at)
        if end - at < 8:
            word &= (1 << 8 * (end - at)) - 1
        value = (value ^ word) * 0x2545F4914F6CDD1D
        value ^= (value >> 29) & 0x7FFFFFFFF
        at += 8
    return value


@compiled
def _equal(text: Text, left: int, right: int, length: int) -> bool:
    while length >= 8:
        if word_at(text, left) != word_at(text, right):
            return False
        left, right, length = left + 8, right + 8, length - 8
    mask = (1 << 8 * length) - 1
    return word_at(text, left) & mask == word_at(text, right) & mask


@compiled
def _encode(
    text: Text, events: Table, count: int, member: int, codes: Any, slots: Any, words: Any, *, skip_ints: bool
) -> int:
    """Number the distinct texts of a member in order of appearance, and return how many there are.

    `codes` gets the number of each event's text, and -1 for an event without the member. With `skip_ints`, an event
    whose member has a value in its integer column gets -1, too. `words` gets the first event of each distinct text.
    """
    slots[:] = -1
    start, end, known = SPANS + 2 * member, SPANS + 2 * member + 1, 0
    for event in range(count):
        codes[event] = -1
        if not events[HAS_MEMBER, event] >> member & 1:
            continue
        if skip_ints and events[HAS_INT, event] >> (member - PID + PID_INT) & 1:
            continue
        at, length = events[start, event], events[end, event] - events[start, event]
        slot = _hash(text, at, at + length) & (slots.size - 1)
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
def _gather_spans(text: Text, spans: Table, offsets: Any, out: Text) -> bool:
    """Write pieces of the text one after the other; return whether any has a backslash."""
    to, escaped = 0, False
    for row in range(len(spans)):
        offsets[row] = to
        to = _copy(text, spans[row, 0], spans[row, 1], out, to)
        for at in range(offsets[row], to):
            escaped |= byte_at(out, at) == _BACKSLASH
    offsets[len(spans)] = to
    return escaped


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
def _gather_args(text: Text, events: Table, count: int, offsets: Any, out: Text) -> None:
    to = 0
    for event in range(count):
        offsets[event] = to
        if events[HAS_MEMBER, event] >> ARGS & 1:
            to = _copy(text, events[SPANS + 2 * ARGS, event], events[SPANS + 2 * ARGS + 1, event], out, to)
    offsets[count] = to


@compiled
def _rest_length(events: Table, count: int, rest: Table, members: int) -> int:
    length = 2 * members  # a bracket or comma before each member, and a bracket after some
    for event in range(count):
        if events[VERBATIM, event]:
            length += events[END, event] - events[START, event]
    for member in range(members):
        if not events[VERBATIM, rest[member, 0]]:
            length += rest[member, 2] - rest[member, 1]
    return length


@compiled
def _gather_rest(
    text: Text, events: Table, count: int, rest: Table, members: int, offsets: Any, has: Any, out: Text
) -> None:
    """Write, for each event, the JSON object of its members without a column, or the whole text if it is verbatim."""
    to, member = 0, 0
    for event in range(count):
        offsets[event] = to
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
    offsets[count] = to


@compiled
def _split(events: Table, count: int, decimals: Any, valid: Any) -> None:
    """Write the decimals of times in few bytes, and flags of the numbers that events have.

    Args:
        events: the table of events.
        count: number of its events.
        decimals: gets a row for each of `TS_DECIMALS` and `DUR_DECIMALS`.
        valid: gets a row of flags for each number, from `PID_INT` to `BYTES`, and then those of `decimals`, which lack
            unusual notations.
    """
    for column in range(BYTES + 1):
        for event in range(count):
            valid[column, event] = events[HAS_INT, event] >> column & 1
    for index in range(2):
        for event in range(count):
            number = events[TS_DECIMALS + index, event]
            decimals[index, event] = number
            valid[TS_DECIMALS + index, event] = number >= 0 and events[HAS_INT, event] >> (TS_NS + index) & 1


class Builder:
    """A builder of columns that reuses its scratch memory; each thread needs its own."""

    def __init__(self) -> None:
        self._slots = np.zeros(_SLOTS_EACH << (ROOM - 1).bit_length(), np.int32)
        self._words = np.zeros(ROOM, np.int64)

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
        is_verbatim = events[VERBATIM, :count] != 0
        for event in np.flatnonzero(is_verbatim):
            _keep_times(text, events[:, event])
        values, decimals = events[: BYTES + 1, :count].copy(), np.empty((2, count), np.int8)
        valid = np.empty((DUR_DECIMALS + 1, count), np.bool_)
        _split(events, count, decimals, valid)
        cat, tid_text = (
            self._words_of(text, events, count, CAT),
            self._words_of(text, events, count, TID, skip_ints=True),
        )
        _place(values, valid, cat, tid_text)

        def ints(column: int) -> pa.Array:
            return _nullable(values[column], valid[column])

        def digits(column: int) -> pa.Array:
            return _nullable(decimals[column - TS_DECIMALS], valid[column])

        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(count)),
                self._words_of(text, events, count, PH),
                cat,
                self._words_of(text, events, count, NAME),
                ints(PID_INT),
                self._words_of(text, events, count, PID, skip_ints=True),
                ints(TID_INT),
                tid_text,
                ints(TS_NS),
                digits(TS_DECIMALS),
                ints(DUR_NS),
                digits(DUR_DECIMALS),
                ints(ID_INT),
                self._words_of(text, events, count, ID, skip_ints=True),
                ints(DEVICE),
                ints(STREAM),
                ints(CORRELATION),
                ints(EXTERNAL_ID),
                ints(BYTES),
                _args(text, events, count),
                _rest(text, events, count, rest),
                pa.Array.from_buffers(pa.bool_(), count, [None, _bits(is_verbatim)]),
            ],
            schema=SCHEMA,
        )

    def _words_of(
        self, text: Text, events: Table, count: int, member: int, *, skip_ints: bool = False
    ) -> pa.DictionaryArray:
        codes = np.empty(count, np.int32)
        slots = self._slots[: _SLOTS_EACH << (count - 1).bit_length()]
        known = _encode(text, events, count, member, codes, slots, self._words, skip_ints=skip_ints)
        first, end = SPANS + 2 * member, SPANS + 2 * member + 2
        spans = np.ascontiguousarray(events[first:end, self._words[:known]].T)
        words = _pieces(text, spans, is_raw=member >= PID)
        valid = codes >= 0
        np.maximum(codes, 0, out=codes)  # see `word_column`
        return pa.DictionaryArray.from_arrays(_nullable(codes, valid), words)


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


def _nullable(values: npt.NDArray[Any], valid: Flags) -> pa.Array:
    """Return an array of the values, which are not copied."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [_bits(valid), pa.py_buffer(values)])


def _bits(valid: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _place(values: Table, valid: Flags, cat: pa.DictionaryArray, tid_text: pa.DictionaryArray) -> None:
    """Take the device and the stream of GPU work that lacks them in its args from its pid and tid."""
    on_gpu = _chosen(cat, [word in GPU_CATEGORIES for word in cat.dictionary.to_pylist()])
    if not (on_gpu & ~(valid[DEVICE] & valid[STREAM])).any():
        return
    for column, source in ((DEVICE, PID_INT), (STREAM, TID_INT)):
        lacking = on_gpu & ~valid[column] & valid[source]
        values[column, lacking], valid[column, lacking] = values[source, lacking], True
    named = [_STREAM.fullmatch(word) for word in tid_text.dictionary.to_pylist()]
    numbers = np.array([int(match[1]) if match else 0 for match in named] or [0])
    lacking = on_gpu & ~valid[STREAM] & _chosen(tid_text, [match is not None for match in named])
    values[STREAM, lacking] = numbers[tid_text.indices.fill_null(0).to_numpy()[lacking]]
    valid[STREAM, lacking] = True


def _chosen(words: pa.DictionaryArray, chosen: Sequence[bool]) -> Flags:
    """Flag the rows with a chosen word; `chosen` has a flag for each word of the dictionary."""
    codes = words.indices.fill_null(len(chosen)).to_numpy()
    flags: Flags = np.array([*chosen, False])[codes]
    return flags


def _pieces(text: Text, spans: Table, *, is_raw: bool) -> pa.StringArray:
    """Return pieces of the text, which are JSON texts (`is_raw`) or the insides of JSON strings, which are decoded."""
    out = np.empty(int((spans[:, 1] - spans[:, 0]).sum()) + PADDING, np.uint8)
    offsets = np.empty(len(spans) + 1, np.int32)
    escaped = _gather_spans(text, spans, offsets, out)
    if escaped and not is_raw:
        return pa.array([decoded(text[start:end].tobytes()) for start, end in spans.tolist()], pa.string())
    return pa.StringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(out))


def _args(text: Text, events: Table, count: int) -> pa.Array:
    out = np.empty(_args_length(events, count) + PADDING, np.uint8)
    offsets = np.empty(count + 1, np.int32)
    _gather_args(text, events, count, offsets, out)
    return _strings(events[HAS_MEMBER, :count] >> ARGS & 1 == 1, offsets, out)


def _rest(text: Text, events: Table, count: int, rest: Table) -> pa.Array:
    members = len(rest)
    out = np.empty(_rest_length(events, count, rest, members) + PADDING, np.uint8)
    offsets, has = np.empty(count + 1, np.int32), np.empty(count, np.bool_)
    _gather_rest(text, events, count, rest, members, offsets, has, out)
    return _strings(has, offsets, out)


def _strings(valid: Flags, offsets: npt.NDArray[np.int32], text: Text) -> pa.Array:
    return pa.StringArray.from_buffers(len(valid), pa.py_buffer(offsets), pa.py_buffer(text), _bits(valid))

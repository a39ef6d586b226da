"""Fast writing of events as JSON.

DuckDB, which writes downloads, needs five times the processor time for the same text: a third of the time that an
engine needs to load a trace.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from service.rendering.sanitizing import Bytes
from service.store.parts import Flags, Ints
from service.streaming.buffers import characters_of, starts_of
from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.machine import PADDING, byte_at, copy_lanes, plain_run

NO_ARGS, ALL_ARGS, SOME_ARGS = 0, 1, 2
"""Modes of an event: which arguments it has."""

_KEYS = ('"correlation":', '"device":', '"stream":', '"bytes":')
_FRAME = (',\n{"ph":"', '"', ',"pid":', ',"tid":', ',"ts":', ',"dur":', ',"id":', ',"args":')
_EVENT_MAX = 200  # bytes of an event apart from its words, arguments and rest
_QUOTE, _BACKSLASH, BLANK = b'"\\ '
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = b"{}[]"


class PackedTexts:
    """Concatenated texts: their bytes, the index at which each one starts, and the index at which the last one ends.

    Other bytes may follow the last text.
    """

    def __init__(self, values: Bytes, starts: Ints) -> None:
        self.values = values
        self.starts = starts

    @classmethod
    def of(cls, texts: list[bytes]) -> "PackedTexts":
        """Return the texts of a list."""
        starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=starts[1:])
        return cls(np.frombuffer(b"".join([*texts, bytes(PADDING)]), np.uint8), starts)

    @classmethod
    def in_array(cls, array: pa.StringArray) -> "PackedTexts":
        """Return the texts of an array without copying them; nulls are empty texts."""
        return cls(characters_of(array), starts_of(array).astype(np.int64))

    @property
    def lengths(self) -> Ints:
        """The size of each text in bytes."""
        return np.diff(self.starts)


_TEXT_OF_KEYS = PackedTexts.of([key.encode() for key in _KEYS])
_TEXT_OF_FRAME = PackedTexts.of([text.encode() for text in _FRAME])


def member(key: str) -> Callable[[Any], str]:
    """Return a function from a value to the text of a JSON member with that key, with a comma before it."""
    return lambda value: f',"{key}":{json.dumps(value, ensure_ascii=False)}'


def write_lines(
    words: list[tuple[PackedTexts, Ints]], numbers: Ints, has: Flags, args: Bytes, starts: Ints, stops: Ints,
    modes: Ints, left_out: Flags, essential: Ints, known: Flags,
) -> bytes:  # fmt: skip
    """Return the text of events, each after a comma and a line break.

    Args:
        words: the texts of phases, categories, names and other members, each with the index of each event's text.
        numbers: rows of pid, tid, ts, dur and id; times in ns.
        has: flags of the numbers that are present, in rows like `numbers`.
        args: the texts of arguments.
        starts: the index in `args` at which those of each event begin.
        stops: the index after their end.
        modes: `NO_ARGS`, `ALL_ARGS` or `SOME_ARGS`, of each event.
        left_out: flags of the events that are not written.
        essential: rows of the values of some arguments, which are named in `_KEYS`.
        known: flags of the values that are present, in rows like `essential`.
    """
    size = sum(int(texts.lengths[codes].sum()) for texts, codes in words) + _EVENT_MAX * len(modes)
    size += 2 * int((stops - starts)[modes == ALL_ARGS].sum()) + PADDING
    if (modes == SOME_ARGS).any():
        size += 2 * _EVENT_MAX * len(modes)
    out = np.empty(size, np.uint8)
    (phases, phase_of), (categories, category_of), (names, name_of), (rests, rest_of) = words
    end = _write(
        out, phases.values, phases.starts, phase_of, categories.values, categories.starts, category_of,
        names.values, names.starts, name_of, rests.values, rests.starts, rest_of, numbers, has,
        args, starts, stops, modes, left_out, essential, known,
        _TEXT_OF_FRAME.values, _TEXT_OF_FRAME.starts, _TEXT_OF_KEYS.values, _TEXT_OF_KEYS.starts,
    )  # fmt: skip
    return out[:end].tobytes()


@inlined
def _put(out: Bytes, end: int, values: Bytes, starts: Ints, number: int) -> int:
    """Copy a text to `out`, from the index `end` on; returns the new end. The bytes after it may change, too."""
    at, stop = starts[number], starts[number + 1]
    new_end = end + stop - at
    while at < stop:
        copy_lanes(values, at, out, end)
        at, end = at + PADDING, end + PADDING
    return int(new_end)


@inlined
def _put_number(out: Bytes, end: int, number: int) -> int:
    """Write an integer to `out`, from the index `end` on; returns the new end."""
    if number < 0:
        out[end] = 0x2D
        end += 1
        number = -number
    digits = 1
    rest = number // 10
    while rest:
        digits += 1
        rest //= 10
    for at in range(end + digits - 1, end - 1, -1):
        out[at] = 0x30 + number % 10
        number //= 10
    return end + digits


@inlined
def _put_time(out: Bytes, end: int, time: int) -> int:
    """Write ns as µs to `out`, with as many decimals as necessary; returns the new end."""
    end = _put_number(out, end, time // 1000)
    rest = time % 1000
    if rest:
        out[end] = 0x2E
        end += 1
        unit = 100
        while rest:
            out[end] = 0x30 + rest // unit
            end += 1
            rest %= unit
            unit //= 10
    return end


@inlined
def _put_string(out: Bytes, end: int, values: Bytes, start: int) -> tuple[int, int]:
    """Copy the JSON string that begins at `start`, with its quotes; returns the index after it and the new end."""
    out[np.uintp(end)] = _QUOTE
    at, end = start + 1, end + 1
    while True:
        if at + PADDING <= len(values):
            copy_lanes(values, at, out, end)
            run = plain_run(values, at)
            at, end = at + run, end + run
            if run == PADDING:
                continue
        byte = byte_at(values, at)
        out[np.uintp(end)] = byte
        at, end = at + 1, end + 1
        if byte == _QUOTE:
            return at, end
        if byte == _BACKSLASH:  # the next byte does not end the string
            out[np.uintp(end)] = byte_at(values, at)
            at, end = at + 1, end + 1


@inlined
def _put_nested(out: Bytes, end: int, values: Bytes, start: int) -> tuple[int, int]:
    """Write the list or object that begins at `start` as a string; returns the index after it and the new end."""
    out[np.uintp(end)] = _QUOTE
    at, end, depth, inside = start, end + 1, 0, False
    while True:
        byte = byte_at(values, at)
        at += 1
        if byte == _QUOTE:
            inside = not inside
        elif inside and byte == _BACKSLASH:
            out[np.uintp(end)] = _BACKSLASH
            out[np.uintp(end + 1)] = _BACKSLASH
            end, byte, at = end + 2, byte_at(values, at), at + 1
        elif not inside and byte in (_OPEN_OBJECT, _OPEN_LIST):
            depth += 1
        elif not inside and byte in (_CLOSE_OBJECT, _CLOSE_LIST):
            depth -= 1
        if byte in (_QUOTE, _BACKSLASH):
            out[np.uintp(end)] = _BACKSLASH
            end += 1
        out[np.uintp(end)] = max(byte, BLANK)  # a line break or a tab becomes a blank
        end += 1
        if depth == 0:
            out[np.uintp(end)] = _QUOTE
            return at, end + 1


@inlined
def _put_arguments(out: Bytes, end: int, values: Bytes, start: int, stop: int) -> int:
    """Write an object of arguments without white space between its tokens; returns the new end.

    Lists and objects inside it become strings.
    """
    out[np.uintp(end)] = _OPEN_OBJECT
    at, end = start + 1, end + 1
    while at < stop:
        byte = byte_at(values, at)
        if byte == _QUOTE:
            at, end = _put_string(out, end, values, at)
        elif byte in (_OPEN_OBJECT, _OPEN_LIST):
            at, end = _put_nested(out, end, values, at)
        else:
            at += 1
            if byte > BLANK:
                out[np.uintp(end)] = byte
                end += 1
    return end


@compiled
def _write(
    out: Bytes,
    phases: Bytes, phase_starts: Ints, phase_of: Ints,
    categories: Bytes, category_starts: Ints, category_of: Ints,
    names: Bytes, name_starts: Ints, name_of: Ints,
    rests: Bytes, rest_starts: Ints, rest_of: Ints,
    numbers: Any, has: Any, args: Bytes, starts: Ints, stops: Ints, modes: Ints, left_out: Flags,
    essential: Any, known: Any,
    frame: Bytes, frame_starts: Ints, keys: Bytes, key_starts: Ints,
) -> int:  # fmt: skip
    """Write the events to `out`; returns the number of bytes."""
    end = 0
    for row in range(len(modes)):
        if left_out[row]:
            continue
        end = _put(out, end, frame, frame_starts, 0)
        end = _put(out, end, phases, phase_starts, phase_of[row])
        end = _put(out, end, frame, frame_starts, 1)
        end = _put(out, end, categories, category_starts, category_of[row])
        end = _put(out, end, names, name_starts, name_of[row])
        for column in range(5):
            if has[column, row]:
                end = _put(out, end, frame, frame_starts, 2 + column)
                if column in (2, 3):
                    end = _put_time(out, end, numbers[column, row])
                else:
                    end = _put_number(out, end, numbers[column, row])
        if modes[row] == ALL_ARGS and stops[row] > starts[row]:
            end = _put(out, end, frame, frame_starts, 7)
            end = _put_arguments(out, end, args, starts[row], stops[row])
        elif modes[row] == SOME_ARGS:
            first = True
            for column in range(len(essential)):
                if known[column, row]:
                    if first:
                        end = _put(out, end, frame, frame_starts, 7)
                    out[end] = 0x7B if first else 0x2C
                    end = _put(out, end + 1, keys, key_starts, column)
                    end = _put_number(out, end, essential[column, row])
                    first = False
            if not first:
                out[end] = 0x7D
                end += 1
        end = _put(out, end, rests, rest_starts, rest_of[row])
        out[end] = 0x7D
        end += 1
    return end

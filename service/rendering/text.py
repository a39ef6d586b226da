"""The text of events, written at the speed of memory: words are looked up, numbers and arguments are copied.

DuckDB, which writes downloads, takes five times the work for the same text, a third of an engine's load.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from service.rendering.values import Bytes
from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled, inlined

NO_ARGS, COPIED, ESSENTIAL, LEFT_OUT = 0, 1, 2, 3
"""What becomes of an event's arguments, or that the event is left out."""

ESSENTIAL_COLUMNS = ("correlation", "device", "stream", "bytes")  # not the External id: a fifth of the load's time
_KEYS = ('"correlation":', '"device":', '"stream":', '"bytes":')
_FRAME = (',\n{"ph":"', '"', ',"pid":', ',"tid":', ',"ts":', ',"dur":', ',"id":', ',"args":')
_KEPT = 1 << 16  # words
_ROOM = 200  # bytes of an event beside its words, arguments and rest, at most


class Vocabulary:
    """Texts that are looked up by number, and made once or, of very many, not much more often.

    Args:
        text: makes the text of a word.
    """

    def __init__(self, text: Callable[[Any], str]) -> None:
        self._text = text
        self._made: dict[Any, bytes] = {}

    def of(self, words: Iterable[Any]) -> "Texts":
        """The texts of some words, and of none as the last."""
        made = self._made
        if len(made) > _KEPT:
            made.clear()
        for word in words:
            if word not in made:
                made[word] = self._text(word).encode()
        return Texts.of([*(made[word] for word in words), b""])


class Texts:
    """Texts one after the other: the bytes, and where each starts."""

    def __init__(self, values: Bytes, starts: Ints) -> None:
        self.values = values
        self.starts = starts

    @classmethod
    def of(cls, texts: list[bytes]) -> "Texts":
        """The texts of a list."""
        starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=starts[1:])
        return cls(np.frombuffer(b"".join(texts) or b"\0", np.uint8), starts)

    @classmethod
    def in_array(cls, array: pa.StringArray) -> "Texts":
        """The texts of an array, as they lie in its memory; those that are null are empty."""
        _, offsets, values = array.buffers()
        starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        return cls(np.frombuffer(values, np.uint8) if values and len(values) else np.zeros(1, np.uint8), starts)

    @property
    def lengths(self) -> Ints:
        """The bytes of each."""
        return np.diff(self.starts)


_TEXT_OF_KEYS = Texts.of([key.encode() for key in _KEYS])
_TEXT_OF_FRAME = Texts.of([text.encode() for text in _FRAME])


def member(key: str) -> Callable[[Any], str]:
    """What makes the text of a member from its value, with the comma before it."""
    return lambda value: f',"{key}":{json.dumps(value, ensure_ascii=False)}'


def lines_of(
    words: list[tuple[Texts, Ints]], numbers: Ints, has: Flags, args: Texts, fates: Ints,
    essential: Ints, known: Flags,
) -> bytes:  # fmt: skip
    """The text of events, each after a comma and a line break.

    Args:
        words: the texts of phases, categories, names and what else events have, and the number of each event's.
        numbers: rows of pid, tid, ts, dur and id; times in ns.
        has: which of the numbers there are.
        args: the texts of their arguments.
        fates: `NO_ARGS`, `COPIED`, `ESSENTIAL` or `LEFT_OUT`, of each event.
        essential: rows of `ESSENTIAL_COLUMNS`.
        known: which of these there are.
    """
    size = sum(int(texts.lengths[codes].sum()) for texts, codes in words) + _ROOM * len(fates)
    size += int(args.lengths[fates == COPIED].sum())
    if (fates == ESSENTIAL).any():
        size += 2 * _ROOM * len(fates)
    out = np.empty(size, np.uint8)
    (phases, phase_of), (categories, category_of), (names, name_of), (rests, rest_of) = words
    end = _write(
        out, phases.values, phases.starts, phase_of, categories.values, categories.starts, category_of,
        names.values, names.starts, name_of, rests.values, rests.starts, rest_of, numbers, has,
        args.values, args.starts, fates, essential, known,
        _TEXT_OF_FRAME.values, _TEXT_OF_FRAME.starts, _TEXT_OF_KEYS.values, _TEXT_OF_KEYS.starts,
    )  # fmt: skip
    return out[:end].tobytes()


@inlined
def _put(out: Bytes, end: int, values: Bytes, starts: Ints, number: int) -> int:
    """Copy a text; where it ends in `out`."""
    length = starts[number + 1] - starts[number]
    # numbers without a sign: numba need not look whether an index counts from the end, which takes five times as long
    here, there = np.uintp(starts[number]), np.uintp(end)
    for at in range(np.uintp(length)):
        out[there + at] = values[here + at]
    return int(end + length)


@inlined
def _put_number(out: Bytes, end: int, number: int) -> int:
    """Write an integer; where it ends in `out`."""
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
    """Write ns as µs, with as many decimals as it takes; where it ends in `out`."""
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
def _put_compact(out: Bytes, end: int, values: Bytes, start: int, stop: int) -> int:
    """Copy JSON text without white space between its tokens; where it ends in `out`."""
    inside, escaped = False, False
    there = np.uintp(end)
    for at in range(np.uintp(start), np.uintp(stop)):
        byte = values[at]
        if inside:
            inside = escaped or byte != 0x22
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        elif byte <= 0x20:
            continue
        out[there] = byte
        there += np.uintp(1)
    return int(there)


@compiled
def _write(
    out: Bytes,
    phases: Bytes, phase_starts: Ints, phase_of: Ints,
    categories: Bytes, category_starts: Ints, category_of: Ints,
    names: Bytes, name_starts: Ints, name_of: Ints,
    rests: Bytes, rest_starts: Ints, rest_of: Ints,
    numbers: Any, has: Any, args: Bytes, args_starts: Ints, fates: Ints, essential: Any, known: Any,
    frame: Bytes, frame_starts: Ints, keys: Bytes, key_starts: Ints,
) -> int:  # fmt: skip
    """Write the events; the bytes that it took."""
    end = 0
    for row in range(len(fates)):
        if fates[row] == LEFT_OUT:
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
        if fates[row] == COPIED and args_starts[row + 1] > args_starts[row]:
            end = _put(out, end, frame, frame_starts, 7)
            end = _put_compact(out, end, args, args_starts[row], args_starts[row + 1])
        elif fates[row] == ESSENTIAL:
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

"""Compiled writer of the arguments of events as JSON text."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.scan.compiled import compiled

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_DIGITS = 20  # of the longest integer, with its sign
_TEN = np.uint64(10)
_OPEN, _COMMA, _MINUS, _ZERO = b"{,-0"


class Texts:
    """Numbered texts.

    Args:
        texts: the texts, by number; -1 stands for the last one.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.bytes = np.frombuffer(b"".join(texts) or b" ", np.uint8)
        self.ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        self.longest = max(map(len, texts))


@compiled
def _copy(texts: Bytes, ends: Ints, number: int, out: Bytes, to: int) -> int:
    for at in range(ends[number - 1] if number else 0, ends[number]):
        out[to] = texts[at]
        to += 1
    return to


@compiled
def _write_integer(value: int, out: Bytes, to: int) -> int:
    rest = np.uint64(value)
    if value < 0:
        out[to] = _MINUS
        to += 1
        rest = np.uint64(-value)  # wraps around for the lowest integer, which is right
    end, more = to + 1, rest // _TEN
    while more:
        end += 1
        more //= _TEN
    for place in range(end - 1, to - 1, -1):
        out[place] = _ZERO + np.int64(rest % _TEN)
        rest //= _TEN
    return end


@compiled
def _write(
    values: Ints,
    flags: Ints,
    keys: Bytes,
    key_ends: Ints,
    tails: Ints,
    texts: Bytes,
    ends: Ints,
    offsets: Ints,
    out: Bytes,
) -> None:
    to = 0
    for row in range(values.shape[0]):
        offsets[row] = to
        first = True
        for column in range(values.shape[1]):
            if flags[row] >> column & 1:
                out[to] = _OPEN if first else _COMMA
                first = False
                to = _copy(keys, key_ends, column, out, to + 1)
                to = _write_integer(values[row, column], out, to)
        to = _copy(texts, ends, tails[row] if tails[row] >= 0 else ends.size - 1, out, to)
    offsets[values.shape[0]] = to


def arguments(values: Ints, flags: Ints, keys: Texts, tails: Ints, texts: Texts) -> pa.StringArray:
    """Return the arguments of events as JSON objects.

    Args:
        values: integers, a row for each event and a column for each key.
        flags: bits of each event: bit `i` is set if the event has the integer of column `i`. At least one is set.
        keys: the keys as JSON, each with a colon.
        tails: number of the text that ends each event's arguments; -1 for the last one.
        texts: the texts, each with the closing bracket.
    """
    values = np.ascontiguousarray(values)
    room = len(values) * (values.shape[1] * (_DIGITS + 1) + int(keys.ends[-1]) + texts.longest) + 1
    out, offsets = np.empty(room, np.uint8), np.empty(len(values) + 1, np.int64)
    _write(values, flags, keys.bytes, keys.ends, tails, texts.bytes, texts.ends, offsets, out)
    used = out[: offsets[-1]].copy()
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(used))

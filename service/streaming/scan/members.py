"""Integers of named members in texts of JSON objects, without building the objects."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.buffers import characters_of, starts_of
from service.streaming.scan.compiled import compiled
from service.streaming.scan.grammar import OK, Stack, Text, key_end, new_stack, skip_blanks, value_end
from service.streaming.scan.machine import PADDING, byte_at
from service.streaming.scan.numbers import read_integer

_COMMA, _BACKSLASH = b",\\"
_OPEN_OBJECT, _CLOSE_OBJECT = b"{}"

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Members(NamedTuple):
    """Integers of members, with a row for each text and a column for each name.

    Attributes:
        values: the integers; 0 where there is none.
        has: whether there is one.
    """

    values: Ints
    has: Flags


@compiled
def _named(text: Text, at: int, end: int, names: Text, bounds: Ints) -> int:
    """Return the index of the name that a key is, -1 if it is none, or -2 if its text has escapes."""
    for offset in range(at, end):
        if byte_at(text, offset) == _BACKSLASH:
            return -2
    for index in range(len(bounds) - 1):
        start = bounds[index]
        if bounds[index + 1] - start != end - at:
            continue
        offset = 0
        while offset < end - at and byte_at(text, at + offset) == byte_at(names, start + offset):
            offset += 1
        if offset == end - at:
            return index
    return -1


@compiled
def _read_object(
    text: Text, at: int, end: int, names: Text, bounds: Ints, row: int, values: Ints, has: Flags, stack: Stack
) -> bool:
    """Read an object; return False if it is not one, or if a wanted member is not a common integer, or there twice."""
    at = skip_blanks(text, at, end)
    if at >= end or byte_at(text, at) != _OPEN_OBJECT:
        return False
    at = skip_blanks(text, at + 1, end)
    if at < end and byte_at(text, at) == _CLOSE_OBJECT:
        return True
    while True:
        key = at + 1
        at, verdict, stop = key_end(text, at, end)
        if verdict != OK:
            return False
        start, index = at, _named(text, key, stop, names, bounds)
        at, verdict = value_end(text, at, end, stack)
        if verdict != OK or index < -1:
            return False
        if index >= 0:
            _, value, is_integer = read_integer(text, start, end)
            if not is_integer or has[row, index]:
                return False
            values[row, index], has[row, index] = value, True
        at = skip_blanks(text, at, end)
        if at >= end or (byte_at(text, at) != _COMMA and byte_at(text, at) != _CLOSE_OBJECT):
            return False
        if byte_at(text, at) == _CLOSE_OBJECT:
            return True
        at = skip_blanks(text, at + 1, end)
        if at >= end:
            return False


@compiled
def _read_objects(
    text: Text, offsets: Ints, valid: Flags, names: Text, bounds: Ints, values: Ints, has: Flags, stack: Stack
) -> bool:
    for row in range(len(valid)):
        if valid[row] and not _read_object(
            text, offsets[row], offsets[row + 1], names, bounds, row, values, has, stack
        ):
            return False
    return True


def integer_members(texts: pa.StringArray, names: Sequence[bytes]) -> Members | None:
    """Read members of many objects.

    Args:
        texts: texts of JSON objects, each as an event has it in ``args``; a null has no members.
        names: names of the members, without characters that JSON escapes.

    Returns:
        The integers; None if any text is not an object, has a wanted member that is not an integer of at most 18
        digits, has it twice, or has keys with escapes.
    """
    offsets = starts_of(texts).astype(np.int64)
    text = np.zeros(int(offsets[-1] - offsets[0]) + PADDING, np.uint8)
    text[:-PADDING] = characters_of(texts)[offsets[0] : offsets[-1]]
    bounds = np.cumsum([0, *map(len, names)])
    values, has = np.zeros((len(texts), len(names)), np.int64), np.zeros((len(texts), len(names)), np.bool_)
    is_common = _read_objects(
        text, offsets - offsets[0], texts.is_valid().to_numpy(zero_copy_only=False),
        np.frombuffer(b"".join(names), np.uint8), bounds, values, has, new_stack(),
    )  # fmt: skip
    return Members(values, has) if is_common else None

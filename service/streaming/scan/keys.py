"""Inlined functions that recognise a key which was read before: by its bytes, without parsing it.

Most events of a file have the same members in the same order and notation. So a key is likely to be one of the two that
came last after the same key.
"""

import numpy as np
import numpy.typing as npt

from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.grammar import Text
from service.streaming.scan.machine import WORD, byte_at, word_at

FIRST = 0
"""Row of a table of keys that stands for the bracket before an object's first key."""

LENGTH, KEY, MEANING, IS_ESCAPED, _NEXT, _OTHER, _WORDS = range(7)
"""Columns of a table of keys.

A row is about the text from the end of a value, or from an opening bracket, up to the next value. It has the length of
that text, or 0 if the row is free; the offset of the key in it; what the key means; whether it has escapes; the rows of
the two keys that came last after it; and the text itself, in words.
"""

_ROWS, _WIDTH = 1 << 8, 16
_ENTERED_MAX = _ROWS // 2
_LONG = _ROWS  # row of a key that has no room; it is never found
_ENTERED = MEANING  # in the row `FIRST`: the number of keys
_SPACE = ord(" ")
_WORD_BYTES = WORD + 1
_BYTES_MAX = (_WIDTH - _WORDS) * _WORD_BYTES
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(_WORD_BYTES)])

Keys = npt.NDArray[np.int64]
"""A table of keys."""


def new_keys() -> Keys:
    """Allocate a table of keys of events, and one of keys of args."""
    return np.zeros((2, _ROWS + 1, _WIDTH), np.int64)


@inlined
def _has_text(text: Text, at: int, keys: Keys, row: int) -> bool:
    """Return whether the text at an offset begins with that of a row."""
    length, column = keys[row, LENGTH], _WORDS
    while length >= _WORD_BYTES:
        if word_at(text, at) != keys[row, column]:
            return False
        at, column, length = at + _WORD_BYTES, column + 1, length - _WORD_BYTES
    return bool((word_at(text, at) ^ keys[row, column]) & _MASKS[length] == 0)


@inlined
def _is_at(text: Text, at: int, end: int, keys: Keys, row: int) -> bool:
    """Return whether the key of a row is the next one."""
    length = keys[row, LENGTH]
    if length == 0 or length >= end - at or byte_at(text, at + length) <= _SPACE:  # more blanks may follow
        return False
    return _has_text(text, at, keys, row)


@inlined
def find_key(text: Text, at: int, end: int, last: int, keys: Keys) -> int:
    """Return the row of the next key, or `FIRST` if it is not one of those that came last after the key before it.

    Args:
        text: the text.
        at: offset of the end of the value before the key, or after the bracket.
        end: end of the text.
        last: the row of the key before it, or `FIRST`.
        keys: the table.
    """
    row = keys[last, _NEXT]
    if _is_at(text, at, end, keys, row):
        return int(row)
    row = keys[last, _OTHER]
    return int(row) if _is_at(text, at, end, keys, row) else FIRST


@compiled
def text_hash(text: Text, at: int, end: int) -> int:
    """Return a hash of a piece of the text."""
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
def _row_of(text: Text, at: int, end: int, keys: Keys) -> int:
    """Return the row that has a text, or the free row where it belongs."""
    length, row = end - at, text_hash(text, at, end) & _ROWS - 1
    while row == FIRST or (keys[row, LENGTH] and (keys[row, LENGTH] != length or not _has_text(text, at, keys, row))):
        row = row + 1 & _ROWS - 1
    return row


@compiled
def enter_key(text: Text, at: int, key: int, value: int, last: int, meaning: int, is_escaped: bool, keys: Keys) -> int:
    """Enter a key into a table, if it is not there, as one that came after another; return its row.

    Args:
        text: the text.
        at: offset of the end of the value before the key, or after the bracket.
        key: offset of the key's quote.
        value: offset of its value.
        last: the row of the key before it, or `FIRST`.
        meaning: what the key means.
        is_escaped: whether it has escapes.
        keys: the table.
    """
    length = value - at
    if keys[FIRST, _ENTERED] == _ENTERED_MAX:
        keys[:] = 0
    row = _row_of(text, at, value, keys) if length < _BYTES_MAX else _LONG
    keys[row, KEY], keys[row, MEANING], keys[row, IS_ESCAPED] = key - at, meaning, is_escaped
    if row != _LONG and keys[row, LENGTH] == 0:
        keys[row, LENGTH] = length
        keys[FIRST, _ENTERED] += 1
        for column in range(_WORDS, _WORDS + length // _WORD_BYTES + 1):
            keys[row, column] = word_at(text, at + (column - _WORDS) * _WORD_BYTES)
    keys[last, _NEXT], keys[last, _OTHER] = row, keys[last, _NEXT]
    return row

"""Search for words in many texts at once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.buffers import characters_of, starts_of
from service.streaming.integers import valid_rows
from service.streaming.scan.compiled import compiled, inlined
from service.streaming.scan.machine import byte_at, word_at

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WORD_MIN = 15
"""Smallest number of bytes of a word. Wherever it stands, it covers `_BLOCK` bytes that start at a multiple of that."""

_BLOCK = 8  # bytes that `word_at` reads
_FACTOR = 0x2545F4914F6CDD1D
_SLOTS = 1 << 12
_NOWHERE = -1


def containing(texts: pa.StringArray, word: bytes) -> Flags:
    """Return flags of the texts that contain a word; a null contains none.

    Args:
        texts: the texts.
        word: the word, in UTF-8, of at least `WORD_MIN` bytes.

    Raises:
        ValueError: the word is shorter.
    """
    has = np.zeros(len(texts), np.bool_)
    _search_all(*_sought(word), characters_of(texts), starts_of(texts), _valid(texts), has)
    return has


def hashes(texts: pa.StringArray, first: bytes, last: bytes, rows: Ints) -> tuple[Ints, Flags, Flags]:
    """Return a hash of a piece of each of some texts; different pieces practically never have the same.

    Args:
        texts: the texts; a null contains no word.
        first: the word with which the piece begins.
        last: the word before which it ends; a piece ends with its text if this word is not behind the first one.
        rows: indexes of the texts.

    Returns:
        The hashes, 0 without the first word; flags of the texts that contain the first word, and of those that contain
        the last one.

    Raises:
        ValueError: a word is shorter than `WORD_MIN`.
    """
    found, has = np.zeros(len(rows), np.int64), np.zeros((2, len(rows)), np.bool_)
    words = (*_sought(first), *_sought(last))
    _hash_all(*words, characters_of(texts), starts_of(texts), _valid(texts), rows, found, *has)
    return found, *has


def _valid(texts: pa.StringArray) -> Flags:
    return valid_rows(pa.chunked_array([texts]))


def _sought(word: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the letters of a word, and 1 for the slots of its first blocks, else 0; see `_find`."""
    if len(word) < WORD_MIN:
        raise ValueError(f"{word!r} has less than {WORD_MIN} bytes")
    letters, slots = np.frombuffer(word, np.uint8), np.zeros(_SLOTS, np.uint8)
    _flag_slots(letters, slots)
    return letters, slots


@inlined
def _slot(block: int) -> int:
    """Return the slot of a block."""
    return (block * _FACTOR) >> 40 & (_SLOTS - 1)


@compiled
def _flag_slots(word: Any, slots: Any) -> None:
    """Flag the slots of the blocks that start at the first `_BLOCK` places of a word."""
    for place in range(_BLOCK):
        slots[_slot(word_at(word, place))] = 1


@inlined
def _start_around(word: Any, values: Any, at: int, start: int, end: int) -> int:
    """Return where the word starts whose first whole block is at a place, or `_NOWHERE`."""
    for before in range(_BLOCK - 1, -1, -1):
        first = at - before
        if first >= start and first + len(word) <= end:
            matched = 0
            while matched < len(word) and values[first + matched] == word[matched]:
                matched += 1
            if matched == len(word):
                return first
    return _NOWHERE


@inlined
def _find(word: Any, slots: Any, values: Any, start: int, end: int) -> int:
    """Return where a word first stands in a text, or `_NOWHERE`. Only every eighth place of the text is looked at.

    Args:
        word: the letters of the word.
        slots: 1 for the slots of the word's first blocks, else 0; bytes are read faster than flags.
        values: holds the text.
        start: where the text starts.
        end: where it ends.
    """
    at, first = start, _NOWHERE
    while first == _NOWHERE and at <= end - _BLOCK:
        while at <= end - _BLOCK and slots[_slot(word_at(values, at))] == 0:
            at += _BLOCK
        if at <= end - _BLOCK:
            first = _start_around(word, values, at, start, end)
            at += _BLOCK
    return first


@inlined
def _hash(values: Any, start: int, end: int) -> int:
    """Return a hash like FNV-1a (https://www.rfc-editor.org/rfc/rfc9923), but of eight bytes at a time."""
    mixed, at = end - start, start
    while at < end:
        is_block = end - at >= _BLOCK
        mixed = (mixed ^ (word_at(values, at) if is_block else byte_at(values, at))) * _FACTOR
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF  # a product carries no high bit down
        at += _BLOCK if is_block else 1
    return mixed


@compiled
def _search_all(word: Any, slots: Any, values: Any, starts: Any, valid: Any, has: Any) -> None:
    """Search texts for a word; see `containing`."""
    for row in range(len(has)):
        has[row] = valid[row] and _find(word, slots, values, int(starts[row]), int(starts[row + 1])) != _NOWHERE


@compiled
def _hash_all(
    word: Any, slots: Any, last_word: Any, last_slots: Any, values: Any, starts: Any, valid: Any, rows: Ints,
    found: Ints, has_first: Any, has_last: Any,
) -> None:  # fmt: skip
    """Hash pieces of texts, each while it is in the processor's cache; see `hashes`."""
    for index in range(len(rows)):
        if valid[rows[index]]:
            start, end = int(starts[rows[index]]), int(starts[rows[index] + 1])
            first = _find(word, slots, values, start, end)
            last = _find(last_word, last_slots, values, start, end)
            has_first[index], has_last[index] = first != _NOWHERE, last != _NOWHERE
            if first != _NOWHERE:
                found[index] = _hash(values, first, last if last > first else end)

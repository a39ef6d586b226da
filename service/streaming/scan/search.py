"""Search for a word in many texts at once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.streaming.buffers import characters_of, starts_of
from service.streaming.integers import valid_rows
from service.streaming.scan.compiled import compiled
from service.streaming.scan.machine import byte_at, word_at

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NOWHERE = -1
"""Place of a word that a text does not contain."""

_WORD = 8  # bytes that `word_at` reads
_FACTOR = 0x2545F4914F6CDD1D


def containing(texts: pa.StringArray, word: bytes) -> Flags:
    """Return flags of the texts that contain a word, which is not empty; a null contains none."""
    flags: Flags = places(texts, word, np.arange(len(texts))) != NOWHERE
    return flags


def places(texts: pa.StringArray, word: bytes, rows: Ints) -> Ints:
    """Return where some texts contain a word first, in bytes from the start of the text, or `NOWHERE`.

    Args:
        texts: the texts; a null contains no word.
        word: the word, in UTF-8; not empty.
        rows: indexes of the texts to search.
    """
    found = np.full(len(rows), NOWHERE)
    starts, values = starts_of(texts), characters_of(texts)
    steps = np.full(256, len(word), np.int64)
    for index, byte in enumerate(word[:-1]):
        steps[byte] = len(word) - 1 - index
    _search(np.frombuffer(word, np.uint8), steps, values, starts, rows, found)
    if texts.null_count:
        found[~valid_rows(pa.chunked_array([texts]))[rows]] = NOWHERE
    return found


def hashes(texts: pa.StringArray, rows: Ints, firsts: Ints, lasts: Ints) -> Ints:
    """Return a hash of a piece of each of some texts; different pieces practically never have the same.

    Args:
        texts: the texts.
        rows: indexes of the texts.
        firsts: place in each text at which the piece begins.
        lasts: place at which it ends; one that does not come after its beginning stands for the end of the text.
    """
    found = np.zeros(len(rows), np.int64)
    _hash(characters_of(texts), starts_of(texts), rows, firsts, lasts, found)
    return found


@compiled
def _search(word: Any, steps: Ints, values: Any, starts: Any, rows: Ints, found: Ints) -> None:
    """Find a word by Horspool's algorithm (https://doi.org/10.1002/spe.4380100608).

    Args:
        word: the word.
        steps: for each byte, how far the word moves on if its last place is at that byte and does not match.
        values: the texts, one after the other.
        starts: where each text starts in `values`, and where the last one ends.
        rows: indexes of the texts.
        found: receives the places.
    """
    last = len(word) - 1
    for index in range(len(rows)):
        start, end = np.int64(starts[rows[index]]), np.int64(starts[rows[index] + 1])
        at = start + last
        while at < end:
            matched = 0
            while matched <= last and values[at - matched] == word[last - matched]:
                matched += 1
            if matched > last:
                found[index] = at - last - start
                break
            at += steps[values[at]]


@compiled
def _hash(values: Any, starts: Any, rows: Ints, firsts: Ints, lasts: Ints, found: Ints) -> None:
    """Hash pieces like FNV-1a (https://www.rfc-editor.org/rfc/rfc9923), but eight bytes at a time."""
    for index in range(len(rows)):
        start, end = np.int64(starts[rows[index]]), np.int64(starts[rows[index] + 1])
        if lasts[index] > firsts[index]:
            end = start + lasts[index]
        at = start + firsts[index]
        mixed = end - at
        while at < end:
            is_word = end - at >= _WORD
            mixed = (mixed ^ (word_at(values, at) if is_word else byte_at(values, at))) * _FACTOR
            mixed ^= (mixed >> 29) & 0x7FFFFFFFF  # a product carries no high bit down
            at += _WORD if is_word else 1
        found[index] = mixed

"""Compiled writing of the words of records: integers of 64 bits, and texts that are padded to whole words."""

from typing import Any

import numpy as np
import numpy.typing as npt

from service.rendering.sanitizing import Bytes
from service.store.parts import Ints
from service.streaming.scan.compiled import compiled, inlined

Words = npt.NDArray[np.uint64]

MAGIC = 0x0016547846040010
"""The first word of a file."""

INITIALIZATION, STRING, EVENT, BLOB, OBJECT = 1, 2, 4, 5, 7
"""Types of records."""

STRINGS_MAX = (1 << 15) - 1
"""Highest number of a string; 0 is the empty string."""

INLINE = 1 << 15
"""Added to the size of a text that follows, in place of the number of a string."""


@inlined
def words_of(size: int) -> int:
    """Return the number of words that a text of so many bytes takes."""
    return (size + 7) >> 3


@inlined
def put_text(out: Words, out_bytes: Bytes, end: int, values: Bytes, start: int, stop: int) -> int:
    """Write a text from the word `end` on; return the new end. `out_bytes` is the memory of `out`."""
    count = words_of(stop - start)
    if count:
        out[np.uintp(end + count - 1)] = 0
    here, there = np.uintp(start), np.uintp(8 * end)
    for at in range(np.uintp(stop - start)):
        out_bytes[there + at] = values[here + at]
    return int(end + count)


@compiled
def define_strings(out: Words, out_bytes: Bytes, end: int, values: Bytes, starts: Ints, stops: Ints, first: int) -> int:
    """Write the records that give numbers to texts, from the number `first` on; return the new end."""
    for nth in range(len(starts)):
        size = stops[nth] - starts[nth]
        header = STRING | (1 + words_of(size)) << 4 | (first + nth) << 16 | size << 32
        out[end] = header
        end = put_text(out, out_bytes, end + 1, values, starts[nth], stops[nth])
    return end


def header_of(kind: int, size: int, *fields: tuple[int, int]) -> int:
    """Return the first word of a record of a type and a size in words; each field has its lowest bit and its value."""
    header = kind | size << 4
    for bit, value in fields:
        header |= value << bit
    return header


def text_words(text: bytes) -> list[int]:
    """Return a text as words."""
    padded = text + bytes(-len(text) % 8)
    words: list[int] = np.frombuffer(padded, "<u8").tolist()
    return words


def packed_words(words: list[Any]) -> bytes:
    """Return the bytes of words."""
    return np.array(words, "<u8").tobytes()

"""Values that would harm the engine, made harmless: what breaks its importer, and what it silently gets wrong.

Measured on trace_processor v54: NUL ends a name; a surrogate pair that is escaped, or half of one, costs the arguments
behind it; integers from 2^63 on come out as others; and each bracket of a deep nesting becomes a key as long as the way
to it.
"""

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.parts import Flags, Ints
from service.streaming.scan.compiled import compiled, inlined
from service.trace.text import Members, Number, read, without_halves, written

Bytes = npt.NDArray[np.uint8]

LONG = 1 << 13
"""Bytes of a text, at most, that can't nest too deep."""

DEPTH_MAX = 64
"""Brackets within brackets that stay; what lies deeper is shown as its text."""

_INTEGERS = range(-(1 << 63), 1 << 63)
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_INTEGER = re.compile(r"-?\d+")


def harmless(text: str) -> str:
    """The text of a JSON value with nothing in it that harms the engine; what is no object becomes one."""
    flat = _flat(text) if text.startswith("{") else f'{{"args":{_flat(text)}}}'
    return written(_harmless(read(flat)), ensure_ascii=False)


def suspects(values: Bytes, starts: Ints) -> Ints:
    """Which texts may do harm: no objects, and those with a NUL, an escaped pair, a number out of range, or many bytes.

    Args:
        values: the texts, one after the other.
        starts: where each begins, and the last ends.
    """
    found = np.zeros(len(starts) - 1, np.bool_)
    _suspect(values, starts, found)
    return np.flatnonzero(found)


@compiled
def _suspect(values: Bytes, starts: Ints, found: Flags) -> None:
    for text in range(len(found)):
        start, stop = starts[text], starts[text + 1]
        if stop > start:
            found[text] = values[start] != 0x7B or stop - start > LONG or _is_suspect(values, start, stop)


@inlined
def _is_suspect(values: Bytes, start: int, stop: int) -> bool:
    """Whether an escape of NUL or of a surrogate, or a number of 19 digits or a large exponent stands in a text."""
    digits, before = 0, np.uint8(0)
    for at in range(np.uintp(start), np.uintp(stop)):
        byte = values[at]
        if 0x30 <= byte <= 0x39:
            digits += 1
            if digits >= 19:
                return True
            continue
        if digits and (byte | 0x20) == 0x65 and not 0x41 <= before <= 0x7A and _is_large(values, int(at) + 1, stop):
            return True
        digits, before = 0, byte
        if byte == 0x5C and int(at) + 2 < stop and values[at + np.uintp(1)] == 0x75:  # an escape by number
            first = values[at + np.uintp(2)]
            if first | 0x20 == 0x64 or first == 0x30:
                return True
    return False


@inlined
def _is_large(values: Bytes, at: int, stop: int) -> bool:
    """Whether an exponent has three digits."""
    if at < stop and values[at] == 0x2B:
        at += 1
    for digit in range(3):
        if at + digit >= stop or not 0x30 <= values[at + digit] <= 0x39:
            return False
    return True


def tells(values: Bytes, starts: Ints, word: bytes) -> Flags:
    """In which texts a word stands."""
    found = np.zeros(len(starts) - 1, np.bool_)
    _tell(values, starts, np.frombuffer(word, np.uint8), found)
    return found


@compiled
def _tell(values: Bytes, starts: Ints, word: Bytes, found: Flags) -> None:
    for text in range(len(found)):
        for at in range(starts[text], starts[text + 1] - len(word) + 1):
            same = 0
            while same < len(word) and values[at + same] == word[same]:
                same += 1
            if same == len(word):
                found[text] = True
                break


def _flat(text: str) -> str:
    """The text with strings for what lies too deep."""
    pieces: list[str] = []
    done, depth, began = 0, 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == DEPTH_MAX + 1:
                began = token.start()
        elif token[0] in "]}":
            if depth == DEPTH_MAX + 1:
                pieces += text[done:began], json.dumps(text[began : token.end()])
                done = token.end()
            depth -= 1
    return "".join([*pieces, text[done:]])


def _harmless(value: Any) -> Any:
    match value:
        case Members():
            return Members((plain(key), _harmless(item)) for key, item in value)
        case list():
            return [_harmless(item) for item in value]
        case Number():
            return value if is_kept(value) else str(value)
        case str():
            return plain(value)
        case _:
            return value


def plain(string: str) -> str:
    """A string as the engine can hold it."""
    return without_halves(string).replace("\0", "\N{REPLACEMENT CHARACTER}")


def is_kept(number: Number) -> bool:
    """Whether the engine has the same number: a 64-bit integer, or a double that is finite."""
    if _INTEGER.fullmatch(number):
        return len(number) <= 20 and int(number) in _INTEGERS
    return abs(float(number)) < float("inf")


def counters(args: str | None) -> tuple[str, int, int]:
    """The numbers of a counter's arguments, as the text of an object; how many there are, and what is none."""
    value = read(args) if args else Members()
    told = dict(value) if isinstance(value, Members) else {"value": value}
    numbers = Members((plain(key), Number(float(item))) for key, item in told.items() if _is_finite(item))
    return written(numbers, ensure_ascii=False), len(numbers), len(told) - len(numbers)


def _is_finite(value: Any) -> bool:
    return isinstance(value, Number) and abs(float(value)) < float("inf")

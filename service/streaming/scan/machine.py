"""Compiler intrinsics that read a text: sixteen bytes at a time, or one without a bounds check.

Callers guarantee that at least `PADDING` bytes follow the text.
https://numba.readthedocs.io/en/stable/extending/high-level.html#implementing-intrinsics
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

PADDING = 16
"""Number of bytes that must follow a text; their values do not matter."""

WORD = 7
"""Length of the longest text that `word` accepts."""

_BYTE, _LONG = ir.IntType(8), ir.IntType(64)
_LANES = ir.VectorType(_BYTE, PADDING)


def word(text: bytes) -> int:
    """Return the number that `word_at` reads at `text` (at most `WORD` bytes), with the bytes after it masked out."""
    return int.from_bytes(text, sys.byteorder)


def _address(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
    text = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(text.data, [args[1]])


def _lanes(builder: Any, address: Any) -> Any:
    return builder.load(builder.bitcast(address, _LANES.as_pointer()), align=1)


def _all(byte: int) -> Any:
    return ir.Constant(_LANES, [byte] * PADDING)


def _first(builder: Any, hits: Any) -> Any:
    """Return the index of the first lane that is a hit, or `PADDING`."""
    bits = builder.zext(builder.bitcast(hits, ir.IntType(PADDING)), _LONG)
    return builder.cttz(builder.or_(bits, ir.Constant(_LONG, 1 << PADDING)), ir.Constant(ir.IntType(1), 1))


def _byte_at(_: Any, text: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return builder.zext(builder.load(_address(context, builder, signature, args)), _LONG)

    return types.int64(text, types.int64), generate


def _word_at(_: Any, text: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        address = _address(context, builder, signature, args)
        return builder.load(builder.bitcast(address, _LONG.as_pointer()), align=1)

    return types.int64(text, types.int64), generate


def _copy_lanes(_: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        lanes = _lanes(builder, builder.gep(context.make_array(source)(context, builder, args[0]).data, [args[1]]))
        place = builder.gep(context.make_array(target)(context, builder, args[2]).data, [args[3]])
        builder.store(lanes, builder.bitcast(place, _LANES.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), generate


def _plain_run(_: Any, text: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        lanes = _lanes(builder, _address(context, builder, signature, args))
        quote = builder.icmp_unsigned("==", lanes, _all(ord('"')))
        backslash = builder.icmp_unsigned("==", lanes, _all(ord("\\")))
        control = builder.icmp_unsigned("<", lanes, _all(ord(" ")))
        return _first(builder, builder.or_(builder.or_(quote, backslash), control))

    return types.int64(text, types.int64), generate


def _blank_run(_: Any, text: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        lanes = _lanes(builder, _address(context, builder, signature, args))
        hits = builder.icmp_unsigned("!=", lanes, _all(ord(" ")))
        for blank in b"\n\r\t":
            hits = builder.and_(hits, builder.icmp_unsigned("!=", lanes, _all(blank)))
        return _first(builder, hits)

    return types.int64(text, types.int64), generate


def _number_marks(_: Any, text: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        lanes = _lanes(builder, _address(context, builder, signature, args))
        digit = builder.icmp_unsigned("<", builder.sub(lanes, _all(ord("0"))), _all(10))
        exponent = builder.icmp_unsigned("==", builder.or_(lanes, _all(0x20)), _all(ord("e")))
        backslash = builder.icmp_unsigned("==", lanes, _all(ord("\\")))
        marks = ir.Constant(_LONG, 0)
        for nth, hits in enumerate((digit, exponent, backslash)):
            bits = builder.zext(builder.bitcast(hits, ir.IntType(PADDING)), _LONG)
            marks = builder.or_(marks, builder.shl(bits, ir.Constant(_LONG, nth * PADDING)))
        return marks

    return types.int64(text, types.int64), generate


if TYPE_CHECKING:

    def byte_at(text: Any, at: int) -> int:
        """Return the byte of the text at an offset."""

    def word_at(text: Any, at: int) -> int:
        """Return eight bytes of the text as a number in the processor's byte order; see `word`."""

    def copy_lanes(source: Any, at: int, target: Any, to: int) -> None:
        """Copy `PADDING` bytes from one text to another."""

    def plain_run(text: Any, at: int) -> int:
        """Return the number of bytes from `at` on, at most `PADDING`, before a quote, backslash or control byte."""

    def blank_run(text: Any, at: int) -> int:
        """Return the number of bytes from `at` on, at most `PADDING`, that are JSON white space."""

    def number_marks(text: Any, at: int) -> int:
        """Return a bit for each of the next `PADDING` bytes that is a digit; then for each E or e; then backslashes."""
else:
    byte_at = intrinsic(_byte_at)
    word_at = intrinsic(_word_at)
    copy_lanes = intrinsic(_copy_lanes)
    plain_run = intrinsic(_plain_run)
    blank_run = intrinsic(_blank_run)
    number_marks = intrinsic(_number_marks)

"""Compiled interpreter of the pickle opcodes of a memory snapshot. It builds nothing but plain data in arrays."""

from typing import Any

import numpy as np

from service.formats.memory_snapshot.containers import (
    add_items,
    fail,
    intern_string,
    new_node,
    push,
)
from service.formats.memory_snapshot.layout import (
    BAD_MEMO,
    BIG,
    BOOL,
    CHANGED,
    DEPTH,
    DICT,
    EMPTY_STACK,
    FLOAT,
    FORBIDDEN,
    INT,
    LEFT_OVER,
    LIST,
    LONG_INTEGER,
    LONG_STRING,
    MARKS,
    MARKS_MAX,
    MEMO,
    NO_MARK,
    NODE,
    NONE,
    NOT_A_LIST,
    STACK,
    STOPPED,
    STRING,
    STRING_MAX,
    TOO_DEEP,
    TUPLE,
    Bytes,
    Ints,
    Number,
)
from service.formats.memory_snapshot.records import (
    set_items,
)
from service.streaming.scan.compiled import compiled


@compiled
def append_items(target: Number, first: Number, end: Number, t: Any) -> bool:
    """Append items to a list on the stack; return False after an error."""
    node = t.stack[target]
    if t.stack_kinds[target] != NODE or (t.node_types[node] != LIST and t.node_types[node] != STACK):
        fail(t.state, NOT_A_LIST, 0, 0)
        return False
    if t.node_inside[node]:
        fail(t.state, CHANGED, 0, 0)
        return False
    return add_items(node, first, end, t)


@compiled
def new_tuple(first: Number, t: Any) -> bool:
    """Replace the items of the stack from `first` on by a tuple of them; return False after an error."""
    node = new_node(TUPLE, -1, t)
    if not add_items(node, first, t.state[DEPTH], t):
        return False
    t.state[DEPTH] = first
    push(NODE, node, t)
    return True


@compiled
def _little_endian(data: Bytes, at: Number, size: Number) -> Number:
    value: Number = 0
    for place in range(size):
        value |= np.int64(data[at + place]) << (8 * place)
    return value


PROTO, FRAMING, MARK, STOP, EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE = b"\x80\x95(.}])"
SETITEM, SETITEMS, APPEND, APPENDS, TUPLE_OPCODE, TUPLE1, TUPLE2, TUPLE3 = b"suaet\x85\x86\x87"
MEMOIZE, BINPUT, LONG_BINPUT, BINGET, LONG_BINGET = b"\x94qrhj"
BININT, BININT1, BININT2, LONG1, BINFLOAT = b"JKM\x8aG"
SHORT_BINUNICODE, BINUNICODE, NONE_OPCODE, NEWTRUE, NEWFALSE = b"\x8cXN\x88\x89"

ARGUMENT_SIZES = np.full(256, -1, np.int64)
"""Number of bytes that follow each opcode, without texts; -1 for forbidden opcodes."""
for _size, _opcodes in {
    0: b"(.}])suaet\x85\x86\x87\x94N\x88\x89",
    1: b"\x80qhK\x8a\x8c",
    2: b"M",
    4: b"rjJX",
    8: b"\x95G",
}.items():
    ARGUMENT_SIZES[list(_opcodes)] = _size


@compiled
def run(data: Bytes, end: Number, sizes: Ints, values: Ints, t: Any) -> Number:
    """Interpret opcodes until the data ends, STOP or an error.

    Args:
        data: bytes from the start of an opcode on.
        end: the number of bytes.
        sizes: `ARGUMENT_SIZES`.
        values: scratch memory with a place for each of `WORDS`.
        t: the memory, with room for `end` more rows in each table.

    Returns:
        The number of bytes that were interpreted: up to an incomplete opcode, or the one that failed.
    """
    state, at = t.state, 0
    while at < end:
        opcode, size = data[at], sizes[data[at]]
        if size < 0:
            fail(state, FORBIDDEN, opcode, 0)
            return at
        if at + 1 + size > end:
            return at
        value, depth = (np.int64(0) if opcode == BINFLOAT else _little_endian(data, at + 1, size)), state[DEPTH]
        next_ = at + 1 + size
        if opcode == BINGET or opcode == LONG_BINGET:
            if value >= state[MEMO]:
                fail(state, BAD_MEMO, opcode, 0)
                return at
            push(t.memo_kinds[value], t.memo[value], t)
        elif opcode == BININT1 or opcode == BININT2:
            push(INT, value, t)
        elif opcode == BININT:
            push(INT, value - ((value >> 31) << 32), t)
        elif opcode == LONG1:
            if value > 9:
                fail(state, LONG_INTEGER, opcode, 0)
                return at
            if next_ + value > end:
                return at
            number = _little_endian(data, next_, min(value, 8))
            next_ += value
            kind = INT
            if 0 < value < 8:
                number -= (number >> (8 * value - 1)) << (8 * value)
            elif value == 9:
                if data[next_ - 1]:
                    fail(state, LONG_INTEGER, opcode, 0)
                    return at
                kind = BIG if number < 0 else INT
            push(kind, number, t)
        elif opcode == MEMOIZE or opcode == BINPUT or opcode == LONG_BINPUT:
            place = state[MEMO] if opcode == MEMOIZE else value
            if not depth or place > state[MEMO]:
                fail(state, BAD_MEMO if depth else EMPTY_STACK, opcode, 0)
                return at
            t.memo_kinds[place] = t.stack_kinds[depth - 1]
            t.memo[place] = t.stack[depth - 1]
            state[MEMO] = max(state[MEMO], place + 1)
        elif opcode == EMPTY_DICT or opcode == EMPTY_LIST or opcode == EMPTY_TUPLE:
            type_ = DICT if opcode == EMPTY_DICT else LIST if opcode == EMPTY_LIST else TUPLE
            push(NODE, new_node(type_, -1, t), t)
        elif opcode == MARK:
            if state[MARKS] == MARKS_MAX:
                fail(state, TOO_DEEP, opcode, 0)
                return at
            t.marks[state[MARKS]] = depth
            state[MARKS] += 1
        elif opcode == SETITEMS or opcode == APPENDS or opcode == TUPLE_OPCODE:
            if not state[MARKS]:
                fail(state, NO_MARK, opcode, 0)
                return at
            state[MARKS] -= 1
            first = t.marks[state[MARKS]]
            bottom = t.marks[state[MARKS] - 1] if state[MARKS] else 0
            if opcode != TUPLE_OPCODE and first <= bottom:
                fail(state, EMPTY_STACK, opcode, 0)
                return at
            if opcode == TUPLE_OPCODE:
                done = new_tuple(first, t)
            elif opcode == SETITEMS:
                done = set_items(first - 1, first, depth, values, t)
            else:
                done = append_items(first - 1, first, depth, t)
            if not done:
                state[MARKS] += 1  # the opcode may be repeated
                return at
            if opcode != TUPLE_OPCODE:
                state[DEPTH] = first
        elif opcode == SHORT_BINUNICODE or opcode == BINUNICODE:
            if value > STRING_MAX:
                fail(state, LONG_STRING, opcode, 0)
                return at
            if next_ + value > end:
                return at
            push(STRING, intern_string(data, next_, value, t), t)
            next_ += value
        elif opcode == BINFLOAT:
            push(FLOAT, 0, t)
        elif opcode == NEWTRUE or opcode == NEWFALSE:
            push(BOOL, np.int64(opcode == NEWTRUE), t)
        elif opcode == NONE_OPCODE:
            push(NONE, 0, t)
        elif opcode == STOP:
            if depth != 1 or state[MARKS]:
                fail(state, LEFT_OVER, opcode, 0)
                return at
            state[STOPPED] = 1
            return next_
        elif opcode != PROTO and opcode != FRAMING:
            bottom = t.marks[state[MARKS] - 1] if state[MARKS] else 0
            count = 2 if opcode == APPEND else 3 if opcode == SETITEM else opcode - TUPLE1 + 1
            if depth - bottom < count:
                fail(state, EMPTY_STACK, opcode, 0)
                return at
            if opcode == APPEND:
                done = append_items(depth - 2, depth - 1, depth, t)
            elif opcode == SETITEM:
                done = set_items(depth - 3, depth - 2, depth, values, t)
            else:
                done = new_tuple(depth - count, t)
            if not done:
                return at
            if opcode == APPEND or opcode == SETITEM:
                state[DEPTH] = depth - count + 1
        at = next_
    return at

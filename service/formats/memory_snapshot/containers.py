"""Compiled code that keeps the strings and containers of a pickle in tables.

Equal strings, frames and stacks are one row. A container can't change once another one contains it, so that there are
no cycles.
"""

from typing import Any

import numpy as np

from service.formats.memory_snapshot.layout import (
    CELLS,
    CHUNKS,
    CONTAINS_ITSELF,
    DEPTH,
    ERROR,
    ERROR_KEY,
    ERROR_OF,
    FRAME,
    FRAME_ROWS,
    LIST,
    LONG_STACK,
    NO_ROOM,
    NODE,
    NODES,
    NOT_A_FRAME,
    STACK,
    STACK_FRAMES,
    STACK_MAX,
    STACK_ROWS,
    STRING_BYTES,
    STRINGS,
    Bytes,
    Ints,
    Number,
    ShortInts,
)
from service.streaming.scan.compiled import compiled


@compiled
def _mixed(value: Number, item: Number) -> Number:
    value = (value ^ item) * 0x2545F4914F6CDD1D
    return value ^ ((value >> 29) & 0x7FFFFFFFF)


@compiled
def rehash(hashes: Ints, count: Number, slots: ShortInts) -> None:
    """Fill a larger hash table."""
    slots[:] = -1
    for row in range(count):
        slot = hashes[row] & (slots.size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (slots.size - 1)
        slots[slot] = row


@compiled
def intern_string(source: Bytes, start: Number, length: Number, t: Any) -> Number:
    """Return the number of a string; an unknown one gets the next number."""
    state, value = t.state, length
    for at in range(start, start + length):
        value = _mixed(value, np.int64(source[at]))
    slots = t.text_slots
    slot = value & (slots.size - 1)
    while slots[slot] >= 0:
        row = slots[slot]
        first = t.text_ends[row - 1] if row else 0
        if t.text_hashes[row] == value and t.text_ends[row] - first == length:
            same = True
            for offset in range(length):
                if t.text[first + offset] != source[start + offset]:
                    same = False
                    break
            if same:
                return np.int64(row)
        slot = (slot + 1) & (slots.size - 1)
    row, first = state[STRINGS], state[STRING_BYTES]
    for offset in range(length):
        t.text[first + offset] = source[start + offset]
    slots[slot] = row
    t.text_hashes[row] = value
    t.text_ends[row] = first + length
    state[STRING_BYTES] = first + length
    state[STRINGS] = row + 1
    return np.int64(row)


@compiled
def fail(state: Ints, error: Number, of: Number, key: Number) -> Number:
    """Record an error, with the type of the record and the key of the field; return -1."""
    state[ERROR], state[ERROR_OF], state[ERROR_KEY] = error, of, key
    return -1


@compiled
def new_node(type_: Number, row: Number, t: Any) -> Number:
    """Return the number of a new container."""
    node = t.state[NODES]
    t.node_types[node] = type_
    t.node_inside[node] = 0
    t.node_rows[node] = row
    t.node_lasts[node] = -1
    t.state[NODES] = node + 1
    return np.int64(node)


@compiled
def push(kind: Number, value: Number, t: Any) -> None:
    """Push a value on the stack."""
    depth = t.state[DEPTH]
    t.stack_kinds[depth] = kind
    t.stack[depth] = value
    t.state[DEPTH] = depth + 1


@compiled
def add_items(node: Number, first: Number, end: Number, t: Any) -> bool:
    """Move items of the stack into a container; return False after an error."""
    state = t.state
    if first == end:
        return True
    cell = state[CELLS]
    for at in range(first, end):
        if t.stack_kinds[at] == NODE:
            if t.stack[at] == node:
                fail(state, CONTAINS_ITSELF, 0, 0)
                return False
            t.node_inside[t.stack[at]] = 1
        t.cell_kinds[cell] = t.stack_kinds[at]
        t.cells[cell] = t.stack[at]
        cell += 1
    chunk = state[CHUNKS]
    t.chunks[chunk, 0], t.chunks[chunk, 1], t.chunks[chunk, 2] = state[CELLS], end - first, -1
    if t.node_rows[node] < 0:
        t.node_rows[node] = chunk
    else:
        t.chunks[t.node_lasts[node], 2] = chunk
    t.node_lasts[node] = chunk
    state[CELLS], state[CHUNKS] = cell, chunk + 1
    return True


@compiled
def frame_row(file: Number, name: Number, line: Number, t: Any) -> Number:
    """Return the row of a frame."""
    value = _mixed(_mixed(_mixed(3, file), name), line)
    slots = t.frame_slots
    slot = value & (slots.size - 1)
    while slots[slot] >= 0:
        row = slots[slot]
        if t.frames[row, 0] == file and t.frames[row, 1] == name and t.frames[row, 2] == line:
            return np.int64(row)
        slot = (slot + 1) & (slots.size - 1)
    row = t.state[FRAME_ROWS]
    slots[slot] = row
    t.frame_hashes[row] = value
    t.frames[row, 0], t.frames[row, 1], t.frames[row, 2] = file, name, line
    t.state[FRAME_ROWS] = row + 1
    return np.int64(row)


@compiled
def stack_row(node: Number, t: Any) -> Number:
    """Return the row of a list of frames, which becomes a `STACK`; -1 after an error."""
    state = t.state
    if t.node_types[node] == STACK:
        return np.int64(t.node_rows[node])
    if t.node_types[node] != LIST:
        return fail(state, NOT_A_FRAME, 0, 0)
    start = state[STACK_FRAMES]
    if start + STACK_MAX > t.stack_frames.size:
        return fail(state, NO_ROOM, 0, 0)
    end, value, chunk = start, 7, t.node_rows[node]
    while chunk >= 0:
        for cell in range(t.chunks[chunk, 0], t.chunks[chunk, 0] + t.chunks[chunk, 1]):
            if t.cell_kinds[cell] != NODE or t.node_types[t.cells[cell]] != FRAME:
                return fail(state, NOT_A_FRAME, 0, 0)
            if end - start == STACK_MAX:
                return fail(state, LONG_STACK, 0, 0)
            frame = t.node_rows[t.cells[cell]]
            t.stack_frames[end] = frame
            value = _mixed(value, np.int64(frame))
            end += 1
        chunk = t.chunks[chunk, 2]
    slots = t.stack_slots
    slot, row = value & (slots.size - 1), np.int64(-1)
    while slots[slot] >= 0 and row < 0:
        other = np.int64(slots[slot])
        first = t.stack_ends[other - 1] if other else 0
        if t.stack_hashes[other] == value and t.stack_ends[other] - first == end - start:
            row = other
            for offset in range(end - start):
                if t.stack_frames[first + offset] != t.stack_frames[start + offset]:
                    row = np.int64(-1)
                    break
        slot = (slot + 1) & (slots.size - 1)
    if row < 0:
        row = np.int64(state[STACK_ROWS])
        slots[slot] = row
        t.stack_hashes[row] = value
        t.stack_ends[row] = end
        state[STACK_ROWS], state[STACK_FRAMES] = row + 1, end
    first_chunk, last = t.node_rows[node], t.node_lasts[node]
    if last >= 0 and first_chunk == last == state[CHUNKS] - 1:  # nothing was stored after it: take its room back
        state[CHUNKS], state[CELLS] = last, t.chunks[last, 0]
    t.node_types[node] = STACK
    t.node_rows[node] = row
    return row

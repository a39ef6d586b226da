"""Compiled code that turns the dictionaries of a memory snapshot into rows of tables.

Dictionaries of known shapes become rows as soon as they are complete: entries of traces, frames, blocks, segments and
annotations. Equal strings, frames and stacks are one row. A container can't change once another one contains it, so
that there are no cycles.
"""

from typing import Any

import numpy as np

from service.formats.memory_snapshot.layout import *
from service.streaming.scan.compiled import compiled

@compiled
def _mixed(value: int, item: int) -> int:
    value = (value ^ item) * 0x2545F4914F6CDD1D
    return value ^ ((value >> 29) & 0x7FFFFFFFF)


@compiled
def rehash(hashes: Ints, count: int, slots: ShortInts) -> None:
    """Fill a larger hash table."""
    slots[:] = -1
    for row in range(count):
        slot = hashes[row] & (slots.size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (slots.size - 1)
        slots[slot] = row


@compiled
def intern_string(source: Bytes, start: int, length: int, t: Any) -> int:
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
def fail(state: Ints, error: int, of: int, key: int) -> int:
    state[ERROR], state[ERROR_OF], state[ERROR_KEY] = error, of, key
    return -1


@compiled
def new_node(type_: int, row: int, t: Any) -> int:
    node = t.state[NODES]
    t.node_types[node] = type_
    t.node_inside[node] = 0
    t.node_rows[node] = row
    t.node_lasts[node] = -1
    t.state[NODES] = node + 1
    return np.int64(node)


@compiled
def push(kind: int, value: int, t: Any) -> None:
    depth = t.state[DEPTH]
    t.stack_kinds[depth] = kind
    t.stack[depth] = value
    t.state[DEPTH] = depth + 1


@compiled
def add_items(node: int, first: int, end: int, t: Any) -> bool:
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
def _frame_row(file: int, name: int, line: int, t: Any) -> int:
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
def _stack_row(node: int, t: Any) -> int:
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


@compiled
def _record_type(first: int, end: int, t: Any) -> int:
    """Return the type of a dictionary with these items, by its keys."""
    for at in range(first, end, 2):
        if t.stack_kinds[at] == STRING:
            key = t.stack[at]
            if key == ACTION:
                return ENTRY
            if key == FILENAME:
                return FRAME
            if key == STATE:
                return BLOCK
            if key == TOTAL:
                return SEGMENT
            if key == STAGE:
                return ANNOTATION
    return DICT


@compiled
def _field(key: int, low: int, high: int, record: int, values: Ints, t: Any) -> int:
    """Return an integer field of a record: `values` has the position of each field's value on the stack, or 0."""
    at = values[key]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != INT or not low <= t.stack[at] < high:
        fail(t.state, BAD_FIELD, record, key)
        return UNKNOWN
    return np.int64(t.stack[at])


@compiled
def _address(key: int, record: int, values: Ints, t: Any) -> int:
    at = values[key]
    if t.stack_kinds[at] != INT and t.stack_kinds[at] != BIG:
        return fail(t.state, BAD_FIELD, record, key)
    return np.int64(t.stack[at])


@compiled
def _text(key: int, record: int, values: Ints, t: Any) -> int:
    at = values[key]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != STRING:
        return fail(t.state, BAD_FIELD, record, key)
    return np.int64(t.stack[at])


@compiled
def _container(key: int, type_: int, record: int, values: Ints, t: Any) -> int:
    at = values[key]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != NODE or t.node_types[t.stack[at]] != type_:
        return fail(t.state, BAD_FIELD, record, key)
    return np.int64(t.stack[at])


@compiled
def _stack_field(record: int, values: Ints, t: Any) -> int:
    at = values[FRAMES]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != NODE:
        return fail(t.state, BAD_FIELD, record, FRAMES)
    return _stack_row(t.stack[at], t)


@compiled
def _missing(record: int, keys: Any, values: Ints, t: Any) -> bool:
    for key in keys:
        if not values[key]:
            fail(t.state, MISSING, record, key)
            return True
    return False


_FAR = 1 << 62


@compiled
def _add_record(type_: int, values: Ints, t: Any) -> int:
    """Add a row for a dictionary of a known type; return the row."""
    state, row = t.state, np.int64(0)
    if type_ == ENTRY:
        address = ADDR if values[ADDR] else DEVICE_FREE
        if _missing(type_, (ACTION, SIZE, address), values, t):
            return 0
        row = np.int64(state[ENTRY_ROWS])
        t.entry_actions[row] = _text(ACTION, type_, values, t)
        t.entry_addresses[row] = _address(address, type_, values, t)
        t.entry_sizes[row] = _field(SIZE, 0, SIZE_MAX, type_, values, t)
        t.entry_streams[row] = _field(STREAM, -STREAM_MAX, STREAM_MAX, type_, values, t) if values[STREAM] else 0
        t.entry_times[row] = _field(TIME, 0, TIME_MAX, type_, values, t)
        t.entry_stacks[row] = _stack_field(type_, values, t)
    elif type_ == FRAME:
        if _missing(type_, (NAME,), values, t):
            return 0
        line = _field(LINE, -_FAR, _FAR, type_, values, t) if values[LINE] else 0
        row = _frame_row(_text(FILENAME, type_, values, t), _text(NAME, type_, values, t), line, t)
    elif type_ == BLOCK:
        if _missing(type_, (SIZE,), values, t):
            return 0
        row = np.int64(state[BLOCK_ROWS])
        t.blocks[row, BLOCK_ADDRESS] = _address(ADDRESS, type_, values, t) if values[ADDRESS] else 0
        t.blocks[row, BLOCK_SIZE] = _field(SIZE, 0, SIZE_MAX, type_, values, t)
        t.blocks[row, BLOCK_REQUESTED] = _field(REQUESTED, 0, SIZE_MAX, type_, values, t)
        t.blocks[row, BLOCK_STATE] = _text(STATE, type_, values, t)
        t.blocks[row, BLOCK_STACK] = _stack_field(type_, values, t)
    elif type_ == SEGMENT:
        if _missing(type_, (ADDRESS, DEVICE, BLOCKS), values, t):
            return 0
        row = np.int64(state[SEGMENT_ROWS])
        t.segments[row, SEG_DEVICE] = _field(DEVICE, 0, 1 << 15, type_, values, t)
        t.segments[row, SEG_ADDRESS] = _address(ADDRESS, type_, values, t)
        t.segments[row, SEG_TOTAL] = _field(TOTAL, 0, SIZE_MAX, type_, values, t)
        t.segments[row, SEG_ALLOCATED] = _field(ALLOCATED, 0, SIZE_MAX, type_, values, t)
        t.segments[row, SEG_ACTIVE] = _field(ACTIVE, 0, SIZE_MAX, type_, values, t)
        t.segments[row, SEG_REQUESTED] = _field(REQUESTED, 0, SIZE_MAX, type_, values, t)
        t.segments[row, SEG_STREAM] = _field(STREAM, -STREAM_MAX, STREAM_MAX, type_, values, t) if values[STREAM] else 0
        t.segments[row, SEG_TYPE] = _text(SEGMENT_TYPE, type_, values, t)
        t.segments[row, SEG_POOL] = _container(POOL, TUPLE, type_, values, t)
        expandable = values[EXPANDABLE]
        if expandable and t.stack_kinds[expandable] != BOOL:
            fail(state, BAD_FIELD, type_, EXPANDABLE)
        t.segments[row, SEG_EXPANDABLE] = t.stack[expandable] if expandable else 0
        t.segments[row, SEG_BLOCKS] = _container(BLOCKS, LIST, type_, values, t)
        t.segments[row, SEG_STACK] = _stack_field(type_, values, t)
    elif type_ == ANNOTATION:
        if _missing(type_, (NAME, TIME), values, t):
            return 0
        row = np.int64(state[ANNOTATION_ROWS])
        t.annotations[row, NOTE_STAGE] = _text(STAGE, type_, values, t)
        t.annotations[row, NOTE_NAME] = _text(NAME, type_, values, t)
        t.annotations[row, NOTE_DEVICE] = _field(DEVICE, 0, 1 << 15, type_, values, t)
        t.annotations[row, NOTE_TIME] = _field(TIME, 0, TIME_MAX, type_, values, t)
    return row


@compiled
def set_items(target: int, first: int, end: int, values: Ints, t: Any) -> bool:
    """Put pairs of keys and values into a dictionary on the stack; return False after an error."""
    state = t.state
    node = t.stack[target]
    if t.stack_kinds[target] != NODE or t.node_types[node] == LIST or t.node_types[node] == TUPLE:
        fail(state, NOT_A_DICT, 0, 0)
        return False
    if t.node_types[node] != DICT or t.node_inside[node]:
        fail(state, CHANGED, 0, 0)
        return False
    if (end - first) & 1:
        fail(state, ODD_ITEMS, 0, 0)
        return False
    values[:] = 0
    for at in range(first, end, 2):
        kind, key = t.stack_kinds[at], t.stack[at]
        if kind != STRING and kind != INT:
            fail(state, BAD_KEY, 0, 0)
            return False
        if kind == STRING and key < values.size:
            if values[key]:
                fail(state, TWICE, 0, key)
                return False
            values[key] = at + 1
        if t.stack_kinds[at + 1] == NODE:
            if t.stack[at + 1] == node:
                fail(state, CONTAINS_ITSELF, 0, 0)
                return False
            t.node_inside[t.stack[at + 1]] = 1
    type_ = _record_type(first, end, t)
    if type_ == DICT:
        return add_items(node, first, end, t)
    if t.node_rows[node] >= 0:
        fail(state, CHANGED, 0, 0)
        return False
    row = _add_record(type_, values, t)
    if state[ERROR] != OK:
        return False
    t.node_types[node] = type_
    t.node_rows[node] = row
    if type_ == ENTRY:
        state[ENTRY_ROWS] += 1
    elif type_ == BLOCK:
        state[BLOCK_ROWS] += 1
    elif type_ == SEGMENT:
        state[SEGMENT_ROWS] += 1
    elif type_ == ANNOTATION:
        state[ANNOTATION_ROWS] += 1
    return True



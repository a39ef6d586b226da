"""Compiled code that turns the dictionaries of a memory snapshot into rows of tables.

Dictionaries of known shapes become rows as soon as they are complete: entries of traces, frames, blocks, segments and
annotations.
"""

from typing import Any

import numpy as np

from service.formats.memory_snapshot.containers import (
    add_items,
    fail,
    frame_row,
    stack_row,
)
from service.formats.memory_snapshot.layout import (
    ACTION,
    ACTIVE,
    ADDR,
    ADDRESS,
    ALLOCATED,
    ANNOTATION,
    ANNOTATION_ROWS,
    BAD_FIELD,
    BAD_KEY,
    BIG,
    BLOCK,
    BLOCK_ADDRESS,
    BLOCK_REQUESTED,
    BLOCK_ROWS,
    BLOCK_SIZE,
    BLOCK_STACK,
    BLOCK_STATE,
    BLOCKS,
    BOOL,
    CHANGED,
    CONTAINS_ITSELF,
    DEVICE,
    DEVICE_FREE,
    DICT,
    ENTRY,
    ENTRY_ROWS,
    ERROR,
    EXPANDABLE,
    FILENAME,
    FRAME,
    FRAMES,
    INT,
    LINE,
    LIST,
    MISSING,
    NAME,
    NODE,
    NOT_A_DICT,
    NOTE_DEVICE,
    NOTE_NAME,
    NOTE_STAGE,
    NOTE_TIME,
    ODD_ITEMS,
    OK,
    POOL,
    REQUESTED,
    SEG_ACTIVE,
    SEG_ADDRESS,
    SEG_ALLOCATED,
    SEG_BLOCKS,
    SEG_DEVICE,
    SEG_EXPANDABLE,
    SEG_POOL,
    SEG_REQUESTED,
    SEG_STACK,
    SEG_STREAM,
    SEG_TOTAL,
    SEG_TYPE,
    SEGMENT,
    SEGMENT_ROWS,
    SEGMENT_TYPE,
    SIZE,
    SIZE_MAX,
    STAGE,
    STATE,
    STREAM,
    STREAM_MAX,
    STRING,
    TIME,
    TIME_MAX,
    TOTAL,
    TUPLE,
    TWICE,
    UNKNOWN,
    Ints,
    Number,
)
from service.streaming.scan.compiled import compiled


@compiled
def _record_type(first: Number, end: Number, t: Any) -> Number:
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
def _field(key: Number, low: Number, high: Number, record: Number, values: Ints, t: Any) -> Number:
    """Return an integer field of a record: `values` has the position of each field's value on the stack, or 0."""
    at = values[key]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != INT or not low <= t.stack[at] < high:
        fail(t.state, BAD_FIELD, record, key)
        return UNKNOWN
    return np.int64(t.stack[at])


@compiled
def _address(key: Number, record: Number, values: Ints, t: Any) -> Number:
    at = values[key]
    if t.stack_kinds[at] != INT and t.stack_kinds[at] != BIG:
        return fail(t.state, BAD_FIELD, record, key)
    return np.int64(t.stack[at])


@compiled
def _text(key: Number, record: Number, values: Ints, t: Any) -> Number:
    at = values[key]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != STRING:
        return fail(t.state, BAD_FIELD, record, key)
    return np.int64(t.stack[at])


@compiled
def _container(key: Number, type_: Number, record: Number, values: Ints, t: Any) -> Number:
    at = values[key]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != NODE or t.node_types[t.stack[at]] != type_:
        return fail(t.state, BAD_FIELD, record, key)
    return np.int64(t.stack[at])


@compiled
def _stack_field(record: Number, values: Ints, t: Any) -> Number:
    at = values[FRAMES]
    if not at:
        return UNKNOWN
    if t.stack_kinds[at] != NODE:
        return fail(t.state, BAD_FIELD, record, FRAMES)
    return stack_row(t.stack[at], t)


@compiled
def _missing(record: Number, keys: Any, values: Ints, t: Any) -> bool:
    for key in keys:
        if not values[key]:
            fail(t.state, MISSING, record, key)
            return True
    return False


_FAR = 1 << 62


@compiled
def _add_record(type_: Number, values: Ints, t: Any) -> Number:
    """Add a row for a dictionary of a known type; return the row."""
    state = t.state
    row: Number = 0
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
        row = frame_row(_text(FILENAME, type_, values, t), _text(NAME, type_, values, t), line, t)
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
def set_items(target: Number, first: Number, end: Number, values: Ints, t: Any) -> bool:
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

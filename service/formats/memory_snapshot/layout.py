"""Tables into which the interpreter of pickle opcodes puts plain data, and their numbers."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
ShortInts = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Number = Any
"""An integer in compiled code: of Python or NumPy, which are the same there."""

WORDS = (
    *("action", "addr", "device_free", "size", "stream", "frames", "time_us"),
    *("filename", "name", "line"),
    *("state", "address", "requested_size"),
    *("total_size", "device", "allocated_size", "active_size", "segment_type", "segment_pool_id", "is_expandable"),
    *("blocks", "stage"),
)
"""Keys of known fields. The number of a key is its index; other strings follow."""
ACTION, ADDR, DEVICE_FREE, SIZE, STREAM, FRAMES, TIME, FILENAME, NAME, LINE, STATE, ADDRESS, REQUESTED = range(13)
TOTAL, DEVICE, ALLOCATED, ACTIVE, SEGMENT_TYPE, POOL, EXPANDABLE, BLOCKS, STAGE = range(13, 22)

INT, BIG, FLOAT, STRING, BOOL, NONE, NODE = range(7)
"""Kinds of values: signed and unsigned integers of 64 bits, bits of a float, numbers of strings, 0 or 1, none, and
numbers of containers."""

LIST, DICT, TUPLE, ENTRY, FRAME, BLOCK, SEGMENT, ANNOTATION, STACK = range(9)
"""Types of containers. `ENTRY` and later ones are rows of tables."""

DEPTH, MARKS, MEMO, NODES, CELLS, CHUNKS, STRINGS, STRING_BYTES, ENTRY_ROWS, FRAME_ROWS, STACK_ROWS = range(11)
STACK_FRAMES, BLOCK_ROWS, SEGMENT_ROWS, ANNOTATION_ROWS = range(11, 15)
"""Indices of the state: lengths of the tables."""
STOPPED, ERROR, ERROR_OF, ERROR_KEY, STATE_SIZE = range(15, 20)
"""Further indices: whether the pickle has ended, and the first error, its type of record and its key."""

OK, FORBIDDEN, EMPTY_STACK, NO_MARK, TOO_DEEP, BAD_MEMO, LONG_INTEGER, LONG_STRING, NOT_A_LIST, NOT_A_DICT = range(10)
CHANGED, BAD_KEY, ODD_ITEMS, TWICE, BAD_FIELD, MISSING, NOT_A_FRAME, LONG_STACK, LEFT_OVER = range(10, 19)
CONTAINS_ITSELF, NO_ROOM = range(19, 21)
"""Errors."""

MARKS_MAX = 64
STRING_MAX = 1 << 20
STACK_MAX = 4096
UNKNOWN = -1
"""Value of an optional field that is not there."""
SIZE_MAX = 1 << 50
STREAM_MAX = 10**18
TIME_MAX = 1 << 53
BLOCK_ADDRESS, BLOCK_SIZE, BLOCK_REQUESTED, BLOCK_STATE, BLOCK_STACK = range(5)
SEG_DEVICE, SEG_ADDRESS, SEG_TOTAL, SEG_ALLOCATED, SEG_ACTIVE, SEG_REQUESTED, SEG_STREAM, SEG_TYPE = range(8)
SEG_POOL, SEG_EXPANDABLE, SEG_BLOCKS, SEG_STACK = range(8, 12)
NOTE_STAGE, NOTE_NAME, NOTE_DEVICE, NOTE_TIME = range(4)


class Tables(NamedTuple):
    """Memory of the interpreter. `STATE` counts the rows of each table."""

    state: Ints
    marks: Ints
    stack: Ints
    stack_kinds: Bytes
    memo: Ints
    memo_kinds: Bytes
    node_types: Bytes
    node_inside: Bytes  # whether another container contains it
    node_rows: ShortInts  # its row or first chunk
    node_lasts: ShortInts  # its last chunk
    cells: Ints
    cell_kinds: Bytes
    chunks: ShortInts  # (first cell, number of cells, next chunk)
    text: Bytes
    text_ends: Ints
    text_hashes: Ints
    text_slots: ShortInts
    entry_actions: ShortInts
    entry_stacks: ShortInts
    entry_addresses: Ints
    entry_sizes: Ints
    entry_streams: Ints
    entry_times: Ints
    frames: Ints  # (file, function, line)
    frame_hashes: Ints
    frame_slots: ShortInts
    stack_frames: ShortInts
    stack_ends: Ints
    stack_hashes: Ints
    stack_slots: ShortInts
    blocks: Ints
    segments: Ints
    annotations: Ints

"""Strict reader of a pickle, piece by piece: it builds plain data in tables, and can neither call nor import anything.

The standard library's unpickler runs code that the file names. This reader has no opcode that could.
"""

from collections.abc import Iterable
from pickletools import opcodes as _described
from typing import NamedTuple

import numpy as np

from service.formats.memory_snapshot import layout
from service.formats.memory_snapshot.interpreter import ARGUMENT_SIZES, run
from service.formats.memory_snapshot.layout import WORDS, Tables
from service.formats.memory_snapshot.records import intern_string, rehash
from service.trace.errors import IngestError, Truncated

_PIECE = 1 << 18
_PADDING = 16
_NAMES = {ord(opcode.code): opcode.name for opcode in _described}
_CAN_CALL = frozenset(
    {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
    | {"PERSID", "BINPERSID"}
)
_RECORDS = {
    layout.ENTRY: "an entry of a trace",
    layout.FRAME: "a frame",
    layout.BLOCK: "a block",
    layout.SEGMENT: "a segment",
    layout.ANNOTATION: "an annotation",
}
_MESSAGES = {
    layout.EMPTY_STACK: "takes more values than there are",
    layout.NO_MARK: "has no MARK before it",
    layout.TOO_DEEP: f"opens more than {layout.MARKS_MAX} levels",
    layout.BAD_MEMO: "names a place of the memo that is not filled",
    layout.LONG_INTEGER: "is an integer of more than 64 bits",
    layout.LONG_STRING: f"is a string of more than {layout.STRING_MAX} bytes",
    layout.NOT_A_LIST: "appends to a value that is not a list",
    layout.NOT_A_DICT: "sets an item of a value that is not a dictionary",
    layout.CHANGED: "changes a container that was already complete",
    layout.BAD_KEY: "sets a key that is neither a string nor an integer",
    layout.ODD_ITEMS: "sets a key without a value",
    layout.NOT_A_FRAME: "completes a stack that has something other than frames",
    layout.LONG_STACK: f"completes a stack of more than {layout.STACK_MAX} frames",
    layout.LEFT_OVER: "comes before all values are in one container",
    layout.CONTAINS_ITSELF: "puts a container into itself",
}


class _Growth(NamedTuple):
    """Growth of a table: its arrays, the states that count its rows, and the largest number of rows."""

    arrays: tuple[str, ...]
    counts: tuple[int, ...]
    rows_max: int
    of: str


_GROWTHS = (
    _Growth(("stack", "stack_kinds"), (layout.DEPTH,), 1 << 24, "values"),
    _Growth(("memo", "memo_kinds"), (layout.MEMO,), 1 << 24, "values in the memo"),
    _Growth(("node_types", "node_inside", "node_rows", "node_lasts"), (layout.NODES,), 1 << 24, "containers"),
    _Growth(("cells", "cell_kinds"), (layout.CELLS, layout.DEPTH), 1 << 24, "items of containers"),
    _Growth(("chunks",), (layout.CHUNKS,), 1 << 24, "pieces of containers"),
    _Growth(("text",), (layout.STRING_BYTES,), 1 << 27, "bytes of distinct strings"),
    _Growth(("text_ends", "text_hashes"), (layout.STRINGS,), 1 << 22, "distinct strings"),
    _Growth(("entry_actions", "entry_stacks", "entry_addresses", "entry_sizes", "entry_streams", "entry_times"), (layout.ENTRY_ROWS,), 12_000_000, "entries of traces"),
    _Growth(("frames", "frame_hashes"), (layout.FRAME_ROWS,), 1 << 22, "distinct frames"),
    _Growth(("stack_frames",), (layout.STACK_FRAMES,), 1 << 24, "frames in distinct stacks"),
    _Growth(("stack_ends", "stack_hashes"), (layout.STACK_ROWS,), 1 << 22, "distinct stacks"),
    _Growth(("blocks",), (layout.BLOCK_ROWS,), 1 << 23, "blocks"),
    _Growth(("segments",), (layout.SEGMENT_ROWS,), 1 << 20, "segments"),
    _Growth(("annotations",), (layout.ANNOTATION_ROWS,), 1 << 20, "annotations"),
)
_LEAST = 5  # bytes of the shortest opcodes that add a row of a table other than the first five
_SLOTS = (
    ("text_slots", "text_hashes", layout.STRINGS),
    ("frame_slots", "frame_hashes", layout.FRAME_ROWS),
    ("stack_slots", "stack_hashes", layout.STACK_ROWS),
)


def new_tables() -> Tables:
    """Allocate tables whose strings begin with `WORDS`."""
    longs = {"state": layout.STATE_SIZE, "marks": layout.MARKS_MAX}
    widths = {"frames": 3, "blocks": 5, "segments": 12, "annotations": 4, "chunks": 3}
    bytes_ = {"stack_kinds", "memo_kinds", "node_types", "node_inside", "cell_kinds", "text"}
    shorts = {"node_rows", "node_lasts", "chunks", "text_slots", "entry_actions", "entry_stacks", "frame_slots"}
    shorts |= {"stack_frames", "stack_slots"}
    arrays = []
    for name in Tables._fields:
        rows = longs.get(name, 1 << 10)
        shape = (rows, widths[name]) if name in widths else (rows,)
        arrays.append(np.zeros(shape, np.uint8 if name in bytes_ else np.int32 if name in shorts else np.int64))
    tables = Tables(*arrays)
    for slots in (tables.text_slots, tables.frame_slots, tables.stack_slots):
        slots[:] = -1
    for word in WORDS:
        intern_string(np.frombuffer(word.encode(), np.uint8), 0, len(word), tables)
    return tables


class Unpickler:
    """Reader of one pickle.

    Attributes:
        tables: what was read so far; `layout` describes them.
        offset: number of bytes that were read.
        stopped: whether the end of the pickle was read.
    """

    def __init__(self) -> None:
        self.tables = new_tables()
        self.offset = 0
        self._rest = b""
        self._values = np.zeros(len(WORDS), np.int64)

    @property
    def stopped(self) -> bool:
        """True once the opcode STOP was read."""
        return bool(self.tables.state[layout.STOPPED])

    @property
    def entries(self) -> int:
        """Number of entries of traces so far."""
        return int(self.tables.state[layout.ENTRY_ROWS])

    def read(self, piece: bytes) -> bytes:
        """Read the next bytes; return those after the end of the pickle.

        Raises:
            IngestError: the pickle has a forbidden opcode, is malformed, or too large; ``offset`` is the opcode's.
        """
        data = np.frombuffer(self._rest + piece, np.uint8)
        state, at = self.tables.state, 0
        while True:
            self._make_room(len(data) - at)
            at += run(data[at:], len(data) - at, ARGUMENT_SIZES, self._values, self.tables)
            if state[layout.ERROR] != layout.NO_ROOM:
                break
            state[layout.ERROR] = layout.OK  # the opcode is repeated
        self.offset += at
        self._rest = data[at:].tobytes()
        if state[layout.ERROR]:
            raise self._error(self._rest[0])
        if self.stopped:
            rest, self._rest = self._rest, b""
            return rest
        return b""

    def finish(self) -> None:
        """Raise `Truncated` unless the pickle has ended."""
        if not self.stopped:
            end = self.offset + len(self._rest)
            raise Truncated(
                f"The pickle ends at byte {end}, before its end: after {self.entries} entries of traces.", offset=end
            )

    def string(self, number: int) -> str:
        """Return a string; invalid UTF-8 is replaced."""
        ends = self.tables.text_ends
        start = int(ends[number - 1]) if number else 0
        return self.tables.text[start : int(ends[number])].tobytes().decode("utf-8", "replace")

    def _make_room(self, more: int) -> None:
        """Enlarge all tables so that `more` bytes of opcodes can't fill them."""
        state = self.tables.state
        for growth in _GROWTHS:
            rows = sum(int(state[count]) for count in growth.counts)
            if rows > growth.rows_max:
                raise IngestError(
                    f"The snapshot has more than {growth.rows_max} {growth.of} before byte {self.offset}.",
                    offset=self.offset,
                    limit=growth.rows_max,
                )
            needed = rows + more + layout.STACK_MAX
            for name in growth.arrays:
                array = getattr(self.tables, name)
                if len(array) < needed:
                    array.resize((needed + needed // 4, *array.shape[1:]), refcheck=False)
        for slots_name, hashes, count in _SLOTS:
            slots, needed = getattr(self.tables, slots_name), 2 * (int(state[count]) + more // _LEAST + 1)
            if len(slots) < needed:
                slots.resize(1 << needed.bit_length(), refcheck=False)
                rehash(getattr(self.tables, hashes), int(state[count]), slots)

    def _error(self, opcode: int) -> IngestError:
        state, at = self.tables.state, self.offset
        name = _NAMES.get(opcode)
        error, record, key = (int(state[place]) for place in (layout.ERROR, layout.ERROR_OF, layout.ERROR_KEY))
        if error == layout.FORBIDDEN and name is None:
            detail = f"Byte {at} of the file, 0x{opcode:02x}, is not an opcode of pickles."
        elif error == layout.FORBIDDEN:
            reason = "can call or import code" if name in _CAN_CALL else "no memory snapshot has"
            detail = f"The pickle has the opcode {name} at byte {at}, which {reason}: the file is not read."
        elif error == layout.TWICE:
            detail = f"The dictionary that is complete at byte {at} has the key `{WORDS[key]}` twice."
        elif error == layout.BAD_FIELD:
            detail = f"The field `{WORDS[key]}` of {_RECORDS[record]}, complete at byte {at}, has a wrong type or value."
        elif error == layout.MISSING:
            detail = f"The field `{WORDS[key]}` of {_RECORDS[record]}, complete at byte {at}, is missing."
        else:
            detail = f"The opcode {name} at byte {at} of the pickle {_MESSAGES[error]}."
        return IngestError(detail, offset=at)


def unpickled(chunks: Iterable[bytes]) -> tuple[Unpickler, bytes]:
    """Read a whole pickle; return the reader, and the first bytes after the pickle's end, if there are any.

    Raises:
        IngestError: see `Unpickler.read` and `Unpickler.finish`.
    """
    reader, pieces, size = Unpickler(), list[bytes](), 0
    rest = b""
    for chunk in chunks:
        if reader.stopped:
            rest = rest or chunk.strip(b"\0")[:_PADDING]
            continue
        pieces.append(chunk)
        size += len(chunk)
        if size >= _PIECE:
            rest = reader.read(b"".join(pieces)).strip(b"\0")[:_PADDING]
            pieces, size = [], 0
    if not reader.stopped:
        rest = reader.read(b"".join(pieces)).strip(b"\0")[:_PADDING]
    reader.finish()
    return reader, rest

"""Strict reader of a pickle, piece by piece: it builds plain data in tables, and can neither call nor import anything.

The standard library's unpickler runs code that the file names. This reader has no opcode that could.
"""

from collections.abc import Iterable
from pickletools import opcodes as _described

import numpy as np

from service.formats.memory_snapshot import layout
from service.formats.memory_snapshot.interpreter import ARGUMENT_SIZES, run
from service.formats.memory_snapshot.layout import WORDS, Tables
from service.formats.memory_snapshot.memory import Memory
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


class Unpickler:
    """Reader of one pickle.

    Attributes:
        offset: number of bytes that were read.
        stopped: whether the end of the pickle was read.
    """

    def __init__(self) -> None:
        self._memory = Memory()
        self.offset = 0
        self._rest = b""
        self._values = np.zeros(len(WORDS), np.int64)

    @property
    def tables(self) -> Tables:
        """The tables, which move when the next bytes are read."""
        return self._memory.tables

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
        state, at = self._memory.state, 0
        while True:
            self._memory.make_room(len(data) - at, self.offset + at)
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

    def _error(self, opcode: int) -> IngestError:
        state, at = self.tables.state, self.offset
        name = _NAMES.get(opcode)
        error, record, key = (int(state[place]) for place in (layout.ERROR, layout.ERROR_OF, layout.ERROR_KEY))
        if error == layout.FORBIDDEN and name is None:
            detail = f"Byte {at} of the pickle, 0x{opcode:02x}, is not an opcode of pickles."
        elif error == layout.FORBIDDEN:
            reason = "can call or import code" if name in _CAN_CALL else "no memory snapshot has"
            detail = f"The pickle has the opcode {name} at byte {at}, which {reason}: the file is not read."
        elif error == layout.TWICE:
            detail = f"The dictionary that is complete at byte {at} has the key `{WORDS[key]}` twice."
        elif error == layout.BAD_FIELD:
            detail = (
                f"The field `{WORDS[key]}` of {_RECORDS[record]}, complete at byte {at}, has a wrong type or value."
            )
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

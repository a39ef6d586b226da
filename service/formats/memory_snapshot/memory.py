"""Memory of the tables of a pickle: it grows without a copy, and returns to the system as soon as it is unused."""

import mmap
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.formats.memory_snapshot import layout
from service.formats.memory_snapshot.containers import intern_string, rehash
from service.formats.memory_snapshot.layout import WORDS, Ints, Tables
from service.trace.errors import IngestError

_FIRST = 1 << 13  # rows
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_LEAST = 2  # bytes of the shortest opcode that adds a distinct string, frame or stack


class _Growth(NamedTuple):
    """Growth of tables: their names, the states that count their rows, and the largest number of rows."""

    arrays: tuple[str, ...]
    counts: tuple[int, ...]
    rows_max: int
    of: str


_ENTRIES = ("entry_actions", "entry_stacks", "entry_addresses", "entry_sizes", "entry_streams", "entry_times")
_GROWTHS = (
    _Growth(("stack", "stack_kinds"), (layout.DEPTH,), 1 << 24, "values"),
    _Growth(("memo", "memo_kinds"), (layout.MEMO,), 1 << 24, "values in the memo"),
    _Growth(("node_types", "node_inside", "node_rows", "node_lasts"), (layout.NODES,), 1 << 24, "containers"),
    _Growth(("cells", "cell_kinds"), (layout.CELLS, layout.DEPTH), 1 << 24, "items of containers"),
    _Growth(("chunks",), (layout.CHUNKS,), 1 << 24, "pieces of containers"),
    _Growth(("text",), (layout.STRING_BYTES,), 1 << 27, "bytes of distinct strings"),
    _Growth(("text_ends", "text_hashes"), (layout.STRINGS,), 1 << 22, "distinct strings"),
    _Growth(_ENTRIES, (layout.ENTRY_ROWS,), 12_000_000, "entries of traces"),
    _Growth(("frames", "frame_hashes"), (layout.FRAME_ROWS,), 1 << 22, "distinct frames"),
    _Growth(("stack_frames",), (layout.STACK_FRAMES,), 1 << 24, "frames in distinct stacks"),
    _Growth(("stack_ends", "stack_hashes"), (layout.STACK_ROWS,), 1 << 22, "distinct stacks"),
    _Growth(("blocks",), (layout.BLOCK_ROWS,), 1 << 23, "blocks"),
    _Growth(("segments",), (layout.SEGMENT_ROWS,), 1 << 20, "segments"),
    _Growth(("annotations",), (layout.ANNOTATION_ROWS,), 1 << 20, "annotations"),
)
_SLOTS = (
    ("text_slots", "text_hashes", layout.STRINGS),
    ("frame_slots", "frame_hashes", layout.FRAME_ROWS),
    ("stack_slots", "stack_hashes", layout.STACK_ROWS),
)
_WIDTHS = {"frames": 3, "blocks": 5, "segments": 12, "annotations": 4, "chunks": 3}
_BYTES = {"stack_kinds", "memo_kinds", "node_types", "node_inside", "cell_kinds", "text"}
_SHORTS = {"node_rows", "node_lasts", "chunks", "text_slots", "entry_actions", "entry_stacks", "frame_slots"}
_SHORTS |= {"stack_frames", "stack_slots"}
_FIXED = {"state": layout.STATE_SIZE, "marks": layout.MARKS_MAX}


class Memory:
    """Tables of a pickle, whose strings begin with `WORDS`.

    Attributes:
        tables: the tables; `make_room` may replace them.
        state: the numbers of their rows, which is never replaced.
    """

    def __init__(self) -> None:
        self._maps: dict[str, mmap.mmap] = {}
        self.state: Ints = np.zeros(layout.STATE_SIZE, np.int64)
        self._marks: Ints = np.zeros(layout.MARKS_MAX, np.int64)
        for name in Tables._fields:
            if name not in _FIXED:
                self._maps[name] = mmap.mmap(-1, _FIRST * _row_size(name), flags=_PRIVATE)
        self.tables = self._views()
        for slots, _, _ in _SLOTS:
            getattr(self.tables, slots)[:] = -1
        for word in WORDS:
            intern_string(np.frombuffer(word.encode(), np.uint8), 0, len(word), self.tables)

    def make_room(self, more: int, offset: int) -> None:
        """Enlarge the tables so that `more` bytes of opcodes can't fill them, except for the frames of stacks.

        Raises:
            IngestError: a table has too many rows; `offset` is the offset in the pickle.
        """
        sizes: dict[str, int] = {}
        for growth in _GROWTHS:
            rows = sum(int(self.state[count]) for count in growth.counts)
            if rows > growth.rows_max:
                raise IngestError(
                    f"The snapshot has more than {growth.rows_max} {growth.of} before byte {offset}.",
                    offset=offset,
                    limit=growth.rows_max,
                )
            needed = rows + more + layout.STACK_MAX
            sizes |= {name: needed + needed // 2 for name in growth.arrays if len(getattr(self.tables, name)) < needed}
        for slots, _, count in _SLOTS:
            needed = 2 * (int(self.state[count]) + more // _LEAST + 1)
            if len(getattr(self.tables, slots)) < needed:
                sizes[slots] = 1 << needed.bit_length()
        if sizes:
            self._grow(sizes)

    def _grow(self, sizes: dict[str, int]) -> None:
        del self.tables  # maps with views can't be resized
        for name, rows in sizes.items():
            self._maps[name].resize(rows * _row_size(name))
        self.tables = self._views()
        for slots, hashes, count in _SLOTS:
            if slots in sizes:
                rehash(getattr(self.tables, hashes), int(self.state[count]), getattr(self.tables, slots))

    def _views(self) -> Tables:
        arrays: dict[str, npt.NDArray[Any]] = {"state": self.state, "marks": self._marks}
        for name, map_ in self._maps.items():
            view: npt.NDArray[Any] = np.frombuffer(map_, _type(name))
            arrays[name] = view.reshape(-1, _WIDTHS[name]) if name in _WIDTHS else view
        return Tables(**arrays)


def _type(name: str) -> type[np.generic]:
    return np.uint8 if name in _BYTES else np.int32 if name in _SHORTS else np.int64


def _row_size(name: str) -> int:
    return np.dtype(_type(name)).itemsize * _WIDTHS.get(name, 1)

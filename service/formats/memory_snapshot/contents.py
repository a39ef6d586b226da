"""Conversion of the tables of a pickle into the content of a memory snapshot."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from service.formats.memory_snapshot import layout
from service.formats.memory_snapshot.layout import Ints
from service.formats.memory_snapshot.opcodes import Unpickler
from service.formats.memory_snapshot.snapshot import (
    ACTIONS,
    FREE_COMPLETED,
    Annotation,
    Blocks,
    Segments,
    Snapshot,
    Trace,
    compact,
)
from service.streaming.integers import distinct
from service.trace.errors import IngestError, NotATrace

_SETTINGS_DEPTH = 8
_SETTINGS_ITEMS = 1000
_TEXT_MAX = 1000
_ACTIONS_MAX = 100


def contents_of(reader: Unpickler) -> Snapshot:
    """Return the content of a pickle that was read.

    Raises:
        NotATrace: the pickle is not a memory snapshot, or one without traces.
        IngestError: the pickle has values of other types than a snapshot.
    """
    return _Contents(reader).snapshot()


class _Contents:
    """Conversion of the tables of a pickle."""

    def __init__(self, reader: Unpickler) -> None:
        self._reader = reader
        self._tables = reader.tables

    def snapshot(self) -> Snapshot:
        root = self._root()
        traces, actions = self._traces(root.get("device_traces"))
        segments, blocks = self._segments(root.get("segments"))
        return Snapshot(
            traces,
            actions,
            segments,
            blocks,
            self._frames(),
            self._stacks(),
            {number: self._reader.string(number) for number in self._segment_types()},
            self._annotations(root.get("external_annotations")),
            self._settings(root.get("allocator_settings")),
        )

    def _root(self) -> dict[str, tuple[int, int]]:
        kind, node = int(self._tables.stack_kinds[0]), int(self._tables.stack[0])
        type_ = int(self._tables.node_types[node]) if kind == layout.NODE else -1
        if type_ in (layout.LIST, layout.STACK):
            raise NotATrace(
                "The pickle is a list, as the memory snapshots of PyTorch before 2.0 were: it has no trace of events."
                " Dump it with torch.cuda.memory._dump_snapshot of a later version."
            )
        root = self._members(node) if type_ == layout.DICT else {}
        if not {"segments", "device_traces"} & root.keys():
            raise NotATrace("The pickle is not a memory snapshot: it has neither `segments` nor `device_traces`.")
        return root

    def _members(self, node: int) -> dict[str, tuple[int, int]]:
        """Return the members of a dictionary, as kinds and values; raises `IngestError` if a key occurs twice."""
        kinds, values = self._items(node)
        members: dict[str, tuple[int, int]] = {}
        for at in range(0, len(values), 2):
            number = int(values[at])
            key = self._reader.string(number) if kinds[at] == layout.STRING else str(number)
            if key in members:
                raise IngestError(f"A dictionary of the snapshot has the key `{key[:100]}` twice.")
            members[key] = int(kinds[at + 1]), int(values[at + 1])
        return members

    def _items(self, node: int) -> tuple[npt.NDArray[np.uint8], Ints]:
        """Return the kinds and values of the items of a container."""
        tables, chunk = self._tables, int(self._tables.node_rows[node])
        ranges: list[list[int]] = []
        while chunk >= 0:
            first, count, chunk = tables.chunks[chunk].tolist()
            if ranges and ranges[-1][1] == first:
                ranges[-1][1] = first + count
            else:
                ranges.append([first, first + count])
        parts = [slice(*bounds) for bounds in ranges] or [slice(0, 0)]
        if len(parts) == 1:
            return tables.cell_kinds[parts[0]], tables.cells[parts[0]]
        return tuple(np.concatenate([cells[part] for part in parts]) for cells in (tables.cell_kinds, tables.cells))  # type: ignore[return-value]

    def _rows(self, value: tuple[int, int], type_: int, what: str) -> Ints:
        """Return the rows of a list's items, which must be of one type."""
        kind, node = value
        if kind != layout.NODE or self._tables.node_types[node] not in (layout.LIST, layout.STACK):
            raise IngestError(f"{what} of the snapshot are not a list.")
        if self._tables.node_types[node] == layout.STACK:
            return np.zeros(0, np.int64)
        kinds, nodes = self._items(node)
        if (kinds != layout.NODE).any() or (self._tables.node_types[nodes] != type_).any():
            raise IngestError(f"{what} of the snapshot have items of other types.")
        rows = nodes if type_ == layout.LIST else self._tables.node_rows[nodes].astype(np.int64)
        if (np.diff(rows) <= 0).any():
            raise IngestError(f"{what} of the snapshot have an item twice.")
        return rows

    def _traces(self, value: tuple[int, int] | None) -> tuple[list[Trace], list[str]]:
        if value is None:
            return [], [*ACTIONS]
        tables, traces, count = self._tables, [], 0
        actions, codes = self._action_codes()
        for device, node in enumerate(self._rows(value, layout.LIST, "The traces of devices").tolist()):
            rows = self._rows((layout.NODE, node), layout.ENTRY, f"The entries of device {device}")
            if len(rows) and rows[0] < count:
                raise IngestError("An entry is in the traces of two devices of the snapshot.")
            count = int(rows[-1]) + 1 if len(rows) else count
            consecutive = len(rows) and rows[-1] - rows[0] == len(rows) - 1
            chosen: Any = slice(int(rows[0]), count) if consecutive else rows
            traces.append(
                Trace(
                    device,
                    codes[chosen],
                    tables.entry_addresses[chosen],
                    tables.entry_sizes[chosen],
                    compact(tables.entry_streams[chosen]),
                    tables.entry_times[chosen],
                    tables.entry_stacks[chosen],
                )
            )
        return traces, actions

    def _action_codes(self) -> tuple[list[str], npt.NDArray[np.uint8]]:
        """Return the names of the actions, and the code of each entry's action."""
        strings = self._tables.entry_actions[: self._reader.entries]
        used = distinct(strings).tolist()
        if len(used) > _ACTIONS_MAX:
            raise IngestError(f"The entries of the snapshot have more than {_ACTIONS_MAX} different actions.")
        names = [self._reader.string(number) for number in used]
        actions = [*ACTIONS, *(name for name in names if name not in {*ACTIONS, "free"})]
        of_string = np.zeros(max(used, default=0) + 1, np.uint8)
        for number, name in zip(used, names, strict=True):
            of_string[number] = FREE_COMPLETED if name == "free" else actions.index(name)
        return actions, of_string[strings]

    def _segments(self, value: tuple[int, int] | None) -> tuple[Segments, Blocks]:
        tables = self._tables
        rows = self._rows(value, layout.SEGMENT, "The segments") if value else np.zeros(0, np.int64)
        segments = tables.segments[rows]
        of_segments = [
            self._rows((layout.NODE, node), layout.BLOCK, "The blocks of a segment")
            for node in segments[:, layout.SEG_BLOCKS].tolist()
        ]
        ends = np.cumsum([0, *map(len, of_segments)])
        of_all = np.concatenate([np.zeros(0, np.int64), *of_segments])
        if len(distinct(of_all)) < len(of_all):
            raise IngestError("A block is in two segments of the snapshot.")
        blocks = tables.blocks[of_all]
        sizes, requested = blocks[:, layout.BLOCK_SIZE], blocks[:, layout.BLOCK_REQUESTED]
        numbers = np.repeat(np.arange(len(rows)), np.diff(ends))
        before = np.cumsum(sizes) - sizes
        computed = segments[numbers, layout.SEG_ADDRESS] + before - before[np.minimum(ends[numbers], len(before) - 1)]
        addresses = np.where(blocks[:, layout.BLOCK_ADDRESS] != 0, blocks[:, layout.BLOCK_ADDRESS], computed)
        states = {number: self._reader.string(number) for number in np.unique(blocks[:, layout.BLOCK_STATE]).tolist()}
        active, pending = (
            np.isin(blocks[:, layout.BLOCK_STATE], [number for number, name in states.items() if name in names])
            for names in (
                ("active_allocated", "active_pending_free", "active_awaiting_free"),
                ("active_pending_free", "active_awaiting_free"),
            )
        )
        return Segments(segments, ends[:-1], ends[1:]), Blocks(
            numbers,
            addresses,
            sizes,
            np.where(requested < 0, sizes, requested),
            active,
            pending,
            blocks[:, layout.BLOCK_STACK],
        )

    def _segment_types(self) -> list[int]:
        rows = self._tables.segments[: self._tables.state[layout.SEGMENT_ROWS], layout.SEG_TYPE]
        return [number for number in np.unique(rows).tolist() if number >= 0]

    def _frames(self) -> list[tuple[str, str, int]]:
        string = self._reader.string
        rows = self._tables.frames[: self._tables.state[layout.FRAME_ROWS]].tolist()
        return [(string(name), string(file), line) for file, name, line in rows]

    def _stacks(self) -> list[list[int]]:
        ends = self._tables.stack_ends[: self._tables.state[layout.STACK_ROWS]].tolist()
        starts = [0, *ends[:-1]] if ends else []
        frames = self._tables.stack_frames
        return [frames[start:end].tolist() for start, end in zip(starts, ends, strict=True)]

    def _annotations(self, value: tuple[int, int] | None) -> list[Annotation]:
        if value is None:
            return []
        rows = self._tables.annotations[self._rows(value, layout.ANNOTATION, "The annotations")].tolist()
        string = self._reader.string
        return [
            Annotation(string(stage) == "START", string(name), max(device, 0), time)
            for stage, name, device, time in rows
        ]

    def _settings(self, value: tuple[int, int] | None) -> Mapping[str, Any]:
        settings = self._plain(value, _SETTINGS_DEPTH, [_SETTINGS_ITEMS]) if value else {}
        return settings if isinstance(settings, dict) else {}

    def _plain(self, of: tuple[int, int], depth: int, left: list[int]) -> Any:
        """Return a value of the pickle as a JSON value; at most `left` items of containers are converted."""
        kind, value = of
        left[0] -= 1
        if kind == layout.STRING:
            return self._reader.string(value)[:_TEXT_MAX]
        if kind in (layout.BOOL, layout.INT):
            return bool(value) if kind == layout.BOOL else value
        if kind != layout.NODE or depth == 0 or left[0] < 0:
            return None
        if self._tables.node_types[value] == layout.DICT:
            members = [*self._members(value).items()][: left[0]]
            return {key[:_TEXT_MAX]: self._plain(member, depth - 1, left) for key, member in members}
        if self._tables.node_types[value] >= layout.ENTRY:
            return None
        items = [part[: left[0]].tolist() for part in self._items(value)]
        return [self._plain(item, depth - 1, left) for item in zip(*items, strict=True)]

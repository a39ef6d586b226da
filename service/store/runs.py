"""Sorted runs of events: an external merge sort.

Runs are spilled to disk. At the end, all runs are merged, one interval of time (a slab) after the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from service.store.folder import disk_errors
from service.store.packed_events import PackedEvents, joined
from service.streaming.schema import SCHEMA, UNTIMED_LAST

_BATCH_ROWS = 1 << 14  # rows of a run that are read at a time, unless these take more bytes
_BATCH_BYTES = 1 << 23
_SLAB_ROWS = 1 << 16
_TEXTS = ("args", "rest")
_TEXTS_SPILL = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_OTHERS_SPILL = pa.ipc.IpcWriteOptions(use_threads=False)  # compression would halve them, and take thrice the time


class Run:
    """Sorted events, in memory or in files at `path`.

    `first` is the time of the first event, and `fences` are the times of the last event of each full batch.

    Args:
        batches: the events.
        path: path of the files to write, without a suffix; None keeps the events in memory.

    Raises:
        DiskFull: the disk has no room.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], path: Path | None = None) -> None:
        events = PackedEvents.sorted(pa.Table.from_batches(batches, SCHEMA))
        self.first = int(events.times[0]) if len(events) else UNTIMED_LAST
        batch_rows = max(1, min(_BATCH_ROWS, len(events) * _BATCH_BYTES // max(events.batch.nbytes, 1)))
        self.fences = events.times[batch_rows - 1 :: batch_rows].copy()  # a view would keep all times
        self._head: PackedEvents | None = None
        self._batches = iter([events]) if path is None else _spilled(events, path, batch_rows)

    def before(self, time: int | None) -> list[PackedEvents]:
        """Remove the events before a time from the run, or all if the time is None, and return them."""
        pieces: list[PackedEvents] = []
        while (events := self._next()) is not None:
            size = len(events) if time is None else int(np.searchsorted(events.times, time))
            if size:
                pieces.append(events.part(0, size))
            if size < len(events):
                self._head = events.part(size, len(events))
                break
        return pieces

    def _next(self) -> PackedEvents | None:
        if self._head is not None:
            head, self._head = self._head, None
            return head
        return next(self._batches, None)


def _spilled(events: PackedEvents, path: Path, batch_rows: int) -> Iterator[PackedEvents]:
    """Write events to a file, and their texts to one next to it; return an iterator that reads both."""
    timed = int(np.searchsorted(events.times, UNTIMED_LAST))  # a batch with others would be in memory to the very end
    parts = [events.part(0, timed), events.part(timed, len(events))]
    names, paths = events.batch.schema.names, []
    for suffix, columns, options in (
        (".texts", [name for name in names if name in _TEXTS], _TEXTS_SPILL),
        (".others", [name for name in names if name not in _TEXTS], _OTHERS_SPILL),
    ):
        if columns:  # events may have no texts
            paths.append(path.with_suffix(suffix))
            table = pa.Table.from_batches([part.batch.select(columns) for part in parts])
            _write(paths[-1], table, batch_rows, options)
    return _read(paths, events.least)


def _write(path: Path, table: pa.Table, rows: int, options: pa.ipc.IpcWriteOptions) -> None:
    with disk_errors(), pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(
        file, table.schema, options=options
    ) as stream:  # fmt: skip
        stream.write_table(table, max_chunksize=rows)


def _read(paths: Sequence[Path], least: Mapping[str, int]) -> Iterator[PackedEvents]:
    with ExitStack() as files:
        first, *others = [pa.ipc.open_stream(files.enter_context(pa.OSFile(str(path)))) for path in paths]
        for path in paths:
            path.unlink()  # their room is free again as soon as all is read
        for batch in first:  # zip would keep the batches before these, too
            batches = [batch, *(stream.read_next_batch() for stream in others)]
            columns = {name: column for part in batches for name, column in zip(part.schema.names, part, strict=True)}
            yield PackedEvents.read(pa.RecordBatch.from_pydict(columns), least)


def merged(runs: Sequence[Run]) -> Iterator[pa.Table]:
    """Yield the events of all runs in order of time, in slabs of at most about `_SLAB_ROWS`.

    Their columns have one chunk each.
    """
    fences = np.sort(np.concatenate([run.fences for run in runs]))
    crowded = {int(time) for time in fences[1:][fences[1:] == fences[:-1]]}
    step = _SLAB_ROWS // _BATCH_ROWS
    for cut in sorted({*fences[step - 1 :: step].tolist(), *crowded, UNTIMED_LAST}):
        if pieces := [piece for run in runs if run.first < cut for piece in run.before(cut)]:
            yield from joined(pieces)
        if cut in crowded or cut == UNTIMED_LAST:  # memory may not hold all events of one time
            yield from _one_by_one(runs, cut + 1 if cut < UNTIMED_LAST else None)


def _one_by_one(runs: Sequence[Run], before: int | None) -> Iterator[pa.Table]:
    """Yield the events of all runs before a time, run by run, since all of them have the same time."""
    pieces: list[PackedEvents] = []
    for run in runs:
        pieces += run.before(before) if before is None or run.first < before else []
        if sum(map(len, pieces)) >= _SLAB_ROWS or (pieces and run is runs[-1]):
            yield from joined(pieces)
            pieces = []

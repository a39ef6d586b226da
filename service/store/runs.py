"""Sorted runs of events: an external merge sort.

Runs are spilled to disk with compression. At the end, all runs are merged, one interval of time (a slab) after the
other.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from service.store.folder import disk_errors
from service.store.packed_events import PackedEvents, joined
from service.streaming.schema import SCHEMA, UNTIMED_LAST

_BATCH_ROWS = 1 << 14  # rows of a run that are read at a time, unless these take more bytes
_BATCH_BYTES = 1 << 23
_SLAB_ROWS = 1 << 16
_SPILL = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Run:
    """Sorted events, in memory or in the file at `path`.

    `first` is the time of the first event, and `fences` are the times of the last event of each full batch.

    Args:
        batches: the events.
        path: the file to write; None keeps the events in memory.

    Raises:
        DiskFull: the disk has no room.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], path: Path | None = None) -> None:
        events = PackedEvents.sorted(pa.Table.from_batches(batches, SCHEMA))
        self.first = int(events.times[0]) if len(events) else UNTIMED_LAST
        batch_rows = max(1, min(_BATCH_ROWS, len(events) * _BATCH_BYTES // max(events.batch.nbytes, 1)))
        self.fences = events.times[batch_rows - 1 :: batch_rows].copy()  # a view would keep all times
        self._head: PackedEvents | None = None
        if path is None:
            self._batches = iter([events])
            return
        table = pa.Table.from_batches([events.batch])
        with disk_errors(), pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(
            file, table.schema, options=_SPILL
        ) as stream:  # fmt: skip
            stream.write_table(table, max_chunksize=batch_rows)
        self._batches = _read(path, events.least)

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


def _read(path: Path, least: Mapping[str, int]) -> Iterator[PackedEvents]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield PackedEvents.read(batch, least)


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

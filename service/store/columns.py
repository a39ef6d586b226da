"""Writer of a trace's events as columns: one Parquet file, sorted by time.

This is an external merge sort. Batches arrive in the order of the file, and are sorted into runs, which are spilled to
disk with compression. At the end, all runs are merged, one interval of time (a slab) after the other.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.store import flow_ids, text_sizes, work_tracks
from service.store.flow_ids import FlowIds, flow_ids_of
from service.store.folder import COLUMNS_VERSION, EVENTS, disk_errors
from service.store.text_sizes import TextSizes, text_sizes_of
from service.store.work_tracks import WorkTracks
from service.streaming.ahead import read_ahead
from service.streaming.integers import ints
from service.streaming.schema import SCHEMA
from service.streaming.unused_memory import UnusedMemory

ROW_GROUP = 1 << 15
RUN_ROWS = 1 << 17
_BATCH_ROWS = 1 << 14  # rows of a run that are read at a time
_SLAB_ROWS = 1 << 16
_RUNS_AHEAD = 2  # runs that may be sorted while more batches arrive
_WRITES_AHEAD = 2  # slabs that may wait to be written
_UNTIMED = np.iinfo(np.int64).max  # events without a time sort last

_ENCODINGS = {  # measured: the smallest for each column, and no slower than others
    **dict.fromkeys(("ts_ns", "correlation", "external_id", "bytes"), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(("position", "dur_ns", "id"), "BYTE_STREAM_SPLIT"),
    **dict.fromkeys(("args", "rest"), "DELTA_LENGTH_BYTE_ARRAY"),
}
WORDS = [name for name in SCHEMA.names if name not in {*_ENCODINGS, "verbatim"}]
"""Columns with dictionary encoding, which should be read as dictionaries."""
_PRUNED = [  # columns that queries filter by; statistics of all others would add a seventh to the write time
    *("position", "cat", "name", "pid", "pid_text", "tid", "tid_text", "ts_ns", "dur_ns", "id"),
    *("device", "stream", "correlation", "external_id", "bytes"),
]
_SPILL = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

MERGED = SCHEMA.append(pa.field("rank", pa.int64()))
"""The columns of a trace that was merged from ranks."""

Times = npt.NDArray[np.int64]


class ColumnsWriter:
    """A writer of `events.parquet` into an existing folder.

    Add every batch in the order of the file, then `finish`. Leaving the ``with`` block removes temporary files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spill = folder / "runs"
        self._threads = ThreadPoolExecutor(_RUNS_AHEAD, "columns")
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._position = 0
        self._runs: list[Future[_Run]] = []
        self._unused_memory = UnusedMemory()

    def __enter__(self) -> "ColumnsWriter":
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        shutil.rmtree(self._spill, ignore_errors=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next events; blocks while too many wait to be sorted."""
        position = pa.array(np.arange(self._position, self._position + len(batch)))
        self._position += len(batch)
        self._batches.append(batch.set_column(0, SCHEMA.field(0), position))
        self._rows += len(batch)
        if self._rows >= RUN_ROWS:
            self._end_run()

    def _end_run(self) -> None:
        if len(self._runs) >= _RUNS_AHEAD:
            self._runs[-_RUNS_AHEAD].result()
        with disk_errors():
            self._spill.mkdir(exist_ok=True)
        path = self._spill / f"{len(self._runs)}.arrow"
        self._runs.append(self._threads.submit(_spilled, self._batches, path))
        self._batches, self._rows = [], 0
        self._unused_memory.return_beyond_limit()

    def finish(self, on_slab: Callable[[pa.Table], object], ranks: Mapping[int, int] | None = None) -> int:
        """Write the file, and return its number of rows.

        Args:
            on_slab: called with each slab of events, in order of time; events of one time are in the order of the file.
            ranks: for a merged trace, the rank of each process by pid; they become the column ``rank``.
        """
        runs = [run.result() for run in self._runs]
        if self._batches or not runs:
            runs.append(_Run.sorted(self._batches))
            self._batches = []
        with disk_errors(), EventsFile(self._folder, MERGED if ranks else SCHEMA) as file:
            slabs = (with_ranks(events, ranks) if ranks else events for events in _merged(runs))
            with ThreadPoolExecutor(1, "file") as thread:
                writes: deque[Future[None]] = deque()
                for slab in read_ahead(slabs, "slabs"):
                    while len(writes) > _WRITES_AHEAD:
                        writes.popleft().result()
                    writes.append(thread.submit(file.encode, slab))
                    file.note(slab)
                    on_slab(slab)
                    self._unused_memory.return_beyond_limit()
                for write in writes:
                    write.result()
        return self._position


class EventsFile:
    """A new file `EVENTS` in `folder`, with the columns of `SCHEMA` and optional further ones.

    Write all events in order of time, then `close`; leaving the ``with`` block closes the file, too.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._flow_ids: list[FlowIds] = []
        self._work_tracks = WorkTracks()
        self._text_sizes = [TextSizes()]
        self._file = pq.ParquetWriter(
            folder / EVENTS,
            schema.with_metadata({"tracedock.columns": COLUMNS_VERSION}),
            compression="zstd",
            compression_level=1,
            use_dictionary=WORDS,
            column_encoding=_ENCODINGS,
            write_statistics=[*_PRUNED, *(name for name in schema.names if name not in SCHEMA.names)],
            write_page_index=True,
            write_batch_size=ROW_GROUP,
        )

    def __enter__(self) -> "EventsFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, events: pa.Table) -> None:
        """Write the next events, whose columns have one chunk each, as parts of at most `ROW_GROUP` events."""
        self.encode(events)
        self.note(events)

    def encode(self, events: pa.Table) -> None:
        """Write events alone; `note` takes the same events, perhaps in another thread."""
        self._file.write_table(events, row_group_size=ROW_GROUP)

    def note(self, events: pa.Table) -> None:
        """Note what the file's metadata says about events; see `encode`."""
        firsts = range(0, max(len(events), 1), ROW_GROUP)
        self._flow_ids += (flow_ids_of(events.slice(first, ROW_GROUP)) for first in firsts)
        self._work_tracks.add(events)
        self._text_sizes.append(text_sizes_of(events))

    def close(self) -> None:
        """Complete the file."""
        if self._file.is_open:
            texts = {
                flow_ids.METADATA_KEY: flow_ids.encoded(self._flow_ids),
                work_tracks.METADATA_KEY: self._work_tracks.encoded(),
                text_sizes.METADATA_KEY: text_sizes.encoded(self._text_sizes),
            }
            self._file.add_key_value_metadata(texts)
        self._file.close()


def with_ranks(events: pa.Table, ranks: Mapping[int, int]) -> pa.Table:
    """Return the events with a column ``rank``: the rank of the event's process, or null if it has none."""
    if not ranks:
        return events.append_column(MERGED.field("rank"), pa.nulls(len(events), pa.int64()))
    pids = np.array(sorted(ranks))
    values = np.array([ranks[pid] for pid in pids.tolist()])
    of_events = events["pid"].fill_null(_UNTIMED).to_numpy()
    at = np.minimum(np.searchsorted(pids, of_events), len(pids) - 1)
    return events.append_column(MERGED.field("rank"), pa.array(values[at], mask=pids[at] != of_events))


class _Run:
    """Sorted events, in memory or spilled to the file at `path`.

    `first` is the time of the first event, and `fences` are the times of the last event of each full batch.
    """

    def __init__(self, table: pa.Table, times: Times, path: Path | None = None) -> None:
        self.first = int(times[0]) if len(times) else _UNTIMED
        self.fences = times[_BATCH_ROWS - 1 :: _BATCH_ROWS].copy()  # a view would keep all times
        self._table = table
        self._path = path
        self._batches: Iterator[pa.Table] | None = None
        self._head: pa.Table | None = None

    @classmethod
    def sorted(cls, batches: list[pa.RecordBatch], path: Path | None = None) -> "_Run":
        """Sort batches into a run."""
        table, times = by_time(pa.Table.from_batches(batches, SCHEMA))
        return cls(table, times, path)

    def spill(self) -> None:
        """Move the events to disk."""
        with disk_errors(), pa.OSFile(str(self._path), "wb") as file, pa.ipc.new_stream(
            file, SCHEMA, options=_SPILL
        ) as stream:  # fmt: skip
            stream.write_table(self._table, max_chunksize=_BATCH_ROWS)
        self._table = SCHEMA.empty_table()

    def before(self, time: int | None) -> list[pa.Table]:
        """Remove the events before a time from the run, or all if the time is None, and return them."""
        pieces: list[pa.Table] = []
        while (table := self._next()) is not None:
            size = len(table) if time is None else int(np.searchsorted(ints(table["ts_ns"], _UNTIMED), time))
            if size:
                pieces.append(table.slice(0, size))
            if size < len(table):
                self._head = table.slice(size)
                break
        return pieces

    def _next(self) -> pa.Table | None:
        if self._head is not None:
            head, self._head = self._head, None
            return head
        if self._batches is None:
            self._batches = self._read()
        return next(self._batches, None)

    def _read(self) -> Iterator[pa.Table]:
        if not self._path:
            yield self._table
            return
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])


def _spilled(batches: list[pa.RecordBatch], path: Path) -> _Run:
    run = _Run.sorted(batches, path)
    run.spill()
    return run


def _merged(runs: list[_Run]) -> Iterator[pa.Table]:
    """Yield all events in order, in slabs of about `_SLAB_ROWS`."""
    fences = np.sort(np.concatenate([run.fences for run in runs]))
    crowded = {int(time) for time in fences[1:][fences[1:] == fences[:-1]]}
    step = _SLAB_ROWS // _BATCH_ROWS
    for cut in sorted({*fences[step - 1 :: step].tolist(), *crowded, _UNTIMED}):
        if pieces := [piece for run in runs if run.first < cut for piece in run.before(cut)]:
            yield by_time(pa.concat_tables(pieces))[0]
        if cut in crowded or cut == _UNTIMED:  # memory may not hold all events of one time
            yield from _one_by_one(runs, cut + 1 if cut < _UNTIMED else None)


def _one_by_one(runs: list[_Run], before: int | None) -> Iterator[pa.Table]:
    """Yield the events of all runs before a time, run by run and unsorted, since all of them have the same time."""
    pieces: list[pa.Table] = []
    for run in runs:
        pieces += run.before(before) if before is None or run.first < before else []
        if sum(map(len, pieces)) >= _SLAB_ROWS or (pieces and run is runs[-1]):
            yield pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
            pieces = []


def by_time(table: pa.Table) -> tuple[pa.Table, Times]:
    """Return the rows in one chunk, stably sorted by time, and their times; untimed events come last."""
    table = table.unify_dictionaries().combine_chunks()
    times = ints(table["ts_ns"], _UNTIMED)
    if (times[:-1] <= times[1:]).all():
        return table, times
    order = np.argsort(times, kind="stable")
    rows = pa.array(order)
    columns = [
        column if column.null_count == len(table) else pc.take(column, rows, boundscheck=False)
        for column in table.columns
    ]
    return pa.table(columns, table.schema), times[order]

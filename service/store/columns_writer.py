"""Writer of a trace's events as columns, by an external merge sort; see `service.store.runs`."""

import shutil
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from service.store.columns import MERGED, EventsFile, with_ranks
from service.store.event_classes import EventClasses
from service.store.event_notes import EventNotes
from service.store.folder import disk_errors
from service.store.parts import Part
from service.store.runs import Run, merged
from service.streaming.ahead import read_ahead
from service.streaming.open_files import allow_open_files
from service.streaming.schema import SCHEMA
from service.streaming.unused_memory import UnusedMemory

RUN_ROWS = 1 << 17
RUN_BYTES = 64 << 20  # of events before they are packed
_RUNS_AHEAD = 2  # runs that may be sorted while more batches arrive
_WRITES_AHEAD = 2  # slabs that may wait to be written
_FILES_OF_RUN = 2  # all of which are open if every run spans the whole time
_OTHER_FILES = 200
_NEEDED_LATER = 50_000_000  # bytes, once the file is written: those of links, beyond what the merge has freed


class ColumnsWriter:
    """A writer of `events.parquet` into an existing folder.

    Add every batch in the order of the file, then `finish`. Leaving the ``with`` block removes temporary files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spill = folder / "runs"
        self._threads = ThreadPoolExecutor(_RUNS_AHEAD, "columns")
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._position = 0
        self._runs: list[Future[Run]] = []
        self._notes = EventNotes()
        self._unused_memory = UnusedMemory()

    def __enter__(self) -> "ColumnsWriter":
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        shutil.rmtree(self._spill, ignore_errors=True)

    @property
    def classes(self) -> EventClasses:
        """The classes of the events, which become known when `finish` passes them on."""
        return self._notes.classes

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next events; blocks while too many wait to be sorted."""
        position = pa.array(np.arange(self._position, self._position + len(batch)))
        self._position += len(batch)
        self._batches.append(batch.set_column(0, SCHEMA.field(0), position))
        self._rows += len(batch)
        self._bytes += batch.nbytes
        if self._rows >= RUN_ROWS or self._bytes >= RUN_BYTES:
            self._end_run()

    def _end_run(self) -> None:
        if len(self._runs) >= _RUNS_AHEAD:
            self._runs[-_RUNS_AHEAD].result()
        with disk_errors():
            self._spill.mkdir(exist_ok=True)
        path = self._spill / str(len(self._runs))
        self._runs.append(self._threads.submit(Run, self._batches, path))
        self._batches, self._rows, self._bytes = [], 0, 0
        self._unused_memory.return_beyond_limit()

    def finish(
        self,
        on_slab: Callable[[Part], object],
        ranks: Mapping[int, int] | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> int:
        """Write the file, and return its number of rows.

        Args:
            on_slab: called with each slab of events, in order of time; events of one time are in the order of the file.
            ranks: for a merged trace, the rank of each process by pid; they become the column ``rank``.
            on_end: called after the last slab, while the file is completed.
        """
        allow_open_files(_FILES_OF_RUN * len(self._runs) + _OTHER_FILES)
        runs = [run.result() for run in self._runs]
        if self._batches or not runs:
            runs.append(Run(self._batches))
            self._batches = []
        with disk_errors(), EventsFile(self._folder, MERGED if ranks else SCHEMA) as file:
            slabs = (with_ranks(events, ranks) if ranks else events for events in merged(runs))
            with ThreadPoolExecutor(1, "file") as thread:
                writes: deque[Future[None]] = deque()
                for slab in read_ahead(slabs, "slabs"):
                    while len(writes) > _WRITES_AHEAD:
                        writes.popleft().result()
                    writes.append(thread.submit(file.write, slab))
                    on_slab(self._notes.add(slab))
                    self._unused_memory.return_beyond_limit()
                writes.append(thread.submit(file.describe, self._notes.texts()))
                writes.append(thread.submit(file.close))
                on_end()
                for write in writes:
                    write.result()
        self._unused_memory.return_beyond_limit(_NEEDED_LATER)
        return self._position

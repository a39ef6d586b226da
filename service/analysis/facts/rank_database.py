"""The database of one rank and a cache of facts about it, shared by all questions to that rank."""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from service.formats.execution_trace import ExecutionTraceFile
from service.store.database import open_database
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.step_traces import StepTrace
from service.trace.selection import Selection
from service.trace.summary import Summary

if TYPE_CHECKING:
    import duckdb

    from service.cutting.criteria import IntervalSet  # loads numba, which the server does without

Fact = TypeVar("Fact")


class RankDatabase:
    """The database of one rank of a trace, or of a selection of it, with a cache of facts about it.

    All questions to the rank share it, concurrently or one after the other.

    Args:
        columns: folder of the whole trace's columns, as ingest writes it.
        summary: summary of the whole trace, as in the catalog.
        selection: selection of the trace's events; None for the whole trace.
        spill: folder to which DuckDB spills what does not fit in memory.
        threads: number of threads of the database.
        execution_traces: files that may have the shapes of its operators, the best first.
        step_traces: traces that may have its steps, if it is a memory snapshot.
    """

    def __init__(
        self,
        columns: Path,
        summary: Summary,
        selection: Selection | None,
        *,
        spill: Path,
        threads: int,
        execution_traces: Sequence[ExecutionTraceFile] = (),
        step_traces: Sequence[StepTrace] = (),
    ) -> None:
        self.columns = columns
        self.execution_traces = execution_traces
        self.step_traces = step_traces
        self.summary = whole_summary(summary, columns)
        self.selection = selection
        self._spill = spill
        self._threads = threads
        self._lock = threading.Lock()
        self._facts: dict[Hashable, Future[Any]] = {}
        self._db: duckdb.DuckDBPyConnection | None = None
        self._time: IntervalSet | None = None

    @property
    def events(self) -> int:
        """Number of events in the whole trace."""
        return self.summary.kept_events

    def cached(self, key: Hashable, compute: Callable[[], Fact]) -> Fact:
        """Return the cached fact of a key; the first caller computes it, and concurrent callers wait for it.

        An error is not cached: the next caller computes again.
        """
        with self._lock:
            cached: Future[Fact] | None = self._facts.get(key)
            future = self._facts[key] = cached or Future()
        if cached is None:
            try:
                future.set_result(compute())
            except BaseException as error:
                with self._lock:
                    del self._facts[key]
                future.set_exception(error)
                raise
        return future.result()

    def database(self) -> "duckdb.DuckDBPyConnection":
        """Return a new connection to the database with ``events``; the first call opens the database."""
        return self.cached("database", self._open).cursor()

    @property
    def time(self) -> "IntervalSet | None":
        """The time of the selection, or None for the whole trace; known once the database is open."""
        return self._time

    def _open(self) -> "duckdb.DuckDBPyConnection":
        self._spill.parent.mkdir(parents=True, exist_ok=True)  # DuckDB creates the folder, but not its parents
        self._db = db = open_database(self._spill, threads=self._threads)
        path = self.columns / EVENTS
        if self.selection is None:
            name = str(path).replace("'", "''")
            db.execute("SET parquet_metadata_cache = true")  # otherwise each statement reads the metadata again
            db.execute("SET enable_external_file_cache = false")  # the system's page cache serves already
            rows = f"read_parquet('{name}', file_row_number = true)"
            db.execute(f"CREATE VIEW events AS SELECT * RENAME (file_row_number AS row) FROM {rows}")
            return db
        from service.cutting.cut import cut_of  # noqa: PLC0415 - loads numba, which the server does without
        from service.store.parts import Parts  # noqa: PLC0415 - likewise

        with closing(Parts(path)) as parts:
            cuts = cut_of(parts, self.selection, self.summary)
            self._time = cuts.time(0)
            tables = (table for _, table in cuts.tables())
            schema = parts.schema.append(pa.field("row", pa.int64()))
            db.register("cut", pa.RecordBatchReader.from_batches(schema, _numbered(tables)))
            db.execute("CREATE TABLE events AS SELECT * FROM cut")
            db.unregister("cut")
        return db

    def close(self) -> None:
        """Drop the cached facts and close the database."""
        self._facts.clear()
        if self._db:
            self._db.close()


def _numbered(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Add to each table's events their row number among all events."""
    first = 0
    for table in tables:
        rows = pa.array(np.arange(first, first + len(table)))
        first += len(table)
        yield from table.append_column("row", rows).to_batches()

"""A trace that is being asked: its database, and what was found out about it, for all questions together."""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from service.store.database import connected
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.trace.selection import Selection

Found = TypeVar("Found")


class Reading:
    """One rank of a trace, or of a selection of it, and what was found out about it.

    All questions that are asked of it share that: at once, or one after the other.

    Args:
        columns: the folder that ingest made of the whole trace.
        summary: of the whole trace, as the catalog has it.
        selection: what of it, or None.
        spill: the folder for what does not fit into memory.
        threads: how many may work.
    """

    def __init__(
        self, columns: Path, summary: Mapping[str, Any], selection: Selection | None, *, spill: Path, threads: int
    ) -> None:
        self.columns = columns
        self.summary = whole_summary(summary, columns)
        self.selection = selection
        self._spill = spill
        self._threads = threads
        self._lock = threading.Lock()
        self._found: dict[Hashable, Future[Any]] = {}
        self._db: duckdb.DuckDBPyConnection | None = None

    @property
    def events(self) -> int:
        """How many the whole trace has."""
        kept: int = self.summary["events"]["kept"]
        return kept

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """What was found under a key; who asks first finds it, and others wait for that."""
        with self._lock:
            known: Future[Found] | None = self._found.get(key)
            finding = self._found[key] = known or Future()
        if known is None:
            try:
                finding.set_result(find())
            except BaseException as error:
                with self._lock:
                    del self._found[key]
                finding.set_exception(error)
                raise
        return finding.result()

    def database(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to a database in which ``events`` is, which is opened when it is first asked for."""
        return self.once("database", self._open).cursor()

    def _open(self) -> duckdb.DuckDBPyConnection:
        self._spill.parent.mkdir(parents=True, exist_ok=True)  # DuckDB makes the folder, but none above
        self._db = db = connected(self._spill, threads=self._threads)
        path = self.columns / EVENTS
        if self.selection is None:
            name = str(path).replace("'", "''")
            db.execute("SET parquet_metadata_cache = true")  # these are read with each statement
            db.execute("SET enable_external_file_cache = false")  # the system keeps files in memory
            rows = f"read_parquet('{name}', file_row_number = true)"
            db.execute(f"CREATE VIEW events AS SELECT * RENAME (file_row_number AS row) FROM {rows}")
            return db
        from service.cutting.cut import cut_tables  # noqa: PLC0415 - loads numba, which the server does without
        from service.store.parts import Parts  # noqa: PLC0415 - likewise

        with closing(Parts(path)) as parts:
            tables = cut_tables(parts, self.selection, self.summary)
            schema = parts.schema.append(pa.field("row", pa.int64()))
            db.register("cut", pa.RecordBatchReader.from_batches(schema, _numbered(tables)))
            db.execute("CREATE TABLE events AS SELECT * FROM cut")
            db.unregister("cut")
        return db

    def close(self) -> None:
        """Forget all that was found."""
        self._found.clear()
        if self._db:
            self._db.close()


def _numbered(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The events of tables, with their places among all of them."""
    first = 0
    for table in tables:
        rows = pa.array(np.arange(first, first + len(table)))
        first += len(table)
        yield from table.append_column("row", rows).to_batches()

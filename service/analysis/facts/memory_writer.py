"""Writer of the file of a trace's allocations and frees, while its columns are written."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.analysis.facts.memory_changes import EVENT, KEYS, MISSING, NUMBERS, PARSED, VERSION, file_options
from service.store.database import open_database
from service.store.folder import MEMORY, disk_errors, new_file
from service.store.parts import TRACK
from service.streaming.scan.members import integer_members

_EVENT_COLUMNS = ("ts_ns", "position", "name", "args", *TRACK, "stream")
_TEXTS = frozenset({"name", "args", "pid_text", "tid_text"})


class MemoryChangesWriter:
    """Writer of the file of a trace's allocations and frees while its columns are written.

    There is none of a trace without such events.

    Args:
        columns: folder of the trace's columns.
        resources: gets the file, which is complete once they are closed without an error.
    """

    def __init__(self, columns: Path, resources: ExitStack) -> None:
        self._columns = columns
        self._resources = resources
        self._db: duckdb.DuckDBPyConnection | None = None
        self._writer: Any = None

    def add(self, events: pa.Table) -> None:
        """Add the next events, in order of time, whose dictionary columns have one chunk.

        Raises:
            DiskFull: the disk has no room for the file.
        """
        (names,) = events["name"].chunks
        code = pc.index(names.dictionary, EVENT).as_py()
        if code < 0:
            return
        is_change = pc.and_(pc.equal(names.indices, code), events["ts_ns"].combine_chunks().is_valid())
        chosen = events.select(_EVENT_COLUMNS).filter(is_change)
        if len(chosen):
            plain = [chosen[name].cast(pa.string()) if name in _TEXTS else chosen[name] for name in _EVENT_COLUMNS]
            self._write(pa.table(plain, _EVENT_COLUMNS))

    def _write(self, events: pa.Table) -> None:
        parsed = _common(events) or self._by_sql(events)
        parsed = parsed.replace_schema_metadata(VERSION)
        if self._writer is None:
            file = self._resources.enter_context(new_file(self._columns / MEMORY))
            self._writer = self._resources.enter_context(pq.ParquetWriter(file, parsed.schema, **file_options(parsed)))
        with disk_errors():
            self._writer.write_table(parsed)

    def _by_sql(self, events: pa.Table) -> pa.Table:
        if self._db is None:
            self._db = self._resources.enter_context(closing(open_database(self._columns / "memory.spill", threads=2)))
        self._db.register("memory_events", events)
        parsed = self._db.sql(PARSED.format(events="memory_events")).to_arrow_table()
        self._db.unregister("memory_events")
        return parsed


def _common(events: pa.Table) -> pa.Table | None:
    """Return what `PARSED` says about events in order of time; None if their arguments are not in common notation."""
    members = integer_members(events["args"].combine_chunks(), [key.encode() for key in KEYS])
    if members is None:
        return None
    columns: dict[str, Any] = {"at": events["ts_ns"], **{name: events[name] for name in TRACK}}
    for index, name in enumerate(NUMBERS):
        values, has = members.values[:, index], members.has[:, index]
        columns[name] = np.where(has, values, MISSING[name]) if name in MISSING else pa.array(values, mask=~has)
    return pa.table({**columns, "stream": events["stream"]})

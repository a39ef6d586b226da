"""The reader of SQLite exports of Nsight Systems; `docs/importing.md` has the mapping of tables to events."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.formats.nsys.allowed import ALLOWED, CALLS, EVENT_TABLES, NVTX, STRINGS, WAITS
from service.formats.nsys.batches import LeftOut
from service.formats.nsys.calls import Launches, calls
from service.formats.nsys.database import Database
from service.formats.nsys.devices import Devices
from service.formats.nsys.identifiers import Processes
from service.formats.nsys.metadata import envelope, name_events, schema_version
from service.formats.nsys.nvtx import Annotations
from service.formats.nsys.projection import Projection
from service.formats.nsys.spooled import spool
from service.formats.nsys.strings import Strings
from service.formats.nsys.work import WORK_TABLES, Exported, work
from service.trace.errors import NotATrace, Truncated
from service.trace.health import Health


class NsysReader:
    """The `TraceReader` of SQLite exports of Nsight Systems.

    Args:
        chunks: the decompressed file, in order.
        scratch: an empty folder for the spooled file.
    """

    def __init__(self, chunks: Iterable[bytes], scratch: Path) -> None:
        self.health = Health()
        self.kept = 0
        self.refused = 0
        self._chunks = chunks
        self._path = scratch / "export.sqlite"
        self._envelope: tuple[bytes, dict[str, Any]] = b'{"traceEvents": []}', {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events, table by table.

        Raises:
            Truncated, BadCompression: the file ends before any event can be read.
            NotATrace: the file is no export of Nsight Systems, or has no work of devices, calls or ranges.
        """
        spooled = None
        try:
            spooled = spool(self._chunks, self._path)
            if spooled.missing:
                self.health.add("cut", offset=spooled.size, text=spooled.missing)
            yield from self._read()
        except NotATrace as error:
            if spooled and spooled.missing:
                raise Truncated(spooled.missing, offset=spooled.size) from error
            raise
        finally:
            self._path.unlink(missing_ok=True)

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the document around the events."""
        return self._envelope

    def _read(self) -> Iterator[pa.RecordBatch]:
        database = Database(self._path, self._leave_out)
        try:
            version = schema_version(database)
            self._check_tables(database, version)
            for batch in self._events(database):
                self.kept += len(batch)
                yield batch
        finally:
            database.close()

    def _events(self, database: Database) -> Iterator[pa.RecordBatch]:
        strings, processes, launches = Strings(database, self.health), Processes(), Launches()
        devices, tables = Devices(database), database.columns
        projection = Projection(launches, wanted=NVTX in tables)
        exported = Exported(database, strings, processes, launches, devices, projection)
        last_end = 0

        def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal last_end
            for batch in batches:
                ends = pc.max(pc.add(batch["ts_ns"], batch["dur_ns"])).as_py()
                last_end = max(last_end, ends or 0)
                yield batch

        if CALLS in tables:
            yield from noted(calls(database, strings, processes, launches))
        for table in (*WORK_TABLES, WAITS):
            if table in tables:
                yield from noted(work(table, exported))
        yield from launches.flows()
        if NVTX in tables:
            projection.complete()
            yield from Annotations(database, strings, self.health).batches(last_end, projection)
        if not self.kept:
            raise NotATrace("The export of Nsight Systems has no readable row of GPU work, API calls or NVTX ranges.")
        yield from name_events(database, strings, devices)
        self._envelope = envelope(database, devices)

    def _check_tables(self, database: Database, version: str | None) -> None:
        """Note what the export lacks; raises `NotATrace` if it has no table of events."""
        tables = database.columns
        found = [table for table in EVENT_TABLES if table in tables]
        if not found:
            is_export = version is not None or STRINGS in tables
            subject = (
                "The export of Nsight Systems has"
                if is_export
                else "The SQLite database is no export of Nsight Systems: it has"
            )
            reasons = f" ({'; '.join(database.unusable)})" if database.unusable else ""
            raise NotATrace(
                f"{subject} no table of GPU work, API calls or NVTX ranges{reasons}. Profile with"
                " `nsys profile --trace=cuda,nvtx`, and export with `nsys export --type sqlite`."
            )
        for reason in database.unusable:
            self.health.add("unusable_table", text=reason)
        lacking = [
            table for table in ALLOWED if table not in tables and not any(table in text for text in database.unusable)
        ]
        if lacking:
            self.health.add("absent_tables", count=len(lacking), text=", ".join(lacking))
        for table in found:
            absent = [column for column in ALLOWED[table] if column not in tables[table]]
            if absent:
                self.health.add("absent_columns", count=len(absent), text=f"{table}: {', '.join(absent)}")

    def _leave_out(self, left_out: LeftOut) -> None:
        table, rows, reason = left_out
        if rows is None:
            self.health.add("damaged_table", text=f"{table}: {reason}")
        elif rows:
            self.refused += rows
            self.health.add("unreadable_event", count=rows, text=f"{table}: {reason}")

"""The work on one trace or one part of a dataset. Workers run it; it takes names and returns small results."""

import hashlib
import io
import os
import socket
import time
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.fleet.dataset import FACTS, SUMMARY, Dataset, Part, table_name
from service.fleet.facts import TABLES, encoded, facts_of
from service.fleet.record import Record
from service.fleet.sources import Source
from service.jobs.ingest import ingest
from service.trace.rank import rank_in_name

_TRACE_DIGITS = 32  # hexadecimal digits of a digest
_READ = 1 << 20


@dataclass(frozen=True)
class IngestSource:
    """Read a source into a dataset.

    Attributes:
        dataset: URL of the dataset.
        source: the source.
        attempt: number of this attempt, from 1.
    """

    dataset: str
    source: Source
    attempt: int = 1

    def run(self) -> Record:
        """Write the trace and its record, and return the record.

        Raises:
            IngestError: the file can't be read as a trace.
            LocationError: a location can't be used.
            DiskFull: a disk has no room.
        """
        started = time.perf_counter()
        dataset = Dataset.open(self.dataset)
        with dataset.location.making() as scratch:
            columns = scratch / "columns"
            hashed = _Hashed(self.source.open())
            with cast("BufferedReader", BufferedReader(hashed, _READ)) as file:
                summary = ingest(file, columns, self.source.name, lambda _: None)
                while file.read(_READ):  # the reader may end before the file does
                    pass
            trace = trace_name(hashed.hexdigest(), self.source.name)
            if not dataset.has_trace(trace):
                readings = ReadingCache(scratch / "spill")
                try:
                    facts = facts_of(AnalysisInput(columns, summary), trace, readings)
                finally:
                    readings.close()
                (columns / FACTS).write_bytes(encoded(facts))
                (columns / SUMMARY).write_text(summary.as_json())
                dataset.location.publish(columns, f"traces/{trace}", SUMMARY)
        seconds = time.perf_counter() - started
        record = Record.done(self.source, trace, summary, worker_name(), seconds, self.attempt)
        dataset.record(record)
        return record


@dataclass(frozen=True)
class MergeFacts:
    """Merge the facts of some traces of a dataset into one part.

    Attributes:
        dataset: URL of the dataset.
        records: the records of the part.
        traces: names of the traces, whose facts no other part has.
    """

    dataset: str
    records: tuple[Record, ...]
    traces: tuple[str, ...]

    def run(self) -> str:
        """Write the part, and return its name."""
        dataset = Dataset.open(self.dataset)
        rows: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in TABLES.items()}
        for trace in self.traces:
            for name, table in dataset.facts(trace).items():
                rows[name].append(table)
        name = hashlib.sha256("\n".join(sorted(record.key for record in self.records)).encode()).hexdigest()[:16]
        for table, pieces in rows.items():
            buffer = io.BytesIO()
            pq.write_table(pa.concat_tables(pieces), buffer, compression="zstd", row_group_size=1 << 17)
            dataset.location.write(table_name(table, name), buffer.getvalue())
        dataset.add_part(Part(name, self.records, self.traces))
        return name


def trace_name(digest: str, file_name: str) -> str:
    """Return the name of a trace: that of its bytes, and of the rank that only its file name may tell."""
    rank = rank_in_name(file_name)
    return digest[:_TRACE_DIGITS] + ("" if rank is None else f".rank{rank}")


def worker_name() -> str:
    """Return the host and the process of this worker."""
    return f"{socket.gethostname()}:{os.getpid()}"


class _Hashed(io.RawIOBase):
    """A file that is read once, and its digest."""

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._digest = file, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer)
        self._digest.update(memoryview(buffer)[:size])
        return size

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()

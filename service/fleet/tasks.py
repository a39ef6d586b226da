"""The work on one trace or one part of a dataset. Workers run it; it takes names and returns small results."""

import hashlib
import io
import time
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, cast

from service.analysis.kept_answers import keep_answers
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.fleet.dataset import FACTS, SUMMARY, Dataset
from service.fleet.facts import encoded, facts_of
from service.fleet.record import Record
from service.fleet.sources import Source
from service.fleet.workers.task import worker_name
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
            digest = hashed.hexdigest()
            trace = trace_name(digest, self.source.name)
            if not dataset.has_trace(trace):
                readings = ReadingCache(scratch / "spill")
                try:
                    made = AnalysisInput(columns, summary)
                    facts = facts_of(made, trace, readings)
                    keep_answers(made, readings)
                finally:
                    readings.close()
                (columns / FACTS).write_bytes(encoded(facts))
                (columns / SUMMARY).write_text(summary.as_json())
                dataset.location.publish(columns, f"traces/{trace}", SUMMARY)
        seconds = time.perf_counter() - started
        record = Record.done(self.source, trace, digest, summary, worker_name(), seconds, self.attempt)
        dataset.record(record)
        return record


def trace_name(digest: str, file_name: str) -> str:
    """Return the name of a trace: that of its bytes, and of the rank that only its file name may tell."""
    rank = rank_in_name(file_name)
    return digest[:_TRACE_DIGITS] + ("" if rank is None else f".rank{rank}")


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

"""A dataset: the columns and the facts of many traces in a folder or a bucket.

dataset.json                 says what this is, with the version of the layout
sources/KEY.json             the outcome of a source; see `service.fleet.record`
ingests/KEY.json             how much an ingest is going to read, and how far it is; see `service.fleet.plan`
traces/TRACE/                the columns of a trace, as ingest writes them, its answers and its facts; the last file
                             to come is summary.json
facts/TABLE/PART.parquet     the facts of many traces, a row group or more for each part; see `service.fleet.facts`
parts/PART.json.zst          the records and the traces whose facts a part has; it comes after the part's tables

All writes are whole and idempotent. So any number of processes may work on a dataset, and each may be killed.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from service.fleet.documents import from_json, parsed
from service.fleet.facts import decoded
from service.fleet.record import DONE, Record
from service.store.folder import ATTRIBUTION, COLLECTIVES, ENVELOPE, EVENTS, LISTS, MEMORY, PLAIN_LISTS, TIMELINE
from service.store.locations.location import Location, location_of
from service.store.locations.ranged import RangedFolder
from service.streaming.zstandard import zstd
from service.trace.errors import BadDataset
from service.trace.summary import Summary

KIND, VERSION = "tracedock dataset", 1
MANIFEST = "dataset.json"
SUMMARY, FACTS = "summary.json", "facts.arrow"
"""Further files of a trace's folder. The summary comes last: with it, the trace is complete."""
COLUMNS = (EVENTS, ENVELOPE, ATTRIBUTION, LISTS, PLAIN_LISTS, TIMELINE, MEMORY, COLLECTIVES)
"""The files of a trace that questions about its events need."""

READS = 16
"""Number of files that are read at a time: a store of objects answers late, but many at once."""

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Records whose facts are merged.

    Attributes:
        name: name of the part.
        records: the records.
        traces: names of the traces whose facts the part's tables have.
        is_whole: whether the tables have no other facts, of traces that belong to another part.
    """

    name: str
    records: tuple[Record, ...]
    traces: tuple[str, ...]
    is_whole: bool = True


@dataclass(frozen=True)
class PartDocument:
    """The content of the file of a part."""

    records: tuple[Record, ...]
    traces: tuple[str, ...]

    @classmethod
    def from_bytes(cls, content: bytes) -> "PartDocument":
        """Parse the file, which earlier versions did not compress.

        Raises:
            pydantic.ValidationError: it is no part.
            zstd.ZstdError: it is cut.
        """
        return from_json(cls, content if content.startswith(b"{") else zstd.decompress(content))


class Dataset:
    """A dataset at a location."""

    def __init__(self, location: Location) -> None:
        self.location = location

    @classmethod
    def create(cls, url: str) -> "Dataset":
        """Open a dataset, and create it where there is none.

        Raises:
            BadDataset: another version has written it.
            LocationError: the location can't be used.
        """
        location = location_of(url)
        location.create(MANIFEST, orjson.dumps({"kind": KIND, "version": VERSION}))
        return cls.open(url)

    @classmethod
    def open(cls, url: str) -> "Dataset":
        """Open a dataset; raises what `create` raises."""
        return cls.at(location_of(url))

    @classmethod
    def at(cls, location: Location) -> "Dataset":
        """Open the dataset at a location; raises what `create` raises."""
        content = location.read(MANIFEST)
        if content is None:
            raise BadDataset(
                f"{location.url} has no dataset. `tracedock fleet ingest SOURCE --to {location.url}` makes one."
            )
        try:
            manifest = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise BadDataset(f"{location.url}/{MANIFEST} is damaged: {error}.") from error
        if manifest != {"kind": KIND, "version": VERSION}:
            raise BadDataset(f"{location.url} was written by another version: this one reads {KIND} {VERSION}.")
        return cls(location)

    # -- traces -------------------------------------------------------------------------------------------------------

    def has_trace(self, trace: str) -> bool:
        """Return whether a trace is complete."""
        return self.location.read(f"traces/{trace}/{SUMMARY}") is not None

    def summary(self, trace: str) -> Summary:
        """Return the summary of a complete trace."""
        content = self.location.read(f"traces/{trace}/{SUMMARY}")
        if content is None:
            raise BadDataset(f"The trace {trace} is missing in {self.location.url}. Ingest its source again.")
        return self._parsed(Summary.from_json, content, f"traces/{trace}/{SUMMARY}")

    def fetch(self, trace: str, into: Path, files: list[str]) -> Path:
        """Return a local folder with files of a trace; see `Location.fetch`."""
        return self.location.fetch(f"traces/{trace}", into, files)

    def ranged(self, trace: str) -> RangedFolder:
        """Return the folder of a trace, to read only ranges of its files."""
        return RangedFolder(self.location, f"traces/{trace}")

    def facts(self, trace: str) -> dict[str, Any]:
        """Return the tables of facts of a trace; empty if another version wrote them."""
        content = self.location.read(name := f"traces/{trace}/{FACTS}")
        return {} if content is None else self._parsed(decoded, content, name)

    # -- records ------------------------------------------------------------------------------------------------------

    def record(self, record: Record) -> None:
        """Write a record. A source that is done stays so, whatever a slower worker reports later."""
        name = f"sources/{record.key}.json"
        found = None if record.state == DONE else self.location.read(name)
        if found is None or self._parsed(Record.from_json, found, name).state != DONE:
            self.location.write(name, record.as_json())

    def records(self) -> dict[str, Record]:
        """Return all records by key."""
        merged = {record.key: record for part in self.parts() for record in part.records}
        return {**merged, **self.unmerged(merged)}

    def unmerged(self, merged: Iterable[str]) -> dict[str, Record]:
        """Return the records that are in no part, by key.

        Args:
            merged: the keys of the records of all parts.
        """
        known = {f"sources/{key}.json" for key in merged}
        names = [entry.name for entry in self.location.entries("sources") if entry.name not in known]
        with ThreadPoolExecutor(READS, "records") as threads:
            read = zip(names, threads.map(self.location.read, names), strict=True)
            records = [self._parsed(Record.from_json, content, name) for name, content in read if content is not None]
        return {record.key: record for record in records}

    # -- parts --------------------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """Return all parts in order of their names, each record and each trace in the first that has it."""
        keys: set[str] = set()
        traces: set[str] = set()
        parts = []
        names = [entry.name for entry in self.location.entries("parts")]
        with ThreadPoolExecutor(READS, "parts") as threads:
            for name, content in zip(names, threads.map(self.location.read, names), strict=True):
                if content is None:  # it was removed since
                    continue
                document = self._parsed(PartDocument.from_bytes, content, name)
                records = [record for record in document.records if record.key not in keys]
                new = [trace for trace in document.traces if trace not in traces]
                keys.update(record.key for record in records)
                traces.update(new)
                part = name.removeprefix("parts/").partition(".")[0]
                parts.append(Part(part, tuple(records), tuple(new), is_whole=len(new) == len(document.traces)))
        return parts

    def add_part(self, part: Part) -> None:
        """Add a part, whose tables are written."""
        document = PartDocument(part.records, part.traces)
        self.location.write(f"parts/{part.name}.json.zst", zstd.compress(orjson.dumps(document)))

    def _parsed(self, parse: Callable[[bytes], T], content: bytes, name: str) -> T:
        return parsed(parse, content, f"{self.location.url}/{name}")


def table_name(table: str, part: str) -> str:
    """Return the name of the file of a part's table."""
    return f"facts/{table}/{part}.parquet"

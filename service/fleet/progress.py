"""Progress of a dataset: its runs, its failures and its ingests.

A look reads only what has changed since the last one.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Generic, TypeVar

from service.fleet.dataset import READS, Dataset, PartDocument
from service.fleet.documents import parsed
from service.fleet.ingesting import run_states
from service.fleet.merging import PART_MAX
from service.fleet.plan import PLANS, Plan
from service.fleet.record import FAILED, Record, current_records
from service.jobs.children.tasks.datasets import DatasetReport, Failure, IngestReport, IngestStatus, RunReport
from service.store.locations.location import Entry, Location

RECORDS_MAX = 10_000
"""Maximum number of records that one look reads."""
STOPPED_S = 15.0
"""Seconds without a beat after which an ingest counts as stopped."""
NO_PLAN = "An older version wrote this dataset, so that it does not say what is still to be read."

T = TypeVar("T")


class FileCache(Generic[T]):
    """Values parsed from the files of a folder, each read once in each version.

    Args:
        parse: makes a value of the content of a file.

    Attributes:
        values: the values by names of files, in the order of the last listing.
        changes: number of changes so far.
    """

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self._parse = parse
        self._versions: dict[str, str] = {}
        self.values: dict[str, T] = {}
        self.changes = 0

    def update(self, location: Location, entries: Sequence[Entry], at_most: int | None = None) -> int:
        """Read the files that are new or have changed, and forget those that are gone.

        Args:
            location: where the files are.
            entries: all files.
            at_most: maximum number of files to read.

        Returns:
            The number of files that were read.

        Raises:
            BadDataset: a file is damaged.
        """
        names = {entry.name for entry in entries}
        gone = self.values.keys() - names
        for name in gone:
            del self.values[name], self._versions[name]
        wanted = [entry for entry in entries if self._versions.get(entry.name) != entry.version][:at_most]
        with ThreadPoolExecutor(READS, "files") as threads:
            contents = threads.map(location.read, [entry.name for entry in wanted])
            for entry, content in zip(wanted, contents, strict=True):
                if content is not None:
                    self.values[entry.name] = parsed(self._parse, content, f"{location.url}/{entry.name}")
                    self._versions[entry.name] = entry.version
        self.changes += len(gone) + len(wanted)
        return len(wanted)


class DatasetProgress:
    """Looks at a dataset, again and again. One thread at a time may look.

    Args:
        dataset: the dataset.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._location = dataset.location
        self._parts: FileCache[PartDocument] = FileCache(PartDocument.from_bytes)
        self._unmerged: FileCache[Record] = FileCache(Record.from_json)
        self._plans: FileCache[Plan] = FileCache(Plan.from_json)
        self._beats: dict[str, tuple[Plan, float]] = {}
        """The last beat that was seen of each plan, and when, on the monotonic clock."""
        self._changes = -1
        self._records: list[Record] = []
        self._runs: list[RunReport] = []

    def look(self) -> DatasetReport:
        """Read what has changed since the last look, and return the state of the dataset, without failures.

        Raises:
            BadDataset: there is no dataset any more, or it is damaged.
            LocationError: its location can't be used.
        """
        Dataset.at(self._location)
        unread = self._read_records()
        self._plans.update(self._location, [*self._location.entries(PLANS)])
        ingests = sorted(map(self._ingest, self._plans.values.values()), key=lambda ingest: -ingest.started_ns)
        is_running = any(ingest.status == "running" for ingest in ingests)
        is_stopped = not is_running and bool(ingests) and ingests[0].status == "stopped"
        return DatasetReport(
            status="ingesting" if is_running else "stopped" if is_stopped else "idle",
            reason=None if ingests else NO_PLAN,
            read_ns=time.time_ns(), unread=unread, runs=self._runs, ingests=ingests,
        )  # fmt: skip

    def with_failures(self, report: DatasetReport, limit: int, after: str) -> DatasetReport:
        """Return a report with a page of the failures.

        Args:
            report: the report.
            limit: maximum number of failures.
            after: key of the failure before the first one. The page is the first one if this failure is gone.
        """
        failed = [record for record in self._records if record.state == FAILED]
        keys = [record.key for record in failed]
        start = keys.index(after) + 1 if after in keys else 0
        page = failed[start : start + limit]
        following = page[-1].key if page and start + limit < len(failed) else None
        return replace(report, failures=[*map(_failure, page)], following=following)

    def _read_records(self) -> int:
        """Read parts and records, and return the number of records that are left for further looks."""
        parts, sources = ([*self._location.entries(folder)] for folder in ("parts", "sources"))
        parts_read = self._parts.update(self._location, parts, RECORDS_MAX // PART_MAX)
        merged = {record.key: record for part in self._parts.values.values() for record in part.records}
        unmerged = [entry for entry in sources if _key_of(entry) not in merged]
        if len(self._parts.values) == len(parts):  # otherwise, further parts have most of these
            self._unmerged.update(self._location, unmerged, RECORDS_MAX - parts_read * PART_MAX)
        if self._changes != self._parts.changes + self._unmerged.changes:
            self._changes = self._parts.changes + self._unmerged.changes
            self._records = current_records([*merged.values(), *self._unmerged.values.values()])
            self._runs = _run_reports(self._records)
        return sum(entry.name not in self._unmerged.values for entry in unmerged)

    def _ingest(self, plan: Plan) -> IngestReport:
        status: IngestStatus = plan.ended or ("running" if self._silent_s(plan) < STOPPED_S else "stopped")
        left_s, reason = None, None
        if plan.ended == "stopped":
            reason = "The ingest was stopped. Start it again: it goes on with what is not done."
        elif status == "stopped":
            reason = (
                f"The ingest has been silent for over {STOPPED_S:g} s: its process {plan.process} on {plan.host} has"
                " died, or can't reach the dataset. Start it again: it goes on with what is not done."
            )
        elif status == "done":
            left_s = 0.0
        elif plan.bytes_per_s is None:
            reason = "The ingest has read no source so far."
        else:
            left_s = plan.left_bytes / plan.bytes_per_s
        return IngestReport(
            key=plan.key, status=status, host=plan.host, process=plan.process, started_ns=plan.started_ns,
            beat_ns=plan.beat_ns, sources=plan.sources, done=plan.present + plan.done, failed=plan.failed,
            size_bytes=plan.size_bytes, settled_bytes=plan.size_bytes - plan.left_bytes,
            bytes_per_s=plan.bytes_per_s, left_s=left_s, reason=reason,
        )  # fmt: skip

    def _silent_s(self, plan: Plan) -> float:
        """Return the seconds since the last beat of a plan.

        The clocks of hosts differ. So only the beat that is seen first is compared with the clock of this host; how old
        a later one is tells the time since it was seen.
        """
        now = time.monotonic()
        known = self._beats.get(plan.key)
        if known is None:
            age_s = max(0.0, (time.time_ns() - plan.beat_ns) / 1e9)
            known = self._beats[plan.key] = plan, now - age_s
        elif known[0] != plan:
            known = self._beats[plan.key] = plan, now
        return now - known[1]


def _key_of(entry: Entry) -> str:
    return entry.name.removeprefix("sources/").removesuffix(".json")


def _run_reports(records: Sequence[Record]) -> list[RunReport]:
    last: dict[str, int] = {}
    for record in records:
        last[record.run] = max(record.ended_ns, last.get(record.run, 0))
    return [
        RunReport(
            state.run, state.done, len(state.failed), state.ranks, state.world_size, state.size_bytes, state.events,
            last[state.run],
        )
        for state in run_states(records)
    ]  # fmt: skip


def _failure(record: Record) -> Failure:
    return Failure(
        record.key, record.run, record.source, record.attempts, record.worker, record.ended_ns, record.error or {}
    )

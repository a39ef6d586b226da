"""Ingest of many sources into a dataset: what is left, by which workers, and how far it is."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from service.fleet.dataset import Dataset
from service.fleet.merging import PART_MAX, merge_facts
from service.fleet.plan import Counts, announced, plan_key
from service.fleet.record import DONE, FAILED, Record
from service.fleet.sources import Source
from service.fleet.tasks import IngestSource
from service.fleet.workers.task import Workers
from service.trace.errors import DiskFull, LocationUnavailable, TracedockError

ATTEMPTS = 3
"""Maximum number of attempts at a source whose error may pass."""
_PASSING = (LocationUnavailable, DiskFull)


@dataclass
class IngestProgress:
    """Progress of an ingest of many sources.

    Attributes:
        sources: number of sources.
        size_bytes: their size.
        present: number of sources that were done before.
        done: number of sources that were done since.
        failed: number of sources that have failed, before or now.
        read_bytes: size of the sources that were done since.
        left_bytes: size of the sources that are left.
        started: when it started, on the monotonic clock.
    """

    sources: int
    size_bytes: int
    present: int = 0
    done: int = 0
    failed: int = 0
    read_bytes: int = 0
    left_bytes: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def bytes_per_s(self) -> float | None:
        """Rate of reading; None as long as nothing is read."""
        return self.read_bytes / self.seconds if self.read_bytes else None

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the end; None as long as nothing is read."""
        return None if self.bytes_per_s is None else self.left_bytes / self.bytes_per_s

    def counts(self) -> Counts:
        """Return the counts for the plan of the ingest."""
        return Counts(
            self.sources, self.size_bytes, self.present, self.done, self.failed, self.left_bytes, self.bytes_per_s
        )


def ingest_sources(
    dataset: Dataset,
    sources: Sequence[Source],
    workers: Workers,
    *,
    retry: bool = False,
    on_progress: Callable[[IngestProgress, Record | None], object] = lambda _progress, _record: None,
) -> IngestProgress:
    """Ingest the sources that are not done yet, write a record for each, and merge the facts.

    It may be stopped at any time. Another call goes on where it stopped, also while one of another process runs.

    Args:
        dataset: where the traces go.
        sources: the sources.
        workers: who reads them.
        retry: whether sources that have failed because of their content are read again.
        on_progress: called with the progress and the newest record, first without one.

    Raises:
        ClusterUnavailable: there is no worker any more.
        OtherVersion: a worker has other code.
        LocationError: the dataset's location can't be used.
    """
    dataset.location.sweep()
    ingest = _Ingest(dataset, sources, retry=retry)
    with announced(dataset.location, plan_key(sources), ingest.progress.counts):
        on_progress(ingest.progress, None)
        for record in ingest.run(workers):
            on_progress(ingest.progress, record)
    return ingest.progress


class _Ingest:
    """An ingest: the records so far, and the sources that are left."""

    def __init__(self, dataset: Dataset, sources: Sequence[Source], *, retry: bool) -> None:
        self.dataset = dataset
        parts = dataset.parts()
        merged = {record.key: record for part in parts for record in part.records}
        unmerged = dataset.unmerged(merged)
        self._merged_traces = {trace for part in parts for trace in part.traces}
        self._to_merge = [record for record in unmerged.values() if record.state == DONE]
        records = {**merged, **unmerged}
        self.progress = IngestProgress(len(sources), sum(source.entry.size for source in sources))
        self._left: dict[str, IngestSource] = {}
        for source in sources:
            record = records.get(source.key)
            if record is not None and record.state == DONE:
                self.progress.present += 1
            elif record is not None and record.in_input and not retry:
                self.progress.failed += 1
            else:
                self._left[source.key] = IngestSource(
                    dataset.location.url, source, record.attempts + 1 if record else 1
                )
        self.progress.left_bytes = sum(task.source.entry.size for task in self._left.values())

    def run(self, workers: Workers) -> Iterator[Record]:
        """Ingest what is left, and yield each record."""
        for attempt in range(ATTEMPTS):
            again = {}
            with closing(workers.results(self._left)) as results:
                for key, outcome in results:
                    task = self._left[key]
                    if isinstance(outcome, _PASSING) and attempt < ATTEMPTS - 1:
                        again[key] = replace(task, attempt=task.attempt + 1)
                        continue
                    yield self._ended(task, outcome)
            self._left = again
        self._merge(1)

    def _ended(self, task: IngestSource, outcome: Record | TracedockError) -> Record:
        """Count the end of a task, and return the record."""
        self.progress.left_bytes -= task.source.entry.size
        if isinstance(outcome, TracedockError):
            record = Record.failed(task.source, outcome, task.attempt)
            self.dataset.record(record)
            self.progress.failed += 1
            return record
        self.progress.done += 1
        self.progress.read_bytes += task.source.entry.size
        self._to_merge.append(outcome)
        self._merge(PART_MAX)
        return outcome

    def _merge(self, at_least: int) -> None:
        """Merge the facts of the records that are in no part, if there are at least so many."""
        while len(self._to_merge) >= at_least:
            records, self._to_merge = self._to_merge[:PART_MAX], self._to_merge[PART_MAX:]
            merge_facts(self.dataset, records, self._merged_traces)
            self._merged_traces.update(record.trace for record in records)


@dataclass(frozen=True)
class RunState:
    """State of the sources of a run in a dataset.

    Attributes:
        run: name of the run.
        done: number of sources that are done.
        failed: records of the sources that have failed.
        size_bytes: size of the sources that are done.
        events: number of their events.
        ranks: number of their ranks.
        world_size: number of ranks that the run has, if it is known.
    """

    run: str
    done: int
    failed: tuple[Record, ...]
    size_bytes: int
    events: int
    ranks: int
    world_size: int | None


def run_states(records: Iterable[Record]) -> list[RunState]:
    """Return the state of each run, in order of names."""
    by_run: dict[str, list[Record]] = {}
    for record in records:
        by_run.setdefault(record.run, []).append(record)
    return [_run_state(run, by_run[run]) for run in sorted(by_run)]


def _run_state(run: str, records: Sequence[Record]) -> RunState:
    done = [record for record in records if record.state == DONE]
    return RunState(
        run=run, done=len(done), failed=tuple(record for record in records if record.state == FAILED),
        size_bytes=sum(record.size_bytes for record in done), events=sum(record.events for record in done),
        ranks=len({record.rank for record in done}),
        world_size=max((record.world_size for record in done if record.world_size), default=None),
    )  # fmt: skip

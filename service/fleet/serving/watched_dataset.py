"""A dataset that the server shows: looks at it in the background, and its facts, which are opened once."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from service.fleet.dataset import Dataset
from service.fleet.progress import DatasetProgress
from service.fleet.questions.facts_database import FactsDatabase
from service.jobs.children.tasks.datasets import DatasetReport
from service.trace.errors import DatasetUnavailable, TracedockError

PATIENCE_S = 2.0
"""Seconds for which a report waits for a look that runs: a store may answer late, or after many retries."""
PAUSE_S = 0.5
"""Minimum number of seconds between two looks."""
PAUSE_FACTOR = 4
"""Minimum pause between two looks, as a multiple of the duration of the last one."""


class WatchedDataset:
    """A dataset that pages look at. Any thread may use it.

    Args:
        url: its location.
        scratch: folder for copies of its facts.
    """

    def __init__(self, url: str, scratch: Path) -> None:
        self._url = url
        self._scratch = scratch
        self._lock = threading.Lock()
        self._looking: Future[None] | None = None
        self._next_look = 0.0
        self._threads = ThreadPoolExecutor(1, "looks")
        self._progress: DatasetProgress | None = None
        self._report = DatasetReport("reading", "The records of the dataset are being read.")
        self._facts = _OpenFacts(scratch)

    def report(self, failures: int, after: str) -> DatasetReport:
        """Return the state of the dataset, as of a look that is at most a few seconds old.

        Args:
            failures: maximum number of failures to list.
            after: see `DatasetProgress.with_failures`.
        """
        with self._lock:
            if self._looking is None or (self._looking.done() and time.monotonic() >= self._next_look):
                self._looking = self._threads.submit(self._look)
            looking = self._looking
        wait_for([looking], PATIENCE_S)
        if looking.done():
            looking.result()
        with self._lock:
            report, progress = self._report, self._progress
        return progress.with_failures(report, failures, after) if progress else report

    @contextmanager
    def facts(self) -> Iterator[FactsDatabase]:
        """Lend the facts, to one thread at a time.

        Raises:
            DatasetUnavailable: the dataset can't be read.
        """
        with self._facts.lock:
            try:
                facts = self._facts.of(Dataset.open(self._url))
            except TracedockError as error:
                raise DatasetUnavailable(error.detail) from error
            yield facts

    def _look(self) -> None:
        started = time.monotonic()
        try:
            progress = self._progress or DatasetProgress(Dataset.open(self._url))
            report = progress.look()
        except TracedockError as error:
            with self._lock:
                self._report = replace(self._report, status="unavailable", reason=error.detail)
        else:
            with self._lock:
                self._progress, self._report = progress, report
        ended = time.monotonic()
        self._next_look = ended + max(PAUSE_S, PAUSE_FACTOR * (ended - started))


class _OpenFacts:
    """The facts of a dataset, opened until the dataset has changed.

    Args:
        scratch: folder for their copies.

    Attributes:
        lock: to be held by who uses the facts.
    """

    def __init__(self, scratch: Path) -> None:
        self.lock = threading.Lock()
        self._scratch = scratch
        self._opened = ExitStack()
        self._versions: object = None
        self._facts: FactsDatabase | None = None

    def of(self, dataset: Dataset) -> FactsDatabase:
        """Return the facts of the dataset as it is now."""
        versions = [
            (entry.name, entry.version) for name in ("parts", "sources") for entry in dataset.location.entries(name)
        ]
        if self._facts is None or versions != self._versions:
            self._facts = None
            self._opened.close()
            self._facts = self._opened.enter_context(FactsDatabase.of(dataset, self._scratch))
            self._versions = versions
        return self._facts

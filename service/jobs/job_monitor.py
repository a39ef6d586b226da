"""Monitor of jobs: their records in the catalog, their progress, and the clients that wait for them."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from service.jobs.eta import EtaEstimator
from service.store.catalog import INGEST
from service.store.jobs import Job, Jobs, JobState
from service.streaming.source import Progress
from service.trace.errors import UnknownJob

INGEST_END = 0.5
"""Assumed duration of an ingest's final phase, as a multiple of the reading time, until one has been measured."""

REQUESTED_S = 60.0
"""Seconds for which a job counts as awaited after a client has requested its result."""


class JobRunner(Protocol):
    """Runs jobs of some kinds."""

    async def stop(self, job: Job) -> None:
        """Stop a job, and return once nothing of it runs; the caller records its end."""


class JobMonitor:
    """Receives reports on the progress of jobs, and notifies waiting clients.

    Args:
        jobs: the jobs in the catalog.
        clock: returns the time in seconds.
    """

    def __init__(self, jobs: Jobs, clock: Callable[[], float] = time.monotonic) -> None:
        self.jobs = jobs
        self.closed = False
        self._clock = clock
        self._progress: dict[int, Progress] = {}
        self._estimators: dict[int, EtaEstimator] = {}
        self._ends: dict[str, float] = {INGEST: INGEST_END}
        """Duration of the final phase of a job, by kind; see `EtaEstimator`."""
        self._watches: defaultdict[int | None, set[asyncio.Event]] = defaultdict(set)
        self._runners: dict[str, JobRunner] = {}
        self._requested: dict[int, float] = {}
        """Time of the last request for a job's result, by job id."""

    def close(self) -> None:
        """End all waits for jobs: no more changes are reported."""
        self.closed = True
        for job_id in list(self._watches):
            self._notify(job_id)

    # -- reports ------------------------------------------------------------------------------------------------------

    def register(self, kinds: Iterable[str], runner: JobRunner) -> None:
        """Register the runner of the jobs of some kinds."""
        self._runners.update(dict.fromkeys(kinds, runner))

    def moved(self, job_id: int, progress: Progress) -> None:
        """Report the progress of a job."""
        if job_id not in self._estimators:
            self._estimators[job_id] = EtaEstimator(self._ends.get(self.jobs.get(job_id).kind))
        self._progress[job_id] = progress
        self._estimators[job_id].note(progress, self._clock())
        self.changed(job_id)

    def changed(self, job_id: int) -> None:
        """Report that the state of a job has changed in the catalog."""
        self._notify(job_id)
        self._notify(None)

    def stopped(self, job_id: int) -> None:
        """Report that a job no longer runs."""
        self._progress.pop(job_id, None)
        if estimator := self._estimators.pop(job_id, None):
            with suppress(UnknownJob):  # forgotten already
                self._learn_end(self.jobs.get(job_id), estimator)
        self.changed(job_id)

    def _learn_end(self, job: Job, estimator: EtaEstimator) -> None:
        """Average the duration of a job's final phase into that of its kind."""
        measured = estimator.measured_end(self._clock()) if job.state is JobState.DONE else None
        if measured is not None:
            self._ends[job.kind] = (self._ends.get(job.kind, measured) + measured) / 2

    # -- queries and waits --------------------------------------------------------------------------------------------

    def progress(self, job_id: int) -> Progress | None:
        """Return the progress of a job; None if it does not run or has not reported any."""
        return self._progress.get(job_id)

    def left_s(self, job_id: int) -> float | None:
        """Estimate the remaining seconds of a job; None if there is no estimate."""
        estimator = self._estimators.get(job_id)
        return estimator.left_s(self._clock()) if estimator else None

    @contextmanager
    def watching(self, job_id: int | None = None) -> Iterator[asyncio.Event]:
        """Return an event that is set at each change of a job, or of any job; the caller clears it before it waits."""
        event = asyncio.Event()
        self._watches[job_id].add(event)
        try:
            yield event
        finally:
            self._watches[job_id].discard(event)
            if not self._watches[job_id]:
                del self._watches[job_id]

    def ask_for(self, job_id: int) -> None:
        """Record that a client has requested the result of a job, and will probably request it again soon."""
        self._requested[job_id] = self._clock()

    def awaited(self) -> set[int]:
        """Return the ids of the jobs that clients wait for or have requested in the last `REQUESTED_S` seconds."""
        now = self._clock()
        self._requested = {job_id: at for job_id, at in self._requested.items() if now - at < REQUESTED_S}
        return {job_id for job_id in self._watches if job_id is not None} | self._requested.keys()

    async def until(self, job_id: int, condition: Callable[[Job], bool], *, within_s: float) -> Job:
        """Return the job once the condition holds, or as it is after `within_s` seconds; raises `UnknownJob`."""
        with suppress(TimeoutError), self.watching(job_id) as news:
            async with asyncio.timeout(within_s):
                while not self.closed and not condition(self.jobs.get(job_id)):
                    await news.wait()
                    news.clear()
        return self.jobs.get(job_id)

    async def settled(self, job_id: int, *, within_s: float) -> Job:
        """Return the job once it is over, or as it is after `within_s` seconds; raises `UnknownJob`."""
        return await self.until(job_id, lambda job: job.state.is_final, within_s=within_s)

    async def cancel(self, job_id: int) -> Job:
        """Cancel a job that is not over, and remove its results so far; raises `UnknownJob`."""
        job = self.jobs.get(job_id)
        if self.jobs.cancel(job):  # first, so that no queue can begin it any more
            await self._runners[job.kind].stop(job)
            self.stopped(job_id)
        return self.jobs.get(job_id)

    def _notify(self, job_id: int | None) -> None:
        for event in self._watches.get(job_id, ()):
            event.set()

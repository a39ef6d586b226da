"""The jobs as the server sees them: what the catalog knows of them, how far they are, and who wants to hear of it."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from service.jobs.pace import Pace
from service.store.catalog import INGEST
from service.store.jobs import Job, Jobs, JobState
from service.streaming.source import Progress
from service.trace.errors import UnknownJob

INGEST_END = 0.5
"""How long the end of an ingest takes, where to read the file takes 1, as long as none was seen."""


ASKED_S = 60.0
"""How long a job counts as awaited after a client has asked for what it makes."""


class Stops(Protocol):
    """Who does jobs of some kinds, and can be stopped."""

    async def stop(self, job: Job) -> None:
        """Return once nothing of the job goes on any more; what becomes of it is for others to note."""


class Board:
    """Where those who do jobs tell of them, and those who wait for jobs look.

    Args:
        jobs: the queue.
        clock: seconds, for how long a job takes.
    """

    def __init__(self, jobs: Jobs, clock: Callable[[], float] = time.monotonic) -> None:
        self.jobs = jobs
        self.closed = False
        self._clock = clock
        self._progress: dict[int, Progress] = {}
        self._paces: dict[int, Pace] = {}
        self._ends: dict[str, float] = {INGEST: INGEST_END}
        self._watches: defaultdict[int | None, set[asyncio.Event]] = defaultdict(set)
        self._doers: dict[str, Stops] = {}
        self._asked: dict[int, float] = {}

    def close(self) -> None:
        """Let everybody go who waits for jobs: no more is told."""
        self.closed = True
        for job_id in list(self._watches):
            self._ring(job_id)

    # -- for those who do jobs ----------------------------------------------------------------------------------------

    def does(self, kinds: Iterable[str], who: Stops) -> None:
        """Say who does jobs of some kinds."""
        self._doers.update(dict.fromkeys(kinds, who))

    def moved(self, job_id: int, progress: Progress) -> None:
        """Say how far a job is."""
        if job_id not in self._paces:
            self._paces[job_id] = Pace(self._ends.get(self.jobs.get(job_id).kind))
        self._progress[job_id] = progress
        self._paces[job_id].note(progress, self._clock())
        self.changed(job_id)

    def changed(self, job_id: int) -> None:
        """Say that the catalog knows more of a job."""
        self._ring(job_id)
        self._ring(None)

    def rests(self, job_id: int) -> None:
        """Say that nobody works on a job any more."""
        self._progress.pop(job_id, None)
        if pace := self._paces.pop(job_id, None):
            with suppress(UnknownJob):  # forgotten already
                self._learn(self.jobs.get(job_id), pace)
        self.changed(job_id)

    def _learn(self, job: Job, pace: Pace) -> None:
        """Take note of how long the end of a job took, for the next of its kind."""
        seen = pace.end_seen(self._clock()) if job.state is JobState.DONE else None
        if seen is not None:
            self._ends[job.kind] = (self._ends.get(job.kind, seen) + seen) / 2

    # -- for those who wait for them ----------------------------------------------------------------------------------

    def progress(self, job_id: int) -> Progress | None:
        """How far a job is; None if it does not run, or has not told yet."""
        return self._progress.get(job_id)

    def left_s(self, job_id: int) -> float | None:
        """Seconds that a job still takes, as fast as it was of late; None while nobody can know."""
        pace = self._paces.get(job_id)
        return pace.left_s(self._clock()) if pace else None

    @contextmanager
    def watching(self, job_id: int | None = None) -> Iterator[asyncio.Event]:
        """An event that is set whenever there is news of a job, or of any; who waits for it clears it first."""
        event = asyncio.Event()
        self._watches[job_id].add(event)
        try:
            yield event
        finally:
            self._watches[job_id].discard(event)
            if not self._watches[job_id]:
                del self._watches[job_id]

    def ask_for(self, job_id: int) -> None:
        """Note that a client needs the job done and asks again soon, as who is told that a trace is not ready."""
        self._asked[job_id] = self._clock()

    def awaited(self) -> set[int]:
        """The ids of the jobs that clients wait for, or have asked for of late."""
        now = self._clock()
        self._asked = {job_id: at for job_id, at in self._asked.items() if now - at < ASKED_S}
        return {job_id for job_id in self._watches if job_id is not None} | self._asked.keys()

    async def until(self, job_id: int, condition: Callable[[Job], bool], *, within_s: float) -> Job:
        """The job once the condition holds, or as it is after `within_s` seconds; raises `UnknownJob`."""
        with suppress(TimeoutError), self.watching(job_id) as news:
            async with asyncio.timeout(within_s):
                while not self.closed and not condition(self.jobs.get(job_id)):
                    await news.wait()
                    news.clear()
        return self.jobs.get(job_id)

    async def settled(self, job_id: int, *, within_s: float) -> Job:
        """The job once it is over, or as it is after `within_s` seconds; raises `UnknownJob`."""
        return await self.until(job_id, lambda job: job.state.over, within_s=within_s)

    async def cancel(self, job_id: int) -> Job:
        """End a job that is not over, and remove what it has made; raises `UnknownJob`."""
        job = self.jobs.get(job_id)
        if self.jobs.cancel(job):  # first: from here on nobody can begin it
            await self._doers[job.kind].stop(job)
            self.rests(job_id)
        return self.jobs.get(job_id)

    def _ring(self, job_id: int | None) -> None:
        for event in self._watches.get(job_id, ()):
            event.set()

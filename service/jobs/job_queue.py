"""Queue that runs a few jobs at a time; those that a client waits for go first."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from service.jobs.job_monitor import JobMonitor
from service.jobs.retrying import RETRY_S, until_written
from service.jobs.slots import cost_limit
from service.store.jobs import Job
from service.trace.errors import ClusterLost, DiskFull, JobDied, LocationUnavailable, TracedockError, WorkerDied

log = logging.getLogger(__name__)


class JobQueue:
    """Runs the queued jobs of some kinds.

    Args:
        monitor: holds the jobs, and is notified of their changes.
        kinds: kinds of the jobs.
        attempt: attempts a job once, and records in the catalog that it is done. After `JobDied`,
            `WorkerDied` and `LocationUnavailable`, the job may be retried, and after `ClusterLost` it is; any other
            error fails it. If cancelled, it leaves nothing behind.
        at_once: number of jobs that run at a time; see `service.jobs.slots.cost_limit` for small jobs.
        attempts: number of attempts after which a job has failed whose process dies, or whose bucket is away.
        on_start: called when a job starts, before its attempt.
    """

    def __init__(
        self,
        monitor: JobMonitor,
        kinds: Sequence[str],
        attempt: Callable[[Job], Awaitable[None]],
        *,
        at_once: int,
        attempts: int,
        on_start: Callable[[Job], None] = lambda _: None,
    ) -> None:
        self._monitor = monitor
        self._kinds = kinds
        self._attempt = attempt
        self._at_once = at_once
        self._attempts = attempts
        self._on_start = on_start
        self._work = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running: dict[int, Job] = {}
        self._dispatcher: asyncio.Task[None] | None = None
        monitor.register(kinds, self)

    def start(self) -> None:
        """Begin to take jobs. The unfinished jobs of an earlier server must have been queued again before."""
        self._dispatcher = asyncio.create_task(self._take_jobs())
        self.wake()

    async def close(self) -> None:
        """Stop at once; unfinished jobs stay for the next start."""
        dispatcher, self._dispatcher = self._dispatcher, None
        tasks = [*self._tasks.values(), *([dispatcher] if dispatcher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Notify the queue that there may be a new job."""
        self._work.set()

    def has_room(self, job: Job) -> bool:
        """Return whether a job may begin before another one ends."""
        return job.cost <= self._cost_limit()

    def runs(self, job_id: int) -> bool:
        """Return whether a job runs."""
        return job_id in self._tasks

    def running_on(self, trace_id: str) -> list[Job]:
        """Return the jobs that run on a trace."""
        return [job for job in self._running.values() if job.trace == trace_id]

    def begin_on(self, trace_id: str) -> bool:
        """Begin the queued job of a trace ahead of all others, regardless of its cost; return whether there is one."""
        job = self._next(trace_id=trace_id, cost_max=math.inf) if self._dispatcher else None
        if job:
            self._begin(job)
        return job is not None

    async def stop(self, job: Job) -> None:
        """Stop a job, and return once nothing of it runs."""
        if task := self._tasks.get(job.id):
            task.cancel()
            await asyncio.wait([task])

    def _cost_limit(self) -> float:
        return cost_limit(self._running.values(), self._at_once)

    async def _take_jobs(self) -> None:
        while True:
            self._work.clear()
            while (limit := self._cost_limit()) >= 0 and (job := self._next(cost_max=limit)):
                self._begin(job)
            await self._work.wait()

    def _next(self, *, cost_max: float, trace_id: str | None = None) -> Job | None:
        """Take the next job from the catalog; None if there is none, or if the disk is too full to record its start."""
        awaited = self._monitor.awaited()
        try:
            return self._monitor.jobs.claim(self._kinds, trace=trace_id, awaited=awaited, cost_max=cost_max)
        except DiskFull as error:
            log.warning("no job starts until the disk has room: %s", error.detail)
            asyncio.get_running_loop().call_later(RETRY_S, self.wake)
            return None

    def _begin(self, job: Job) -> None:
        self._running[job.id] = job
        self._on_start(job)
        task = self._tasks[job.id] = asyncio.create_task(self._run(job))
        task.add_done_callback(partial(self._ended, job))
        self._monitor.changed(job.id)

    async def _run(self, job: Job) -> None:
        if record_end := await self._try(job):
            await until_written(record_end, f"the end of job {job.id}")

    async def _try(self, job: Job) -> Callable[[], None] | None:
        """Attempt a job, and return a function that records its failure or retry in the catalog; None if it is done."""
        jobs = self._monitor.jobs
        try:
            await self._attempt(job)
        except ClusterLost as lost:
            log.warning("job %d: %s Trying again.", job.id, lost.detail)
            return partial(jobs.retry, job, counts=False)
        except (JobDied, WorkerDied, LocationUnavailable) as error:
            if job.attempts < self._attempts:
                log.warning("job %d: %s Trying again.", job.id, error.detail)
                return partial(jobs.retry, job)
            detail = f"{error.detail.rstrip('.')}, {job.attempts} times."
            return partial(jobs.fail, job, type(error)(detail, attempts=job.attempts))
        except TracedockError as error:
            return partial(jobs.fail, job, error)
        except Exception as error:
            log.exception("job %d broke", job.id)
            return partial(jobs.fail, job, TracedockError(f"The job broke: {type(error).__name__}."))
        return None

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        del self._tasks[job.id], self._running[job.id]
        if not task.cancelled() and (error := task.exception()):
            log.error("the end of job %d can't be recorded; it begins anew at the next start", job.id, exc_info=error)
        self._monitor.stopped(job.id)
        self.wake()

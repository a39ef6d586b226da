"""A lane of the queue: takes jobs of some kinds, a few at a time, those first for which somebody waits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from service.jobs.board import Board
from service.jobs.retrying import RETRY_S, until_written
from service.jobs.slots import room
from service.store.jobs import Job
from service.trace.errors import DiskFull, JobDied, TracedockError

log = logging.getLogger(__name__)


class Lane:
    """Takes jobs off the queue for as long as it runs.

    Args:
        board: where it tells of them.
        kinds: of the jobs.
        attempt: does a job once, and notes in the catalog that it is done. What it raises the job fails with, but for
            `JobDied`, after which there may be another attempt. Cancelled, it leaves nothing behind.
        at_once: how many at a time; a small one more if these are large.
        attempts: how often a job is begun before its dying process fails it.
    """

    def __init__(
        self, board: Board, kinds: Sequence[str], attempt: Callable[[Job], Awaitable[None]], *, at_once: int,
        attempts: int,
    ) -> None:  # fmt: skip
        self._board = board
        self._kinds = kinds
        self._attempt = attempt
        self._at_once = at_once
        self._attempts = attempts
        self._work = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._jobs: dict[int, Job] = {}  # that run
        self._main: asyncio.Task[None] | None = None
        board.does(kinds, self)

    def start(self) -> None:
        """Begin; what an earlier server left must be queued again."""
        self._main = asyncio.create_task(self._take_jobs())
        self.wake()

    async def close(self) -> None:
        """Stop at once; what is not finished stays for the next start."""
        main, self._main = self._main, None
        tasks = [*self._tasks.values(), *([main] if main else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Say that there may be a new job."""
        self._work.set()

    def has_room(self, job: Job) -> bool:
        """Whether a job may begin without another one's end."""
        return job.cost <= room(self._jobs.values(), self._at_once)

    def runs(self, job_id: int) -> bool:
        """Whether a job is worked on."""
        return job_id in self._tasks

    async def stop(self, job: Job) -> None:
        """Return once nothing of the job goes on any more."""
        if task := self._tasks.get(job.id):
            task.cancel()
            await asyncio.wait([task])

    async def _take_jobs(self) -> None:
        while True:
            self._work.clear()
            while job := self._next():
                self._jobs[job.id] = job
                task = self._tasks[job.id] = asyncio.create_task(self._do(job))
                task.add_done_callback(partial(self._ended, job))
                self._board.changed(job.id)
            await self._work.wait()

    def _next(self) -> Job | None:
        cost_max = room(self._jobs.values(), self._at_once)
        if cost_max < 0:
            return None
        try:
            return self._board.jobs.claim(self._kinds, awaited=self._board.awaited(), cost_max=cost_max)
        except DiskFull as error:
            log.warning("no job can be begun before there is room: %s", error.detail)
            asyncio.get_running_loop().call_later(RETRY_S, self.wake)
            return None

    async def _do(self, job: Job) -> None:
        if end := await self._tried(job):
            await until_written(end, f"the end of job {job.id}")

    async def _tried(self, job: Job) -> Callable[[], None] | None:
        """Attempt a job; what notes in the catalog that it failed, or None where it is done."""
        jobs = self._board.jobs
        try:
            await self._attempt(job)
        except JobDied as died:
            if job.attempts < self._attempts:
                log.warning("job %d: %s Trying again.", job.id, died.detail)
                return partial(jobs.retry, job)
            often = f"{died.detail.rstrip('.')}, {job.attempts} times."
            return partial(jobs.fail, job, JobDied(often, attempts=job.attempts).as_dict())
        except TracedockError as error:
            return partial(jobs.fail, job, error.as_dict())
        except Exception as error:
            log.exception("job %d broke", job.id)
            return partial(jobs.fail, job, TracedockError(f"The job broke: {type(error).__name__}.").as_dict())
        return None

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        del self._tasks[job.id], self._jobs[job.id]
        if not task.cancelled() and (error := task.exception()):
            log.error("the end of job %d can't be noted; it is begun anew at the next start", job.id, exc_info=error)
        self._board.rests(job.id)
        self.wake()

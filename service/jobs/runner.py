"""Runs the queue's ingests in worker processes, a few at a time, and tells who waits for them."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

from service.jobs.board import Board
from service.jobs.process import Ending, Ready, WorkerProcess
from service.jobs.retrying import RETRY_S, until_written
from service.jobs.slots import room
from service.store.catalog import INGEST, Catalog, Trace
from service.store.folder import Folder
from service.store.jobs import Job
from service.streaming.source import Progress
from service.trace.errors import DiskFull, UnknownTrace, WorkerDied
from service.trace.summary import Summary

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Running:
    """A job that runs: the worker that has it, and the task that awaits its answer."""

    job: Job
    worker: WorkerProcess
    task: asyncio.Task[None]


class Following:
    """An upload whose trace may be read while it is received; made by `Runner.following`."""

    def __init__(self, runner: "Runner", trace_id: str, name: str) -> None:
        self._runner = runner
        self._trace_id = trace_id
        self._name = name
        self._worker: WorkerProcess | None = None

    def grew(self, to_bytes: int) -> None:
        """Say that so many bytes are on disk. The first time that there is room for one, a worker begins to read."""
        self._worker = self._worker or self._runner.follow(self._trace_id, self._name)
        if self._worker:
            self._worker.grew(to_bytes)


class Runner:
    """Takes ingests off the queue for as long as it runs.

    Args:
        catalog: knows the traces.
        board: the queue, where it tells of its jobs.
        folder: where the traces lie.
        workers: processes at a time; one more for a small file, if these read large ones. So many more may follow
            uploads: these have places of their own, lest a slow upload hold up the jobs that wait.
        attempts: how often a job is begun before a dying worker fails it.
        keep_ready: whether a worker is kept ready.
    """

    def __init__(
        self,
        catalog: Catalog,
        board: Board,
        folder: Folder,
        *,
        workers: int,
        attempts: int,
        keep_ready: bool = False,
    ) -> None:
        self._catalog = catalog
        self._board = board
        self._jobs = board.jobs
        self._folder = folder
        self._workers = workers
        self._attempts = attempts
        self._ready = Ready("service.jobs.worker") if keep_ready else None
        self._work = asyncio.Event()
        self._changed = asyncio.Condition()
        self._running: dict[str, _Running] = {}
        self._following: dict[str, WorkerProcess] = {}  # of traces that are received
        self._followers: set[WorkerProcess] = set()  # all of these that live, also after their upload
        self.on_read: Callable[[], object] = lambda: None
        """Is called whenever a trace became ready."""
        self._main: asyncio.Task[None] | None = None
        board.does([INGEST], self)

    @property
    def processes(self) -> list[WorkerProcess]:
        """The workers that have jobs, the youngest last."""
        return [running.worker for running in self._running.values()]

    def start(self) -> None:
        """Begin; what an earlier server left must be queued again."""
        self._main = asyncio.create_task(self._take_jobs())
        self.wake()
        self._prepare()

    async def close(self) -> None:
        """Stop at once; what is not finished stays queued."""
        main, self._main = self._main, None
        if main:
            main.cancel()
        if self._ready:
            await self._ready.close()
        await asyncio.gather(
            *([main] if main else []),
            *map(self._stop, self._running.values()),
            *map(self.give_up, list(self._following)),
            return_exceptions=True,
        )

    def wake(self) -> None:
        """Say that there may be a new job."""
        self._work.set()

    def progress(self, trace_id: str) -> Progress | None:
        """How far the job of a trace has come; None when none is running."""
        running = self._running.get(trace_id)
        return running.worker.progress if running else None

    async def settled(self, trace_id: str, *, within_s: float) -> Trace:
        """The trace once it is ready or failed, or as it is after `within_s` seconds."""
        job_id = self._catalog.get(trace_id).job
        with suppress(TimeoutError), nullcontext() if job_id is None else self._board.watching(job_id):
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(lambda: self._catalog.get(trace_id).state.settled)
        return self._catalog.get(trace_id)

    async def cancel(self, trace_id: str) -> None:
        """Stop the job of a trace, if one is running, wait until its worker is gone, and let who waits look again."""
        if running := self._running.get(trace_id):
            await self._stop(running)
        await self._tell()

    async def stop(self, job: Job) -> None:
        """Return once nothing of the job goes on any more, and nothing is left of it."""
        await self.cancel(job.trace)
        await asyncio.to_thread(self._folder.remove_columns, job.trace)

    # -- uploads that are followed --------------------------------------------------------------------------------

    @asynccontextmanager
    async def following(self, trace_id: str, name: str) -> AsyncIterator[Following]:
        """Let a worker read a trace while it is received; left before the trace is handed over, nothing stays.

        Args:
            trace_id: the id of the upload, and of the trace it becomes.
            name: the name the trace was given.
        """
        try:
            yield Following(self, trace_id, name)
        finally:
            await self.give_up(trace_id)

    async def give_up(self, trace_id: str) -> None:
        """Follow an upload no more, and remove what was made of it."""
        if worker := self._following.pop(trace_id, None):
            await worker.end()
            await asyncio.to_thread(self._folder.remove_columns, trace_id)

    def follow(self, trace_id: str, name: str) -> WorkerProcess | None:
        """A worker that reads what is received, or None where there is no room for it now."""
        if not self._main or len(self._followers) >= self._workers:
            return None
        worker = self._following[trace_id] = self._worker(trace_id, name)
        self._followers.add(worker)
        worker.ended.add_done_callback(partial(self._ended, trace_id, worker))
        return worker

    def _worker(self, trace_id: str, name: str, path: str | None = None, mark: str | None = None) -> WorkerProcess:
        ready = self._ready.take() if self._ready else None
        worker = WorkerProcess.reading(self._folder, trace_id, name, path, mark, ready=ready)
        worker.ended.add_done_callback(lambda _: self._prepare())
        return worker

    def _prepare(self) -> None:
        if self._ready and self._main:
            self._ready.prepare()

    def _ended(self, trace_id: str, worker: WorkerProcess, task: asyncio.Task[Ending]) -> None:
        self._followers.discard(worker)
        if trace_id in self._following and worker.failed and not task.cancelled():
            why = task.exception() or task.result()
            log.warning("the upload %s is followed no more: %s", trace_id, why)

    def hand_over(self, trace_id: str) -> None:
        """Give the job of a trace to the worker that follows it, past the queue, or else leave it in the queue."""
        worker = self._following.get(trace_id)
        if worker and not worker.failed and self._main and (job := self._next_job(trace_id)):
            self._begin(job)
        elif worker:  # another may soon be at it
            del self._following[trace_id]
            worker.ended.cancel()
        self.wake()

    # -- jobs -----------------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _take_jobs(self) -> None:
        while True:
            self._work.clear()
            while job := self._next_job():
                self._begin(job)
            await self._work.wait()

    def _next_job(self, trace_id: str | None = None) -> Job | None:
        """The job of a trace, or else the next that there is room for."""
        cost_max = math.inf if trace_id else room([one.job for one in self._running.values()], self._workers)
        if cost_max < 0:
            return None
        try:
            return self._jobs.claim([INGEST], trace=trace_id, awaited=self._board.awaited(), cost_max=cost_max)
        except DiskFull as error:
            log.warning("no job can be begun before there is room: %s", error.detail)
            asyncio.get_running_loop().call_later(RETRY_S, self.wake)
            return None

    def _begin(self, job: Job) -> None:
        try:
            trace = self._catalog.get(job.trace)
        except UnknownTrace:  # deleted between the queue and here
            return
        following = self._following.pop(job.trace, None)
        if following and not following.failed:
            worker = following
        else:
            worker = self._worker(job.trace, trace.name, trace.path, trace.path_mark)
        worker.complete()
        worker.on_progress = lambda: self._board.moved(job.id, replace(worker.progress, bytes_total=trace.size))
        running = self._running[job.trace] = _Running(job, worker, asyncio.create_task(self._run(job, worker)))
        running.task.add_done_callback(partial(self._done, job.trace, running))
        self._board.changed(job.id)

    def _done(self, trace_id: str, running: _Running, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("the job of trace %s broke; it is begun anew at the next start", trace_id, exc_info=error)
        if self._running.get(trace_id) is running:  # and not yet its next attempt
            del self._running[trace_id]
        self._board.rests(running.job.id)
        self.wake()

    async def _run(self, job: Job, worker: WorkerProcess) -> None:
        answer, how = await worker.ended
        end = f"the end of the job of trace {job.trace}"
        if "result" in answer:
            await until_written(partial(self._jobs.finish_ingest, job, Summary(**answer["result"])), end)
            self.on_read()
        elif error := answer.get("error") or answer.get("failure"):
            await asyncio.to_thread(self._folder.remove_columns, job.trace)  # of a worker that was ended
            await until_written(partial(self._jobs.fail, job, error), end)
        elif job.attempts < self._attempts:
            log.warning("worker of trace %s %s; trying again", job.trace, how)
            await until_written(partial(self._jobs.retry, job), end)
        else:
            await asyncio.to_thread(self._folder.remove_columns, job.trace)
            died = WorkerDied(f"The worker {how}, {job.attempts} times.", attempts=job.attempts)
            await until_written(partial(self._jobs.fail, job, died.as_dict()), end)
        await self._tell()

    @staticmethod
    async def _stop(running: _Running) -> None:
        await running.worker.end()  # which ends the task too
        running.task.cancel()  # unless it waits for room to note the end
        await asyncio.wait({running.task})

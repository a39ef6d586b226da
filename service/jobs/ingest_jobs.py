"""The jobs that read traces, each as a task of a child or of a cluster.

A child may read a trace while the trace is still being uploaded. A worker of a cluster writes the columns into a folder
of its attempt, since the worker of an earlier attempt may still run.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from service.jobs.children.kinds import Kind
from service.jobs.children.task_process import Outcome, TaskProcess
from service.jobs.children.tasks.ingest import IngestTask
from service.jobs.job_monitor import JobMonitor
from service.jobs.job_queue import JobQueue
from service.jobs.retrying import until_written
from service.jobs.shielded import shielded
from service.jobs.task_runner import ChildRunner, RunningTask, TaskRunner
from service.store.catalog import INGEST, Catalog, Trace
from service.store.folder import Folder, disk_errors
from service.store.jobs import Job
from service.store.originals import Originals
from service.streaming.source import Progress
from service.trace.errors import WorkerDied
from service.trace.summary import Summary

log = logging.getLogger(__name__)

IngestProcess = TaskProcess[Summary]


class UploadFollower:
    """Has a trace read while it is being uploaded."""

    def __init__(self, jobs: "IngestJobs", trace_id: str, name: str) -> None:
        self._jobs = jobs
        self._trace_id = trace_id
        self._name = name
        self._process: IngestProcess | None = None

    def grew(self, to_bytes: int) -> None:
        """Report the number of bytes on disk. The first report for which a child is free starts that child."""
        self._process = self._process or self._jobs.follow(self._trace_id, self._name)
        if self._process:
            self._process.grew(to_bytes)


class IngestJobs:
    """Runs the ingests of the queue.

    Args:
        catalog: the catalog of traces.
        monitor: holds the jobs, and is notified of their changes.
        folder: the data folder.
        runner: runs the ingests; only a `ChildRunner` reads traces that are still being uploaded.
        originals: decides which originals are kept.
        workers: number of ingests at a time, plus one of a small file if these read large ones. As many additional
            children may follow uploads, so that slow uploads do not delay queued jobs.
        attempts: number of attempts after which a job whose process dies has failed.
    """

    def __init__(
        self,
        catalog: Catalog,
        monitor: JobMonitor,
        folder: Folder,
        runner: TaskRunner,
        originals: Originals,
        *,
        workers: int,
        attempts: int,
    ) -> None:
        self._catalog = catalog
        self._monitor = monitor
        self._folder = folder
        self._workers = workers
        self._runner = runner
        self._originals = originals
        self._queue = JobQueue(
            monitor, [INGEST], self._attempt, at_once=workers, attempts=attempts, on_start=self._claim_follower
        )
        self._running: dict[str, RunningTask[Summary]] = {}
        """Tasks of running jobs, by trace id."""
        self._following: dict[str, IngestProcess] = {}
        """Children of traces that are still being uploaded, by trace id."""
        self._followers: set[IngestProcess] = set()
        """Running children that started while their traces were being uploaded."""
        self._open = False
        self.on_read: Callable[[str], object] = lambda _: None
        """Called with the id of each trace that has become ready."""
        monitor.register([INGEST], self)

    @property
    def tasks(self) -> list[RunningTask[Summary]]:
        """The tasks of the running jobs, the latest to start last."""
        return list(self._running.values())

    def start(self) -> None:
        """Begin to take jobs. The unfinished jobs of an earlier server must have been queued again before."""
        self._open = True
        self._queue.start()

    async def close(self) -> None:
        """Stop at once; unfinished jobs stay queued."""
        self._open = False
        await asyncio.gather(
            self._queue.close(), *map(self.stop_following, list(self._following)), return_exceptions=True
        )
        for running in self.tasks:  # of jobs that were cancelled before their attempt
            await running.end()

    def wake(self) -> None:
        """Notify the queue that there may be a new job."""
        self._queue.wake()

    def progress(self, trace_id: str) -> Progress | None:
        """Return the progress of a trace's job; None if the job does not run."""
        running = self._running.get(trace_id)
        return running.progress if running else None

    async def settled(self, trace_id: str, *, within_s: float) -> Trace:
        """Return the trace once it is ready or failed, or as it is after `within_s` seconds; raises `UnknownTrace`."""
        trace = self._catalog.get(trace_id)
        if trace.job is None:
            return trace
        with suppress(TimeoutError), self._monitor.watching(trace.job) as news:
            async with asyncio.timeout(within_s):
                while not self._monitor.closed and not self._catalog.get(trace_id).state.settled:
                    await news.wait()
                    news.clear()
        return self._catalog.get(trace_id)

    async def cancel(self, trace_id: str) -> None:
        """Stop the job of a trace, if one runs, and return once its task has ended."""
        for job in self._queue.running_on(trace_id):
            await self._queue.stop(job)
        if running := self._running.pop(trace_id, None):  # of a job that was cancelled before its attempt
            await running.end()

    async def stop(self, job: Job) -> None:
        """Stop a job and remove its columns; return once nothing of it runs."""
        await self.cancel(job.trace)
        await asyncio.to_thread(self._folder.remove_columns, job.trace)

    # -- uploads that are followed --------------------------------------------------------------------------------

    @asynccontextmanager
    async def following(self, trace_id: str, name: str) -> AsyncIterator[UploadFollower]:
        """Let a child read a trace while it is being uploaded.

        If the context exits before `hand_over`, the columns that the child has written are removed.

        Args:
            trace_id: the id of the upload, and of the trace that it becomes.
            name: the file name of the trace.
        """
        try:
            yield UploadFollower(self, trace_id, name)
        finally:
            await self.stop_following(trace_id)

    async def stop_following(self, trace_id: str) -> None:
        """End the child that follows an upload, and remove the columns that it has written."""
        if process := self._following.pop(trace_id, None):
            await process.end()
            await asyncio.to_thread(self._folder.remove_columns, trace_id)

    def follow(self, trace_id: str, name: str) -> IngestProcess | None:
        """Start a child that reads an upload as it arrives; return None if none may start.

        Too many may follow uploads already. Workers of a cluster read whole files.
        """
        if not self._open or not isinstance(self._runner, ChildRunner) or len(self._followers) >= self._workers:
            return None
        process = self._runner.run(Kind.INGEST, self._task(trace_id, self._folder.columns_of(trace_id), name))
        self._following[trace_id] = process
        process.grew(0)
        self._followers.add(process)
        process.ended.add_done_callback(partial(self._follower_ended, trace_id, process))
        return process

    def hand_over(self, trace_id: str) -> None:
        """Begin a trace's job at once in the child that follows the upload; without such a child, the job is queued."""
        process = self._following.get(trace_id)
        if process and (process.failed or not self._queue.begin_on(trace_id)):
            del self._following[trace_id]
            process.ended.cancel()
        self.wake()

    def _follower_ended(self, trace_id: str, process: IngestProcess, ended: asyncio.Task[Outcome[Summary]]) -> None:
        self._followers.discard(process)
        if trace_id in self._following and process.failed and not ended.cancelled():
            reason = ended.exception() or ended.result().error or ended.result().exit_description
            log.warning("the upload %s is no longer followed: %s", trace_id, reason)

    # -- jobs -----------------------------------------------------------------------------------------------------

    def _task(
        self, trace_id: str, columns: Path, name: str, path: str | None = None, mark: str | None = None
    ) -> IngestTask:
        """Return the task that reads a trace.

        Args:
            trace_id: the id of the trace.
            columns: the folder to create.
            name: the trace's file name.
            path: path or URL of the original, if it lies outside of the data folder.
            mark: mark of an original that other programs can change; see `service.store.external_files`.
        """
        original = path or str(self._folder.original(trace_id))
        return IngestTask(self._folder.received(trace_id), original, columns, name, mark)

    def _claim_follower(self, job: Job) -> None:
        """Hand the child that follows the upload of a trace, if there is one, to the trace's job, which begins now."""
        process = self._following.pop(job.trace, None)
        if process and not process.failed:
            self._running[job.trace] = process

    async def _attempt(self, job: Job) -> None:
        """Read a trace once; raises `WorkerDied` if its process died."""
        try:
            trace = self._catalog.get(job.trace)
            if isinstance(self._runner, ChildRunner):
                outcome = await self._read(job, trace, self._runner)
            else:
                outcome = await self._read_elsewhere(job, trace)
            if outcome.result is None:
                await asyncio.to_thread(self._folder.remove_columns, job.trace)
                raise outcome.error or WorkerDied(f"The worker {outcome.exit_description}.")
            keeps_original = self._originals.keeps(outcome.result.format)
            record = partial(self._monitor.jobs.finish_ingest, job, outcome.result, keeps_original=keeps_original)
            ended = await until_written(record, f"the end of the job of trace {job.trace}")
            if ended and not keeps_original:
                await asyncio.to_thread(self._originals.remove, job.trace)
        finally:
            if claimed := self._running.pop(job.trace, None):
                await claimed.end()
        self.on_read(job.trace)

    async def _read(self, job: Job, trace: Trace, runner: ChildRunner) -> Outcome[Summary]:
        """Read a trace in the child that follows its upload, or in a new one."""
        running = self._running.get(trace.id)
        if not isinstance(running, TaskProcess):
            columns = self._folder.columns_of(trace.id)
            running = runner.run(Kind.INGEST, self._task(trace.id, columns, trace.name, trace.path, trace.path_mark))
        running.complete()
        return await self._outcome(job, trace, running)

    async def _read_elsewhere(self, job: Job, trace: Trace) -> Outcome[Summary]:
        """Read a trace on another machine, and keep the columns that it has written."""
        attempt = self._folder.new_attempt(job.id)
        try:
            with disk_errors():
                await asyncio.to_thread(attempt.mkdir)
            task = self._task(trace.id, attempt / trace.id, trace.name, trace.path, trace.path_mark)
            outcome = await self._outcome(job, trace, self._runner.run(Kind.INGEST, task))
            if outcome.result is not None:
                await shielded(asyncio.to_thread(self._folder.keep_columns, attempt / trace.id, trace.id))
            return outcome
        finally:
            await asyncio.to_thread(shutil.rmtree, attempt, ignore_errors=True)

    async def _outcome(self, job: Job, trace: Trace, running: RunningTask[Summary]) -> Outcome[Summary]:
        """Report the progress of a job's task, and return the outcome."""
        self._running[trace.id] = running
        running.on_progress = partial(self._report, job, running, trace.size)
        return await asyncio.shield(running.ended)

    def _report(self, job: Job, running: RunningTask[Summary], size: int) -> None:
        self._monitor.moved(job.id, replace(running.progress, bytes_total=size))

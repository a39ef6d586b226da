"""Runs the catalog's jobs in worker processes, a few at a time, and tells who waits for them."""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from functools import partial
from typing import Any

import orjson

from service.store.catalog import Catalog, Job, Trace
from service.store.folder import Folder
from service.streaming.ingest import Progress
from service.trace.census import Summary
from service.trace.errors import DiskFull, UnknownTrace, WorkerDied

log = logging.getLogger(__name__)


class Runner:
    """Takes jobs off the catalog's queue for as long as it runs.

    Args:
        catalog: the queue.
        folder: where the traces lie.
        workers: processes at a time.
        attempts: how often a job is begun before a dying worker fails it.
    """

    def __init__(self, catalog: Catalog, folder: Folder, *, workers: int, attempts: int) -> None:
        self._catalog = catalog
        self._folder = folder
        self._attempts = attempts
        self._free = asyncio.Semaphore(workers)
        self._work = asyncio.Event()
        self._changed = asyncio.Condition()
        self._running: dict[str, tuple[asyncio.Task[None], Progress]] = {}
        self._main: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Resume what an earlier server left, and begin."""
        self._catalog.requeue()
        self._main = asyncio.create_task(self._take_jobs())
        self.wake()

    async def close(self) -> None:
        """Stop at once; what is not finished stays queued."""
        tasks = [task for task, _ in self._running.values()] + ([self._main] if self._main else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Say that there may be a new job."""
        self._work.set()

    def progress(self, trace_id: str) -> Progress | None:
        """How far the job of a trace has come; None when none is running."""
        running = self._running.get(trace_id)
        return running[1] if running else None

    async def settled(self, trace_id: str, *, within_s: float) -> Trace:
        """The trace once it is ready or failed, or as it is after `within_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(lambda: self._catalog.get(trace_id).state.settled)
        return self._catalog.get(trace_id)

    async def cancel(self, trace_id: str) -> None:
        """Stop the job of a trace, if one is running, wait until its worker is gone, and let who waits look again."""
        if running := self._running.get(trace_id):
            running[0].cancel()
            await asyncio.gather(running[0], return_exceptions=True)
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _take_jobs(self) -> None:
        while True:
            await self._free.acquire()
            while (job := self._next_job()) is None:
                self._work.clear()
                await self._work.wait()
            progress = Progress()
            task = asyncio.create_task(self._run(job, progress))
            self._running[job.trace] = task, progress
            task.add_done_callback(partial(self._done, job.trace))

    def _next_job(self) -> Job | None:
        try:
            return self._catalog.take_job()
        except DiskFull:
            log.exception("no job can be begun; the next upload tries again")
            return None

    def _done(self, trace_id: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("the job of trace %s broke; it is begun anew at the next start", trace_id, exc_info=error)
        self._running.pop(trace_id, None)
        self._free.release()
        self.wake()

    async def _run(self, job: Job, progress: Progress) -> None:
        try:
            trace = self._catalog.get(job.trace)
        except UnknownTrace:  # deleted between the queue and here
            return
        answer, ending = await self._ask_worker(trace, progress)
        if "result" in answer:
            self._catalog.finish(job, Summary(**answer["result"]))
        elif "error" in answer:
            self._catalog.fail(job, answer["error"])
        elif job.attempts < self._attempts:
            log.warning("worker of trace %s %s; trying again", job.trace, ending)
            self._catalog.retry(job)
        else:
            died = WorkerDied(f"The worker {ending}, {job.attempts} times.", attempts=job.attempts)
            self._catalog.fail(job, died.as_dict())
        await self._tell()

    async def _ask_worker(self, trace: Trace, progress: Progress) -> tuple[dict[str, dict[str, Any]], str]:
        """What the worker told last, and in words how it ended."""
        try:
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "service.jobs.worker",
                str(self._folder.original(trace.id)), str(self._folder.columns_of(trace.id)), trace.name,
                stdin=PIPE, stdout=PIPE, start_new_session=True, limit=1 << 30,
            )  # fmt: skip
        except OSError as error:
            return {}, f"could not be started: {error}"
        try:
            answer = await self._listen(worker, progress)
            status = await worker.wait()
        finally:
            if worker.returncode is None:
                with suppress(ProcessLookupError):
                    worker.kill()
                await worker.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return answer, how

    @staticmethod
    async def _listen(worker: Process, progress: Progress) -> dict[str, dict[str, Any]]:
        answer: dict[str, dict[str, Any]] = {}
        if worker.stdout is None:
            raise RuntimeError("a worker is started with a pipe for its output")
        async for line in worker.stdout:
            if not line.endswith(b"\n"):  # killed in the middle of a line
                break
            told = orjson.loads(line)
            if "progress" in told:
                progress.bytes, progress.events = told["progress"]["bytes"], told["progress"]["events"]
            else:
                answer = told
        return answer

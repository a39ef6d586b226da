"""The jobs that make traces of traces, as the server sees them: one process for each, a few at a time.

What a process makes lies in a folder of its own until all of it is there; then it becomes traces at once. So a job that
is cancelled, or killed with its server, leaves nothing, and the latter is begun anew.
"""

import asyncio
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from service.jobs.process import WorkerProcess
from service.store.catalog import Catalog, Job, JobState, State, Trace
from service.store.folder import Folder, disk_errors
from service.streaming.source import Progress
from service.trace.errors import JobDied, NotReady, TracedockError, again

log = logging.getLogger(__name__)

AT_ONCE = 2
MODULE = "service.jobs.maker"


class Making:
    """Takes the catalog's jobs that make traces.

    Args:
        catalog: the queue.
        folder: where the traces lie.
        attempts: how often a job is begun before a dying process fails it.
    """

    def __init__(self, catalog: Catalog, folder: Folder, *, attempts: int) -> None:
        self._catalog = catalog
        self._folder = folder
        self._attempts = attempts
        self._changed = asyncio.Condition()
        self._free = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, WorkerProcess] = {}
        self._checked: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def start(self) -> None:
        """Begin anew what an earlier server left."""
        for job in self._catalog.unfinished_jobs():
            self._begin(job)

    async def close(self) -> None:
        """Stop at once; what is not finished stays queued."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def submit(self, kind: str, request: dict[str, Any]) -> Job:
        """Queue a job: a ``split`` or a ``merge``, and the rest of what it is told."""
        job = self._catalog.add_job(kind, request)
        self._begin(job)
        return job

    def progress(self, job: Job) -> Progress:
        """How far a job has come."""
        process = self._processes.get(job.id)
        return process.progress if process else Progress(events=job.events, events_total=job.events)

    async def checked(self, job_id: int, *, within_s: float) -> None:
        """Return once it is known that a job has anything to do, or it is over, but after `within_s` seconds anyway."""
        if job_id in self._processes or not self._free.locked():  # it need not wait for its turn
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._checked[job_id].wait()

    async def settled(self, job_id: int, *, within_s: float) -> Job:
        """The job once it is over, or as it is after `within_s` seconds; raises `UnknownJob`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(lambda: self._catalog.job(job_id).state.over)
        return self._catalog.job(job_id)

    async def cancel(self, job_id: int) -> Job:
        """End a job that is not over, and remove what it has made; raises `UnknownJob`."""
        if not self._catalog.job(job_id).state.over and (task := self._tasks.get(job_id)):
            task.cancel("cancelled")
            await asyncio.wait([task])
            if not (job := self._catalog.job(job_id)).state.over:
                self._catalog.end_job(job, JobState.CANCELLED)
            await self._tell()
        return self._catalog.job(job_id)

    async def forget(self, trace_id: str) -> None:
        """End the jobs that read a trace, which is deleted."""
        for job in self._catalog.unfinished_jobs():
            if trace_id in _sources(job.request):
                await self.cancel(job.id)

    async def plan(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """What a split would make; raises what the split would."""
        process = WorkerProcess(MODULE, told={"kind": "plan", **self._told(request)})
        try:
            ending = await asyncio.shield(process.ended)
        finally:
            await process.end()
        answer: dict[str, Any] = ending.answer
        if told := answer.get("error") or answer.get("failure"):
            raise again(told)
        if "result" not in answer:
            raise JobDied(f"The process {ending.how}.")
        found: list[dict[str, Any]] = answer["result"]
        return found

    # -- one job ------------------------------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        self._checked[job.id].clear()
        task = self._tasks[job.id] = asyncio.create_task(self._run(job))
        task.add_done_callback(partial(self._ended, job))

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        del self._tasks[job.id]
        self._checked.pop(job.id).set()
        if not task.cancelled() and (error := task.exception()):
            log.error("the job %d broke; it is begun anew at the next start", job.id, exc_info=error)

    async def _run(self, job: Job) -> None:
        async with self._free:
            while not (job := await self._attempt(self._catalog.begin_job(job))).state.over:
                log.warning("the process of job %d died; trying again", job.id)
        await self._tell()

    async def _attempt(self, job: Job) -> Job:
        """Do a job once; it is over then, but where its process died and there is another attempt left."""
        making = self._folder.making / str(job.id)
        process: WorkerProcess | None = None
        try:
            with disk_errors():
                await asyncio.to_thread(_empty, making)
            told = {"kind": job.kind, "folder": str(making), **self._told(job.request)}
            process = WorkerProcess(MODULE, told=told, on_progress=self._checked[job.id].set)
            self._processes[job.id] = process
            ending = await asyncio.shield(process.ended)
            answer: dict[str, Any] = ending.answer
            if "result" in answer:
                await self._kept(asyncio.to_thread(self._keep, job, making, answer["result"]))
            elif why := answer.get("error") or answer.get("failure"):
                self._catalog.end_job(job, JobState.FAILED, why)
            elif job.attempts >= self._attempts:
                died = JobDied(f"The process {ending.how}, {job.attempts} times.", attempts=job.attempts)
                self._catalog.end_job(job, JobState.FAILED, died.as_dict())
        except TracedockError as error:
            self._catalog.end_job(job, JobState.FAILED, error.as_dict())
        finally:
            self._processes.pop(job.id, None)
            if process:
                await process.end()
            await asyncio.to_thread(shutil.rmtree, making, ignore_errors=True)
        return self._catalog.job(job.id)

    @staticmethod
    async def _kept(keeping: Coroutine[Any, Any, None]) -> None:
        """Wait for it, also when this is cancelled: it can't be stopped half way."""
        task = asyncio.ensure_future(keeping)
        try:
            await asyncio.shield(task)
        finally:
            await asyncio.wait([task])

    def _told(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a process is told of the traces that a request names; raises `UnknownTrace` and `NotReady`."""
        if "trace" in request:
            return request | self._source(request["trace"])
        ranks = request["ranks"] or [None] * len(request["traces"])
        each = [self._source(one) | {"rank": rank} for one, rank in zip(request["traces"], ranks, strict=True)]
        return {"align": request["align"], "name": request["name"], "ranks": each}

    def _source(self, trace_id: str) -> dict[str, Any]:
        trace = self._catalog.get(trace_id)
        if trace.state is not State.READY:
            raise NotReady(f"The trace {trace_id} is {trace.state}.", state=trace.state)
        return {
            "columns": str(self._folder.columns_of(trace_id)),
            "name": trace.name,
            "source": trace.identity,
            "summary": trace.summary,
        }

    def _keep(self, job: Job, making: Path, made: list[dict[str, Any]]) -> None:
        """Make what lies in the folder traces, all or none."""
        now, parent = time.time_ns(), job.request.get("trace")
        if parent:
            self._catalog.get(parent)  # which may have been deleted meanwhile
        traces = [
            Trace(
                id=one["id"], name=one["name"], state=State.READY, error=None, created_ns=now - at, size=one["size"],
                sha256="", summary=one["summary"], parent=parent, selection=one["selection"],
            )
            for at, one in enumerate(made)  # lists show the newest first, and the pieces in their order
        ]  # fmt: skip
        try:
            for one in traces:
                (making / one.id).rename(self._folder.columns_of(one.id))
            self._catalog.finish_job(job, traces, events=sum(one["summary"]["events"]["kept"] for one in made))
        except BaseException:
            for one in traces:
                self._folder.remove_columns(one.id)
            raise

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _empty(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _sources(request: dict[str, Any]) -> Iterable[str]:
    return [request["trace"]] if "trace" in request else request["traces"]

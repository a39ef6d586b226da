"""The jobs that derive traces from traces, each in a child.

A child writes into a folder of its job. Once everything is written, all of it becomes traces in one step. So a job that
is cancelled, or killed with the server, leaves nothing behind. A killed job starts over when the server next starts.
"""

import asyncio
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from service.cutting.source import Source
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.task_process import TaskProcess
from service.jobs.children.tasks.derive import DerivedTrace, DerivedTraces, SplitPlan
from service.jobs.derivations import KINDS, Derivation, Split, derivation_of, parent_of, sources_of
from service.jobs.job_monitor import JobMonitor
from service.jobs.job_queue import JobQueue
from service.jobs.shielded import shielded
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder, disk_errors
from service.store.jobs import Job, Priority
from service.trace.errors import DeadlineExceeded, JobDied, NotReady

AT_ONCE = 2
"""Maximum number of jobs that run at the same time, and of dry runs."""

_R = TypeVar("_R")


class DerivationJobs:
    """Runs the jobs of the queue that derive traces from traces.

    Args:
        catalog: the catalog of traces.
        monitor: holds the jobs, and is notified of their changes.
        folder: the data folder.
        fork_server: starts the children.
        attempts: number of attempts after which a job whose child dies has failed.
        deadline_s: seconds after which an attempt fails its job; None for no deadline.
        plan_deadline_s: seconds after which a dry run fails; None for no deadline.
    """

    def __init__(
        self,
        catalog: Catalog,
        monitor: JobMonitor,
        folder: Folder,
        fork_server: ForkServer,
        *,
        attempts: int,
        deadline_s: float | None = None,
        plan_deadline_s: float | None = None,
    ) -> None:
        self._catalog = catalog
        self._monitor = monitor
        self._folder = folder
        self._deadline_s = deadline_s
        self._plan_deadline_s = plan_deadline_s
        self._fork_server = fork_server
        self._running: dict[int, TaskProcess[DerivedTraces]] = {}
        self._planning = asyncio.Semaphore(AT_ONCE)
        self._queue = JobQueue(monitor, KINDS, self._attempt, at_once=AT_ONCE, attempts=attempts)

    @property
    def processes(self) -> list[TaskProcess[DerivedTraces]]:
        """The children of the running jobs, the latest to start last."""
        return list(self._running.values())

    def start(self) -> None:
        """Begin to take jobs. The unfinished jobs of an earlier server must have been queued again before."""
        self._queue.start()

    async def close(self) -> None:
        """Stop at once; unfinished jobs stay for the next start."""
        await self._queue.close()

    def submit(self, derivation: Derivation, *, priority: Priority = Priority.INTERACTIVE) -> Job:
        """Queue a job for a derivation."""
        trace, request = parent_of(derivation), derivation.as_dict()
        job = self._monitor.jobs.add(derivation.KIND, request, trace=trace, priority=priority)
        self._queue.wake()
        return job

    async def checked(self, job_id: int, *, within_s: float) -> None:
        """Wait, for `within_s` seconds at most, until a job has reported progress or is over.

        Its request has been checked by then. Returns at once if the job waits for other jobs.
        """
        if self._queue.runs(job_id) or self._queue.has_room(self._monitor.jobs.get(job_id)):
            await self._monitor.until(
                job_id, lambda job: job.state.is_final or self._monitor.progress(job_id) is not None, within_s=within_s
            )

    async def forget(self, trace_id: str) -> None:
        """Cancel the jobs that read a trace that is being deleted."""
        for job in self._unfinished():
            if trace_id in sources_of(job):
                await self._monitor.cancel(job.id)

    def sources(self) -> set[str]:
        """Return the ids of the traces that unfinished jobs read."""
        return {trace_id for job in self._unfinished() for trace_id in sources_of(job)}

    async def plan(self, split: Split) -> SplitPlan:
        """Plan a split without writing it; a cancellation ends the child.

        Raises:
            TracedockError: the split itself would raise this error.
            DeadlineExceeded: the plan took longer than `plan_deadline_s`.
        """
        task = split.plan(self._source_of)
        async with self._planning:
            process = TaskProcess(self._fork_server, Kind.DERIVE, task)
            try:
                return await _result(process, "dry run", self._plan_deadline_s)
            finally:
                await process.end()

    def _unfinished(self) -> list[Job]:
        return [job for job in self._monitor.jobs.unfinished() if job.kind in KINDS]

    # -- one job ------------------------------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        """Attempt a job once; raises `JobDied` if its child died."""
        folder = self._folder.staging / str(job.id)
        process: TaskProcess[DerivedTraces] | None = None
        try:
            with disk_errors():
                await asyncio.to_thread(_empty, folder)
            derivation = derivation_of(job)
            task = derivation.task(folder, self._source_of)
            process = self._running[job.id] = TaskProcess(self._fork_server, Kind.DERIVE, task)
            process.on_progress = partial(self._report, job, process)
            derived = await _result(process, job.kind, self._deadline_s)
            await shielded(asyncio.to_thread(self._keep, job, parent_of(derivation), folder, derived.traces))
        finally:
            self._running.pop(job.id, None)
            if process:
                await process.end()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _report(self, job: Job, process: TaskProcess[DerivedTraces]) -> None:
        self._monitor.moved(job.id, process.progress)

    def _source_of(self, trace_id: str) -> Source:
        """Return a trace as the source of a task; raises `UnknownTrace` and `NotReady`."""
        trace = self._catalog.get(trace_id)
        if trace.state is not State.READY:
            raise NotReady(f"The trace {trace_id} is {trace.state}.", state=trace.state)
        return Source(self._folder.columns_of(trace_id), trace.name, trace.summary_or_empty, trace.identity)

    def _keep(self, job: Job, parent: str | None, folder: Path, derived: list[DerivedTrace]) -> None:
        """Turn the columns in the folder into traces, all or none of them."""
        now = time.time_ns()
        if parent:
            self._catalog.get(parent)  # raises if it was deleted meanwhile
        traces = [
            Trace(
                id=child.id, name=child.name, state=State.READY, error=None, created_ns=now - place, size=child.size,
                sha256="", summary=child.summary, parent=parent,
                selection=None if child.selection is None else child.selection.as_dict(),
            )
            for place, child in enumerate(derived)  # lists start with the newest: let that be the first piece
        ]  # fmt: skip
        try:
            for trace in traces:
                (folder / trace.id).rename(self._folder.columns_of(trace.id))
            events = sum(child.summary.kept_events for child in derived)
            self._monitor.jobs.finish(job, {"traces": [trace.id for trace in traces]}, children=traces, events=events)
        except BaseException:
            for trace in traces:
                self._folder.remove_columns(trace.id)
            raise


async def _result(process: TaskProcess[_R], work: str, deadline_s: float | None) -> _R:
    """Return the result of a task; raises the error that it failed with, `JobDied` or `DeadlineExceeded`."""
    try:
        async with asyncio.timeout(deadline_s):
            outcome = await asyncio.shield(process.ended)
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"The {work} was not done after {deadline_s:g} s: select less.", limit_s=deadline_s
        ) from error
    if outcome.result is None:
        raise outcome.error or JobDied(f"The process {outcome.exit_description}.")
    return outcome.result


def _empty(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)

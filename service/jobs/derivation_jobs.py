"""The jobs that derive traces from traces, each as a task of a child or of a cluster.

A task writes into a folder of its attempt. Once everything is written, all of it becomes traces in one step. So a job
that is cancelled, or killed with the server, leaves nothing behind. A killed job starts over at the next start.
"""

import asyncio
import shutil
import time
from functools import partial
from pathlib import Path

from service.jobs.children.kinds import Kind
from service.jobs.children.tasks.derive import DerivedTrace, DerivedTraces
from service.jobs.derivations import KINDS, Derivation, SourceOf, derivation_of, parent_of, ready_source, sources_of
from service.jobs.job_monitor import JobMonitor
from service.jobs.job_queue import JobQueue
from service.jobs.shielded import shielded
from service.jobs.task_runner import RunningTask, TaskRunner, task_result
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder, disk_errors
from service.store.jobs import Job, Priority

AT_ONCE = 2
"""Maximum number of jobs that run at the same time on this machine."""


class DerivationJobs:
    """Runs the jobs of the queue that derive traces from traces.

    Args:
        catalog: the catalog of traces.
        monitor: holds the jobs, and is notified of their changes.
        folder: the data folder.
        runner: runs the tasks of jobs.
        at_once: maximum number of jobs that run at the same time.
        attempts: number of attempts after which a job whose process dies has failed.
        deadline_s: seconds after which an attempt fails its job; None for no deadline.
    """

    def __init__(
        self,
        catalog: Catalog,
        monitor: JobMonitor,
        folder: Folder,
        runner: TaskRunner,
        *,
        at_once: int = AT_ONCE,
        attempts: int,
        deadline_s: float | None = None,
    ) -> None:
        self._catalog = catalog
        self._monitor = monitor
        self._folder = folder
        self._deadline_s = deadline_s
        self._runner = runner
        self._source_of: SourceOf = partial(ready_source, catalog, folder)
        self._running: dict[int, RunningTask[DerivedTraces]] = {}
        self._queue = JobQueue(monitor, KINDS, self._attempt, at_once=at_once, attempts=attempts)

    @property
    def tasks(self) -> list[RunningTask[DerivedTraces]]:
        """The tasks of the running jobs, the latest to start last."""
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

    def _unfinished(self) -> list[Job]:
        return [job for job in self._monitor.jobs.unfinished() if job.kind in KINDS]

    # -- one job ------------------------------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        """Attempt a job once; raises `JobDied` if its process died."""
        folder = self._folder.new_attempt(job.id)
        running: RunningTask[DerivedTraces] | None = None
        try:
            with disk_errors():
                await asyncio.to_thread(folder.mkdir)
            derivation = derivation_of(job)
            task = derivation.task(folder, self._source_of)
            running = self._running[job.id] = self._runner.run(Kind.DERIVE, task)
            running.on_progress = partial(self._report, job, running)
            derived = await task_result(running, job.kind, self._deadline_s)
            await shielded(asyncio.to_thread(self._keep, job, parent_of(derivation), folder, derived.traces))
        finally:
            self._running.pop(job.id, None)
            if running:
                await running.end()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _report(self, job: Job, running: RunningTask[DerivedTraces]) -> None:
        self._monitor.moved(job.id, running.progress)

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

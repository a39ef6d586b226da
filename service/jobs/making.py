"""The jobs that make traces of traces, as the server sees them: one process for each, a few at a time.

What a process makes lies in a folder of its own until all of it is there; then it becomes traces at once. So a job that
is cancelled, or killed with its server, leaves nothing, and the latter is begun anew.
"""

import asyncio
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from service.jobs.board import Board
from service.jobs.lane import Lane
from service.jobs.process import WorkerProcess
from service.jobs.unbroken import unbroken
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder, disk_errors
from service.store.jobs import Job, Priority
from service.trace.errors import DeadlineExceeded, JobDied, NotReady, error_from_dict

AT_ONCE = 2
MODULE = "service.jobs.maker"
KINDS = ("split", "merge", "overlay")


class Making:
    """Takes the jobs that make traces off the queue.

    Args:
        catalog: knows the traces.
        board: the queue, where it tells of its jobs.
        folder: where the traces lie.
        attempts: how often a job is begun before a dying process fails it.
        deadline_s: seconds after which an attempt fails its job.
        plan_deadline_s: seconds after which a dry run fails.
    """

    def __init__(
        self,
        catalog: Catalog,
        board: Board,
        folder: Folder,
        *,
        attempts: int,
        deadline_s: float | None = None,
        plan_deadline_s: float | None = None,
    ) -> None:
        self._catalog = catalog
        self._board = board
        self._folder = folder
        self._deadline_s = deadline_s
        self._plan_deadline_s = plan_deadline_s
        self._processes: dict[int, WorkerProcess] = {}
        self._planning = asyncio.Semaphore(AT_ONCE)
        self._lane = Lane(board, KINDS, self._attempt, at_once=AT_ONCE, attempts=attempts)

    @property
    def processes(self) -> list[WorkerProcess]:
        """The processes of the jobs that run, the youngest last."""
        return list(self._processes.values())

    def start(self) -> None:
        """Begin; what an earlier server left must be queued again."""
        self._lane.start()

    async def close(self) -> None:
        """Stop at once; what is not finished stays for the next start."""
        await self._lane.close()

    def submit(self, kind: str, request: dict[str, Any], *, priority: Priority = Priority.INTERACTIVE) -> Job:
        """Queue a job: a ``split``, a ``merge`` or an ``overlay``, and the rest of what it is told."""
        job = self._board.jobs.add(kind, request, trace=request.get("trace"), priority=priority)
        self._lane.wake()
        return job

    async def checked(self, job_id: int, *, within_s: float) -> None:
        """Return once it is known that a job has anything to do, or it is over, but after `within_s` seconds anyway."""
        if self._lane.runs(job_id) or self._lane.has_room(self._board.jobs.get(job_id)):  # else it waits for its turn
            await self._board.until(
                job_id, lambda job: job.state.over or self._board.progress(job_id) is not None, within_s=within_s
            )

    async def forget(self, trace_id: str) -> None:
        """End the jobs that read a trace, which is deleted."""
        for job in self._board.jobs.unfinished():
            if job.kind in KINDS and trace_id in _sources(job.request):
                await self._board.cancel(job.id)

    def sources(self) -> set[str]:
        """The traces that jobs read which are not over."""
        jobs = self._board.jobs.unfinished()
        return {one for job in jobs if job.kind in KINDS for one in _sources(job.request)}

    async def plan(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The pieces that a split would make; to cancel this ends its process.

        Raises:
            TracedockError: what the split would raise.
            DeadlineExceeded: it took too long.
        """
        told = {"kind": "plan", **self._told(request)}
        async with self._planning:
            process = WorkerProcess(MODULE, told=told)
            try:
                pieces: list[dict[str, Any]] = await _result(process, "dry run", self._plan_deadline_s)
            finally:
                await process.end()
        return pieces

    # -- one job ------------------------------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        """Do a job once; raises `JobDied` where its process died."""
        making = self._folder.staging / str(job.id)
        process: WorkerProcess | None = None
        try:
            with disk_errors():
                await asyncio.to_thread(_empty, making)
            told = {"kind": job.kind, "folder": str(making), **self._told(job.request)}
            process = self._processes[job.id] = WorkerProcess(MODULE, told=told)
            process.on_progress = partial(self._moved, job, process)
            children = await _result(process, job.kind, self._deadline_s)
            await unbroken(asyncio.to_thread(self._keep, job, making, children))
        finally:
            self._processes.pop(job.id, None)
            if process:
                await process.end()
            await asyncio.to_thread(shutil.rmtree, making, ignore_errors=True)

    def _moved(self, job: Job, process: WorkerProcess) -> None:
        self._board.moved(job.id, process.progress)

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
            events = sum(one["summary"]["events"]["kept"] for one in made)
            self._board.jobs.finish(job, {"traces": [one.id for one in traces]}, children=traces, events=events)
        except BaseException:
            for one in traces:
                self._folder.remove_columns(one.id)
            raise


async def _result(process: WorkerProcess, work: str, deadline_s: float | None) -> list[dict[str, Any]]:
    """The result of a process; raises the error that it tells, `JobDied` or `DeadlineExceeded`."""
    try:
        async with asyncio.timeout(deadline_s):
            ending = await asyncio.shield(process.ended)
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"The {work} was not done after {deadline_s:g} s: select less.", limit_s=deadline_s
        ) from error
    answer: dict[str, Any] = ending.answer
    if failure := answer.get("error") or answer.get("failure"):
        raise error_from_dict(failure)
    if "result" not in answer:
        raise JobDied(f"The process {ending.how}.")
    result: list[dict[str, Any]] = answer["result"]
    return result


def _empty(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _sources(request: dict[str, Any]) -> Iterable[str]:
    return [request["trace"]] if "trace" in request else request["traces"]

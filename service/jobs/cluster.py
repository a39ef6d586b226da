"""A Dask cluster that runs tasks of the server. One child holds the connection to it, and sends all tasks."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from service.jobs.children.encoding import decode
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.messages import Crashed, Done, Drop, Failed, Progressed
from service.jobs.children.process import ChildProcess
from service.jobs.children.task_process import Outcome
from service.jobs.children.tasks.base import Task
from service.jobs.children.tasks.questions import AnswerTask
from service.streaming.source import Progress
from service.trace.errors import TracedockError, describe_exit, error_from_document

R = TypeVar("R")

log = logging.getLogger(__name__)


class Cluster:
    """Runs tasks on a cluster. The child starts with the first task, and anew after it has died.

    Args:
        fork_server: starts the child.
        cluster: argument of the child: JSON that names the cluster.
    """

    def __init__(self, fork_server: ForkServer, cluster: str) -> None:
        self._fork_server = fork_server
        self._cluster = cluster
        self._starting: asyncio.Task[_Calls] | None = None
        self._listening: set[asyncio.Task[None]] = set()
        self._closed = False

    def run(self, kind: Kind, task: Task[R]) -> "ClusterTask[R]":  # noqa: ARG002 - workers run tasks of all kinds
        """Begin to run a task; see `TaskRunner`."""
        return ClusterTask(self, task)

    async def call(
        self, task: Task[R] | AnswerTask, on_progress: Callable[[Progress], object] = lambda _: None
    ) -> bytes:
        """Return the JSON of a task's result, or the answer to a question; cancelling the call cancels the task.

        Raises:
            ChildDied: the child died.
            TracedockError: the task has failed, or the cluster can't be used.
        """
        calls = await self._calls()
        call_id, answer = calls.send(task, on_progress)
        try:
            return await answer
        finally:
            calls.leave(call_id)

    async def close(self) -> None:
        """End the child; calls without an answer fail."""
        self._closed = True
        if self._starting:
            with suppress(ChildDied):
                (await self._starting).kill()
        await asyncio.gather(*self._listening)

    async def _calls(self) -> "_Calls":
        starting = self._starting
        if starting is None or (starting.done() and (starting.exception() or starting.result().is_over)):
            starting = self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(starting)

    async def _start(self) -> "_Calls":
        if self._closed:
            raise ChildDied("was not started: the server is shutting down")
        try:
            child = await self._fork_server.fork(Kind.CLUSTER, self._cluster)
        except OSError as error:
            raise ChildDied(f"could not be started: {error}") from error
        calls = _Calls(child)
        listening = asyncio.create_task(calls.listen())
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return calls


class ChildDied(Exception):
    """The child that holds the connection has ended; the message says how."""


class _Calls:
    """The child, and the calls that it has not answered."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._ids = itertools.count()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._on_progress: dict[int, Callable[[Progress], object]] = {}
        self.is_over = False

    def send(
        self, task: Task[R] | AnswerTask, on_progress: Callable[[Progress], object]
    ) -> tuple[int, asyncio.Future[bytes]]:
        """Send a call, and return its id and its future answer."""
        call_id = next(self._ids)
        answer = self._answers[call_id] = asyncio.get_running_loop().create_future()
        self._on_progress[call_id] = on_progress
        if self.is_over:
            answer.set_exception(ChildDied("has just ended"))
        else:
            self._child.call(task, call_id=call_id)
        return call_id, answer

    def leave(self, call_id: int) -> None:
        """Stop waiting for an answer; the call is dropped if it has none."""
        answer = self._answers.pop(call_id)
        del self._on_progress[call_id]
        if not self.is_over and (answer.cancelled() or not answer.done()):
            self._child.send(Drop(call_id))

    def kill(self) -> None:
        """End the child."""
        self._child.kill()

    async def listen(self) -> None:
        """Deliver answers and progress. Once the child has ended, fail the calls without an answer."""
        while message := await self._child.receive():
            match message:
                case Progressed(progress, call_id) if call_id in self._on_progress:
                    self._on_progress[call_id](progress)
                case Done(call_id):
                    body = await self._child.whole_body()
                    if body is None:
                        break
                    self._settle(call_id, body)
                case Failed(error, _, call_id):
                    self._settle(call_id, error_from_document(error))
                case Crashed(problem, traceback, call_id):
                    log.error("a call to the cluster crashed:\n%s", traceback)
                    self._settle(call_id, TracedockError(problem))
        self.is_over = True
        died = describe_exit(await self._child.end())
        if self._answers:
            log.error("the process that sends tasks to the cluster %s", died)
        for call_id in self._answers:
            self._settle(call_id, ChildDied(died))

    def _settle(self, call_id: int, result: bytes | Exception) -> None:
        answer = self._answers.get(call_id)
        if answer and not answer.done():
            if isinstance(result, bytes):
                answer.set_result(result)
            else:
                answer.set_exception(result)


class ClusterTask(Generic[R]):
    """A task on a cluster, from its construction on; see `RunningTask`."""

    def __init__(self, cluster: Cluster, task: Task[R]) -> None:
        self._task = task
        self._ended_with: TracedockError | None = None
        self.progress = Progress()
        self.on_progress: Callable[[], object] = lambda: None
        self._call = asyncio.ensure_future(cluster.call(task, self._report))
        self.ended: asyncio.Task[Outcome[R]] = asyncio.create_task(self._run())
        """Ends with the call; cancelling it cancels the task. A worker may notice that later."""

    async def end(self) -> None:
        """Drop the task if it still runs, and return once the server no longer waits for it."""
        if not self.ended.done():
            self.ended.cancel()
        await asyncio.wait({self.ended})

    def fail(self, error: TracedockError) -> None:
        """Drop the task if it still runs, and make the error its outcome."""
        if not self.ended.done():
            self._ended_with = error
            self._call.cancel()

    async def _run(self) -> Outcome[R]:
        try:
            answer = await self._call
        except TracedockError as error:
            return Outcome("ended", error=error)
        except ChildDied as died:
            return Outcome(str(died))
        except asyncio.CancelledError:
            if self._ended_with is None:
                raise
            return Outcome("ended", error=self._ended_with)
        return Outcome("ended", decode(self._task.result_type(), answer))

    def _report(self, progress: Progress) -> None:
        self.progress = progress
        self.on_progress()

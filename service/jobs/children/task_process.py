"""A child that runs one task with one result: an ingest, a split, a plan, a merge or an overlay."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.jobs.children.encoding import decode
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.messages import Complete, Crashed, Done, Failed, Grown, Progressed
from service.jobs.children.process import ChildProcess
from service.jobs.children.tasks.base import Task
from service.streaming.source import Progress
from service.trace.errors import TracedockError, describe_exit, error_from_document

R = TypeVar("R")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """The outcome of a task.

    Attributes:
        exit_description: how the child ended, in words.
        result: the task's result, if it succeeded.
        error: the error that the task failed with; None if it succeeded or the child died.
        in_input: whether the error lies in the trace or in the request.
    """

    exit_description: str
    result: R | None = None
    error: TracedockError | None = None
    in_input: bool = False


class TaskProcess(Generic[R]):
    """Runs a task in a child, from its construction on.

    Args:
        fork_server: starts the child.
        kind: the kind of child that runs the task.
        task: the task.
        on_progress: called whenever the task has reported progress.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        kind: Kind,
        task: Task[R],
        *,
        on_progress: Callable[[], object] = lambda: None,
    ) -> None:
        self._fork_server = fork_server
        self._kind = kind
        self._task = task
        self._file_state: Grown | Complete | None = None
        self._child: ChildProcess | None = None
        self._ended_with: TracedockError | None = None
        self.on_progress = on_progress
        self.progress = Progress()
        self.ended: asyncio.Task[Outcome[R]] = asyncio.create_task(self._run())
        """Ends with the child; cancelling it kills the child."""

    @property
    def failed(self) -> bool:
        """True if the child has ended, but not because of an error in the trace or in the request."""
        ended = self.ended
        return ended.done() and (ended.cancelled() or bool(ended.exception()) or not ended.result().in_input)

    def grew(self, to_bytes: int) -> None:
        """Report that the task's file has grown. A child that has not read the last report gets only a later one."""
        self._file_state = Grown(to_bytes)
        if self._child and not self._child.is_busy_reading:
            self._child.send(self._file_state)

    def complete(self) -> None:
        """Report that the task's file is complete, and safe on disk."""
        self._file_state = Complete()
        if self._child:
            self._child.send(self._file_state)

    async def end(self) -> None:
        """Kill the child if it still runs, and return once it is gone."""
        if not self.ended.cancelling():  # a second cancellation would interrupt the killing
            self.ended.cancel()
        await asyncio.wait({self.ended})

    def fail(self, error: TracedockError) -> None:
        """Kill the child if it still runs, and make the error its outcome, unless it has sent a result."""
        self._ended_with = error
        if self._child:
            self._child.kill()

    async def _run(self) -> Outcome[R]:
        try:
            child = await self._fork_server.fork(self._kind)
        except OSError as error:
            return Outcome(f"could not be started: {error}")
        try:
            child.call(self._task)
            if self._file_state:
                child.send(self._file_state)
            self._child = child
            outcome = await self._outcome(child)
        finally:
            await child.end()
        if self._ended_with and outcome.result is None:
            return Outcome(outcome.exit_description, error=self._ended_with)
        return outcome

    async def _outcome(self, child: ChildProcess) -> Outcome[R]:
        """Receive the child's messages until it ends, and return the outcome."""
        result: R | None = None
        error: TracedockError | None = None
        in_input = False
        while message := await child.receive():
            match message:
                case Progressed(progress):
                    self.progress = progress
                    self.on_progress()
                case Done():
                    body = await child.whole_body()
                    result = None if body is None else decode(self._task.result_type(), body)
                case Failed(document, in_input):
                    error = error_from_document(document)
                case Crashed(problem, traceback):
                    log.error("a child crashed:\n%s", traceback)
                    error = TracedockError(problem)
        return Outcome(describe_exit(await child.wait()), result, error, in_input)

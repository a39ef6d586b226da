"""The interface of what runs the tasks of jobs: children of the server, or the workers of a cluster."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.task_process import Outcome, TaskProcess
from service.jobs.children.tasks.base import Task
from service.streaming.source import Progress
from service.trace.errors import DeadlineExceeded, JobDied, TracedockError

R = TypeVar("R")


class RunningTask(Protocol[R]):
    """A task that runs, or has run.

    Attributes:
        progress: its last reported progress.
        on_progress: called whenever it has reported progress.
        ended: its future outcome; cancelling it ends the task.
    """

    progress: Progress
    on_progress: Callable[[], object]
    ended: asyncio.Task[Outcome[R]]

    async def end(self) -> None:
        """End the task if it still runs, and return once the server no longer waits for it."""

    def fail(self, error: TracedockError) -> None:
        """End the task if it still runs, and make the error its outcome, unless it has a result."""


class TaskRunner(Protocol):
    """Runs tasks."""

    def run(self, kind: Kind, task: Task[R]) -> RunningTask[R]:
        """Begin to run a task.

        Args:
            kind: the kind of child that would run the task on this machine.
            task: the task.
        """


class ChildRunner:
    """Runs each task in a child of its own.

    Args:
        fork_server: starts the children.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server

    def run(self, kind: Kind, task: Task[R]) -> TaskProcess[R]:
        """Begin to run a task; see `TaskRunner`."""
        return TaskProcess(self._fork_server, kind, task)


async def task_result(running: RunningTask[R], work: str, deadline_s: float | None) -> R:
    """Return the result of a task of a job.

    Args:
        running: the task.
        work: what it does, for messages.
        deadline_s: seconds after which it is too late; None for no deadline.

    Raises:
        TracedockError: the error that the task failed with.
        JobDied: its process died.
        DeadlineExceeded: it took longer than `deadline_s`, and still runs.
    """
    try:
        async with asyncio.timeout(deadline_s):
            outcome = await asyncio.shield(running.ended)
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"The {work} was not done after {deadline_s:g} s: select less.", limit_s=deadline_s
        ) from error
    if outcome.result is None:
        raise outcome.error or JobDied(f"The process {outcome.exit_description}.")
    return outcome.result

"""Dry runs of splits, each in a child."""

import asyncio

from service.jobs.children.kinds import Kind
from service.jobs.children.tasks.derive import SplitPlan
from service.jobs.derivations import SourceOf, Split
from service.jobs.task_runner import TaskRunner, task_result

AT_ONCE = 2
"""Maximum number of dry runs at a time."""


class SplitPlanner:
    """Plans splits without writing them.

    Args:
        runner: runs the dry runs.
        source_of: returns a trace as the source of a task.
        deadline_s: seconds after which a dry run fails; None for no deadline.
    """

    def __init__(self, runner: TaskRunner, source_of: SourceOf, *, deadline_s: float | None = None) -> None:
        self._runner = runner
        self._source_of = source_of
        self._deadline_s = deadline_s
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def plan(self, split: Split) -> SplitPlan:
        """Plan a split; a cancellation ends the dry run.

        Raises:
            TracedockError: the split itself would raise this error.
            DeadlineExceeded: the plan took longer than `deadline_s`.
        """
        task = split.plan(self._source_of)
        async with self._slots:
            running = self._runner.run(Kind.DERIVE, task)
            try:
                return await task_result(running, "dry run", self._deadline_s)
            finally:
                await running.end()

"""Preparation of pages: once a trace is ready, a task computes and keeps the answers that pages show of it."""

import asyncio
import logging
import shutil
from collections import deque

from service.jobs.children.kinds import Kind
from service.jobs.children.task_process import Outcome
from service.jobs.children.tasks.questions import PrepareTask
from service.jobs.task_runner import RunningTask, TaskRunner
from service.store.catalog import Catalog
from service.store.folder import Folder
from service.trace.errors import DeadlineExceeded, DiskFull, UnknownTrace

log = logging.getLogger(__name__)


class PagePreparation:
    """Prepares the pages of traces, one trace at a time and with low priority.

    Whatever is not prepared, such as after a restart of the server, is computed when a page asks for it.

    Args:
        catalog: the catalog of traces.
        folder: the data folder.
        runner: runs the tasks.
        enabled: whether to prepare pages at all.
        deadline_s: seconds after which the preparation of a trace is ended.
    """

    def __init__(
        self, catalog: Catalog, folder: Folder, runner: TaskRunner, *, enabled: bool, deadline_s: float
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._runner = runner
        self._enabled = enabled
        self._deadline_s = deadline_s
        self._waiting: deque[str] = deque()
        self._preparing: asyncio.Task[None] | None = None
        self._task: RunningTask[int] | None = None
        self._trace_id = ""

    @property
    def tasks(self) -> list[RunningTask[int]]:
        """The task that runs, if one does."""
        return [self._task] if self._task else []

    def add(self, trace_id: str) -> None:
        """Prepare the pages of a trace, which is ready, after those of earlier traces."""
        if not self._enabled:
            return
        self._waiting.append(trace_id)
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare_all())

    async def forget(self, trace_id: str) -> None:
        """End the preparation of a trace, which was removed from the catalog."""
        if self._task and self._trace_id == trace_id:
            await self._task.end()

    async def settled(self) -> None:
        """Return once nothing is prepared or waits."""
        if self._preparing:
            await asyncio.wait({self._preparing})

    async def close(self) -> None:
        """Stop at once."""
        self._waiting.clear()
        if self._task:
            await self._task.end()
        await self.settled()

    async def _prepare_all(self) -> None:
        while self._waiting:
            self._trace_id = self._waiting.popleft()
            try:
                await self._prepare(self._trace_id)
            except UnknownTrace:
                continue  # a client has deleted it meanwhile
            except Exception:
                log.exception("the pages of trace %s are not prepared", self._trace_id)

    async def _prepare(self, trace_id: str) -> None:
        summary = self._catalog.get(trace_id).summary_or_empty
        incoming = self._folder.incoming
        spill = incoming.with_name(f"{incoming.name}.spill-{trace_id}")  # the next start removes it, too
        task = PrepareTask(self._folder.columns_of(trace_id), summary, spill)
        self._task = preparation = self._runner.run(Kind.PREPARE, task)
        try:
            await asyncio.wait({preparation.ended}, timeout=self._deadline_s)
            if not preparation.ended.done():
                preparation.fail(DeadlineExceeded(f"It takes longer than {self._deadline_s:g} s."))
                await asyncio.wait({preparation.ended})
            if not preparation.ended.cancelled():
                self._report(trace_id, preparation.ended.result())
        finally:
            self._task = None
            await asyncio.to_thread(shutil.rmtree, spill, ignore_errors=True)

    def _report(self, trace_id: str, outcome: Outcome[int]) -> None:
        """Log a failure. If the disk is full, no other trace is prepared, since that writes, too."""
        if outcome.result is not None:
            return
        log.warning("the pages of trace %s are not prepared: %s", trace_id, outcome.error or outcome.exit_description)
        if isinstance(outcome.error, DiskFull):
            self._waiting.clear()

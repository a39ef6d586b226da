"""Preparation of pages: once a trace is ready, a child computes and keeps the answers that pages show of it."""

import asyncio
import logging
from collections import deque
from contextlib import suppress

from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.task_process import TaskProcess
from service.jobs.children.tasks.questions import PrepareTask
from service.store.catalog import Catalog
from service.store.folder import Folder
from service.trace.errors import UnknownTrace

log = logging.getLogger(__name__)


class PagePreparation:
    """Prepares the pages of traces, one trace at a time and with low priority.

    Whatever is not prepared, such as after a restart of the server, is computed when a page asks for it.

    Args:
        catalog: the catalog of traces.
        folder: the data folder.
        fork_server: starts the children.
        enabled: whether to prepare pages at all.
    """

    def __init__(self, catalog: Catalog, folder: Folder, fork_server: ForkServer, *, enabled: bool) -> None:
        self._catalog = catalog
        self._folder = folder
        self._fork_server = fork_server
        self._enabled = enabled
        self._waiting: deque[str] = deque()
        self._preparing: asyncio.Task[None] | None = None
        self._process: TaskProcess[int] | None = None
        self._trace_id = ""

    @property
    def processes(self) -> list[TaskProcess[int]]:
        """The child that runs, if one does."""
        return [self._process] if self._process else []

    def add(self, trace_id: str) -> None:
        """Prepare the pages of a trace, which is ready, after those of earlier traces."""
        if not self._enabled:
            return
        self._waiting.append(trace_id)
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare_all())

    async def forget(self, trace_id: str) -> None:
        """Return once nothing works on a trace, which was removed from the catalog."""
        if self._process and self._trace_id == trace_id:
            await self._process.end()

    async def close(self) -> None:
        """Stop at once."""
        self._waiting.clear()
        if self._process:
            await self._process.end()
        if self._preparing:
            await asyncio.wait({self._preparing})

    async def _prepare_all(self) -> None:
        while self._waiting:
            self._trace_id = self._waiting.popleft()
            with suppress(UnknownTrace):  # a client has deleted it meanwhile
                await self._prepare(self._trace_id)

    async def _prepare(self, trace_id: str) -> None:
        summary = self._catalog.get(trace_id).summary_or_empty
        task = PrepareTask(self._folder.columns_of(trace_id), summary, self._folder.incoming)
        self._process = TaskProcess(self._fork_server, Kind.PREPARE, task)
        try:
            await asyncio.wait({self._process.ended})
            if not self._process.ended.cancelled():
                outcome = self._process.ended.result()
                if outcome.result is None:
                    reason = outcome.error or outcome.exit_description
                    log.warning("the pages of trace %s are not prepared: %s", trace_id, reason)
        finally:
            self._process = None

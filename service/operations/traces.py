"""Operations on traces: check that a trace is ready, wait for traces, remove a trace."""

import asyncio
from collections.abc import Callable, Sequence

from service.engine.pool import EnginePool
from service.jobs.derivation_jobs import DerivationJobs
from service.jobs.ingest_jobs import IngestJobs
from service.jobs.job_monitor import JobMonitor
from service.jobs.page_preparation import PagePreparation
from service.store.attachments import Attachments
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.trace.errors import DiskFull, EngineFailed, NotReady


class TraceOperations:
    """Operations on single traces.

    Args:
        catalog: the records of all traces.
        folder: the data folder.
        monitor: the monitor of jobs.
        ingests: the jobs that read traces.
        derivations: the jobs that derive traces from traces.
        preparation: the preparation of pages.
        pool: the engines.
        attachments: the files beside traces.
        on_removed: called with the id of each trace that was removed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - jobs, preparation and engines of a trace end before it is removed
        self,
        catalog: Catalog,
        folder: Folder,
        monitor: JobMonitor,
        ingests: IngestJobs,
        derivations: DerivationJobs,
        preparation: PagePreparation,
        pool: EnginePool,
        attachments: Attachments,
        *,
        on_removed: Callable[[str], object],
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._monitor = monitor
        self._ingests = ingests
        self._derivations = derivations
        self._preparation = preparation
        self._pool = pool
        self._attachments = attachments
        self._on_removed = on_removed

    def recorded(self, trace_id: str) -> Trace:
        """Return a trace in any state; raises `UnknownTrace`."""
        return self._catalog.get(trace_id)

    def ready(self, trace_id: str) -> Trace:
        """Return a trace that is ready. If it is not, its ingest is prioritized.

        Raises:
            UnknownTrace: no trace has that id.
            NotReady: the trace has not been read yet, or could not be read.
        """
        trace = self._catalog.get(trace_id)
        if trace.state is State.FAILED:
            reason, error = (trace.error.detail, trace.error.as_dict()) if trace.error else ("", None)
            raise NotReady(f"The trace could not be read: {reason}", state=trace.state, error=error)
        if trace.state is not State.READY:
            self.prioritize(trace)
            raise NotReady(f"The trace is still {trace.state}.", state=trace.state, retry_after_s=1)
        return trace

    def prioritize(self, trace: Trace) -> None:
        """Move the ingest of a trace ahead of the ingests of traces that no client has requested."""
        if trace.job is not None:
            self._monitor.ask_for(trace.job)

    async def settle(self, trace_ids: Sequence[str], within_s: float) -> None:
        """Return once all of these traces are ready or failed, or after `within_s` seconds; raises `UnknownTrace`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        for trace_id in trace_ids:
            left_s = deadline - loop.time()
            if left_s > 0 and not self._catalog.get(trace_id).state.settled:
                await self._ingests.settled(trace_id, within_s=left_s)

    async def remove(self, trace_id: str) -> None:
        """Stop all work on a trace, and remove it from the catalog and the disk; raises `UnknownTrace`."""
        job_id = self._catalog.get(trace_id).job
        await self._remove_record(trace_id)  # first, so that no new work on it can begin
        await self._ingests.cancel(trace_id)
        if job_id is not None:
            self._monitor.changed(job_id)
        await self._derivations.forget(trace_id)
        await self._preparation.forget(trace_id)
        await self._pool.close_trace(trace_id, EngineFailed(f"The trace {trace_id} was deleted."))
        await asyncio.to_thread(self._folder.remove, trace_id)
        await asyncio.to_thread(self._attachments.remove_orphans)
        self._on_removed(trace_id)

    async def _remove_record(self, trace_id: str) -> None:
        try:
            await asyncio.to_thread(self._catalog.remove, trace_id)
        except DiskFull:  # the catalog has no room to record the removal; removing the files makes room
            await asyncio.to_thread(self._folder.remove, trace_id)
            await asyncio.to_thread(self._catalog.remove, trace_id)

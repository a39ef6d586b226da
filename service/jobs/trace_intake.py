"""Intake of traces: turns an original that is safe on disk into a trace, regardless of its origin."""

import asyncio
from collections.abc import Callable, Sequence

from service.jobs.ingest_jobs import IngestJobs
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.store.jobs import Priority
from service.store.originals import Originals
from service.store.uploads import Received
from service.trace.rank import rank_in_name


class TraceIntake:
    """Turns originals into traces.

    Args:
        catalog: the catalog of traces.
        folder: the data folder, which holds the originals.
        ingests: the jobs that read traces.
        originals: decides which originals are kept.
        on_arrival: called after each new trace.
    """

    def __init__(
        self,
        catalog: Catalog,
        folder: Folder,
        ingests: IngestJobs,
        originals: Originals,
        *,
        on_arrival: Callable[[], object] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._ingests = ingests
        self._originals = originals
        self._on_arrival = on_arrival

    async def keep(
        self,
        trace_id: str,
        *,
        name: str,
        received: Received,
        group: str | None = None,
        priority: int = Priority.INTERACTIVE,
    ) -> Trace:
        """Record a trace whose original is safe on disk, and have it read: at once if a child follows its upload.

        If another trace has the same bytes, these are stored only once. If that trace is ready, and its name implies
        the same rank, the new trace is ready at once.

        Args:
            trace_id: the trace's id, under which the original is stored.
            name: the trace's file name.
            received: the received original.
            group: the name of the trace's group, which is created if it does not exist.
            priority: the priority of the ingest.

        Raises:
            DiskFull: the disk has no room for the catalog's record.
        """
        twins = await asyncio.to_thread(self._catalog.find_by_bytes, received.sha256, received.size)
        mark = received.mark
        if received.path is None and await asyncio.to_thread(self._share_original, trace_id, twins):
            mark = None
        alike = [twin for twin in twins if twin.state is State.READY and rank_in_name(twin.name) == rank_in_name(name)]
        if alike:
            await self._ingests.stop_following(trace_id)
        read = await asyncio.to_thread(self._share_columns, trace_id, alike)
        keeps_original = read is None or self._originals.keeps(read.summary_or_empty.format)
        try:
            trace = await asyncio.to_thread(
                self._catalog.add, trace_id, name=name, size=received.size, sha256=received.sha256,
                group=group, priority=priority, path=received.path, path_mark=mark,
                summary=read.summary if read else None, original_removed=not keeps_original,
            )  # fmt: skip
        except BaseException:
            if read:
                await asyncio.to_thread(self._folder.remove_columns, trace_id)
            raise
        if not keeps_original:
            await asyncio.to_thread(self._originals.remove, trace_id)
        self._ingests.hand_over(trace_id)
        self._on_arrival()
        return trace

    def _share_original(self, trace_id: str, twins: Sequence[Trace]) -> bool:
        """Share the original of a twin that no other program can write to; return whether this succeeded."""
        lenders = (twin.id for twin in twins if twin.id != trace_id and twin.path_mark is None)
        return any(self._folder.share(trace_id, lender) for lender in lenders)

    def _share_columns(self, trace_id: str, twins: Sequence[Trace]) -> Trace | None:
        """Share the columns of a twin; return the first twin whose columns could be shared, or None."""
        return next((twin for twin in twins if self._folder.share_columns(trace_id, twin.id)), None)

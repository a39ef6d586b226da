"""Intake of traces: makes a trace of bytes that are safe on disk, wherever they came from."""

import asyncio
from collections.abc import Callable, Sequence

from service.jobs.ingest_jobs import IngestJobs
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.store.jobs import Priority
from service.store.uploads import Received
from service.trace.rank import rank_in_name


class TraceIntake:
    """Makes traces of originals.

    Args:
        catalog: where traces are recorded.
        folder: the data folder, which holds the originals.
        ingests: reads the traces.
        on_arrival: is called after each trace.
    """

    def __init__(
        self, catalog: Catalog, folder: Folder, ingests: IngestJobs, *, on_arrival: Callable[[], object] = lambda: None
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._ingests = ingests
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
        """Record a trace whose original is safe, and have it read, at once if a child follows its upload.

        Bytes that another trace has already are stored once. If that trace is ready, the new one is ready at once.

        Args:
            trace_id: its id, under which the original lies.
            name: its file name.
            received: the bytes that were received.
            group: the name of its group, which is made if there is none.
            priority: of its ingest.

        Raises:
            DiskFull: there was no room in the catalog.
        """
        twins = await asyncio.to_thread(self._catalog.find_by_bytes, received.sha256, received.size)
        mark = received.mark
        if received.path is None and await asyncio.to_thread(self._share_original, trace_id, twins):
            mark = None
        alike = [twin for twin in twins if twin.state is State.READY and rank_in_name(twin.name) == rank_in_name(name)]
        if alike:
            await self._ingests.stop_following(trace_id)
        read = await asyncio.to_thread(self._share_columns, trace_id, alike)
        try:
            trace = await asyncio.to_thread(
                self._catalog.add, trace_id, name=name, size=received.size, sha256=received.sha256,
                group=group, priority=priority, path=received.path, path_mark=mark,
                summary=read.summary if read else None,
            )  # fmt: skip
        except BaseException:
            if read:
                await asyncio.to_thread(self._folder.remove_columns, trace_id)
            raise
        self._ingests.hand_over(trace_id)
        self._on_arrival()
        return trace

    def _share_original(self, trace_id: str, twins: Sequence[Trace]) -> bool:
        """Share the original of a twin that no other program can write to, and return whether there is one."""
        lenders = (twin.id for twin in twins if twin.id != trace_id and twin.path_mark is None)
        return any(self._folder.share(trace_id, lender) for lender in lenders)

    def _share_columns(self, trace_id: str, twins: Sequence[Trace]) -> Trace | None:
        """Share the columns of a twin, and return the first whose columns could be shared."""
        return next((twin for twin in twins if self._folder.share_columns(trace_id, twin.id)), None)

"""The one way in: bytes that are safe on disk become a trace, however they came."""

import asyncio
from collections.abc import Callable, Sequence

from service.jobs.runner import Runner
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.store.jobs import Priority
from service.store.uploads import Received
from service.trace.rank import rank_in_name


class Arrivals:
    """Makes traces of originals.

    Args:
        catalog: where traces are recorded.
        folder: where their originals lie.
        runner: who reads them.
        on_arrival: is called after each.
    """

    def __init__(
        self, catalog: Catalog, folder: Folder, runner: Runner, *, on_arrival: Callable[[], object] = lambda: None
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._runner = runner
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
        """Record a trace whose original is safe, and have it read: by the worker that follows it, or in its turn.

        Bytes that a trace has already are stored once; where that one is ready, so is the new one, at once.

        Args:
            trace_id: its id, under which the original lies.
            name: the name it was given.
            received: what came.
            group: the name of the group it belongs to, which is made if there is none.
            priority: of its ingest.

        Raises:
            DiskFull: there was no room in the catalog.
        """
        twins = await asyncio.to_thread(self._catalog.find_by_bytes, received.sha256, received.size)
        mark = received.mark
        if received.path is None and await asyncio.to_thread(self._shared, trace_id, twins):
            mark = None
        alike = [one for one in twins if one.state is State.READY and rank_in_name(one.name) == rank_in_name(name)]
        if alike:
            await self._runner.give_up(trace_id)
        read = await asyncio.to_thread(self._read_already, trace_id, alike)
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
        self._runner.hand_over(trace_id)
        self._on_arrival()
        return trace

    def _shared(self, trace_id: str, twins: Sequence[Trace]) -> bool:
        """Whether one of them lent its original, which nobody else may write into."""
        lenders = (one.id for one in twins if one.id != trace_id and one.path_mark is None)
        return any(self._folder.share(trace_id, one) for one in lenders)

    def _read_already(self, trace_id: str, twins: Sequence[Trace]) -> Trace | None:
        """The first that lent its columns."""
        return next((one for one in twins if self._folder.share_columns(trace_id, one.id)), None)

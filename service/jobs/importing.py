"""Imports: files of the server's own disk become traces, at once or, where one watches, as they come.

An order says what; a job takes what there is of it by now. An order that watches has further jobs, for files that two
looks have found and that are as they were.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

from service.jobs.haul import Haul, Means
from service.jobs.lane import Lane
from service.store.external_files import mark_of
from service.store.imports import Order
from service.store.jobs import Job, JobState, Priority
from service.store.roots import ImportCandidate, is_tar
from service.trace.errors import BadName, ImportRefused, NothingToImport, TracedockError, UnknownJob

log = logging.getLogger(__name__)

KIND = "import"
AT_ONCE = 2
_AFTER_FAILURE_NS = 60 * 10**9
_REST = 20
"""How much longer than a look takes nobody looks again: a slow disk is not asked all the time."""


class Importing:
    """Takes the jobs that import off the queue, and looks for new files.

    Args:
        means: what it works with.
        look_every_s: how often an order that watches looks.
    """

    def __init__(self, means: Means, *, look_every_s: float) -> None:
        self.orders = means.orders
        self._means = means
        self._board = means.board
        self._look_every_s = look_every_s
        self._lane = Lane(means.board, [KIND], self._attempt, at_once=AT_ONCE, attempts=1)
        self._watches: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin; what an earlier server left must be queued again."""
        self._lane.start()
        for order in self.orders.watching():
            self._watch(order)

    async def close(self) -> None:
        """Stop at once; what is not finished stays for the next start."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(self._lane.close(), *self._watches.values(), return_exceptions=True)

    async def submit(self, request: dict[str, Any], *, watch: bool) -> Job:
        """Queue an import.

        Args:
            request: ``path``, ``mode``, and ``group`` and ``name`` or null.
            watch: whether new files are taken, too, from now on.

        Raises:
            ImportRefused: nothing may be imported from there.
            NothingToImport: there is nothing.
            BadName: several files can't be called the same.
        """
        several = await asyncio.to_thread(self._several, request["path"], watch=watch)
        if several and request["name"]:
            raise BadName("Only a single file can be given a name.")
        order = await asyncio.to_thread(self.orders.add, request | {"watch": watch}, watch=watch)
        if watch:
            self._watch(order)
        return self._begin(order, priority=Priority.BULK if several else Priority.INTERACTIVE)

    async def end(self, order_id: str) -> Order:
        """End an order: what was taken stays. Raises `UnknownImport`."""
        order = self.orders.end(order_id)
        if task := self._watches.pop(order_id, None):
            task.cancel()
            await asyncio.wait([task])
        for job in self._unfinished(order_id):
            await self._board.cancel(job.id)
        return order

    def _several(self, path: str, *, watch: bool) -> bool:
        """Whether a path may mean more than one trace, by now or later; raises as `submit` does."""
        self._means.roots.check(path)
        if watch:
            return True
        found = self._means.roots.find(path)
        first = next(found)
        return is_tar(first.path.name) or next(found, None) is not None

    def _begin(self, order: Order, files: list[str] | None = None, *, priority: Priority = Priority.BULK) -> Job:
        request = order.request | {"import": order.id, "files": files}
        job = self._board.jobs.add(KIND, request, priority=priority)
        self.orders.set_job(order.id, job.id)
        self._lane.wake()
        return job

    def _unfinished(self, order_id: str) -> list[Job]:
        return [job for job in self._board.jobs.unfinished() if job.kind == KIND and job.request["import"] == order_id]

    # -- orders that watch --------------------------------------------------------------------------------------------

    def _watch(self, order: Order) -> None:
        self._watches[order.id] = asyncio.create_task(self._look(order))

    async def _look(self, order: Order) -> None:
        """Again and again, queue a job for files that are as they were at the look before."""
        before: dict[str, str] = {}
        while True:
            began = time.monotonic()
            try:
                now = await asyncio.to_thread(self._marks, order.request["path"])
                if any(before.get(path) == mark for path, mark in now.items()):
                    known = await asyncio.to_thread(self.orders.marks, order.id)
                    new = sorted(path for path, mark in now.items() if before.get(path) == mark != known.get(path))
                    if new and not self._unfinished(order.id) and not self._failed_of_late(order.id):
                        self._begin(order, new)
                before = now
            except (TracedockError, OSError):
                log.exception("the import %s could not look for files; it looks again", order.id)
            await asyncio.sleep(max(self._look_every_s, _REST * (time.monotonic() - began)))

    def _failed_of_late(self, order_id: str) -> bool:
        """Whether the last job on an order failed, as on a full disk: the next one waits a while."""
        last = self.orders.get(order_id).job
        with suppress(UnknownJob):
            job = self._board.jobs.get(last or 0)
            return job.state is JobState.FAILED and time.time_ns() - (job.ended_ns or 0) < _AFTER_FAILURE_NS
        return False

    def _marks(self, path: str) -> dict[str, str]:
        """The marks of the files that there are by now, but for those that are no traces."""
        marks = {}
        with suppress(NothingToImport, ImportRefused):  # the folder may come back
            for found in self._means.roots.find(path):
                if not found.reason:
                    with suppress(OSError):
                        marks[found.key] = mark_of(found.path.stat())
        return marks

    # -- one job ------------------------------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        """Take what a job is about; what it took stays, however it ends."""
        order = self.orders.get(job.request["import"])
        files = job.request["files"]
        watches = order.request["watch"]
        if watches and files is None:  # what is there may just be written
            before = await asyncio.to_thread(self._marks, order.request["path"])
            await asyncio.sleep(self._look_every_s)
            now = await asyncio.to_thread(self._marks, order.request["path"])
            files = [path for path, mark in now.items() if before.get(path) == mark]
        found: list[tuple[ImportCandidate, int]] = []
        with suppress(*((NothingToImport, ImportRefused) if watches else ())):
            found = await asyncio.to_thread(self._found, order, None if files is None else set(files))
        haul = Haul(self._means, job, order, sum(size for _, size in found))
        for one, _ in found:
            await haul.take(one)
        self._board.jobs.finish(job, haul.result())

    def _found(self, order: Order, wanted: set[str] | None) -> list[tuple[ImportCandidate, int]]:
        """What there is, of what is wanted if not all is, and the sizes."""
        every: dict[str, tuple[ImportCandidate, int]] = {}
        for one in self._means.roots.find(order.request["path"]):
            if wanted is None or one.key in wanted:
                size = 0
                with suppress(OSError):
                    size = 0 if one.reason else one.path.stat().st_size
                every[one.key] = one, size
        return list(every.values())

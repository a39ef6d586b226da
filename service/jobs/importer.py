"""Imports of files on the server's disk and of objects in buckets: once or, with a watch, whenever new ones appear.

An order specifies the files, and its first job imports those that exist. Further jobs of an order that watches import
new files, once two scans in succession have found them unchanged.
"""

import asyncio
import logging
import time
from contextlib import suppress

from service.jobs.import_job import ImportContext, ImportJob, ImportRequest
from service.jobs.job_queue import JobQueue
from service.store.imports import ImportSpec, Order
from service.store.jobs import Job, JobState, Priority
from service.store.roots import ImportCandidate
from service.store.trace_names import is_tar
from service.trace.errors import BadName, ImportRefused, LocationError, NothingToImport, TracedockError, UnknownJob

log = logging.getLogger(__name__)

KIND = "import"
AT_ONCE = 2
_AFTER_FAILURE_NS = 60 * 10**9
_SCAN_BACKOFF_FACTOR = 20
"""Minimum pause between scans, as a multiple of the last scan's duration."""


class Importer:
    """Runs the import jobs of the queue, and scans for new files.

    Args:
        context: the parts of the server that imports use.
        scan_every_s: seconds between two scans for an order that watches.
    """

    def __init__(self, context: ImportContext, *, scan_every_s: float) -> None:
        self.orders = context.orders
        self._context = context
        self._monitor = context.monitor
        self._scan_every_s = scan_every_s
        self._queue = JobQueue(context.monitor, [KIND], self._attempt, at_once=AT_ONCE, attempts=1)
        self._watches: dict[str, asyncio.Task[None]] = {}

    @property
    def roots(self) -> list[str]:
        """The folders and buckets from which files may be imported."""
        return self._context.roots.locations

    def start(self) -> None:
        """Begin to take jobs and to scan. Unfinished jobs of an earlier server must have been queued again before."""
        self._queue.start()
        for order in self.orders.watching():
            self._watch(order)

    async def close(self) -> None:
        """Stop at once; unfinished jobs stay for the next start."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(self._queue.close(), *self._watches.values(), return_exceptions=True)

    async def submit(self, spec: ImportSpec) -> Job:
        """Queue an import.

        Raises:
            ImportRefused: nothing may be imported from the path.
            NothingToImport: the path matches no file.
            BadName: several files can't have the same name.
            LocationError: a bucket can't be used.
        """
        several = await asyncio.to_thread(self._several, spec)
        if several and spec.name:
            raise BadName("Only a single file can be given a name.")
        order = await asyncio.to_thread(self.orders.add, spec)
        if spec.watch:
            self._watch(order)
        return self._begin(order, priority=Priority.BULK if several else Priority.INTERACTIVE)

    async def end(self, order_id: str) -> Order:
        """End an order and cancel its jobs; the traces that it made stay. Raises `UnknownImport`."""
        order = self.orders.end(order_id)
        if task := self._watches.pop(order_id, None):
            task.cancel()
            await asyncio.wait([task])
        for job in self._unfinished(order_id):
            await self._monitor.cancel(job.id)
        return order

    def _several(self, spec: ImportSpec) -> bool:
        """Return whether an import may make more than one trace, now or later; raises as `submit` does."""
        self._context.roots.check(spec.path)
        if spec.watch:
            return True
        files = self._context.roots.find(spec.path)
        first = next(files)
        return is_tar(first.name) or next(files, None) is not None

    def _begin(self, order: Order, files: list[str] | None = None, *, priority: Priority = Priority.BULK) -> Job:
        request = ImportRequest(order.id, files)
        job = self._monitor.jobs.add(KIND, request.as_dict(order.spec), priority=priority)
        self.orders.set_job(order.id, job.id)
        self._queue.wake()
        return job

    def _unfinished(self, order_id: str) -> list[Job]:
        jobs = self._monitor.jobs.unfinished()
        return [job for job in jobs if job.kind == KIND and ImportRequest.of(job).order == order_id]

    # -- orders that watch --------------------------------------------------------------------------------------------

    def _watch(self, order: Order) -> None:
        self._watches[order.id] = asyncio.create_task(self._scan(order))

    async def _scan(self, order: Order) -> None:
        """Scan repeatedly, and queue a job for new files that have not changed since the previous scan."""
        path = order.spec.path
        before: dict[str, str] = {}
        while True:
            began = time.monotonic()
            try:
                marks = await asyncio.to_thread(self._marks, path)
                if any(before.get(file) == mark for file, mark in marks.items()):
                    recorded = await asyncio.to_thread(self.orders.marks, order.id)
                    new = sorted(file for file, mark in marks.items() if before.get(file) == mark != recorded.get(file))
                    if new and not self._unfinished(order.id) and not self._failed_recently(order.id):
                        self._begin(order, new)
                before = marks
            except LocationError as error:  # a bucket that refuses or fails does so for a while
                log.warning("the import %s can't scan for objects: %s", order.id, error.detail)
                await asyncio.sleep(_AFTER_FAILURE_NS / 10**9)
            except (TracedockError, OSError):
                log.exception("the import %s could not scan for files; it scans again", order.id)
            await asyncio.sleep(max(self._scan_every_s, _SCAN_BACKOFF_FACTOR * (time.monotonic() - began)))

    def _failed_recently(self, order_id: str) -> bool:
        """Return whether the last job on an order failed in the last minute, for example because the disk was full."""
        last = self.orders.get(order_id).job
        with suppress(UnknownJob):
            job = self._monitor.jobs.get(last or 0)
            return job.state is JobState.FAILED and time.time_ns() - (job.ended_ns or 0) < _AFTER_FAILURE_NS
        return False

    def _marks(self, path: str) -> dict[str, str]:
        """Return the marks, by key, of the existing files that can be imported."""
        marks = {}
        with suppress(NothingToImport, ImportRefused):  # a missing folder may come back
            for file in self._context.roots.find(path):
                if not file.reason and (mark := file.mark()):
                    marks[file.key] = mark
        return marks

    # -- one job ------------------------------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        """Import the files of a job. The imported ones stay, however the job ends."""
        request = ImportRequest.of(job)
        order = self.orders.get(request.order)
        spec, keys = order.spec, request.files
        if spec.watch and keys is None:  # a file may still be written
            before = await asyncio.to_thread(self._marks, spec.path)
            await asyncio.sleep(self._scan_every_s)
            now = await asyncio.to_thread(self._marks, spec.path)
            keys = [key for key, mark in now.items() if before.get(key) == mark]
        files: list[tuple[ImportCandidate, int]] = []
        with suppress(*((NothingToImport, ImportRefused) if spec.watch else ())):
            files = await asyncio.to_thread(self._files, spec.path, None if keys is None else set(keys))
        work = ImportJob(self._context, job, order, sum(size for _, size in files))
        for file, _ in files:
            await work.take(file)
        self._monitor.jobs.finish(job, work.result())

    def _files(self, path: str, keys: set[str] | None) -> list[tuple[ImportCandidate, int]]:
        """Return the existing files, those of the given keys or all, with their sizes in bytes."""
        files: dict[str, tuple[ImportCandidate, int]] = {}
        for file in self._context.roots.find(path):
            if keys is None or file.key in keys:
                files[file.key] = file, 0 if file.reason else file.size()
        return list(files.values())

"""One import job: imports the files one by one and records each, so that it can continue after a crash."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, TypedDict, TypeVar

from pydantic import Field, TypeAdapter

from service.jobs.job_monitor import JobMonitor
from service.jobs.shielded import shielded
from service.jobs.trace_intake import TraceIntake
from service.store.bucket_roots import ObjectCandidate
from service.store.catalog import Catalog, new_trace_id
from service.store.file_import import ArchiveMember, FileImporter
from service.store.folder import Folder
from service.store.imports import ARRIVING, File, Imports, ImportSpec, Order
from service.store.jobs import Job, JobResult
from service.store.room import Room
from service.store.roots import ImportCandidate, Roots
from service.store.trace_names import is_tar, is_trace
from service.store.uploads import Received, plain_name
from service.streaming.source import Progress
from service.trace.errors import (
    Cancelled,
    DiskFull,
    LocationDenied,
    LocationUnavailable,
    TracedockError,
    UnknownLocation,
    UnknownTrace,
)

LISTED_MAX = 1000
"""Maximum number of files that the result of a job lists; the catalog records all files of the order."""
_REPORT_EVERY_S = 0.2
_ENDING = (DiskFull, Cancelled, LocationDenied, LocationUnavailable, UnknownLocation)
"""Errors that end the job, since they concern all of its files."""

_T = TypeVar("_T")


class FileResult(TypedDict):
    """Outcome of a file: the id of the trace that it became, or the reason why it did not become one."""

    path: str
    trace: str | None
    why: str | None


_OrderId = TypedDict("_OrderId", {"import": str})


class ImportResult(_OrderId, JobResult):
    """Result of a job: the id of its order, the number of files that did not become a trace, and the first files."""

    skipped: int
    files: list[FileResult]


@dataclass(frozen=True)
class ImportRequest:
    """Request of a job that imports files of an order.

    Attributes:
        order: id of the order.
        files: keys of the files to import; None for all files that exist.
    """

    order: Annotated[str, Field(alias="import")]
    files: list[str] | None

    @classmethod
    def of(cls, job: Job) -> "ImportRequest":
        """Read the request of a job."""
        return _REQUESTS.validate_python(job.request)

    def as_dict(self, spec: ImportSpec) -> dict[str, object]:
        """Return the request of a job as JSON values, with the specification of its order."""
        return asdict(spec) | {"import": self.order, "files": self.files}


_REQUESTS = TypeAdapter(ImportRequest)


@dataclass(frozen=True)
class ImportContext:
    """The parts of the server that imports use.

    Args:
        catalog: the catalog of traces.
        monitor: holds the jobs, and is notified of their changes.
        folder: the data folder.
        room: the disk space of the data folder.
        intake: turns files into traces.
        orders: the orders to import.
        roots: the folders below which files may be imported.
        limit: the largest size of a file in bytes.
        linked: whether files may have further hard links, through which other programs can change them.
    """

    catalog: Catalog
    monitor: JobMonitor
    folder: Folder
    room: Room
    intake: TraceIntake
    orders: Imports
    roots: Roots
    limit: int
    linked: bool = False


class ImportJob:
    """The work of one job on an order.

    Args:
        context: the parts of the server that it uses.
        job: the job.
        order: the order that the job works on.
        size: total size in bytes of the files that the job imports.
    """

    def __init__(self, context: ImportContext, job: Job, order: Order, size: int) -> None:
        self._context = context
        self._job = job
        self._order = order
        self._spec = order.spec
        self._progress = Progress(bytes_total=size)
        self._reported_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._importer = FileImporter(
            context.folder, context.room, limit=context.limit, on_bytes=self._count, linked=context.linked
        )
        self._files: list[File] = []

    def result(self) -> ImportResult:
        """Return the job's result, with the outcomes of the first `LISTED_MAX` files."""
        files = [FileResult(path=file.path, trace=file.trace, why=file.why) for file in self._files[:LISTED_MAX]]
        traces = [file.trace for file in self._files if file.trace]
        skipped = len(self._files) - len(traces)
        return {"import": self._order.id, "traces": traces, "skipped": skipped, "files": files}

    async def take(self, file: ImportCandidate) -> None:
        """Import a file, or the files of an archive.

        Raises:
            DiskFull: the disk is full.
            LocationError: the bucket can't be used.
            Cancelled: the job was cancelled.
        """
        mark = await asyncio.to_thread(file.mark)
        if file.reason:
            await self._note(File(file.key, mark, None, file.reason))
        elif is_tar(file.name):
            await self._take_archive(file, mark)
        else:
            name = self._spec.name or file.name
            await self._take(file.key, mark, name, lambda trace_id: self._import(file, trace_id))

    def _import(self, file: ImportCandidate, trace_id: str) -> Received:
        if isinstance(file, ObjectCandidate):
            return self._importer.import_object(file, trace_id, self._spec.mode)
        return self._importer.import_file(file.path, trace_id, self._spec.mode)

    async def _take_archive(self, archive: ImportCandidate, mark: str) -> None:
        """Import the files of an archive into one group, then record that the archive is done."""
        group, count, why = archive.name.partition(".t")[0], 0, None
        if isinstance(archive, ObjectCandidate):
            members = self._importer.object_members(archive)
        else:
            members = self._importer.members(archive.path)
        try:
            while member := await self._in_thread(partial(next, members, None)):
                count += 1
                name = member.name.encode(errors="backslashreplace").decode()
                await self._take_member(f"{archive.key}//{count}/{name}", mark, member, group)
        except _ENDING:
            raise
        except (TracedockError, OSError) as error:
            why = _why(error)
        finally:
            await asyncio.to_thread(members.close)
        if why or not count:
            await self._note(File(archive.key, mark, None, why or "The archive is empty."))
        else:
            await self._record(File(archive.key, mark, None, f"It is an archive: {count} files."))

    async def _take_member(self, key: str, mark: str, member: ArchiveMember, group: str) -> None:
        stream = member.stream
        if stream is None or not is_trace(member.name):
            await self._note(File(key, mark, None, member.reason or "It is not named like a trace."))
        else:
            await self._take(key, mark, member.name, lambda trace_id: self._importer.copy(stream, trace_id), group)

    async def _take(
        self, key: str, mark: str, name: str, take: Callable[[str], Received], group: str | None = None
    ) -> None:
        """Turn a file into a trace, unless an earlier attempt did. If that fails, record the reason."""
        if trace := await asyncio.to_thread(self._trace_of, key, mark):
            await self._note(File(key, mark, trace, None))
            return
        trace_id, group = new_trace_id(), self._spec.group or group
        try:
            plain_name(name)
            received = await self._in_thread(lambda: take(trace_id))
            like = partial(
                self._context.catalog.find_like, sha256=received.sha256, size=received.size, name=name, group=group
            )
            if twin := await asyncio.to_thread(like):  # a repeated import makes no second trace
                await asyncio.to_thread(self._context.folder.remove, trace_id)
                await self._note(File(key, mark, twin, None))
                return
            await self._record(File(key, mark, trace_id, ARRIVING))
            await shielded(
                self._context.intake.keep(
                    trace_id,
                    name=name,
                    received=received,
                    group=group,
                    priority=self._job.priority,
                )
            )
        except BaseException as error:
            if not await asyncio.to_thread(self._is_trace, trace_id):
                await asyncio.to_thread(self._context.folder.remove, trace_id)
            if isinstance(error, _ENDING) or not isinstance(error, TracedockError | OSError):
                raise
            await self._note(File(key, mark, None, _why(error)))
        else:
            await self._note(File(key, mark, trace_id, None))

    def _trace_of(self, key: str, mark: str) -> str | None:
        """Return the trace that an earlier attempt made of a file, if the file has not changed since."""
        file = self._context.orders.file(self._order.id, key)
        if not file or file.mark != mark or not file.trace:
            return None
        return file.trace if file.why != ARRIVING or self._is_trace(file.trace) else None

    def _is_trace(self, trace_id: str) -> bool:
        try:
            self._context.catalog.get(trace_id)
        except UnknownTrace:
            return False
        return True

    async def _note(self, file: File) -> None:
        """Record the outcome of a file, and add it to the result."""
        self._files.append(file)
        await self._record(file)

    async def _record(self, file: File) -> None:
        await asyncio.to_thread(self._context.orders.note, self._order.id, file)

    def _count(self, read: int) -> None:
        """Count bytes that a thread has read; raises `Cancelled` in that thread if the job was cancelled."""
        if self._stopped.is_set():
            raise Cancelled("The import was cancelled.")
        self._progress.bytes += read
        now = time.monotonic()
        if now - self._reported_at > _REPORT_EVERY_S:
            self._reported_at = now
            progress = Progress(self._progress.bytes, bytes_total=self._progress.bytes_total)
            self._loop.call_soon_threadsafe(self._context.monitor.moved, self._job.id, progress)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Run work in a thread; a cancellation makes the work stop at its next read, and waits for that."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stopped.set()
            raise
        finally:
            await asyncio.wait([task])


def _why(error: Exception) -> str:
    return error.detail if isinstance(error, TracedockError) else f"It can't be read: {error}."

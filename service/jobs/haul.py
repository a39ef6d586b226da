"""What one job imports: it takes file by file and notes each, so that after a crash it goes on where it was."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from service.jobs.arrivals import Arrivals
from service.jobs.board import Board
from service.jobs.unbroken import unbroken
from service.store.catalog import Catalog, new_trace_id
from service.store.external_files import mark_of
from service.store.file_import import ArchiveMember, FileImporter
from service.store.folder import Folder
from service.store.imports import ARRIVING, File, Imports, Order
from service.store.jobs import Job
from service.store.room import Room
from service.store.roots import ImportCandidate, Roots, is_tar, is_trace
from service.store.uploads import Received, plain_name
from service.streaming.source import Progress
from service.trace.errors import Cancelled, DiskFull, TracedockError, UnknownTrace

TOLD_MAX = 1000
"""Files that a job tells of; the order knows all."""
_TELL_EVERY_S = 0.2

_T = TypeVar("_T")


@dataclass(frozen=True)
class Means:
    """What an import works with.

    Args:
        catalog: knows the traces.
        board: the queue, where it tells of its jobs.
        folder: where the traces lie.
        room: what there is for them.
        arrivals: who makes traces of what was taken.
        orders: what is to be imported.
        roots: what may be.
        limit: the largest size in bytes of a file.
        linked: whether a file may have names that nobody knows.
    """

    catalog: Catalog
    board: Board
    folder: Folder
    room: Room
    arrivals: Arrivals
    orders: Imports
    roots: Roots
    limit: int
    linked: bool = False


class Haul:
    """What a job takes.

    Args:
        means: what it works with.
        job: the job.
        order: what it works on.
        size: bytes of all files that it is to take.
    """

    def __init__(self, means: Means, job: Job, order: Order, size: int) -> None:
        self._means = means
        self._job = job
        self._order = order
        self._progress = Progress(bytes_total=size)
        self._told_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._taking = FileImporter(
            means.folder, means.room, limit=means.limit, on_bytes=self._read, linked=means.linked
        )
        self._files: list[File] = []

    def result(self) -> dict[str, Any]:
        """What became of the files."""
        files = [{"path": one.path, "trace": one.trace, "why": one.why} for one in self._files[:TOLD_MAX]]
        taken = [one.trace for one in self._files if one.trace]
        return {"import": self._order.id, "traces": taken, "skipped": len(self._files) - len(taken), "files": files}

    async def take(self, found: ImportCandidate) -> None:
        """Take one file, or the files of an archive.

        Raises:
            DiskFull: there is no room.
            Cancelled: nobody wants it any more.
        """
        path = found.path
        mark = await asyncio.to_thread(_mark, path)
        if found.reason:
            await self._note(File(found.key, mark, None, found.reason))
        elif is_tar(path.name):
            await self._take_archive(found, mark)
        else:
            mode, name = self._order.request["mode"], self._order.request["name"] or path.name
            await self._take(found.key, mark, name, lambda trace_id: self._taking.import_file(path, trace_id, mode))

    async def _take_archive(self, found: ImportCandidate, mark: str) -> None:
        """Take the files of an archive into one group, and then note that it is done."""
        group, count, why = found.path.name.partition(".t")[0], 0, None
        members = self._taking.members(found.path)
        try:
            while member := await self._in_thread(partial(next, members, None)):
                count += 1
                name = member.name.encode(errors="backslashreplace").decode()
                await self._take_member(f"{found.key}//{count}/{name}", mark, member, group)
        except (DiskFull, Cancelled):
            raise
        except (TracedockError, OSError) as error:
            why = _why(error)
        finally:
            await asyncio.to_thread(members.close)
        if why or not count:
            await self._note(File(found.key, mark, None, why or "The archive is empty."))
        else:
            await self._remember(File(found.key, mark, None, f"It is an archive: {count} files."))

    async def _take_member(self, key: str, mark: str, member: ArchiveMember, group: str) -> None:
        stream = member.stream
        if stream is None or not is_trace(member.name):
            await self._note(File(key, mark, None, member.reason or "It is not named like a trace."))
        else:
            await self._take(key, mark, member.name, lambda trace_id: self._taking.copy(stream, trace_id), group)

    async def _take(
        self, key: str, mark: str, name: str, take: Callable[[str], Received], group: str | None = None
    ) -> None:
        """Make a trace of a file, unless an attempt before this did; what keeps it from being one is noted."""
        if known := await asyncio.to_thread(self._known, key, mark):
            await self._note(File(key, mark, known, None))
            return
        trace_id, group = new_trace_id(), self._order.request["group"] or group
        try:
            plain_name(name)
            received = await self._in_thread(lambda: take(trace_id))
            like = partial(
                self._means.catalog.find_like, sha256=received.sha256, size=received.size, name=name, group=group
            )
            if twin := await asyncio.to_thread(like):  # who imports again wants no other
                await asyncio.to_thread(self._means.folder.remove, trace_id)
                await self._note(File(key, mark, twin, None))
                return
            await self._remember(File(key, mark, trace_id, ARRIVING))
            await unbroken(
                self._means.arrivals.keep(
                    trace_id,
                    name=name,
                    received=received,
                    group=group,
                    priority=self._job.priority,
                )
            )
        except BaseException as error:
            if not await asyncio.to_thread(self._is_trace, trace_id):
                await asyncio.to_thread(self._means.folder.remove, trace_id)
            if isinstance(error, DiskFull | Cancelled) or not isinstance(error, TracedockError | OSError):
                raise
            await self._note(File(key, mark, None, _why(error)))
        else:
            await self._note(File(key, mark, trace_id, None))

    def _known(self, key: str, mark: str) -> str | None:
        """The trace that a file became before, as it is now."""
        file = self._means.orders.file(self._order.id, key)
        if not file or file.mark != mark or not file.trace:
            return None
        return file.trace if file.why != ARRIVING or self._is_trace(file.trace) else None

    def _is_trace(self, trace_id: str) -> bool:
        try:
            self._means.catalog.get(trace_id)
        except UnknownTrace:
            return False
        return True

    async def _note(self, file: File) -> None:
        self._files.append(file)
        await self._remember(file)

    async def _remember(self, file: File) -> None:
        await asyncio.to_thread(self._means.orders.note, self._order.id, file)

    def _read(self, more: int) -> None:
        """Hear, in a thread, that bytes were read."""
        if self._stopped.is_set():
            raise Cancelled("The import was cancelled.")
        self._progress.bytes += more
        now = time.monotonic()
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            told = Progress(self._progress.bytes, bytes_total=self._progress.bytes_total)
            self._loop.call_soon_threadsafe(self._means.board.moved, self._job.id, told)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Do it in a thread; if this is cancelled, that is told to stop, and waited for."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stopped.set()
            raise
        finally:
            await asyncio.wait([task])


def _mark(path: Path) -> str:
    try:
        return mark_of(path.lstat())
    except OSError:
        return ""


def _why(error: Exception) -> str:
    return error.detail if isinstance(error, TracedockError) else f"It can't be read: {error}."

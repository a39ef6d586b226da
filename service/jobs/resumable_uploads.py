"""Resumable uploads: receiving them in chunks, reading them in children meanwhile, and completing them."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from service.jobs.ingest_jobs import IngestJobs, UploadFollower
from service.jobs.shielded import shielded
from service.jobs.trace_intake import TraceIntake
from service.store.catalog import Catalog
from service.store.folder import Folder
from service.store.resumable import Announced, Chunk, Resumable, finished, forget_old, unfinished
from service.store.room import Room
from service.trace.errors import (
    BadUpload,
    TooLarge,
    TooManyUploads,
    TracedockError,
    UnknownTrace,
    UnknownUpload,
    UploadGone,
    UploadLocked,
    WrongOffset,
)

log = logging.getLogger(__name__)

FOLLOW_FROM = 1 << 20
"""Number of received bytes from which on a child reads an upload."""
FOLLOW_FOR_S = 30.0
"""Seconds for which a child waits for the next chunk before it is ended, to make room for other uploads."""
TEND_EVERY_S = 3600.0
"""Maximum number of seconds between two checks for complete and for expired uploads."""


@dataclass(frozen=True)
class UploadStatus:
    """Status of an upload.

    Attributes:
        announced: the client's announcement.
        offset: number of received bytes.
        ends_at: time at which the upload expires, in seconds since the epoch; None once it is a trace.
    """

    announced: Announced
    offset: int
    ends_at: float | None = None

    @property
    def trace(self) -> str | None:
        """The id of the trace that the upload became; None while it is unfinished."""
        return self.announced.id if self.ends_at is None else None


@dataclass(eq=False)
class _Upload:
    """An upload that this server has opened.

    Attributes:
        upload: the file and the state of the upload.
        lock: held while the upload changes.
        written: whether a chunk is being received.
        write_limit: the time limit of that chunk; `end` uses it to interrupt the chunk.
        follower: has the trace read while it is being received.
        rest: timer that removes `follower` unless another chunk arrives.
        catching_up: task that computes the digest of the bytes that an earlier server received.
    """

    upload: Resumable
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    written: bool = False
    write_limit: asyncio.Timeout | None = None
    follower: UploadFollower | None = None
    rest: asyncio.TimerHandle | None = None
    catching_up: asyncio.Task[None] | None = None


class ChunkWriter:
    """Writes a chunk of an upload; `ResumableUploads.writing` creates it."""

    def __init__(self, entry: _Upload, chunk: Chunk, room: Room) -> None:
        self._entry = entry
        self._chunk = chunk
        self._room = room

    async def expect(self, size: int) -> None:
        """Announce the size of the chunk in bytes; raises `TooLarge` or `InsufficientStorage` if it is too large."""
        self._chunk.check_size(size)
        await asyncio.to_thread(self._room.check, size, reserved_by=self._entry.upload.id)

    async def write(self, block: memoryview) -> None:
        """Append a block; raises `TooLarge`, `InsufficientStorage` or `DiskFull`. The call must not be cancelled."""
        await asyncio.to_thread(self._write, block)
        if not self._chunk.verified and self._entry.follower and self._entry.upload.offset >= FOLLOW_FROM:
            self._entry.follower.grew(self._entry.upload.offset)

    def _write(self, block: memoryview) -> None:
        upload = self._entry.upload
        self._room.check(len(block), reserved_by=upload.id)
        self._chunk.write(block)
        self._room.grew(len(block))
        if upload.announced.length is not None:
            self._room.reserve(upload.id, upload.announced.length - upload.offset)


@dataclass(frozen=True)
class UploadBounds:
    """Bounds on uploads.

    Args:
        size: maximum size of an upload in bytes.
        expires_s: seconds for which an unfinished upload is kept after its last byte.
        most: maximum number of unfinished uploads.
        most_per_client: maximum number of unfinished uploads of one client.
    """

    size: int
    expires_s: float
    most: int
    most_per_client: int


class ResumableUploads:
    """Receives uploads in chunks.

    Args:
        folder: the data folder.
        room: the disk space of the data folder.
        catalog: the catalog of traces.
        ingests: may read uploads while they are being received.
        intake: turns complete uploads into traces.
        bounds: bounds on the size and the number of uploads.
    """

    def __init__(
        self,
        folder: Folder,
        room: Room,
        catalog: Catalog,
        ingests: IngestJobs,
        intake: TraceIntake,
        *,
        bounds: UploadBounds,
    ) -> None:
        self._bounds = bounds
        self._folder = folder
        self._room = room
        self._catalog = catalog
        self._ingests = ingests
        self._intake = intake
        self._limit = bounds.size
        self._expires_s = bounds.expires_s
        self._uploads: dict[str, _Upload] = {}
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Begin to finish the complete uploads that an earlier server left, and to remove uploads that expire."""
        self._begin(self._tend())

    async def close(self) -> None:
        """Stop at once; received bytes are kept."""
        for entry in self._uploads.values():
            entry.upload.give_up()
            if entry.rest:
                entry.rest.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self, announced: Announced) -> UploadStatus:
        """Begin an upload; raises `TooManyUploads`, `InsufficientStorage` or `DiskFull`."""
        self.check_size(announced.length)
        async with self._opening:
            await self._check_number(announced.client)
            await asyncio.to_thread(self._room.reserve, announced.id, announced.length or 0, checked=True)
            try:
                upload = await shielded(asyncio.to_thread(Resumable.create, self._folder, announced))
            except BaseException:
                self._room.release(announced.id)
                raise
            self._uploads[announced.id] = _Upload(upload)
        return self._status(upload)

    async def _check_number(self, client: str) -> None:
        """Remove expired uploads; raises `TooManyUploads` if no further upload may begin."""
        for entry in list(self._uploads.values()):
            if not entry.lock.locked() and entry.upload.ends_at(self._expires_s) <= time.time():
                await self._remove(entry, expired=True)
        client_uploads = sum(entry.upload.announced.client == client for entry in self._uploads.values())
        for count, most, whose in (
            (len(self._uploads), self._bounds.most, ""),
            (client_uploads, self._bounds.most_per_client, " by you"),
        ):
            if count >= most:
                raise TooManyUploads(
                    f"{count} uploads{whose} are under way, and {most} may be: finish or DELETE some.",
                    uploads=count, limit=most, retry_after_s=60,
                )  # fmt: skip

    @property
    def unfinished(self) -> int:
        """The number of unfinished uploads that this server has opened."""
        return len(self._uploads)

    def check_size(self, length: int | None) -> None:
        """Check the length of an upload; raises `TooLarge`."""
        if length is not None and length > self._limit:
            raise TooLarge(f"The upload is larger than the limit of {self._limit} bytes.", limit=self._limit)

    async def status(self, upload_id: str) -> UploadStatus:
        """Return the status of an upload.

        Raises:
            UnknownUpload: there is no such upload.
            UploadGone: the upload has expired, or its trace is deleted.
            TracedockError: the upload is complete, but can't become a trace.
        """
        with suppress(UnknownUpload):
            entry = await self._find(upload_id)
            if entry.upload.whole:  # a client expects a complete upload to be a trace
                async with entry.lock:
                    await self._finish(entry)
            if self._uploads.get(upload_id) is entry:
                return self._status(entry.upload)
        announced = await asyncio.to_thread(finished, self._folder, upload_id)
        try:
            await asyncio.to_thread(self._catalog.get, upload_id)
        except UnknownTrace:
            raise UploadGone(f"The trace {upload_id}, which the upload became, is deleted.") from None
        return UploadStatus(announced, announced.length or 0)

    @asynccontextmanager
    async def writing(
        self, upload_id: str, offset: int, *, length: int | None = None, checksum: tuple[str, bytes] | None = None
    ) -> AsyncIterator[ChunkWriter]:
        """Add a chunk to an upload. If the upload is complete at the end of the ``with`` block, it becomes a trace.

        If the block raises an error, the received bytes are kept, unless the chunk has a checksum.

        Args:
            upload_id: the id of the upload.
            offset: offset of the chunk in the upload, in bytes.
            length: length of the upload in bytes, if it was not announced before.
            checksum: algorithm and digest of the chunk.

        Raises:
            UnknownUpload: no upload has that id.
            UploadGone: the upload has expired, is done, or was ended meanwhile.
            UploadLocked: another chunk of the upload is being received.
            WrongOffset: the upload has another offset.
            ChecksumMismatch: the chunk has another digest.
            DiskFull: the disk is full.
        """
        try:
            entry = await self._find(upload_id)
        except UnknownUpload:  # also raised for an upload that is done
            _check_offset((await self.status(upload_id)).offset, offset)
            raise UploadGone(f"The upload {upload_id} is done.") from None
        if entry.written:
            raise UploadLocked(f"Another chunk of the upload {upload_id} is on its way.", retry_after_s=1)
        entry.written = True
        try:
            async with entry.lock:
                self._check_there(entry)
                _check_offset(entry.upload.offset, offset)
                await self._take_length(entry.upload, length)
                async with self._chunk(entry, checksum) as writing:
                    yield writing
                await self._finish(entry)
        finally:
            entry.written = False

    @asynccontextmanager
    async def _chunk(self, entry: _Upload, checksum: tuple[str, bytes] | None) -> AsyncIterator[ChunkWriter]:
        upload = entry.upload
        chunk = await asyncio.to_thread(Chunk, self._folder, upload, limit=self._limit, checksum=checksum)
        self._follow(entry)
        try:
            async with asyncio.timeout(None) as entry.write_limit:
                yield ChunkWriter(entry, chunk, self._room)
        except BaseException as error:
            await shielded(asyncio.to_thread(chunk.leave))
            if isinstance(error, TimeoutError):
                raise UploadGone(f"The upload {upload.id} was ended.") from None
            raise
        else:
            await shielded(asyncio.to_thread(chunk.keep))
            if entry.follower and upload.offset >= FOLLOW_FROM:
                entry.follower.grew(upload.offset)
        finally:
            entry.write_limit = None
            self._rest(entry)

    async def end(self, upload_id: str) -> None:
        """Remove an unfinished upload, even in the middle of a chunk; raises `UnknownUpload`, `UploadGone`."""
        entry = await self._find(upload_id)
        if entry.write_limit:
            entry.write_limit.reschedule(0)
        async with entry.lock:
            self._check_there(entry)
            await self._remove(entry)

    # -- one upload ---------------------------------------------------------------------------------------------------

    async def _find(self, upload_id: str) -> _Upload:
        async with self._opening:
            if upload_id not in self._uploads:
                upload = await asyncio.to_thread(Resumable.reopen, self._folder, upload_id)
                self._uploads[upload_id] = _Upload(upload)
                if upload.announced.length is not None:
                    self._room.reserve(upload_id, upload.announced.length - upload.offset)
            entry = self._uploads[upload_id]
        if not entry.lock.locked() and entry.upload.ends_at(self._expires_s) <= time.time():
            async with entry.lock:
                if self._uploads.get(upload_id) is entry:
                    await self._remove(entry, expired=True)
            raise UploadGone(f"The upload {upload_id} has expired.")
        return entry

    def _status(self, upload: Resumable) -> UploadStatus:
        return UploadStatus(upload.announced, upload.offset, upload.ends_at(self._expires_s))

    def _check_there(self, entry: _Upload) -> None:
        if self._uploads.get(entry.upload.id) is not entry:
            raise UploadGone(f"The upload {entry.upload.id} was ended, or is done.")

    async def _take_length(self, upload: Resumable, length: int | None) -> None:
        """Record a length that was not announced before.

        Raises:
            TooLarge, BadUpload: the length is not valid.
            InsufficientStorage, DiskFull: the disk has no room for an upload of this length, or for the record.
        """
        if length is None or length == upload.announced.length:
            return
        self.check_size(length)
        if upload.announced.length is not None or length < upload.offset:
            raise BadUpload(f"The length is {upload.announced.length or upload.offset} or more, and can't be {length}.")
        await asyncio.to_thread(self._room.reserve, upload.id, length - upload.offset, checked=True)
        await asyncio.to_thread(upload.announce, length)

    async def _finish(self, entry: _Upload) -> None:
        """Turn an upload into a trace if it is complete; after an error, the upload stays as it is."""
        upload = entry.upload
        if not upload.whole or self._uploads.get(upload.id) is not entry:
            return
        announced = upload.announced
        received = await shielded(asyncio.to_thread(upload.keep))
        try:
            await self._intake.keep(
                upload.id, name=announced.name, received=received, group=announced.group, priority=announced.priority
            )
        except Exception:  # not for a cancellation, after which the trace may still be recorded
            await asyncio.to_thread(upload.undo_keep)
            raise
        await asyncio.to_thread(upload.done)
        self._forget(entry)

    async def _remove(self, entry: _Upload, *, expired: bool = False) -> None:
        self._forget(entry)
        await self._ingests.stop_following(entry.upload.id)
        await asyncio.to_thread(entry.upload.expire if expired else entry.upload.remove)

    def _forget(self, entry: _Upload) -> None:
        self._room.release(entry.upload.id)
        del self._uploads[entry.upload.id]
        if entry.rest:
            entry.rest.cancel()

    def _follow(self, entry: _Upload) -> None:
        """Let a child follow the upload, and compute the digest of the bytes that an earlier server received."""
        if entry.rest:
            entry.rest.cancel()
        entry.follower = entry.follower or UploadFollower(self._ingests, entry.upload.id, entry.upload.announced.name)
        if not entry.catching_up and entry.upload.offset:
            entry.catching_up = self._begin(asyncio.to_thread(entry.upload.catch_up))

    def _rest(self, entry: _Upload) -> None:
        """Stop following the upload unless another chunk arrives within `FOLLOW_FOR_S`."""

        async def stop_following() -> None:
            async with entry.lock:
                if not entry.written and self._uploads.get(entry.upload.id) is entry:
                    entry.follower = None
                    await self._ingests.stop_following(entry.upload.id)

        entry.rest = asyncio.get_running_loop().call_later(FOLLOW_FOR_S, lambda: self._begin(stop_following()))

    # -- all uploads --------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("background work on uploads broke", exc_info=error)

    async def _tend(self) -> None:
        while True:
            for upload_id in await asyncio.to_thread(unfinished, self._folder):
                try:
                    await self.status(upload_id)
                except (UnknownUpload, UploadGone):
                    continue
                except (TracedockError, OSError):
                    log.exception("the upload %s can't be made a trace", upload_id)
            await asyncio.to_thread(forget_old, self._folder, self._expires_s, excluding=list(self._uploads))
            await asyncio.sleep(min(TEND_EVERY_S, max(1.0, self._expires_s)))


def _check_offset(actual: int, claimed: int) -> None:
    if actual != claimed:
        raise WrongOffset(f"The upload is at {actual}, not {claimed}.", offset=actual)

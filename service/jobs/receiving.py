"""Uploads that come in chunks: who writes to which, what follows them, and how they end."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from service.jobs.arrivals import Arrivals
from service.jobs.runner import Following, Runner
from service.jobs.unbroken import unbroken
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
"""Bytes that are there before a worker begins to read."""
FOLLOW_FOR_S = 30.0
"""How long a worker waits for the next chunk: others may want its place."""
TEND_EVERY_S = 3600.0


@dataclass(frozen=True)
class Standing:
    """How far an upload is; `ends_at` is in seconds since the epoch, and None once it is a trace, which has its id."""

    announced: Announced
    offset: int
    ends_at: float | None = None

    @property
    def trace(self) -> str | None:
        """The id of the trace that it became."""
        return self.announced.id if self.ends_at is None else None


@dataclass(eq=False)
class _Known:
    """An upload that this server has seen: `leash` holds who writes to it, and `rest` ends the following."""

    upload: Resumable
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    written: bool = False
    leash: asyncio.Timeout | None = None
    following: Following | None = None
    rest: asyncio.TimerHandle | None = None
    catching_up: asyncio.Task[None] | None = None


class Writing:
    """A chunk on its way; made by `Receiving.writing`."""

    def __init__(self, known: _Known, chunk: Chunk, room: Room) -> None:
        self._known = known
        self._chunk = chunk
        self._room = room

    async def expect(self, size: int) -> None:
        """Say that so many bytes will come; raises `TooLarge` or `InsufficientStorage` if that are too many."""
        self._chunk.check_size(size)
        await asyncio.to_thread(self._room.check, size, reserved_by=self._known.upload.id)

    async def write(self, block: memoryview) -> None:
        """Add a block; raises `TooLarge` or `DiskFull`. Not to be cancelled."""
        await asyncio.to_thread(self._write, block)
        if not self._chunk.verified and self._known.following and self._known.upload.offset >= FOLLOW_FROM:
            self._known.following.grew(self._known.upload.offset)

    def _write(self, block: memoryview) -> None:
        upload = self._known.upload
        self._room.check(len(block), reserved_by=upload.id)
        self._chunk.write(block)
        self._room.grew(len(block))
        if upload.announced.length is not None:
            self._room.reserve(upload.id, upload.announced.length - upload.offset)


@dataclass(frozen=True)
class UploadBounds:
    """Bounds on uploads.

    Args:
        size: bytes of the largest one.
        expires_s: how long one is kept after its last byte.
        most: how many there may be that are not whole.
        most_per_client: how many of one client.
    """

    size: int
    expires_s: float
    most: int
    most_per_client: int


class Receiving:
    """The uploads that are under way.

    Args:
        folder: where they lie.
        room: what there is for them.
        catalog: where those are that became traces.
        runner: who may read them while they come.
        arrivals: who makes traces of them.
        bounds: what an upload may be, and how many there may be.
    """

    def __init__(
        self,
        folder: Folder,
        room: Room,
        catalog: Catalog,
        runner: Runner,
        arrivals: Arrivals,
        *,
        bounds: UploadBounds,
    ) -> None:
        self._bounds = bounds
        self._folder = folder
        self._room = room
        self._catalog = catalog
        self._runner = runner
        self._arrivals = arrivals
        self._limit = bounds.size
        self._expires_s = bounds.expires_s
        self._known: dict[str, _Known] = {}
        self._finding = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Finish what was whole when an earlier server ended, and from now on remove what expires."""
        self._begin(self._tend())

    async def close(self) -> None:
        """Stop at once; what came so far is kept."""
        for known in self._known.values():
            known.upload.give_up()
            if known.rest:
                known.rest.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self, announced: Announced) -> Standing:
        """Begin an upload; raises `TooManyUploads`, `InsufficientStorage` or `DiskFull`."""
        self.check_size(announced.length)
        async with self._finding:
            await self._check_number(announced.client)
            await asyncio.to_thread(self._room.reserve, announced.id, announced.length or 0, checked=True)
            try:
                upload = await unbroken(asyncio.to_thread(Resumable.create, self._folder, announced))
            except BaseException:
                self._room.release(announced.id)
                raise
            self._known[announced.id] = _Known(upload)
        return self._standing(upload)

    async def _check_number(self, client: str) -> None:
        """Raise `TooManyUploads` if there can't be one more, when those that expired are gone."""
        for known in list(self._known.values()):
            if not known.lock.locked() and known.upload.ends_at(self._expires_s) <= time.time():
                await self._remove(known, expired=True)
        mine = sum(known.upload.announced.client == client for known in self._known.values())
        for count, most, whose in (
            (len(self._known), self._bounds.most, ""),
            (mine, self._bounds.most_per_client, " by you"),
        ):
            if count >= most:
                raise TooManyUploads(
                    f"{count} uploads{whose} are under way, and {most} may be: finish or DELETE some.",
                    uploads=count, limit=most, retry_after_s=60,
                )  # fmt: skip

    @property
    def unfinished(self) -> int:
        """How many uploads this server knows of that are not whole."""
        return len(self._known)

    def check_size(self, length: int | None) -> None:
        """Raise `TooLarge` if an upload may not have that length."""
        if length is not None and length > self._limit:
            raise TooLarge(f"The upload is larger than the limit of {self._limit} bytes.", limit=self._limit)

    async def standing(self, upload_id: str) -> Standing:
        """How far an upload is; raises `UnknownUpload`, `UploadGone`, or what keeps it from being a trace."""
        with suppress(UnknownUpload):
            known = await self._find(upload_id)
            if known.upload.whole:  # who hears of that takes it for a trace
                async with known.lock:
                    await self._finish(known)
            if self._known.get(upload_id) is known:
                return self._standing(known.upload)
        announced = await asyncio.to_thread(finished, self._folder, upload_id)
        try:
            await asyncio.to_thread(self._catalog.get, upload_id)
        except UnknownTrace:
            raise UploadGone(f"The trace {upload_id}, which the upload became, is deleted.") from None
        return Standing(announced, announced.length or 0)

    @asynccontextmanager
    async def writing(
        self, upload_id: str, offset: int, *, length: int | None = None, checksum: tuple[str, bytes] | None = None
    ) -> AsyncIterator[Writing]:
        """Add a chunk to an upload, which is made a trace if all bytes are there when the block is left.

        Left by an error, what came is kept, unless it was to be verified.

        Args:
            upload_id: of the upload.
            offset: where the chunk belongs.
            length: of the upload, where it is told only now.
            checksum: what the chunk must hash to: the algorithm and the digest.

        Raises:
            UnknownUpload: there is none.
            UploadGone: it has expired, or was ended meanwhile.
            UploadLocked: another chunk is on its way.
            WrongOffset: the upload is not that far, or further.
            ChecksumMismatch: other bytes came than were promised.
            DiskFull: there was no room.
        """
        try:
            known = await self._find(upload_id)
        except UnknownUpload:  # or it is done
            _check_offset((await self.standing(upload_id)).offset, offset)
            raise UploadGone(f"The upload {upload_id} is done.") from None
        if known.written:
            raise UploadLocked(f"Another chunk of the upload {upload_id} is on its way.", retry_after_s=1)
        known.written = True
        try:
            async with known.lock:
                self._check_there(known)
                _check_offset(known.upload.offset, offset)
                await self._take_length(known.upload, length)
                async with self._chunk(known, checksum) as writing:
                    yield writing
                await self._finish(known)
        finally:
            known.written = False

    @asynccontextmanager
    async def _chunk(self, known: _Known, checksum: tuple[str, bytes] | None) -> AsyncIterator[Writing]:
        upload = known.upload
        chunk = await asyncio.to_thread(Chunk, self._folder, upload, limit=self._limit, checksum=checksum)
        self._follow(known)
        try:
            async with asyncio.timeout(None) as known.leash:
                yield Writing(known, chunk, self._room)
        except BaseException as error:
            await unbroken(asyncio.to_thread(chunk.leave))
            if isinstance(error, TimeoutError):
                raise UploadGone(f"The upload {upload.id} was ended.") from None
            raise
        else:
            await unbroken(asyncio.to_thread(chunk.keep))
            if known.following and upload.offset >= FOLLOW_FROM:
                known.following.grew(upload.offset)
        finally:
            known.leash = None
            self._rest(known)

    async def end(self, upload_id: str) -> None:
        """Remove an upload that is no trace yet, in the middle of a chunk too; raises `UnknownUpload`, `UploadGone`."""
        known = await self._find(upload_id)
        if known.leash:
            known.leash.reschedule(0)
        async with known.lock:
            self._check_there(known)
            await self._remove(known)

    # -- one upload ---------------------------------------------------------------------------------------------------

    async def _find(self, upload_id: str) -> _Known:
        async with self._finding:
            if upload_id not in self._known:
                upload = await asyncio.to_thread(Resumable.reopen, self._folder, upload_id)
                self._known[upload_id] = _Known(upload)
                if upload.announced.length is not None:
                    self._room.reserve(upload_id, upload.announced.length - upload.offset)
            known = self._known[upload_id]
        if not known.lock.locked() and known.upload.ends_at(self._expires_s) <= time.time():
            async with known.lock:
                if self._known.get(upload_id) is known:
                    await self._remove(known, expired=True)
            raise UploadGone(f"The upload {upload_id} has expired.")
        return known

    def _standing(self, upload: Resumable) -> Standing:
        return Standing(upload.announced, upload.offset, upload.ends_at(self._expires_s))

    def _check_there(self, known: _Known) -> None:
        if self._known.get(known.upload.id) is not known:
            raise UploadGone(f"The upload {known.upload.id} was ended, or is done.")

    async def _take_length(self, upload: Resumable, length: int | None) -> None:
        """Take note of a length that is told only now."""
        if length is None or length == upload.announced.length:
            return
        self.check_size(length)
        if upload.announced.length is not None or length < upload.offset:
            raise BadUpload(f"The length is {upload.announced.length or upload.offset} or more, and can't be {length}.")
        await asyncio.to_thread(self._room.reserve, upload.id, length - upload.offset, checked=True)
        await asyncio.to_thread(upload.announce, length)

    async def _finish(self, known: _Known) -> None:
        """Make an upload a trace if it is whole; raises `DiskFull`, and then it stays as it is."""
        upload = known.upload
        if not upload.whole or self._known.get(upload.id) is not known:
            return
        told = upload.announced
        received = await unbroken(asyncio.to_thread(upload.keep))
        try:
            await self._arrivals.keep(
                upload.id, name=told.name, received=received, group=told.group, priority=told.priority
            )
        except Exception:  # one that is merely interrupted may yet be recorded
            await asyncio.to_thread(upload.undo_keep)
            raise
        await asyncio.to_thread(upload.done)
        self._forget(known)

    async def _remove(self, known: _Known, *, expired: bool = False) -> None:
        self._forget(known)
        await self._runner.give_up(known.upload.id)
        await asyncio.to_thread(known.upload.expire if expired else known.upload.remove)

    def _forget(self, known: _Known) -> None:
        self._room.release(known.upload.id)
        del self._known[known.upload.id]
        if known.rest:
            known.rest.cancel()

    def _follow(self, known: _Known) -> None:
        """Have a worker read what comes, and what came before this server knew of it digested meanwhile."""
        if known.rest:
            known.rest.cancel()
        known.following = known.following or Following(self._runner, known.upload.id, known.upload.announced.name)
        if not known.catching_up and known.upload.offset:
            known.catching_up = self._begin(asyncio.to_thread(known.upload.catch_up))

    def _rest(self, known: _Known) -> None:
        """Free the worker's place if nothing more comes for a while."""

        async def give_up() -> None:
            async with known.lock:
                if not known.written and self._known.get(known.upload.id) is known:
                    known.following = None
                    await self._runner.give_up(known.upload.id)

        known.rest = asyncio.get_running_loop().call_later(FOLLOW_FOR_S, lambda: self._begin(give_up()))

    # -- all uploads --------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("what was done beside the uploads broke", exc_info=error)

    async def _tend(self) -> None:
        while True:
            for upload_id in await asyncio.to_thread(unfinished, self._folder):
                try:
                    await self.standing(upload_id)
                except (UnknownUpload, UploadGone):
                    continue
                except (TracedockError, OSError):
                    log.exception("the upload %s can't be made a trace", upload_id)
            await asyncio.to_thread(forget_old, self._folder, self._expires_s, excluding=list(self._known))
            await asyncio.sleep(min(TEND_EVERY_S, max(1.0, self._expires_s)))


def _check_offset(there: int, told: int) -> None:
    if there != told:
        raise WrongOffset(f"The upload is at {there}, not {told}.", offset=there)

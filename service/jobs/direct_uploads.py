"""Direct uploads: a client writes an object into the bucket by a presigned request, and completes the upload here.

All state is in the catalog and in the bucket, so a server that is killed at any point goes on with the next request.
"""

import asyncio
import hashlib
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.jobs.ingest_jobs import IngestJobs
from service.jobs.resumable_uploads import UploadBounds
from service.jobs.shielded import shielded
from service.jobs.trace_intake import TraceIntake
from service.store.catalog import Catalog, State, Trace, new_trace_id
from service.store.direct_uploads import DirectUpload, DirectUploadRecords
from service.store.external_objects import split_url
from service.store.jobs import Priority
from service.store.locations.location import Entry
from service.store.locations.presigned import PresignedRequest, presigned_put
from service.store.room import Room
from service.store.uploads import Received
from service.trace.errors import (
    BadLocation,
    DirectUploadsOff,
    EmptyBody,
    LocationDenied,
    LocationUnavailable,
    ObjectMissing,
    TooLarge,
    TooManyUploads,
    TracedockError,
    UnknownLocation,
    UnknownTrace,
    UploadGone,
    UploadLocked,
    WrongSize,
)

if TYPE_CHECKING:
    from service.store.locations.bucket import Bucket

log = logging.getLogger(__name__)

SIZE_MAX = 5 << 30
"""Maximum bytes of an object that S3 accepts in one request."""
URL_LIFETIME_S = 3600
"""Maximum seconds for which a presigned request can begin."""
WRITE_MAX_S = 24 * 3600
"""Seconds after which a request that has begun can't write an object any more."""
TEND_EVERY_S = 3600.0
"""Maximum number of seconds between two removals of objects."""
_NS = 10**9
_BLOCK = 1 << 20
_TEMPORARY = {error.code for error in (LocationDenied, LocationUnavailable, UnknownLocation)}
"""Codes of errors that an ingest may end with although the object is intact."""


@dataclass(frozen=True)
class DirectUploadRequest:
    """Fields of a direct upload that a client announces, with the size in bytes; see `DirectUpload`."""

    name: str
    size: int
    group: str | None
    priority: Priority
    client: str


class DirectBucket:
    """The part of a bucket into which clients upload.

    Args:
        url: its URL, like ``s3://bucket/prefix``.

    Raises:
        BadLocation: the URL is malformed, or not of S3, whose requests alone can be bound to one new object.
        FleetUnavailable: the library for buckets is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        root, prefix = split_url(self.url)
        if not self.url.startswith("s3://") or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
            raise BadLocation(f"TRACEDOCK_BUCKET is like s3://BUCKET/PREFIX, not {url[:200]!r}.")
        _bucket(root)

    def object_url(self, upload_id: str) -> str:
        """Return the URL of the object of an upload."""
        return f"{self.url}/{upload_id}"


class DirectUploads:
    """Begins and completes direct uploads, and removes the objects of those that end.

    Args:
        records: the records of direct uploads.
        catalog: the catalog of traces.
        room: the disk space of the data folder, where the columns go.
        ingests: the jobs that read traces.
        intake: turns objects into traces.
        bucket: where the objects go; None if the setting TRACEDOCK_BUCKET is empty.
        bounds: bounds on the size and the number of uploads.
    """

    def __init__(
        self,
        records: DirectUploadRecords,
        catalog: Catalog,
        room: Room,
        ingests: IngestJobs,
        intake: TraceIntake,
        bucket: DirectBucket | None,
        *,
        bounds: UploadBounds,
    ) -> None:
        self._records = records
        self._catalog = catalog
        self._room = room
        self._ingests = ingests
        self._intake = intake
        self._bucket = bucket
        self._bounds = bounds
        self._beginning = asyncio.Lock()
        self._changing = asyncio.Lock()
        """Held while it is decided whether an upload is completed or ends."""
        self._completing: dict[str, asyncio.Task[Trace]] = {}
        self._due = asyncio.Event()
        self._closed = threading.Event()
        self._tending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to remove the objects of uploads that have expired or ended, also before a restart."""
        self._tending = asyncio.create_task(self._tend())

    async def close(self) -> None:
        """Stop at once; uploads that are being completed can be completed again."""
        self._closed.set()
        tasks = [*self._completing.values(), *([self._tending] if self._tending else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Remove objects that are no longer needed soon, since a trace was deleted or read."""
        self._due.set()

    async def begin(self, request: DirectUploadRequest) -> tuple[DirectUpload, PresignedRequest]:
        """Begin an upload, and return it with the request that writes its object.

        Raises:
            DirectUploadsOff: no bucket is configured.
            EmptyBody, TooLarge: the size is 0, or beyond the limit.
            TooManyUploads: the maximum of unfinished uploads is reached.
            InsufficientStorage: the data folder has no room for columns.
            LocationDenied: no credentials can sign the request.
        """
        bucket = self._configured()
        self._check_size(request.size)
        async with self._beginning:
            await asyncio.to_thread(self._check_number, request.client)
            await asyncio.to_thread(self._room.check)
            now_ns, upload_id = time.time_ns(), new_trace_id()
            url = bucket.object_url(upload_id)
            lifetime_s = max(1, int(min(URL_LIFETIME_S, self._bounds.expires_s)))
            presigned = await asyncio.to_thread(
                presigned_put, url, size=request.size, lifetime_s=lifetime_s, now_ns=now_ns
            )
            upload = DirectUpload(
                upload_id, url, request.name, request.size, request.group, request.priority, request.client,
                url_expires_ns=presigned.expires_ns, expires_ns=now_ns + int(self._bounds.expires_s * _NS),
            )  # fmt: skip
            await shielded(asyncio.to_thread(self._records.add, upload))
        return upload, presigned

    async def status(self, upload_id: str) -> tuple[DirectUpload, Trace | None]:
        """Return an upload, and the trace that it became.

        Raises:
            UnknownUpload: there is no such upload.
            UploadGone: it has expired or was ended, or its trace is deleted.
        """
        upload = await asyncio.to_thread(self._records.get, upload_id)
        with suppress(UnknownTrace):
            return upload, await asyncio.to_thread(self._catalog.get, upload_id)
        if upload.ended_ns is not None or (upload.expires_ns <= time.time_ns() and upload_id not in self._completing):
            raise UploadGone(f"The direct upload {upload_id} has expired or was ended, or its trace is deleted.")
        return upload, None

    async def complete(self, upload_id: str) -> Trace:
        """Make the uploaded object a trace, and return it; concurrent and repeated calls return the same trace.

        If the trace could not be read because the bucket failed, its ingest is queued again.

        Raises:
            UnknownUpload, UploadGone: as `status` does.
            ObjectMissing: the client has not uploaded it yet.
            WrongSize: it has another size than announced.
            SourceChanged: another program replaced it just now.
            UploadLocked: the server stops.
            LocationError: the bucket can't be used.
            DiskFull: the disk has no room for the catalog's record.
        """
        async with self._changing:
            upload, trace = await self.status(upload_id)
            if trace is not None:
                return await asyncio.to_thread(self._read_again, trace, upload)
            if upload_id not in self._completing:
                task = self._completing[upload_id] = asyncio.create_task(self._complete(upload))
                task.add_done_callback(lambda _: self._completing.pop(upload_id))
            completing = self._completing[upload_id]
        try:
            return await asyncio.shield(completing)  # a client that disconnects does not stop it: another one may wait
        except asyncio.CancelledError:
            if completing.cancelled():  # by `close`
                raise _stopping(upload_id) from None
            raise

    async def end(self, upload_id: str) -> None:
        """Give up an upload, whose object is removed.

        Raises:
            UnknownUpload, UploadGone: as `status` does; also `UploadGone` if it is complete.
            UploadLocked: it is being completed.
        """
        async with self._changing:
            if upload_id in self._completing:
                raise UploadLocked(f"The direct upload {upload_id} is being completed.", retry_after_s=1)
            await self.status(upload_id)
            if not await asyncio.to_thread(self._records.end, upload_id, time.time_ns()):
                raise UploadGone(f"The direct upload {upload_id} is complete: delete its trace instead.")
        self.wake()

    # -- one upload ---------------------------------------------------------------------------------------------------

    async def _complete(self, upload: DirectUpload) -> Trace:
        entry, digest = await asyncio.to_thread(self._read_object, upload)
        return await shielded(
            self._intake.keep(
                upload.id,
                name=upload.name,
                received=Received(entry.size, digest, upload.url, entry.version),
                group=upload.group_name,
                priority=upload.priority,
            )
        )

    def _read_object(self, upload: DirectUpload) -> tuple[Entry, str]:
        """Return the object of an upload, and its SHA-256; raises as `complete`."""
        root, key = split_url(upload.url)
        bucket = _bucket(root)
        entry = bucket.entry(key)
        if entry is None:
            raise ObjectMissing(f"The {upload.size} bytes of the direct upload {upload.id} have not arrived.")
        if entry.size != upload.size:
            raise WrongSize(
                f"The object has {entry.size} bytes, not {upload.size} as announced: DELETE the upload, and begin"
                " another.",
                expected=upload.size, found=entry.size,
            )  # fmt: skip
        digest = hashlib.sha256()
        with bucket.open(entry) as file:
            while block := file.read(_BLOCK):
                if self._closed.is_set():
                    raise _stopping(upload.id)
                digest.update(block)
        return entry, digest.hexdigest()

    def _read_again(self, trace: Trace, upload: DirectUpload) -> Trace:
        """Queue the ingest of a trace again if it failed because of the bucket; return the trace."""
        if trace.state is State.FAILED and trace.error and trace.error.code in _TEMPORARY:
            trace = self._catalog.queue_again(trace.id, priority=upload.priority)
            self._ingests.wake()
        return trace

    # -- bounds -------------------------------------------------------------------------------------------------------

    def _configured(self) -> DirectBucket:
        if self._bucket is None:
            raise DirectUploadsOff(
                "This server has no bucket for direct uploads: set TRACEDOCK_BUCKET=s3://BUCKET/PREFIX, or upload to"
                " the server itself."
            )
        return self._bucket

    def _check_size(self, size: int) -> None:
        if not size:
            raise EmptyBody("A trace has at least one byte.")
        limit = min(self._bounds.size, SIZE_MAX)
        if size > limit:
            raise TooLarge(f"The upload is larger than the limit of {limit} bytes.", limit=limit)

    def _check_number(self, client: str) -> None:
        counts = self._records.unfinished()
        for count, most, whose in (
            (sum(counts.values()), self._bounds.most, ""),
            (counts.get(client, 0), self._bounds.most_per_client, " by you"),
        ):
            if count >= most:
                raise TooManyUploads(
                    f"{count} direct uploads{whose} are under way, and {most} may be: complete or DELETE some.",
                    uploads=count, limit=most, retry_after_s=60,
                )  # fmt: skip

    # -- all uploads --------------------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Remove objects that no trace needs, now and whenever some may be due."""
        while True:
            self._due.clear()
            try:
                async with self._changing:
                    completing = list(self._completing)
                    await asyncio.to_thread(self._records.end_expired, time.time_ns(), excluding=completing)
                await asyncio.to_thread(self._remove_objects)
            except TracedockError as error:
                log.warning("objects of ended direct uploads can't be removed yet: %s", error.detail)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(TEND_EVERY_S, max(1.0, self._bounds.expires_s))):
                    await self._due.wait()

    def _remove_objects(self) -> None:
        """Remove the objects of ended uploads: at once, and once more when no request can write them any more."""
        now_ns = time.time_ns()
        final_before_ns = now_ns - WRITE_MAX_S * _NS
        for upload in self._records.to_remove(final_before_ns=final_before_ns):
            root, key = split_url(upload.url)
            _bucket(root).remove(key)
            if max(upload.url_expires_ns, upload.ended_ns or 0) < final_before_ns:
                self._records.forget(upload.id)
            else:
                self._records.set_removed(upload.id, now_ns)


def _stopping(upload_id: str) -> UploadLocked:
    return UploadLocked(f"The server stops before the direct upload {upload_id} is complete.", retry_after_s=1)


def _bucket(root: str) -> "Bucket":
    from service.store.locations.bucket import Bucket  # noqa: PLC0415 - loads a library that is optional

    return Bucket(root)

"""Uploads: in one request, or resumable by tus 1.0, which survives a lost connection or a restart of the server."""

from __future__ import annotations

import hashlib
import os
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Optional
from urllib.parse import quote

import httpx

from tracedock.asynchronous.connection import NO_RETRIES, Connection
from tracedock.asynchronous.runtime import in_thread, sleep
from tracedock.errors import ApiError, ClientError, UnreachableError
from tracedock.messages import SYNC_S, BytesSent, Json, given, patience
from tracedock.sources import PIECE, Source

PATIENCE_S = 600.0
"""Seconds without progress after which an upload fails."""
PAUSE_S, PAUSE_MAX_S = 0.5, 30.0

OnRetry = Callable[[ClientError, float], object]
"""Receives the error, and the seconds until the next attempt."""

_VERSION = {"Tus-Resumable": "1.0.0"}
_RETRIED = (409, 423, 429, 500, 502, 503, 504)  # conflicts and temporary failures
END_S = 5.0
"""Seconds for the request that ends an upload that its caller has interrupted."""


class AsyncUpload:
    """One upload.

    Args:
        connection: the connection to the server.
        source: the bytes.
        name: name of the trace.
        group: name of its group.
        key: an `Idempotency-Key`, with which a later upload of the same bytes goes on; None for a new one.
        on_bytes: receives the number of sent bytes and the total.
        on_retry: receives the error, and the seconds until the next attempt.
        patience_s: seconds without progress after which a resumable upload fails.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the options of `AsyncClient.upload`
        self,
        connection: Connection,
        source: Source,
        name: str,
        group: Optional[str],
        key: Optional[str],
        on_bytes: Optional[BytesSent],
        on_retry: Optional[OnRetry],
        patience_s: float,
    ) -> None:
        self._connection = connection
        self._source = source
        self._name = os.fsencode(name)
        self._group = group
        self._key = key
        self._on_bytes = on_bytes
        self._on_retry = on_retry
        self._patience_s = patience_s
        self._progress_at = self._failed_at = time.monotonic()
        self._pause_s = PAUSE_S
        self._digest = hashlib.sha256()
        self._digested = 0

    @property
    def sha256(self) -> str:
        """The digest of the sent bytes, in hexadecimal digits."""
        return self._digest.hexdigest()

    async def send_whole(self) -> Json:
        """Upload in one request, and return the trace."""
        size = self._source.size
        length = {} if size is None else {"Content-Length": str(size)}
        return await self._connection.json(
            "PUT",
            f"traces/{quote(self._name, safe='')}",
            params=given({"group": self._group}),
            content=self._everything,
            headers={"Content-Type": "application/octet-stream", **length},
            key=self._key or True,
            repeatable=size is not None,  # the bytes of a stream can be read only once
            timeout=patience(read=SYNC_S),
        )

    async def send_chunks(self) -> str:
        """Upload in resumable chunks, and return the id of the trace."""
        values = {"filename": self._name} | ({} if self._group is None else {"group": self._group.encode()})
        encoded = ",".join(f"{key} {b64encode(value).decode()}" for key, value in values.items())
        size = self._source.size
        length = {"Upload-Defer-Length": "1"} if size is None else {"Upload-Length": str(size)}
        response = await self._connection.answer(
            "POST", "uploads", headers={**_VERSION, **length, "Upload-Metadata": encoded}, key=self._key or True
        )
        path = f"uploads/{response.headers['Location'].rpartition('/')[2]}"
        try:
            return await self._send_all(path)
        except BaseException as error:
            if not isinstance(error, ClientError) and not self._key:  # with a key, a later upload goes on
                with suppress(ClientError):
                    await self._connection.answer(
                        "DELETE", path, headers=_VERSION, retries=NO_RETRIES, timeout=httpx.Timeout(END_S)
                    )
            raise

    async def _send_all(self, path: str) -> str:
        offset: Optional[int] = 0
        while True:
            try:
                offset, trace = await (self._offset(path) if offset is None else self._send_chunk(path, offset))
                await in_thread(self._catch_up, offset)
                if trace:
                    return trace
            except (UnreachableError, ApiError) as error:
                await self._pause_after(error)
                offset = None

    async def _pause_after(self, error: ClientError) -> None:
        """Wait before the next attempt; raises the error if it is final, or after `patience_s` without progress."""
        if not self._is_temporary(error) or time.monotonic() - self._progress_at > self._patience_s:
            raise error
        self._pause_s = PAUSE_S if self._progress_at > self._failed_at else min(2 * self._pause_s, PAUSE_MAX_S)
        self._failed_at = time.monotonic()
        if self._on_retry:
            self._on_retry(error, self._pause_s)
        await sleep(self._pause_s)

    def _is_temporary(self, error: ClientError) -> bool:
        return not isinstance(error, ApiError) or error.status in _RETRIED

    async def _offset(self, path: str) -> tuple[int, str]:
        return _progress(await self._connection.answer("HEAD", path, headers=_VERSION, retries=NO_RETRIES))

    async def _send_chunk(self, path: str, offset: int) -> tuple[int, str]:
        stop = await in_thread(self._source.extent, offset)
        size = self._source.size
        headers = {
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(stop - offset),
            "Upload-Offset": str(offset),
        }
        if size is not None:
            headers["Upload-Length"] = str(size)
        response = await self._connection.answer(
            "PATCH",
            path,
            headers={**_VERSION, **headers},
            content=lambda: self._pieces(offset, stop),
            retries=NO_RETRIES,
            timeout=patience(read=SYNC_S),
        )
        return _progress(response)

    async def _everything(self) -> AsyncIterator[bytes]:
        start = 0
        while self._source.size is None or start < self._source.size:
            stop = await in_thread(self._source.extent, start)
            async for piece in self._pieces(start, stop):
                yield piece
            start = stop

    async def _pieces(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yield a range of the source in pieces; a piece counts as sent once the next one is asked for."""
        while start < stop:
            piece = await in_thread(self._source.read, start, min(PIECE, stop - start))
            yield piece
            is_progress = start + len(piece) > self._digested  # rather than sent again
            await in_thread(self._take, start, piece)
            start += len(piece)
            if is_progress:
                self._progress_at = time.monotonic()
            if self._on_bytes:
                self._on_bytes(start, self._source.size or 0)

    def _catch_up(self, offset: int) -> None:
        """Add to the digest the bytes that the server has from a broken request, or from an earlier upload."""
        while self._digested < offset:
            start = self._digested
            stop = min(self._source.extent(start), offset)
            if stop <= start:
                return  # the server has more bytes than the source, which the digests will show
            self._take(start, self._source.read(start, min(PIECE, stop - start)))

    def _take(self, start: int, piece: bytes) -> None:
        """Add a piece to the digest, except for bytes that were sent before."""
        stop = start + len(piece)
        if stop > self._digested:
            self._digest.update(piece[self._digested - start :])
            self._digested = stop


def _progress(response: httpx.Response) -> tuple[int, str]:
    """Return the offset of the upload, and the id of its trace once it is complete."""
    headers = response.headers
    return int(headers["Upload-Offset"]), headers.get("Tracedock-Trace", "")

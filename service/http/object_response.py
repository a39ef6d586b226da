"""A response with an object of a bucket, whole or in the ranges of the request, read as it is sent."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BufferedReader
from typing import Any

from starlette.types import Send

from service.http.file_download import FileDownload
from service.store.external_objects import ExternalObject

PIECE = 1 << 20
"""Bytes of a piece of the body."""


class ObjectResponse(FileDownload):
    """A response with an object of a bucket.

    The server reads the object itself, rather than to redirect the client to the bucket: so each part is checked to be
    of the object's recorded version, the client needs no access to the bucket, and no address with a signature leaves
    the server. If the object is replaced in the middle, the connection is closed in the middle of the body.

    Args:
        stored: the object.
        kept_ns: when it became a trace, as nanoseconds since the epoch; it has not changed since.
        options: those of `FileDownload`.
    """

    chunk_size = PIECE

    def __init__(self, stored: ExternalObject, kept_ns: int, **options: Any) -> None:
        self._object = stored
        self._end = stored.size
        kept_s = kept_ns // 10**9
        status = os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, stored.size, kept_s, kept_s, kept_s))
        super().__init__("object", stat_result=status, **options)

    @asynccontextmanager
    async def _open_file(self) -> AsyncIterator["_Part"]:  # type: ignore[override] # the interface that is used is the same
        part = _Part(self._object, self._end)
        try:
            yield part
        finally:
            part.close()

    async def _handle_single_range(
        self, send: Send, start: int, end: int, file_size: int, send_header_only: bool
    ) -> None:
        self._end = end  # so that no bytes behind it are requested
        await super()._handle_single_range(send, start, end, file_size, send_header_only)


class _Part:
    """An object that is read from where `seek` has moved to, in threads."""

    def __init__(self, stored: ExternalObject, end: int) -> None:
        self._object = stored
        self._start, self._end = 0, end
        self._stream: BufferedReader | None = None

    async def seek(self, start: int) -> None:
        """Continue at another byte."""
        self.close()
        self._start = start

    async def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end."""
        if self._stream is None:
            self._stream = self._object.open(self._start, self._end)
        return await asyncio.to_thread(self._stream.read, size)

    def close(self) -> None:
        """Close the stream, if one is open."""
        if self._stream:
            self._stream.close()
        self._stream = None

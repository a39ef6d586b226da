"""A download in progress."""

from __future__ import annotations

import hashlib
from typing import BinaryIO, Optional

import httpx

from tracedock.asynchronous.runtime import in_thread
from tracedock.errors import DamagedDownloadError
from tracedock.messages import BytesReceived, attached_name, sha256_of

_CHUNK = 1 << 20


class AsyncDownload:
    """Download in progress; see `AsyncClient.download`.

    Attributes:
        name: file name without folders.
        size: number of bytes; 0 if unknown.
    """

    def __init__(self, response: httpx.Response, fallback: str) -> None:
        headers = response.headers
        self.name = attached_name(headers.get("content-disposition", "")) or fallback
        self.size = int(headers.get("content-length", 0))
        self._digest = sha256_of(headers.get("repr-digest", ""))
        self._response = response

    async def write_to(self, file: BinaryIO, on_bytes: Optional[BytesReceived] = None) -> None:
        """Write all bytes; raise `DamagedDownloadError` if they do not match the server's digest."""
        digest, received = hashlib.sha256(), 0

        def take(chunk: bytes) -> None:
            file.write(chunk)
            if self._digest:
                digest.update(chunk)

        async for chunk in self._response.aiter_raw(_CHUNK):
            await in_thread(take, chunk)
            received += len(chunk)
            if on_bytes:
                on_bytes(received, self.size)
        if self._digest and digest.digest() != self._digest:
            raise DamagedDownloadError(self.name, expected=self._digest.hex(), received=digest.hexdigest())

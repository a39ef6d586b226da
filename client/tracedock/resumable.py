"""Resumable uploads by the protocol tus 1.0, which survive a lost connection or a restart of the server."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, BinaryIO

import httpx

from tracedock.errors import ApiError, ClientError, UnreachableError

CHUNK = 32 << 20
PIECE = 1 << 20
PATIENCE_S = 600.0
"""Seconds without progress after which an upload fails."""
PAUSE_S, PAUSE_MAX_S = 0.5, 30.0

Send = Callable[..., AbstractContextManager[httpx.Response]]
OnRetry = Callable[[ClientError, float], object]  # the error, and the seconds until the next attempt

_VERSION = {"Tus-Resumable": "1.0.0"}
_RETRIED = (409, 423, 500, 502, 503, 504)  # conflicts and temporary failures


def pieces(file: BinaryIO, start: int, stop: int, on_piece: Callable[[int, bytes], None]) -> Iterator[bytes]:
    """Yield a range of the file in pieces; `on_piece` receives the offset and the bytes of each piece that was sent."""
    file.seek(start)
    while start < stop:
        piece = file.read(min(PIECE, stop - start))
        if not piece:
            raise OSError(None, f"the file was truncated during the upload ({start} of {stop} bytes)", file.name)
        yield piece
        on_piece(start, piece)
        start += len(piece)


class ResumableUpload:
    """Resumable upload of one file.

    Args:
        send: sends a request to the API; raises the errors of `Client`.
        file: the file to upload, up to its current size.
        on_piece: receives the offset and the bytes of each sent piece; pieces may be sent again.
        on_retry: receives the error, and the seconds until the next attempt.
    """

    def __init__(
        self, send: Send, file: BinaryIO, on_piece: Callable[[int, bytes], None], on_retry: OnRetry | None
    ) -> None:
        self._request = send
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._on_piece = on_piece
        self._on_retry = on_retry
        self._progress_at = time.monotonic()

    def send(self, name: bytes, **metadata: str) -> str:
        """Upload the file under a name and with further metadata; return the id of its trace."""
        values = {"filename": name} | {key: value.encode() for key, value in metadata.items()}
        encoded = ",".join(f"{key} {b64encode(value).decode()}" for key, value in values.items())
        headers = _VERSION | {"Upload-Length": str(self._size), "Upload-Metadata": encoded}
        with self._request("POST", "uploads", headers=headers) as response:
            path = f"uploads/{response.headers['Location'].rpartition('/')[2]}"
        try:
            return self._send_chunks(path)
        except (OSError, KeyboardInterrupt):
            with suppress(ClientError), self._request("DELETE", path, headers=_VERSION):
                pass
            raise

    def _send_chunks(self, path: str) -> str:
        offset: int | None = 0
        pause = PAUSE_S
        while True:
            last_progress = self._progress_at
            try:
                offset, trace = self._offset(path) if offset is None else self._send_chunk(path, offset)
                if trace:
                    return trace
            except (UnreachableError, ApiError) as error:
                is_temporary = not isinstance(error, ApiError) or error.status in _RETRIED
                if not is_temporary or time.monotonic() - self._progress_at > PATIENCE_S:
                    raise
                pause = PAUSE_S if self._progress_at > last_progress else min(2 * pause, PAUSE_MAX_S)
                if self._on_retry:
                    self._on_retry(error, pause)
                time.sleep(pause)
                offset = None

    def _offset(self, path: str) -> tuple[int, str]:
        with self._request("HEAD", path, headers=_VERSION) as response:
            return _progress(response)

    def _send_chunk(self, path: str, offset: int) -> tuple[int, str]:
        stop = min(offset + CHUNK, self._size)
        headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
        length = {"Content-Length": str(stop - offset)}
        content = pieces(self._file, offset, stop, self._sent)
        with self._request("PATCH", path, headers=_VERSION | headers | length, content=content) as response:
            return _progress(response)

    def _sent(self, start: int, piece: bytes) -> None:
        self._progress_at = time.monotonic()
        self._on_piece(start, piece)


def _progress(response: httpx.Response) -> tuple[int, str]:
    """Return the offset of the upload, and the id of its trace once it is complete."""
    headers: Any = response.headers
    return int(headers["Upload-Offset"]), headers.get("Tracedock-Trace", "")

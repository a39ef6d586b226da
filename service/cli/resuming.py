"""Sends a file by tus 1.0: when the link drops or the server is started anew, it goes on where it stopped."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, BinaryIO

import httpx

from service.cli.errors import ApiError, ClientError, UnreachableError

CHUNK = 32 << 20
PIECE = 1 << 20
PATIENCE_S = 600.0
"""How long nothing may move before it is given up."""
PAUSE_S, PAUSE_MAX_S = 0.5, 30.0

Ask = Callable[..., AbstractContextManager[httpx.Response]]
Lost = Callable[[ClientError, float], object]  # why, and in how many seconds it is tried again

_VERSION = {"Tus-Resumable": "1.0.0"}
_LATER = (409, 423, 500, 502, 503, 504)  # not there any more, or not yet


def pieces(file: BinaryIO, start: int, stop: int, on_piece: Callable[[int, bytes], None]) -> Iterator[bytes]:
    """A part of the file; `on_piece` hears of each piece, by where it begins, once it is taken."""
    file.seek(start)
    while start < stop:
        piece = file.read(min(PIECE, stop - start))
        if not piece:
            raise OSError(None, f"the file got shorter while it was sent ({start} of {stop} bytes)", file.name)
        yield piece
        on_piece(start, piece)
        start += len(piece)


class Resumable:
    """One file on its way.

    Args:
        ask: sends a request to the API, and raises what `Client` does.
        file: what is sent; as much of it as there is now.
        on_piece: hears of each piece that is sent, by where it begins: some may be sent again.
        on_lost: hears why it is tried again, and when.
    """

    def __init__(self, ask: Ask, file: BinaryIO, on_piece: Callable[[int, bytes], None], on_lost: Lost | None) -> None:
        self._ask = ask
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._on_piece = on_piece
        self._on_lost = on_lost
        self._moved = time.monotonic()

    def send(self, name: bytes, **told: str) -> str:
        """Send it all, and return the id of the trace it becomes; metadata is `told` beside its name."""
        values = {"filename": name} | {key: value.encode() for key, value in told.items()}
        metadata = ",".join(f"{key} {b64encode(value).decode()}" for key, value in values.items())
        headers = _VERSION | {"Upload-Length": str(self._size), "Upload-Metadata": metadata}
        with self._ask("POST", "uploads", headers=headers) as response:
            where = f"uploads/{response.headers['Location'].rpartition('/')[2]}"
        try:
            return self._send(where)
        except (OSError, KeyboardInterrupt):
            with suppress(ClientError), self._ask("DELETE", where, headers=_VERSION):
                pass
            raise

    def _send(self, where: str) -> str:
        offset: int | None = 0
        pause = PAUSE_S
        while True:
            moved = self._moved
            try:
                offset, trace = self._standing(where) if offset is None else self._chunk(where, offset)
                if trace:
                    return trace
            except (UnreachableError, ApiError) as error:
                later = not isinstance(error, ApiError) or error.status in _LATER
                if not later or time.monotonic() - self._moved > PATIENCE_S:
                    raise
                pause = PAUSE_S if self._moved > moved else min(2 * pause, PAUSE_MAX_S)
                if self._on_lost:
                    self._on_lost(error, pause)
                time.sleep(pause)
                offset = None

    def _standing(self, where: str) -> tuple[int, str]:
        with self._ask("HEAD", where, headers=_VERSION) as response:
            return _progress(response)

    def _chunk(self, where: str, offset: int) -> tuple[int, str]:
        stop = min(offset + CHUNK, self._size)
        headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
        length = {"Content-Length": str(stop - offset)}
        content = pieces(self._file, offset, stop, self._sent)
        with self._ask("PATCH", where, headers=_VERSION | headers | length, content=content) as response:
            return _progress(response)

    def _sent(self, start: int, piece: bytes) -> None:
        self._moved = time.monotonic()
        self._on_piece(start, piece)


def _progress(response: httpx.Response) -> tuple[int, str]:
    headers: Any = response.headers
    return int(headers["Upload-Offset"]), headers.get("Tracedock-Trace", "")

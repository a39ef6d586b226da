"""The base of the parts of a client."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Optional

from tracedock.asynchronous.connection import Connection
from tracedock.messages import (
    Json,
    given,
    patience,
)

_PAGE = 200
FOLLOW_S = 1  # seconds for which the server holds a request for progress open


class AsyncResource:
    """Part of a client: the methods of some kind of object.

    Attributes:
        url: base URL of the server.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.url = connection.url

    async def _held(self, method: str, path: str, wait: float, params: Optional[Mapping[str, Any]] = None) -> Json:
        """Send a request that the server may hold for `wait` seconds, and that may be repeated."""
        query = {**(params or {}), **given({"wait": wait or None})}
        return await self._connection.json(method, path, params=query, timeout=patience(wait=wait), repeatable=True)

    async def _pages(
        self, kind: Literal["traces", "jobs", "groups", "attachments"], query: Json, below: str = ""
    ) -> AsyncIterator[Json]:
        """Yield the entries of all pages of a list, which may be that of a resource with the path `below`."""
        query = {"limit": _PAGE, **query}
        path = f"{below}/{kind}" if below else kind
        while True:
            page = await self._connection.json("GET", path, params=query)
            for entry in page[kind]:
                yield entry
            if not page["next"]:
                return
            query["cursor"] = page["next"]


def share_of(ends_at: Optional[float]) -> float:
    """Return the seconds for which the server may hold the next request for progress."""
    return FOLLOW_S if ends_at is None else max(0.0, min(FOLLOW_S, ends_at - time.monotonic()))

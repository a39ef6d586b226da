"""The client of a server; `tracedock.Client` is generated from `AsyncClient`, and has the same methods."""

from __future__ import annotations

from typing import Optional

import httpx

from tracedock.asynchronous.attachments import AsyncAttachments
from tracedock.asynchronous.baselines import AsyncBaselines
from tracedock.asynchronous.connection import Connection
from tracedock.asynchronous.jobs import AsyncJobs
from tracedock.asynchronous.questions import AsyncQuestions
from tracedock.asynchronous.sessions import AsyncSessions
from tracedock.asynchronous.traces import AsyncTraces
from tracedock.retries import Retries


class AsyncClient(AsyncTraces, AsyncJobs, AsyncQuestions, AsyncSessions, AsyncBaselines, AsyncAttachments):
    """Client of one server: an asynchronous context manager. Several tasks may use it at the same time.

    Each method raises an `ApiError` if the server refuses the request, and `UnreachableError` if it does not respond or
    the connection breaks. Requests are repeated as `tracedock.retries` describes. Traces, groups, jobs and sessions are
    JSON objects of the API, with exact integers; arguments may be these objects or their ids.

    Many methods select a part of a trace, by the keyword arguments of `tracedock.Selection` or by `selection`:
    `steps=[7], streams=["0/7"]`.
    """

    def __init__(
        self, url: Optional[str] = None, token: Optional[str] = None, *, retries: Optional[Retries] = None
    ) -> None:
        """Create a client.

        Args:
            url: base URL of the server; by default the environment's TRACEDOCK_URL, then http://127.0.0.1:8700.
            token: API token; by default the environment's TRACEDOCK_TOKEN, then none.
            retries: limits of the retries of a request.

        Raises:
            ValueError: the URL is not an http or https URL, or the token has characters that tokens can't have.
        """
        super().__init__(Connection(url, token, retries or Retries()))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def http(self) -> httpx.AsyncClient:
        """The HTTP client, whose base URL is that of the API, for requests that have no method here."""
        return self._connection.http

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._connection.close()

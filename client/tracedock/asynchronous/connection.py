"""Exchange of requests and responses with the server, with retries; errors are those of `tracedock.errors`."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Optional

import httpx

from tracedock import __version__
from tracedock.asynchronous.runtime import sleep
from tracedock.errors import ApiError, UnreachableError
from tracedock.messages import DEFAULT_URL, Json, base_url, document, is_loopback, patience, refusal, translated
from tracedock.retries import Pauses, Retries

log = logging.getLogger("tracedock")

Content = Callable[[], AsyncIterator[bytes]]
"""Returns the body of a request from its start, once for each attempt."""

NO_RETRIES = Retries(attempts=1)
_REPEATABLE = frozenset({"GET", "HEAD", "PUT"})


class Connection:
    """Connections to one server.

    Args:
        url: base URL of the server; by default the environment's TRACEDOCK_URL, then http://127.0.0.1:8700.
        token: API token; by default the environment's TRACEDOCK_TOKEN, then none.
        retries: limits of the retries of a request.

    Attributes:
        url: base URL, without a password.
        http: the HTTP client, whose base URL is that of the API.

    Raises:
        ValueError: the URL is not an http or https URL, or the token has characters that tokens can't have.
    """

    def __init__(self, url: Optional[str], token: Optional[str], retries: Retries) -> None:
        token = (token or os.environ.get("TRACEDOCK_TOKEN", "")).strip()
        if not re.fullmatch(r"[!-~]*", token):
            raise ValueError("a token has only printable ASCII characters")  # the message must not contain the token
        base = base_url(url or os.environ.get("TRACEDOCK_URL") or DEFAULT_URL)
        self.url = str(base.copy_with(userinfo=b""))
        self._retries = retries
        identity = {"User-Agent": f"tracedock/{__version__} httpx/{httpx.__version__}"}
        self.http = httpx.AsyncClient(
            base_url=base.join(base.path.rstrip("/") + "/api/v1/"),
            headers=identity | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=patience(),
            verify=base.scheme == "https" or _without_authorities(),
            trust_env=not is_loopback(base.host),  # a proxy can't reach the loopback of this machine
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def json(self, method: str, path: str, **options: Any) -> Json:
        """Send a request as `answer` does, and return the JSON object of its response."""
        return document(await self.answer(method, path, **options))

    async def answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request, and return the response with its body; `stream` describes the options."""
        return await self._exchange(method, path, is_streamed=False, **options)

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Send a request, and yield the response, whose body is still unread.

        Args:
            method: the method.
            path: the path below the API.
            options: `params`, `json`, `headers` and `timeout` as for httpx, and

                - `content`, a function that returns the body, once for each attempt;
                - `key`, an `Idempotency-Key`, or True for a new one;
                - `repeatable`, whether a second request has no second effect, if the method does not tell;
                - `retries`, limits of the retries of this request;
                - `redirects`, whether a redirect is a success; it is not followed.
        """
        response = await self._exchange(method, path, is_streamed=True, **options)
        try:
            with translated(self.url):
                yield response
        finally:
            await response.aclose()

    async def _exchange(  # noqa: PLR0913 - one parameter for each option
        self,
        method: str,
        path: str,
        *,
        is_streamed: bool,
        content: Optional[Content] = None,
        key: Any = None,
        repeatable: Optional[bool] = None,
        retries: Optional[Retries] = None,
        redirects: bool = False,
        **request: Any,
    ) -> httpx.Response:
        if key:
            named = {"Idempotency-Key": key if isinstance(key, str) else os.urandom(16).hex()}
            request["headers"] = {**(request.get("headers") or {}), **named}
        if repeatable is None:
            repeatable = bool(key) or method in _REPEATABLE
        pauses = Pauses(retries or self._retries, method, is_repeatable=repeatable)
        while True:
            body: dict[str, Any] = {} if content is None else {"content": content()}
            try:
                built = self.http.build_request(method, path, **request, **body)
                return await self._attempt(built, is_streamed=is_streamed, redirects=redirects)
            except (UnreachableError, ApiError) as error:
                pause_s = pauses.after(error)
                if pause_s is None:
                    raise
                log.info("%s %s is repeated in %.1f s: %s", method, path, pause_s, error)
            await sleep(pause_s)

    async def _attempt(self, request: httpx.Request, *, is_streamed: bool, redirects: bool) -> httpx.Response:
        """Send a request once, and return its response, which the caller closes if it is streamed."""
        with translated(self.url):
            response = await self.http.send(request, stream=True)
            is_success = response.is_success or (redirects and response.is_redirect)
            if is_success and is_streamed:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
        if not is_success:
            raise refusal(response)
        return response


def _without_authorities() -> ssl.SSLContext:
    """Return TLS settings that trust no server, for a client of plain HTTP: the list of authorities loads slowly."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

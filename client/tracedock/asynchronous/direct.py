"""Direct uploads: the bytes go into the server's bucket by a presigned request, past the server."""

from __future__ import annotations

import logging
import re
from contextlib import suppress

import httpx

from tracedock.asynchronous.connection import NO_RETRIES
from tracedock.asynchronous.runtime import in_thread
from tracedock.asynchronous.upload import END_S, AsyncUpload
from tracedock.errors import ApiError, ClientError, UnreachableError
from tracedock.messages import SYNC_S, Json, given, is_loopback, patience

_EXISTS = 412
"""Status of a store whose object an earlier attempt has written."""
_TEMPORARY = (409, 423, 429, 500, 502, 503, 504)
_PARTIAL = "wrong_size"
"""Code of an object that a store kept of a broken request, as seaweedfs does: the upload begins anew."""
_FINAL = ("location_denied", "object_missing")
"""Codes of refusals that no second attempt changes, although their status may be temporary."""


def _has_no_signature(record: logging.LogRecord) -> bool:
    return "X-Amz-Signature" not in record.getMessage()


logging.getLogger("httpx").addFilter(_has_no_signature)  # it logs the URL of each request, and this one is secret


class AsyncDirectUpload(AsyncUpload):
    """One direct upload, of a source of known size."""

    async def send_direct(self) -> Json:
        """Upload into the bucket, and return the trace.

        Raises:
            ValueError: the size of the source is not known.
        """
        size = self._source.size
        if size is None:
            raise ValueError("a direct upload needs a file, or a stream of at most 8 MiB")
        while True:
            try:
                return await self._send_once(size)
            except ApiError as error:
                if error.code != _PARTIAL:
                    raise
                await self._pause_after(error)

    async def _send_once(self, size: int) -> Json:
        """Begin an upload, send it and complete it; after an error it is given up."""
        announced = given({"name": self._name.decode(errors="replace"), "group": self._group})
        request = await self._connection.json(
            "POST", "uploads/direct", json={**announced, "size": size}, repeatable=True
        )
        path = f"uploads/direct/{request['id']}"
        try:
            return await self._send_object(request, size, f"{path}/complete")
        except BaseException:
            with suppress(ClientError):  # else it expires
                await self._connection.answer("DELETE", path, retries=NO_RETRIES, timeout=httpx.Timeout(END_S))
            raise

    async def _send_object(self, request: Json, size: int, completion: str) -> Json:
        is_sent = False
        while True:
            try:
                if not is_sent:
                    await self._put(request)
                    await in_thread(self._catch_up, size)  # with what an earlier attempt had sent
                    is_sent = True
                return await self._connection.json(
                    "POST", completion, retries=NO_RETRIES, timeout=patience(read=SYNC_S)
                )
            except (UnreachableError, ApiError) as error:
                if isinstance(error, ApiError) and error.code == _PARTIAL:
                    raise
                await self._pause_after(error)

    async def _put(self, request: Json) -> None:
        """Send the presigned request, without the token of the server; an object that exists is that of this upload."""
        url = httpx.URL(request["url"])
        origin = f"{url.scheme}://{url.netloc.decode()}"
        async with httpx.AsyncClient(timeout=patience(read=SYNC_S), trust_env=not is_loopback(url.host)) as store:
            try:
                response = await store.request(
                    request["method"], url, content=self._everything(), headers=request["headers"]
                )
            except httpx.TransportError as exc:
                raise UnreachableError(origin, str(exc) or type(exc).__name__, connected=True) from exc
        if response.status_code != _EXISTS and not response.is_success:
            raise _refusal(response, origin)

    def _is_temporary(self, error: ClientError) -> bool:
        return not isinstance(error, ApiError) or (error.status in _TEMPORARY and error.code not in _FINAL)


def _refusal(response: httpx.Response, origin: str) -> ApiError:
    """Return the error of a store's response; the rest of its text may quote the request."""
    code = re.search(r"<Code>\s*(\w+)\s*</Code>", response.text)
    message = re.search(r"<Message>\s*([^<]{0,500}?)\s*</Message>", response.text)
    reason = f"{code[1]}: {message[1]}" if code and message else response.reason_phrase
    return ApiError("bucket_refused", f"The bucket at {origin} refuses the upload", reason, response.status_code)

"""The idempotency middleware: a repeated request with the same ``Idempotency-Key`` gets the response of the first one.

A key is refused with 422 if it comes with a different request, and with 409 while the first request is in progress.
Each caller has its own keys. Error responses are not stored: the request has changed nothing, so the client may retry
it.
"""

import asyncio
import hashlib
import re
from functools import partial

import orjson
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.body_stream import Body
from service.http.bounded_body import BODY_MAX
from service.http.middleware.access import remark
from service.http.middleware.routing import call_of
from service.http.presenters import group_object, job_object, trace_object
from service.http.problems import as_problem
from service.http.responses import json_response
from service.http.services import Services
from service.store.idempotency import CURRENT_KEY, Key, StoredRequest, StoredResponse
from service.trace.errors import (
    BadIdempotencyKey,
    IdempotencyKeyBusy,
    IdempotencyKeyReused,
    TooLarge,
    TracedockError,
)

_IDENTIFYING_HEADERS = (
    *("content-type", "content-length", "repr-digest", "content-digest", "upload-length", "upload-metadata"),
)
"""The header fields that identify a request, together with its method, URL and body."""
_KEY = re.compile(r"[ -~]{1,255}")


class IdempotencyMiddleware:
    """Lets the app handle each request with an idempotency key only once.

    Args:
        app: the next app.
        services: the parts of the service.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._in_progress: set[Key] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        is_idempotent = scope["type"] == "http" and call_of(scope).declaration.idempotent
        fields = Headers(scope=scope).getlist("idempotency-key") if is_idempotent else []
        if not fields:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = Body(request.stream(), None)
        try:
            key = _key(fields, scope)
            if key in self._in_progress:
                raise IdempotencyKeyBusy("The first request with this key is still in progress.", retry_after_s=1)
            self._in_progress.add(key)
            try:
                response = await self._response(key, request, body)
            finally:
                self._in_progress.discard(key)
            await response(scope, request.receive, send)
        except ClientDisconnect:
            return
        except TracedockError as refusal:
            if "expect" not in request.headers:
                await body.drain()
            await as_problem(refusal)(scope, receive, send)

    async def _response(self, key: Key, request: Request, body: Body) -> ASGIApp:
        """Return the response after recording it: a client may repeat its request once it has the response."""
        scope, keys = request.scope, self._services.idempotency
        content = await _small_body(request, body)
        digest = _digest(request, content or b"")
        stored = await asyncio.to_thread(keys.find, key)
        if stored and (stored.response or stored.created):
            if stored.digest != digest:
                raise IdempotencyKeyReused("This key was sent with another request.")
            remark(request, replayed="true")
            return await self._replayed(stored, request, body)
        await asyncio.to_thread(keys.begin, key, digest)
        response = _HeldResponse()
        mark = CURRENT_KEY.set(key)
        try:
            receive = request.receive if content is None else _replay(content, request.receive)
            await self._app(scope, receive, response.take)
        finally:
            CURRENT_KEY.reset(mark)
            if answer := response.answer():
                recording = partial(keys.complete, key, answer)
            else:
                recording = partial(keys.forget, key, refused=response.is_complete)
            await asyncio.shield(asyncio.to_thread(recording))
        return response

    async def _replayed(self, stored: StoredRequest, request: Request, body: Body) -> Response:
        """Return the response to the first request.

        Raises:
            IdempotencyKeyReused: the request is an upload of another file.
        """
        if answer := stored.response:
            response = Response(answer.body, answer.status)
            response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        else:
            response = self._created(stored.created or "")
        if request.method == "PUT" and "expect" not in request.headers:
            sha256 = hashlib.sha256()
            async for block in body.blocks():
                await asyncio.to_thread(sha256.update, block)
            if orjson.loads(response.body)["sha256"] != sha256.hexdigest():
                raise IdempotencyKeyReused("This key was sent with another file.")
        response.headers["Idempotency-Replayed"] = "true"
        return response

    def _created(self, resource: str) -> Response:
        """Rebuild the response to a request that created a resource, but ended before its response was recorded.

        Args:
            resource: the kind and the id of the resource, like ``trace/ID``.
        """
        services = self._services
        kind, _, resource_id = resource.partition("/")
        if kind == "trace":
            trace = services.catalog.get(resource_id)
            content = trace_object(trace, services.ingests.progress(trace.id))
            return json_response(content, 201, Location=f"/api/v1/traces/{resource_id}")
        if kind == "group":
            group = services.groups.get(resource_id)
            content_of_group = group_object(group, services.group_operations.ranks(group))
            return json_response(content_of_group, 201, Location=f"/api/v1/groups/{resource_id}")
        job = services.jobs.get(int(resource_id))
        return json_response(job_object(job, services.monitor), 202, Location=f"/api/v1/jobs/{resource_id}")


def _key(fields: list[str], scope: Scope) -> Key:
    if len(fields) > 1 or not _KEY.fullmatch(fields[0]):
        raise BadIdempotencyKey("An Idempotency-Key is one text of 1 to 255 ASCII characters.")
    visitor = scope.get("visitor")
    return Key(fields[0], visitor.name if visitor else "")


async def _small_body(request: Request, body: Body) -> bytes | None:
    """Read the body into memory, or return None if it is a trace; raises `TooLarge`."""
    if call_of(request.scope).declaration.receives_trace:
        return None
    content = bytearray()
    async for block in body.blocks():
        content += block
        if len(content) > BODY_MAX:
            raise TooLarge(f"The body is larger than the limit of {BODY_MAX} bytes.", limit=BODY_MAX)
    return bytes(content)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that first yields `body`, which was already read from `receive`."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


def _digest(request: Request, body: bytes) -> str:
    """Return a digest that distinguishes a request from others; the parameter ``wait`` is ignored."""
    query = sorted(part for part in request.url.query.split("&") if part and not part.startswith("wait="))
    headers = (request.headers.get(name, "") for name in _IDENTIFYING_HEADERS)
    identity = [request.method, request.url.path, *query, *headers]
    return hashlib.sha256(orjson.dumps(identity) + body).hexdigest()


class _HeldResponse:
    """A response that is held back until it is recorded."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def take(self, message: Message) -> None:
        """Take a message of the response, as an ASGI `send`."""
        self._messages.append(message)

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Send the response."""
        for message in self._messages:
            await send(message)

    @property
    def is_complete(self) -> bool:
        """Whether the app has sent the whole response."""
        return len(self._messages) > 1 and not self._messages[-1].get("more_body")

    def answer(self) -> StoredResponse | None:
        """Return the response to record; None if it is incomplete or its status is not 2xx."""
        if not self.is_complete or not 200 <= (status := self._messages[0]["status"]) < 300:
            return None
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._messages[0]["headers"]]
        return StoredResponse(status, headers, b"".join(part.get("body", b"") for part in self._messages[1:]))

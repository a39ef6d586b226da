"""``Idempotency-Key``: a request that is repeated is answered as the first time, and nothing is made twice.

The same key and the same request: the same answer. The same key and another request: 422. While the first is still
under way: 409. Each caller has keys of its own. An answer that refuses is not kept: nothing was made, so the request
may be tried anew.
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
from service.http.problems import as_problem
from service.http.routes import groups, jobs, traces
from service.http.services import Services
from service.store.idempotency import UNDER_WAY, Answer, Key, Known
from service.trace.errors import (
    BadIdempotencyKey,
    IdempotencyKeyBusy,
    IdempotencyKeyReused,
    TooLarge,
    TracedockError,
)

MAKES = {
    "PUT": re.compile(r"/api/v1/traces/.*"),
    "POST": re.compile(r"/api/v1/(traces/merge|traces/import|traces/[^/]+/split|groups|groups/[^/]+/merge|uploads)"),
}
"""The requests that make something."""
UPLOADS = "/api/v1/uploads"
_TOLD = ("content-type", "content-length", "repr-digest", "content-digest", "upload-length", "upload-metadata")
"""What a request is known by, beside its method, its address and its body."""
_KEY = re.compile(r"[ -~]{1,255}")


class IdempotencyMiddleware:
    """Has the app do each request with a key once.

    Args:
        app: the app.
        parts: what it works with.
    """

    def __init__(self, app: ASGIApp, parts: Services) -> None:
        self._app = app
        self._parts = parts
        self._under_way: set[Key] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        makes = MAKES.get(scope["method"]) if scope["type"] == "http" else None
        told = Headers(scope=scope).getlist("idempotency-key") if makes and makes.fullmatch(scope["path"]) else []
        if not told:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = Body(request.stream(), None)
        try:
            key = _key(told, scope)
            if key in self._under_way:
                raise IdempotencyKeyBusy("The first request with this key is still under way.", retry_after_s=1)
            self._under_way.add(key)
            try:
                answer = await self._answer(key, request, body)
            finally:
                self._under_way.discard(key)
            await answer(scope, request.receive, send)
        except ClientDisconnect:
            return
        except TracedockError as refusal:
            if "expect" not in request.headers:
                await body.hear_out()
            await as_problem(refusal)(scope, receive, send)

    async def _answer(self, key: Key, request: Request, body: Body) -> ASGIApp:
        """The answer, which is noted before it goes out: who has heard it may repeat the request at once."""
        scope, keys = request.scope, self._parts.idempotency
        small = await _small(request, body)
        digest = _digest(request, small or b"")
        known = await asyncio.to_thread(keys.find, key)
        if known and (known.answer or known.made):
            if known.digest != digest:
                raise IdempotencyKeyReused("This key was sent with another request.")
            remark(request, replayed="true")
            return await self._repeated(known, request, body)
        await asyncio.to_thread(keys.begin, key, digest)
        answer = _Kept()
        mark = UNDER_WAY.set(key)
        try:
            await self._app(scope, request.receive if small is None else _again(small, request.receive), answer.take)
        finally:
            UNDER_WAY.reset(mark)
            if kept := answer.kept():
                noting = partial(keys.answered, key, kept)
            else:
                noting = partial(keys.forget, key, refused=answer.whole)
            await asyncio.shield(asyncio.to_thread(noting))
        return answer

    async def _repeated(self, known: Known, request: Request, body: Body) -> Response:
        """The answer as it was, once a file was heard out, which must be the same."""
        if answer := known.answer:
            response = Response(answer.body, answer.status)
            response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        else:
            response = self._made(known.made or "")
        if request.method == "PUT" and "expect" not in request.headers:
            found = hashlib.sha256()
            async for block in body.blocks():
                await asyncio.to_thread(found.update, block)
            if orjson.loads(response.body)["sha256"] != found.hexdigest():
                raise IdempotencyKeyReused("This key was sent with another file.")
        response.headers["Idempotency-Replayed"] = "true"
        return response

    def _made(self, what: str) -> Response:
        """The answer to a request that has made this, and whose server was killed before it answered."""
        parts, (kind, _, made) = self._parts, what.partition("/")
        if kind == "trace":
            trace = parts.catalog.get(made)
            told = traces.described(trace, parts.runner.progress(trace.id))
            return traces.as_json(told, 201, Location=f"/api/v1/traces/{made}")
        if kind == "group":
            told = groups.with_ranks(parts, parts.groups.get(made))
            return traces.as_json(told, 201, Location=f"/api/v1/groups/{made}")
        return traces.as_json(jobs.described(parts.jobs.get(int(made)), parts), 202, Location=f"/api/v1/jobs/{made}")


def _key(told: list[str], scope: Scope) -> Key:
    if len(told) > 1 or not _KEY.fullmatch(told[0]):
        raise BadIdempotencyKey("An Idempotency-Key is one text of 1 to 255 characters of ASCII.")
    visitor = scope.get("visitor")
    return Key(told[0], visitor.name if visitor else "")


async def _small(request: Request, body: Body) -> bytes | None:
    """The body, unless it is a file; raises `TooLarge`."""
    if request.method == "PUT" or request.url.path == UPLOADS:
        return None
    whole = bytearray()
    async for block in body.blocks():
        whole += block
        if len(whole) > BODY_MAX:
            raise TooLarge(f"The body is larger than the limit of {BODY_MAX} bytes.", limit=BODY_MAX)
    return bytes(whole)


def _again(body: bytes, receive: Receive) -> Receive:
    """The way to a body that was read already."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return left.pop() if left else await receive()

    return next_message


def _digest(request: Request, body: bytes) -> str:
    """What tells a request from others; how long it waits is no matter."""
    query = sorted(part for part in request.url.query.split("&") if part and not part.startswith("wait="))
    told = [request.method, request.url.path, *query, *(request.headers.get(name, "") for name in _TOLD)]
    return hashlib.sha256(orjson.dumps(told) + body).hexdigest()


class _Kept:
    """An answer that is held back until it is noted."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def take(self, message: Message) -> None:
        """Take a part of the answer."""
        self._messages.append(message)

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Let it go out."""
        for message in self._messages:
            await send(message)

    @property
    def whole(self) -> bool:
        """Whether the app has given all of it."""
        return len(self._messages) > 1 and not self._messages[-1].get("more_body")

    def kept(self) -> Answer | None:
        """The answer, if it is whole and no refusal."""
        if not self.whole or not 200 <= (status := self._messages[0]["status"]) < 300:
            return None
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._messages[0]["headers"]]
        return Answer(status, headers, b"".join(part.get("body", b"") for part in self._messages[1:]))

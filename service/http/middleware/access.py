"""The doors: what every request passes before the service hears of it, and what every answer takes along.

First the names (DNS rebinding, pages of other sites), then who it is, then whether he may; each change is noted in the
audit log. This is plain ASGI: bodies stream through it, and it hides from nobody that a client has left.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.authentication import Access, Visitor, check_write
from service.http.hosts import SAFE, Hosts
from service.http.problems import as_problem
from service.store import audit
from service.trace.errors import AccessError, Unauthorized

OPEN = re.compile(r"/healthz|/readyz|/login|/logout|/static/.*")
"""What is there for everybody."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, a browser would call the origin of a form `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICIES = {
    "/docs": "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "/perfetto/": "frame-ancestors 'self'",  # a script of the UI that runs as a worker does so under its own policy
    "": "default-src 'none'; frame-ancestors 'none'",
}
"""What a page may do that says nothing of it itself, by how its path begins."""


@dataclass(frozen=True)
class Call:
    """What a request that is not safe does.

    Args:
        method: its method.
        path: a pattern of its path.
        reads: whether a token may do it that may only read.
        did: how the audit log calls it; nothing if it is no change.
        unnoted: the status that says that nothing has changed.
    """

    method: str
    path: str
    reads: bool = False
    did: str = ""
    unnoted: int = 0


_TRACE = r"/api/v1/traces/(?P<trace>[^/]+)"
_UPLOAD = r"/api/v1/uploads/(?P<upload>[^/]+)"
_GROUP = r"/api/v1/groups/(?P<group>[^/]+)"
CALLS = (
    Call("POST", f"{_TRACE}/query", reads=True),
    Call("POST", f"{_TRACE}/session", reads=True, did="open session", unnoted=202),
    Call("DELETE", f"{_TRACE}/session", reads=True, did="close session"),
    Call("POST", f"{_TRACE}/split", reads=True, did="split", unnoted=200),  # the route asks, for a dry run may be had
    Call("POST", f"{_TRACE}/overlay", did="overlay"),
    Call("POST", "/api/v1/traces/merge", did="merge"),
    Call("DELETE", _TRACE, did="delete"),
    Call("PATCH", _TRACE, did="change"),
    Call("POST", "/api/v1/traces/import", did="import"),
    Call("DELETE", "/api/v1/imports/(?P<imported>[^/]+)", did="end import"),
    Call("POST", "/api/v1/groups", did="make group"),
    Call("PATCH", _GROUP, did="change group"),
    Call("DELETE", _GROUP, did="delete group"),
    Call("POST", f"{_GROUP}/merge", did="merge"),
    Call("PUT", "/api/v1/traces/.*", did="upload"),
    Call("POST", "/api/v1/uploads", did="upload", unnoted=201),  # noted is the chunk that makes a trace
    Call("PATCH", _UPLOAD, did="upload", unnoted=204),
    Call("POST", _UPLOAD, did="upload", unnoted=204),
    Call("DELETE", _UPLOAD, did="end upload"),
    Call("DELETE", "/api/v1/jobs/(?P<job>[^/]+)", did="cancel"),
    Call("PUT", "/api/v1/listener", did="listen"),
    Call("POST", "/perfetto/[^/]+/rpc/status", reads=True),
    Call("POST", "/login", reads=True),  # notes itself, and who it is
    Call("POST", "/logout", reads=True),
    Call("WEBSOCKET", "/perfetto/(?P<trace>[^/~]+)[^/]*/rpc/websocket", reads=True, did="open perfetto"),
)
"""What is not here changes something: nobody may do it who may only read, and it is noted."""


_MADE = {"/api/v1/traces": "trace", "/api/v1/jobs": "job", "/api/v1/groups": "group"}
"""What an answer's ``Location`` tells of."""


def _call(method: str, path: str) -> tuple[Call, dict[str, str]]:
    for call in CALLS:
        if call.method == method and (found := re.fullmatch(call.path, path)):
            return call, found.groupdict()
    return Call(method, path, did=f"{method} {path[:200]}"), {}


def remark(connection: HTTPConnection, **facts: str | None) -> None:
    """Have the audit log tell more of a request."""
    connection.scope.get("remarks", {}).update(facts)


class AccessMiddleware:
    """The doors of an app."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Hosts) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        method = scope.get("method", "WEBSOCKET")
        call, scope["remarks"] = (None, {}) if method in SAFE else _call(method, scope["path"])
        answer = _Answer(scope, send, call)
        try:
            self._let_in(HTTPConnection(scope), call)
        except AccessError as refusal:
            await _refused(HTTPConnection(scope), refusal)(scope, receive, answer)
        else:
            await self._app(scope, receive, answer)

    def _let_in(self, connection: HTTPConnection, call: Call | None) -> None:
        self._hosts.check(connection, safe=call is None)
        if OPEN.fullmatch(connection.scope["path"]):
            return
        connection.scope["visitor"] = self._access.visitor(connection)
        if call and not call.reads:
            check_write(connection)


class _Answer:
    """What goes back, with the headers that all answers have; where it tells of a change, that is noted."""

    def __init__(self, scope: Scope, send: Send, call: Call | None) -> None:
        self._scope = scope
        self._send = send
        self._call = call

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            path = self._scope["path"]
            headers.setdefault(
                "Content-Security-Policy", next(POLICIES[start] for start in POLICIES if path.startswith(start))
            )
            self._note(message["status"], headers.get("location", ""), headers.get("tracedock-trace", ""))
        elif message["type"] == "websocket.accept":
            self._note(101)
        await self._send(message)

    def _note(self, status: int, location: str = "", trace: str = "") -> None:
        visitor: Visitor | None = self._scope.get("visitor")  # none, where everybody may: they could fill the log
        if not visitor or not self._call or not self._call.did or (status == self._call.unnoted and not trace):
            return
        where, made = (next(iter(_MADE)), trace) if trace else location.rpartition("/")[::2]
        facts = self._scope["remarks"] | {_MADE[where]: made} if where in _MADE else self._scope["remarks"]
        client = self._scope.get("client")
        audit.note(visitor.name, did=self._call.did, address=client[0] if client else None, **facts, status=status)


def _refused(connection: HTTPConnection, refusal: AccessError) -> Response:
    """The answer to who is not let in; a person is led to where he can log in."""
    if isinstance(refusal, Unauthorized) and _is_visit(connection):
        query = connection.scope["query_string"].decode("latin-1")
        here = quote(connection.scope["path"]) + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(here, safe='')}", 303, {"Cache-Control": "no-store"})
    response = as_problem(refusal)
    if isinstance(refusal, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _is_visit(connection: HTTPConnection) -> bool:
    """Whether a browser wants to show what comes."""
    headers = connection.headers
    return (
        connection.scope.get("method") in ("GET", "HEAD")
        and "text/html" in headers.get("accept", "")
        and "authorization" not in headers
    )

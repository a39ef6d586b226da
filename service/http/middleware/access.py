"""The access middleware: checks each request before the service handles it, and adds security headers to responses.

First the host and the origin are checked (against DNS rebinding and pages of other sites), then the token, then its
scope. Changes are recorded in the audit log. The middleware is plain ASGI, so bodies are streamed, and disconnects
reach the app.
"""

from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.authentication import Authenticator, Visitor, check_write
from service.http.declarations import Call
from service.http.hosts import SAFE, Hosts
from service.http.middleware.routing import call_of
from service.http.problems import as_problem
from service.store import audit
from service.trace.errors import AccessError, Unauthorized

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers would send the origin of a form as `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICIES = {
    "/docs": "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "/perfetto/": "frame-ancestors 'self'",  # a worker has the policy of its script's response
    "": "default-src 'none'; frame-ancestors 'none'",
}
"""The Content-Security-Policy of responses without one of their own, by prefix of the path; the first match applies."""

_SUBJECTS = {
    "trace_id": "trace", "view": "trace", "upload_id": "upload", "group_id": "group", "import_id": "imported",
    "job_id": "job", "attachment_id": "attachment",
}  # fmt: skip
"""Maps path parameters to the fields of the audit log that hold their values."""
_CREATED = {
    "/api/v1/traces": "trace", "/api/v1/jobs": "job", "/api/v1/groups": "group",
    "/api/v1/attachments": "attachment",
}  # fmt: skip
"""Maps the collections in ``Location`` headers to the fields of the audit log that hold the created resources."""


def _subjects(call: Call) -> dict[str, str]:
    """Return the resources in the path of a call, as the audit log names them."""
    return {
        _SUBJECTS[name]: value.partition("~")[0] if name == "view" else value
        for name, value in call.parameters.items()
        if name in _SUBJECTS
    }


def remark(connection: HTTPConnection, **facts: str | None) -> None:
    """Add fields to the line of a request in the audit log."""
    connection.scope.get("remarks", {}).update(facts)


class AccessMiddleware:
    """Passes permitted requests to the app, and refuses others. Records changes in the audit log.

    Args:
        app: the next app.
        access: authenticates requests.
        hosts: the names of the server, and the pages that may use it.
    """

    def __init__(self, app: ASGIApp, access: Authenticator, hosts: Hosts) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        call = call_of(scope)
        scope["remarks"] = _subjects(call)
        responding = _Responding(scope, send, call)
        try:
            self._check(HTTPConnection(scope), call)
        except AccessError as refusal:
            await _refused(HTTPConnection(scope), refusal)(scope, receive, responding)
        else:
            await self._app(scope, receive, responding)

    def _check(self, connection: HTTPConnection, call: Call) -> None:
        """Raise `AccessError` if the request is not permitted; otherwise store its visitor in the ASGI scope."""
        self._hosts.check(connection, safe=connection.scope.get("method") in SAFE)
        if call.is_public:
            return
        connection.scope["visitor"] = self._access.visitor(connection)
        if call.declaration.scope == "write":
            check_write(connection)


class _Responding:
    """Sends a response with the headers that all responses have, and records changes in the audit log."""

    def __init__(self, scope: Scope, send: Send, call: Call) -> None:
        self._scope = scope
        self._send = send
        self._declaration = call.declaration

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            path = self._scope["path"]
            headers.setdefault(
                "Content-Security-Policy", next(POLICIES[start] for start in POLICIES if path.startswith(start))
            )
            self._log(message["status"], headers.get("location", ""), headers.get("tracedock-trace", ""))
        elif message["type"] == "websocket.accept":
            self._log(101)
        await self._send(message)

    def _log(self, status: int, location: str = "", trace: str = "") -> None:
        visitor: Visitor | None = self._scope.get("visitor")  # None on public paths: else any client could fill the log
        declaration = self._declaration
        if not visitor or not declaration.audit or (status == declaration.unlogged_status and not trace):
            return
        collection, created = ("/api/v1/traces", trace) if trace else location.rpartition("/")[::2]
        facts = self._scope["remarks"]
        if collection in _CREATED:
            facts = facts | {_CREATED[collection]: created}
        client = self._scope.get("client")
        audit.note(visitor.name, did=declaration.audit, address=client[0] if client else None, **facts, status=status)


def _refused(connection: HTTPConnection, refusal: AccessError) -> Response:
    """Return the response to a refused request; a page load without a valid login is redirected to the login page."""
    if isinstance(refusal, Unauthorized) and _is_navigation(connection):
        query = connection.scope["query_string"].decode("latin-1")
        here = quote(connection.scope["path"]) + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(here, safe='')}", 303, {"Cache-Control": "no-store"})
    response = as_problem(refusal)
    if isinstance(refusal, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _is_navigation(connection: HTTPConnection) -> bool:
    """Return whether a browser will show the response as a page."""
    headers = connection.headers
    return (
        connection.scope.get("method") in ("GET", "HEAD")
        and "text/html" in headers.get("accept", "")
        and "authorization" not in headers
    )

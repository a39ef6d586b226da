"""``/login`` and ``/logout``: exchange a token for a session cookie, for browsers; ``/access``: the caller's scope."""

import re
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import Depends, Request, Response
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse

from service.http import shapes
from service.http.authentication import SESSION_S, Authenticator, Visitor, cookie_name_of
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import declares
from service.http.responses import json_response
from service.http.routers import ApiRouter, CheckedRouter
from service.store import audit
from service.trace.errors import Unauthorized

_HERE = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path on this server that no browser reads as the address of another server."""

api = ApiRouter(tags=["access"])
pages = CheckedRouter(include_in_schema=False, route_class=SmallBodyRoute)


def access_of(connection: HTTPConnection) -> Authenticator:
    """Return the `Authenticator` of the app that received a request."""
    access: Authenticator = connection.app.state.access
    return access


Authentication = Annotated[Authenticator, Depends(access_of)]


@api.get("/access", summary="The caller and its scope", responses={200: {"model": shapes.Access}})
async def get_access(request: Request, access: Authentication) -> Response:
    """Return the name and the scope of the token of the request, or of the browser's session."""
    visitor: Visitor = request.scope["visitor"]
    return json_response(shapes.Access(needed=access.needed, name=visitor.name, scope=visitor.scope))


@pages.post("/login")
@declares("public")
async def log_in(request: Request, access: Authentication) -> Response:
    """Set a session cookie in exchange for a token, and redirect the browser to the page that it requested first."""
    form = parse_qs((await request.body()).decode("latin-1"))
    [token, page] = [form.get(name, [""])[0] for name in ("token", "next")]
    target = page if _HERE.fullmatch(page) else "/"
    if not access.needed:
        return RedirectResponse(target, 303)
    try:
        session, visitor = access.log_in(token.strip())
    except Unauthorized:
        return RedirectResponse(f"/login?failed=1&next={quote(target, safe='')}", 303)
    audit.note(visitor.name, did="log in", address=request.client.host if request.client else None)
    response = RedirectResponse(target, 303)
    response.set_cookie(
        cookie_name_of(request), session, max_age=SESSION_S, httponly=True, samesite="strict",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


@pages.post("/logout")
@declares("public")
async def log_out(request: Request, access: Authentication) -> Response:
    """End the browser's session."""
    name = cookie_name_of(request)
    access.log_out(request.cookies.get(name, ""))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(name, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response

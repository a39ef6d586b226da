"""``/login`` and ``/logout``: a token for a cookie, so that pages can be seen; ``/access``: who one is here."""

import re
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse

from service.http.authentication import SESSION_S, Access, Visitor, cookie_name
from service.http.bounded_body import SmallBody
from service.http.routes.traces import as_json
from service.store import audit
from service.trace.errors import Unauthorized

_HERE = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A place on this server: nothing that a browser would take for another's address."""

api = APIRouter(tags=["access"])
pages = APIRouter(include_in_schema=False, route_class=SmallBody)


def access_of(connection: HTTPConnection) -> Access:
    """Who is let in to the service that this request came to."""
    access: Access = connection.app.state.access
    return access


Keeper = Annotated[Access, Depends(access_of)]


class Standing(BaseModel):
    """Who asks, and what he may do."""

    needed: bool
    """Whether a token is needed here at all."""
    name: str
    """Of the token; `local` where none is needed."""
    scope: str
    """`read` or `write`."""


@api.get("/access", summary="Who one is here, and what one may do", responses={200: {"model": Standing}})
async def get_access(request: Request, access: Keeper) -> Response:
    """The name and the scope of the token that the request has, or that the browser has logged in with."""
    visitor: Visitor = request.scope["visitor"]
    return as_json({"needed": access.needed, "name": visitor.name, "scope": visitor.scope})


@pages.post("/login")
async def log_in(request: Request, access: Keeper) -> Response:
    """Give the browser a cookie for a token, and lead it to where it wanted to go."""
    form = parse_qs((await request.body()).decode("latin-1"))
    [token, wanted] = [form.get(name, [""])[0] for name in ("token", "next")]
    target = wanted if _HERE.fullmatch(wanted) else "/"
    if not access.needed:
        return RedirectResponse(target, 303)
    try:
        session, visitor = access.log_in(token.strip())
    except Unauthorized:
        return RedirectResponse(f"/login?failed=1&next={quote(target, safe='')}", 303)
    audit.note(visitor.name, did="log in", address=request.client.host if request.client else None)
    response = RedirectResponse(target, 303)
    response.set_cookie(
        cookie_name(request), session, max_age=SESSION_S, httponly=True, samesite="strict",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


@pages.post("/logout")
async def log_out(request: Request, access: Keeper) -> Response:
    """End the browser's session."""
    name = cookie_name(request)
    access.log_out(request.cookies.get(name, ""))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(name, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response

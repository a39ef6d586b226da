"""The HTML pages and their static files.

The pages are shells: their scripts request all data from the JSON API of the same origin. So nothing here reads a
store, and the page of an unknown trace is still a page, whose script shows the API's problem.
"""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import Scope

STATIC_PATH = "/static"
"""Path below the application's root path at which templates expect `static_app`."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Policy of the pages: no inline script or style, and no other origin."""

_HERE = Path(__file__).parent
_HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}


def router() -> APIRouter:
    """Return the routes of the pages, which are not in OpenAPI: `/`, `/traces/{id}`, `/groups/{id}`, `/login`."""
    pages = APIRouter(include_in_schema=False)
    templates = Jinja2Templates(_HERE / "templates")

    def page(request: Request, template: str, **context: Any) -> Response:
        context["visitor"] = request.scope.get("visitor")
        context["root"] = request.scope.get("root_path", "").rstrip("/")
        return templates.TemplateResponse(request, template, context, headers=_HEADERS)

    @pages.get("/")
    def index(request: Request, name: str = "") -> Response:  # noqa: ARG001 - list.js reads it
        return page(request, "index.html")

    @pages.get("/traces/{trace_id}")
    def trace(request: Request, trace_id: str, args: str = "") -> Response:  # noqa: ARG001 - args.js reads it
        return page(request, "trace.html", trace_id=trace_id)

    @pages.get("/groups/{group_id}")
    def group(request: Request, group_id: str) -> Response:
        return page(request, "group.html", group_id=group_id)

    @pages.get("/login")
    def login(request: Request, next: str = "", failed: str | None = None) -> Response:  # noqa: A002 - as in the address
        return page(request, "login.html", wanted=next, failed=failed is not None)

    return pages


def static_app() -> StaticFiles:
    """Return the app for the style sheet and scripts of the pages, to mount at `STATIC_PATH`."""
    return _Revalidated(directory=_HERE / "static")


class _Revalidated(StaticFiles):
    """Static files that browsers revalidate by ETag each time, so that modules of two releases never mix."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.setdefault("Cache-Control", "no-cache")
        return response

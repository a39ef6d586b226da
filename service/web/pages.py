"""The HTML pages and their static files.

The pages are shells: their scripts ask the JSON API of the same origin, so nothing here reads a store, and a
page for an unknown trace is still a page (its script shows the API's problem).
"""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import Scope

STATIC_PATH = "/static"
"""Where the templates expect `static_app` to be mounted, below the application's root path."""

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
"""What the pages need and no more: no inline script or style, nothing from another origin."""

_HERE = Path(__file__).parent
_HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}


def router() -> APIRouter:
    """Routes of the pages: `/` (drop zone and list), `/traces/{id}`, `/groups/{id}`, `/login`; not in OpenAPI."""
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
    """The pages' style sheet and scripts, to be mounted at `STATIC_PATH`."""
    return _Revalidated(directory=_HERE / "static")


class _Revalidated(StaticFiles):
    """Static files that a browser checks by ETag each time: modules of two releases must never mix."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.setdefault("Cache-Control", "no-cache")
        return response

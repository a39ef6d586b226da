"""The HTML pages.

The pages are shells: their scripts request all data from the JSON API of the same origin. So nothing here reads a
store. An unknown trace has a page, too; its script shows the API's problem.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from service.formats.names import SUFFIXES
from service.web.assets import STATIC_PATH, imported_by, release

if TYPE_CHECKING:
    from starlette.templating import Jinja2Templates

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

_OPENED_BY_LINK = ("/perfetto", "/report")

Handler = Callable[[Request, Exception], Awaitable[Response]]


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """Return a page made from a template."""
    context["visitor"] = request.scope.get("visitor")
    context["root"] = _root(request)
    context["static"] = f"{context['root']}{STATIC_PATH}/{release()}"
    context["shows_datasets"] = getattr(request.app.state, "shows_datasets", False)
    context["path"] = request.url.path.removeprefix(context["root"])
    return _templates().TemplateResponse(request, template, context, status_code=status, headers=_HEADERS)


@cache
def _templates() -> "Jinja2Templates":
    from starlette.templating import Jinja2Templates  # noqa: PLC0415 - loads Jinja; servers of scripts show no page

    templates = Jinja2Templates(_HERE / "templates")
    templates.env.globals["imported_by"] = imported_by
    return templates


def _root(request: Request) -> str:
    """Return the path that the application is mounted at; empty at the root of its host."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def not_found_handler(other_handler: Handler) -> Handler:
    """Return a handler of unknown paths: browsers receive a page that lists the existing pages.

    Args:
        other_handler: the handler of requests to the API, and of requests that do not ask for a page.
    """

    async def handle(request: Request, error: Exception) -> Response:
        if _accepts_page(request) and not request.url.path.removeprefix(_root(request)).startswith("/api/"):
            return page(request, "not_found.html", status=404)
        return await other_handler(request, error)

    return handle


def problem_handler(other_handler: Handler) -> Handler:
    """Return a handler of errors: browsers that open the UI or a report by its link receive a page.

    Args:
        other_handler: the handler whose response is the error as JSON.
    """

    async def handle(request: Request, error: Exception) -> Response:
        response = await other_handler(request, error)
        if _accepts_page(request) and request.url.path.endswith(_OPENED_BY_LINK):
            return page(request, "problem.html", status=response.status_code, problem=orjson.loads(response.body))
        return response

    return handle


def _accepts_page(request: Request) -> bool:
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


def add_to(pages: APIRouter) -> None:
    """Add the routes of the pages to a router.

    Args:
        pages: a router of routes that are not in OpenAPI.
    """

    @pages.get("/")
    def library(  # noqa: PLR0913, PLR0917 - library/address.js reads all but the first
        request: Request,
        q: str = "",  # noqa: ARG001
        state: str = "",  # noqa: ARG001
        kind: str = "",  # noqa: ARG001
        gpu: str = "",  # noqa: ARG001
        pinned: str = "",  # noqa: ARG001
        damaged: str = "",  # noqa: ARG001
        sort: str = "",  # noqa: ARG001
        order: str = "",  # noqa: ARG001
        open: str = "",  # noqa: A002, ARG001 - as in the address
        offset: str = "",  # noqa: ARG001
    ) -> Response:
        return page(request, "library.html", suffixes=SUFFIXES)

    @pages.get("/traces")
    def traces(request: Request) -> Response:
        return RedirectResponse(f"{_root(request)}/")

    @pages.get("/groups")
    def groups(request: Request) -> Response:
        return RedirectResponse(f"{_root(request)}/?kind=run")

    @pages.get("/jobs")
    def jobs(request: Request) -> Response:
        return page(request, "jobs.html")

    @pages.get("/traces/{trace_id}")
    def trace(  # noqa: PLR0913, PLR0917 - the scripts read all but the first two
        request: Request,
        trace_id: str,
        args: str = "",  # noqa: ARG001
        start_ns: str = "",  # noqa: ARG001
        end_ns: str = "",  # noqa: ARG001
        from_ns: str = "",  # noqa: ARG001
        to_ns: str = "",  # noqa: ARG001
        analysis: str = "",  # noqa: ARG001
        steps: str = "",  # noqa: ARG001
        options: str = "",  # noqa: ARG001
    ) -> Response:
        return page(request, "trace.html", trace_id=trace_id)

    @pages.get("/traces/{trace_id}/sql")
    def sql(  # the scripts read all but the first two
        request: Request,
        trace_id: str,
        q: str = "",  # noqa: ARG001
        args: str = "",  # noqa: ARG001
        source: str = "",  # noqa: ARG001
    ) -> Response:
        return page(request, "sql.html", trace_id=trace_id)

    @pages.get("/groups/{group_id}")
    def group(
        request: Request,
        group_id: str,
        cycle: str = "",  # noqa: ARG001 - run/cycle.js reads it
    ) -> Response:
        return page(request, "group.html", group_id=group_id)

    @pages.get("/datasets")
    def datasets(request: Request) -> Response:
        return page(request, "datasets.html")

    @pages.get("/datasets/{dataset}")
    def dataset(request: Request, dataset: str) -> Response:
        return page(request, "dataset.html", dataset=dataset)

    @pages.get("/datasets/{dataset}/runs/{run:path}")
    def dataset_run(
        request: Request,
        dataset: str,
        run: str,
        base: str = "",  # noqa: ARG001 - dataset/run.js reads it
    ) -> Response:
        return page(request, "dataset_run.html", dataset=dataset, run=run)

    @pages.get("/compare")
    def compare(  # noqa: PLR0913, PLR0917 - place.js reads all but the first
        request: Request,
        base: str = "",  # noqa: ARG001
        other: str = "",  # noqa: ARG001
        base_steps: str = "",  # noqa: ARG001
        steps: str = "",  # noqa: ARG001
        base_cycle: str = "",  # noqa: ARG001
        cycle: str = "",  # noqa: ARG001
        show: str = "",  # noqa: ARG001
        by: str = "",  # noqa: ARG001
        threshold_pct: str = "",  # noqa: ARG001
        least_ms: str = "",  # noqa: ARG001
    ) -> Response:
        return page(request, "compare.html")

    @pages.get("/login")
    def login(request: Request, next: str = "", failed: str | None = None) -> Response:  # noqa: A002 - as in the address
        return page(request, "login.html", wanted=next, failed=failed is not None)

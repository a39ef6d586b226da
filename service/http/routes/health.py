"""``/healthz``, ``/readyz`` and ``/metrics``: the state of the server, for balancers and monitors."""

import asyncio
import os

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.exposition import generate_latest

from service.http import shapes
from service.http.declarations import declares
from service.http.openapi import fragments
from service.http.responses import json_response
from service.http.routers import CheckedRouter
from service.http.services import Services, ServicesDep
from service.trace.errors import TracedockError

router = CheckedRouter(tags=["health"])


@router.get("/healthz", summary="Check that the server responds", responses={200: {"model": shapes.ServerHealth}})
@declares("public")
async def check_health() -> Response:
    """Return ``{"status": "ok"}``."""
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    summary="Check that the server can receive and show traces",
    responses={
        200: {"model": shapes.Readiness},
        503: {"description": "The reasons why the server is not ready", "model": shapes.Readiness},
    },
)
@declares("public")
async def check_readiness(services: ServicesDep) -> Response:
    """Return ``{"status": "ready", "reasons": []}``, or 503 with the reasons why it is not ready."""
    reasons = await asyncio.to_thread(_reasons, services)
    status = "unready" if reasons else "ready"
    return json_response({"status": status, "reasons": reasons}, 503 if reasons else 200)


def _reasons(services: Services) -> list[dict[str, str]]:
    """Return the reasons why the server is not ready."""
    reasons = []
    for part, check in (("catalog", services.catalog.connection.check_writable), ("disk", services.room.check)):
        try:
            check()
        except TracedockError as error:
            reasons.append({"what": part, "code": error.code, "detail": error.detail})
    if not os.access(services.engine, os.X_OK):
        detail = f"{services.engine} can't be run."
        reasons.append({"what": "engine", "code": "engine_unavailable", "detail": detail})
    return reasons


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": fragments.content({"text/plain": fragments.described("the metrics", fragments.TEXT)})}},
)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Return the metrics in Prometheus's text format."""
    if services.room.count_is_old:  # counting may take a while, so the next scrape has the new count
        asyncio.get_running_loop().run_in_executor(None, services.room.used)
    return Response(generate_latest(request.scope["metrics"]), media_type=CONTENT_TYPE_LATEST)

"""``/healthz`` and ``/readyz``: whether the server answers, and whether it can do its work."""

import asyncio
import os

from fastapi import APIRouter, Response

from service.http.routes.traces import as_json
from service.http.services import Parts, Services
from service.trace.errors import TracedockError

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the server answers")
async def healthz() -> Response:
    """``{"status": "ok"}``."""
    return as_json({"status": "ok"})


@router.get("/readyz", summary="Whether the server can take and show traces")
async def readyz(parts: Parts) -> Response:
    """``{"status": "ready", "reasons": []}``, or 503 and each reason why it can't."""
    reasons = await asyncio.to_thread(_reasons, parts)
    return as_json({"status": "unready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


def _reasons(parts: Services) -> list[dict[str, str]]:
    reasons = []
    for what, check in (("catalog", parts.catalog.connection.check_writable), ("disk", parts.room.check)):
        try:
            check()
        except TracedockError as error:
            reasons.append({"what": what, "code": error.code, "detail": error.detail})
    if not os.access(parts.engine, os.X_OK):
        reasons.append({"what": "engine", "code": "engine_unavailable", "detail": f"{parts.engine} can't be run."})
    return reasons

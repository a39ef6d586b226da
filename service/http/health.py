"""``/healthz``: whether the server answers."""

from fastapi import APIRouter, Response

from service.http.traces import as_json

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the server answers")
async def healthz() -> Response:
    """``{"status": "ok"}``."""
    return as_json({"status": "ok"})

"""``/sessions`` and ``/traces/{id}/session``: the engines that are alive."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response

from service.engine.session import Session, SessionState
from service.http import shapes
from service.http.selections import Chosen
from service.http.services import Parts, Services, view_of
from service.http.traces import WAIT_MAX_S, as_json
from service.trace.errors import NotReady, UnknownTrace

WaitForEngine = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, allow_inf_nan=False, description="seconds to wait for the engine to load")
]

router = APIRouter(tags=["sessions"])


def described(session: Session, parts: Services) -> dict[str, Any]:
    """A session as the API shows it."""
    trace = parts.catalog.get(session.trace_id)
    whole = session.selection is None and trace.has_original
    return {
        "trace": session.trace_id,
        "selection": session.selection,
        "state": session.state,
        "error": session.error.as_dict() if session.error else None,
        "engine": {
            "version": session.version_code or None,
            "pid": session.pid,
            "rss_bytes": _resident_bytes(session.pid),
        },
        "progress": {"bytes": session.loaded_bytes, "bytes_total": session.size or (trace.size if whole else 0)},
        "clients": session.clients,
        "queries": session.queries,
        "idle_s": round(session.idle_s, 3),
        "load_s": session.load_s,
    }


def _resident_bytes(pid: int | None) -> int | None:
    """Memory that a process holds, where the system tells it through /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    told = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(told[0]) * 1024 if told else None


def loading(session: Session, parts: Services) -> Response:
    """The answer while the engine loads: ask again."""
    chosen = f"?{urlencode({'selection': json.dumps(session.selection)})}" if session.selection is not None else ""
    where = f"/api/v1/traces/{session.trace_id}/session{chosen}"
    return as_json(described(session, parts), 202, **{"Retry-After": "1", "Location": where})


@router.get("/sessions", summary="List the engines", responses={200: {"model": shapes.Sessions}})
def list_sessions(parts: Parts) -> Response:
    """All sessions."""
    found = []
    for one in parts.fleet.sessions():
        with suppress(UnknownTrace):  # deleted just now
            found.append(described(one, parts))
    return as_json({"sessions": found, "next": None})


@router.post(
    "/traces/{trace_id}/session",
    summary="Start the engine of a trace",
    responses={200: {"model": shapes.Session}, 202: {"model": shapes.Session}},
)
async def open_session(trace_id: str, parts: Parts, selection: Chosen, wait: WaitForEngine = 0) -> Response:
    """Start the engine of the trace, or of a selection of it, if it isn't running.

    Answers 200 when it is ready, 202 while it loads.
    """
    session = parts.session(view_of(trace_id, selection))
    if not await session.settled(wait):
        return loading(session, parts)
    return as_json(described(session, parts))


@router.get("/traces/{trace_id}/session", summary="The engine of a trace", responses={200: {"model": shapes.Session}})
def get_session(trace_id: str, parts: Parts, selection: Chosen) -> Response:
    """The session of a trace, or of a selection of it, without starting one."""
    parts.catalog.get(trace_id)
    session = parts.fleet.find(view_of(trace_id, selection))
    if session is None:
        raise NotReady("The trace has no engine running; a query or POST starts one.", state=SessionState.CLOSED)
    return as_json(described(session, parts))


@router.delete("/traces/{trace_id}/session", status_code=204, summary="Stop the engine of a trace")
async def close_session(trace_id: str, parts: Parts, selection: Chosen) -> Response:
    """Stop the engine of the trace, or of a selection of it; tables that clients created in it are gone."""
    parts.catalog.get(trace_id)
    await parts.fleet.shut(view_of(trace_id, selection))
    return Response(status_code=204)

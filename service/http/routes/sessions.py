"""``/sessions`` and ``/traces/{id}/session``: the engines that are alive."""

import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from service.engine.session import Session, SessionState
from service.http import shapes
from service.http.authentication import identity
from service.http.routes.traces import WAIT_MAX_S, as_json
from service.http.services import Parts
from service.http.view_parameters import Viewed
from service.trace.errors import NotReady

WaitForEngine = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, allow_inf_nan=False, description="seconds to wait for the engine to load")
]

router = APIRouter(tags=["sessions"])


def described(session: Session) -> dict[str, Any]:
    """A session as the API shows it."""
    return {
        "trace": session.trace_id,
        "selection": session.selection,
        "args": session.load.args,
        "state": session.state,
        "error": session.error.as_dict() if session.error else None,
        "engine": {
            "version": session.version_code or None,
            "pid": session.pid,
            "rss_bytes": session.memory_bytes,
            "peak_bytes": session.peak_bytes,
            "predicted_bytes": session.predicted_bytes,
            "restarts": session.restarts,
        },
        "progress": {"bytes": session.loaded_bytes, "events_total": session.load.events},
        "clients": session.clients,
        "queries": session.queries,
        "waiting": session.waiting,
        "idle_s": round(session.idle_s, 3),
        "load_s": session.load_s,
        "account": session.account,
    }


def loading(session: Session) -> Response:
    """The answer while the engine loads: ask again."""
    chosen = {} if session.load.args == "all" else {"args": session.load.args}
    if session.selection is not None:
        chosen["selection"] = json.dumps(session.selection)
    where = f"/api/v1/traces/{session.trace_id}/session{'?' if chosen else ''}{urlencode(chosen)}"
    return as_json(described(session), 202, **{"Retry-After": "1", "Location": where})


@router.get("/sessions", summary="List the engines", responses={200: {"model": shapes.Sessions}})
def list_sessions(parts: Parts) -> Response:
    """All sessions, and the memory that they and an engine that is kept ready take of their budget."""
    return as_json(
        {
            "sessions": [described(one) for one in parts.fleet.sessions()],
            "memory": {"held_bytes": parts.fleet.held_bytes, "budget_bytes": parts.fleet.budget_bytes},
            "next": None,
        }
    )


@router.post(
    "/traces/{trace_id}/session",
    summary="Start the engine of a trace",
    responses={200: {"model": shapes.Session}, 202: {"model": shapes.Session}},
)
async def open_session(view: Viewed, request: Request, parts: Parts, wait: WaitForEngine = 0) -> Response:
    """Start the engine of the trace, or of a selection of it, if it isn't running.

    Answers 200 when it is ready, 202 while it loads.
    """
    session = parts.session(view, identity(request))
    if not await session.settled(wait):
        return loading(session)
    return as_json(described(session))


@router.get("/traces/{trace_id}/session", summary="The engine of a trace", responses={200: {"model": shapes.Session}})
def get_session(view: Viewed, parts: Parts) -> Response:
    """The session of a trace, or of a selection of it, without starting one."""
    parts.catalog.get(view.trace_id)
    session = parts.fleet.find(str(view))
    if session is None:
        raise NotReady("The trace has no engine running; a query or POST starts one.", state=SessionState.CLOSED)
    return as_json(described(session))


@router.delete("/traces/{trace_id}/session", status_code=204, summary="Stop the engine of a trace")
async def close_session(view: Viewed, parts: Parts) -> Response:
    """Stop the engine of the trace, or of a selection of it; tables that clients created in it are gone."""
    parts.catalog.get(view.trace_id)
    await parts.fleet.shut(str(view))
    return Response(status_code=204)

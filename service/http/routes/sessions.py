"""``/sessions`` and ``/traces/{id}/session``: the engines that run."""

import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from service.engine.session import Session, SessionState
from service.http import shapes
from service.http.authentication import identity
from service.http.declarations import declares
from service.http.openapi import fragments
from service.http.presenters import session_object
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.traces import WAIT_MAX_S
from service.http.services import ServicesDep
from service.http.view_parameters import Viewed
from service.trace.errors import NotReady

WaitForEngine = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, allow_inf_nan=False, description="seconds to wait for the engine to load")
]

LOADING: dict[str, Any] = {
    "description": "The session, whose engine still loads; ask again after `Retry-After` seconds",
    "model": shapes.Session,
    "headers": fragments.header_fields(
        {"Location": "the path of the session", "Retry-After": "seconds to wait before the next request"}
    ),
}
"""The response while an engine loads."""

router = ApiRouter(tags=["sessions"])


def loading(session: Session) -> Response:
    """Return the response while the engine loads: 202, with the address to poll."""
    chosen = {} if session.load.args == "all" else {"args": session.load.args}
    if session.load.is_original:
        chosen["source"] = "original"
    if session.selection is not None:
        chosen["selection"] = json.dumps(session.selection.as_dict())
    location = f"/api/v1/traces/{session.trace_id}/session{'?' if chosen else ''}{urlencode(chosen)}"
    return json_response(session_object(session), 202, **{"Retry-After": "1", "Location": location})


@router.get("/sessions", summary="List the engines", responses={200: {"model": shapes.Sessions}})
def list_sessions(services: ServicesDep) -> Response:
    """Return all sessions, and the memory of all engines, including the one that is kept ready."""
    memory = shapes.EngineMemory(
        held_bytes=services.engine_pool.held_bytes, budget_bytes=services.engine_pool.budget_bytes
    )
    sessions = [session_object(session) for session in services.engine_pool.sessions()]
    return json_response(shapes.Sessions(sessions=sessions, memory=memory, next=None))


@router.post(
    "/traces/{trace_id}/session",
    summary="Start the engine of a trace",
    responses={200: {"model": shapes.Session}, 202: LOADING},
)
@declares("read", audit="open session", unlogged_status=202)
async def open_session(view: Viewed, request: Request, services: ServicesDep, wait: WaitForEngine = 0) -> Response:
    """Start the engine of the trace, or of a selection of it, if it isn't running.

    Returns 200 when it is ready, 202 while it loads.
    """
    session = services.session_operations.open(view, identity(request))
    if not await session.settled(wait):
        return loading(session)
    return json_response(session_object(session))


@router.get("/traces/{trace_id}/session", summary="The engine of a trace", responses={200: {"model": shapes.Session}})
def get_session(view: Viewed, services: ServicesDep) -> Response:
    """Return the session of a trace, or of a selection of it, without starting one."""
    session = services.session_operations.find(view)
    if session is None:
        raise NotReady("The trace has no engine running; a query or POST starts one.", state=SessionState.CLOSED)
    return json_response(session_object(session))


@router.delete("/traces/{trace_id}/session", status_code=204, summary="Stop the engine of a trace")
@declares("read", audit="close session")
async def close_session(view: Viewed, services: ServicesDep) -> Response:
    """Stop the engine of the trace, or of a selection of it; tables that clients have created in it are lost."""
    await services.session_operations.close(view)
    return Response(status_code=204)

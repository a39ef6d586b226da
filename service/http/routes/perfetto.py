"""The Perfetto UI, and the WebSocket that connects it to the engine of a trace."""

import asyncio
import logging
import textwrap
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Query, Request, Response, WebSocket
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect

from service.engine.engine import BadFrame
from service.engine.relay import Relay
from service.engine.session import Session
from service.engine.trace_processor.rpc import status
from service.http.authentication import identity
from service.http.declarations import declares
from service.http.deferred_route import DeferredRoute
from service.http.openapi import fragments
from service.http.resource_parameters import TraceId
from service.http.routers import ApiRouter
from service.http.selection_parameters import Selected
from service.http.server.inbox import CONNECTION_MAX_BYTES, MESSAGE_MAX_BYTES, ByteBudget, Inbox
from service.http.services import ServicesDep
from service.http.view_parameters import ESSENTIAL, SLICE_FORMS, SOURCE
from service.jobs.children.tasks.questions import OpeningTask
from service.operations.sessions import ui_args
from service.operations.views import View
from service.rendering.view import InitialView
from service.trace.errors import SourceUnavailable, TracedockError
from service.trace.selection_fields import Args, ViewSource
from service.trace.slices import SliceReference

log = logging.getLogger(__name__)

OPENER = '<script src="/static/perfetto.js"></script>'
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; connect-src 'self' data: blob:; form-action 'none'; frame-ancestors 'self'"
)
"""The Content-Security-Policy of the UI's page: it runs its own code, and reaches no other host."""

NO_TRY_AGAIN, TRY_AGAIN = 1008, 1013
"""Close codes of WebSockets. After the first, the UI must not connect again; after the second, it may."""

REASON_MAX = 123
"""Maximum bytes of the reason in a close frame (RFC 6455, section 5.5)."""
_DIALOG_WIDTH = 80
"""Characters in a line of the UI's error dialog."""

api = ApiRouter(prefix="/traces", tags=["perfetto"])
pages = APIRouter(prefix="/perfetto", include_in_schema=False, route_class=DeferredRoute)


@api.get(
    "/{trace_id}/perfetto",
    status_code=307,
    summary="Open the Perfetto UI on a trace",
    response_class=Response,
    responses={
        307: {
            "description": "The address of the UI, for a browser",
            "headers": fragments.header_fields({"Location": "the path of the UI's page"}),
        }
    },
)
async def open_perfetto(
    trace_id: TraceId,
    selection: Selected,
    services: ServicesDep,
    args: Annotated[
        Args | None,
        Query(
            description=f"which arguments of events the engine has; {ESSENTIAL}. By default `all`, or `essential` for"
            " more than `TRACEDOCK_UI_ALL_ARGS_EVENTS` events: the UI then gets the other arguments of a slice as it"
            " is selected"
        ),
    ] = None,
    source: Annotated[ViewSource | None, Query(description=SOURCE)] = None,
    slice_text: Annotated[
        str | None,
        Query(
            alias="slice",
            description=f"the slice to select and zoom to: {SLICE_FORMS}",
        ),
    ] = None,
) -> Response:
    """Redirect to the UI on the trace, on a selection or on its original; the page then starts the engine.

    The UI opens at the slice, or at the selection's window and steps. A selection without events is refused, and so
    is a slice that is missing from the trace or selection, or shares its name and time with another slice. In an
    original, which has no selections, slices are named by their `id`.
    """
    trace = services.trace_operations.ready(trace_id)
    view = View(trace_id, selection, args or "all", source)
    view.check(trace)
    reference = None if slice_text is None else SliceReference.parsed(slice_text)
    place = InitialView()
    if view.resolved(trace).source == "original":
        if reference and reference.kind != "id":
            raise SourceUnavailable("Slices of an original have ids only; others belong to events in columns.")
    else:
        summary, most = trace.summary_or_empty, services.settings.ui_all_args_events
        is_large = args is None and ui_args(summary.kept_events, summary, most) != "all"
        if selection or reference:
            columns = services.folder.columns_of(trace.id)
            task = OpeningTask(columns, summary, selection, reference, counts_events=is_large)
            place = await services.analyses.opening(task)
        if is_large:
            events = summary.kept_events if place.events is None else place.events
            view = replace(view, args=ui_args(events, summary, most))
    return RedirectResponse(f"/perfetto/{view}/{_place_query(place, reference)}#!/viewer")


def _place_query(place: InitialView, reference: SliceReference | None) -> str:
    """Return the query string that opens the UI at a place, with its question mark; empty for the whole timeline.

    The UI reads ``visStart`` and ``visEnd``, and our script reads ``slice``. The UI replaces the fragment of the URL,
    but keeps the query, so a reload opens the same place.
    """
    query: dict[str, object] = {}
    if place.start is not None:
        query = {"visStart": place.start, "visEnd": place.end}
    if reference:
        chosen = place.slice or {"id": reference.number}
        query["slice"] = orjson.dumps(chosen).decode()
    return f"?{urlencode(query)}" if query else ""


@pages.get("/{view}/")
def ui_page(
    view: str,
    services: ServicesDep,
    _start: Annotated[int | None, Query(alias="visStart")] = None,
    _end: Annotated[int | None, Query(alias="visEnd")] = None,
    _slice: Annotated[str | None, Query(alias="slice")] = None,
) -> Response:
    """Serve the UI's page with our script before its own scripts. Both read the query, see `_place_query`."""
    services.catalog.get(View.parsed(view).trace_id)
    page = (services.ui / "index.html").read_text("utf-8").replace("<script", f"{OPENER}\n  <script", 1)
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})


@pages.get("/files/{path:path}")
def ui_file(path: str, services: ServicesDep) -> Response:
    """Serve a file of the UI, or 404: the UI also requests paths that exist only on its developers' machines.

    All views share these addresses, so that a browser keeps the files and their compiled code.
    """
    if path not in _served_files(services.ui):
        raise HTTPException(404, f"The Perfetto UI has no file {path[:200]!r}.")
    return FileResponse(services.ui / path, headers={"Cache-Control": "private, max-age=31536000, immutable"})


@cache
def _served_files(ui: Path) -> frozenset[str]:
    """Return the paths of the files to serve, relative to the UI's folder: those below a folder named for its version.

    `ui_page` serves the page. The service worker would cache one version of the UI for the whole origin.
    """
    return frozenset(file.relative_to(ui).as_posix() for file in ui.glob("*/**/*") if file.is_file())


@pages.post("/{view}/rpc/status")
@declares("read")
async def rpc_status(view: str, request: Request, services: ServicesDep) -> Response:
    """Return the engine's status, without waiting for the engine: the UI gives up after 2 s."""
    session = services.session_operations.open(View.parsed(view), identity(request))
    return Response(status(session.version).SerializeToString(), media_type="application/x-protobuf")


@pages.websocket("/{view}/rpc/websocket")
@declares("read", audit="open perfetto")
async def rpc_websocket(socket: WebSocket, services: ServicesDep) -> None:
    """Serve the UI's stream of requests."""
    try:
        session = services.session_operations.open(View.parsed(socket.path_params["view"]), identity(socket))
    except TracedockError as error:
        await socket.accept()
        await socket.close(TRY_AGAIN, close_reason(error.detail))
        return
    await attach(socket, session, Relay(session, identity(socket)), services.unanswered)


def close_reason(text: str) -> str:
    """Return the longest beginning of a text that fits into the reason of a close frame.

    The text is wrapped here, because the UI shows it in a dialog that does not wrap lines.
    """
    return textwrap.fill(text, _DIALOG_WIDTH).encode()[:REASON_MAX].decode(errors="ignore")


async def attach(socket: WebSocket, session: Session, relay: Relay, unanswered: ByteBudget) -> int | None:
    """Serve one UI on a session until it disconnects, which also stops its requests in the engine.

    Args:
        socket: the UI's connection.
        session: the session.
        relay: the relay that answers the UI.
        unanswered: the budget of bytes for unanswered messages, shared by all UIs.

    Returns:
        The code with which the UI closed the connection; None if the UI did not close it.
    """
    session.clients += 1
    try:
        await socket.accept()
        inbox = Inbox(unanswered, max(CONNECTION_MAX_BYTES, relay.request_max + MESSAGE_MAX_BYTES))
        answering = asyncio.create_task(_answer(socket, session, relay, inbox))
        listening = asyncio.create_task(_listen(socket, inbox))
        try:
            await asyncio.wait([answering, listening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            listening.cancel()
            await asyncio.wait([answering, listening])
            inbox.close()
        for task in (answering, listening):
            if not task.cancelled():
                task.result()
        return None if listening.cancelled() else listening.result()
    finally:
        session.clients -= 1


async def _listen(socket: WebSocket, inbox: Inbox) -> int | None:
    """Receive messages of the UI until it disconnects, also while earlier messages are being answered.

    Returns:
        The close code of the UI; None if the server closed the connection.
    """
    while (message := await socket.receive())["type"] == "websocket.receive":
        data = message.get("bytes")
        if data is None:
            await socket.close(NO_TRY_AGAIN, "An RPC stream has no text messages.")
            return None
        await inbox.put(data)
    code: int | None = message.get("code")
    return code


async def _answer(socket: WebSocket, session: Session, relay: Relay, inbox: Inbox) -> None:
    try:
        await session.settled()
        while True:
            async with aclosing(relay.answers(await inbox.get())) as answers:
                async for answer in answers:
                    await socket.send_bytes(answer)
            inbox.done(unfinished=relay.unfinished_bytes)
    except WebSocketDisconnect:
        pass
    except BadFrame as error:
        await _close(socket, NO_TRY_AGAIN, str(error))
    except TracedockError as error:
        log.warning("a UI on trace %s lost its engine: %s", session.trace_id, error.detail)
        await _close(socket, TRY_AGAIN, error.detail)
    finally:
        session.forget(relay.client)


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    """Close a WebSocket, unless the UI has left meanwhile."""
    with suppress(WebSocketDisconnect):
        await socket.close(code, close_reason(reason))

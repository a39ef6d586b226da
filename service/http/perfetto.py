"""Our own copy of the Perfetto UI, and the WebSocket through which it reaches a trace's engine."""

import asyncio
import logging
from contextlib import aclosing
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response, WebSocket
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect

from service.engine import wire
from service.engine.relay import Relay, status
from service.engine.session import Session
from service.http.access import identity
from service.http.inbox import ByteBudget, Inbox
from service.http.services import Parts
from service.http.views import View, Viewed
from service.trace.errors import TracedockError

log = logging.getLogger(__name__)

OPENER = '<script src="/static/perfetto.js"></script>'
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; connect-src 'self' data: blob:; form-action 'none'; frame-ancestors 'self'"
)
"""What the UI's page may do: run its own code, and reach no host but this one."""

NO_TRY_AGAIN, TRY_AGAIN = 1008, 1013
"""Codes with which a WebSocket is closed."""


api = APIRouter(prefix="/traces", tags=["perfetto"])
pages = APIRouter(prefix="/perfetto", include_in_schema=False)


@api.get("/{trace_id}/perfetto", status_code=307, summary="Open the Perfetto UI on a trace")
def open_perfetto(view: Viewed, parts: Parts) -> Response:
    """Lead a browser to the UI on the trace, or on a selection of it; the page then has its engine started."""
    parts.ready_trace(view.trace_id)
    return RedirectResponse(f"/perfetto/{view}/#!/viewer")


@pages.get("/{view}/")
def ui_page(view: str, parts: Parts) -> Response:
    """The UI's page, with our script ahead of its own."""
    parts.catalog.get(View.parsed(view).trace_id)
    page = (parts.ui / "index.html").read_text("utf-8").replace("<script", f"{OPENER}\n  <script", 1)
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})


@pages.get("/{view}/{path:path}")
def ui_file(path: str, parts: Parts) -> Response:
    """A file of the UI. What is none is a plain 404: the UI probes for paths that only its developers have."""
    if path not in _served_files(parts.ui):
        raise HTTPException(404, f"The Perfetto UI has no file {path[:200]!r}.")
    return FileResponse(parts.ui / path, headers={"Cache-Control": "no-cache"})


@cache
def _served_files(ui: Path) -> frozenset[str]:
    """The UI's files, by their paths below its folder: what is not among them can't be asked for."""
    files = (file.relative_to(ui) for file in ui.rglob("*") if file.is_file())
    return frozenset(file.as_posix() for file in files if file.name != "service_worker.js")


@pages.post("/{view}/rpc/status")
async def rpc_status(view: str, request: Request, parts: Parts) -> Response:
    """The engine's status as the UI asks for it, answered by us at once; it gives up after 2 s."""
    session = parts.session(View.parsed(view), identity(request))
    return Response(status(session).SerializeToString(), media_type="application/x-protobuf")


@pages.websocket("/{view}/rpc/websocket")
async def rpc_websocket(socket: WebSocket, view: str, parts: Parts) -> None:
    """The UI's stream of requests and ours of answers."""
    try:
        session = parts.session(View.parsed(view), identity(socket))
    except TracedockError as error:
        await socket.accept()
        await socket.close(TRY_AGAIN, error.detail[:120])
        return
    await attach(socket, session, parts.unanswered)


async def attach(socket: WebSocket, session: Session, unanswered: ByteBudget) -> None:
    """Serve one UI on a session until it leaves, which also stops what the engine does for it.

    Args:
        socket: its connection.
        session: the session.
        unanswered: the bytes of messages that may wait for their turn, of all UIs together.
    """
    session.clients += 1
    try:
        await socket.accept()
        inbox = Inbox(unanswered)
        answering = asyncio.create_task(_answer(socket, session, inbox))
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
    finally:
        session.clients -= 1


async def _listen(socket: WebSocket, inbox: Inbox) -> None:
    """Take what the UI sends until it leaves, which is noticed also while it waits for an answer."""
    while (message := await socket.receive())["type"] == "websocket.receive":
        data = message.get("bytes")
        if data is None:
            await socket.close(NO_TRY_AGAIN, "A text message is no part of an RPC stream.")
            return
        await inbox.put(data)


async def _answer(socket: WebSocket, session: Session, inbox: Inbox) -> None:
    relay = Relay(session, identity(socket))
    try:
        await session.settled()
        while True:
            async with aclosing(relay.answers(await inbox.get())) as answers:
                async for answer in answers:
                    await socket.send_bytes(answer)
            inbox.done(unfinished=relay.unfinished_bytes)
    except WebSocketDisconnect:
        pass
    except wire.BadFrame as error:
        await socket.close(NO_TRY_AGAIN, str(error)[:120])
    except TracedockError as error:
        log.warning("a UI on trace %s lost its engine: %s", session.trace_id, error.detail)
        await socket.close(TRY_AGAIN, error.detail[:120])

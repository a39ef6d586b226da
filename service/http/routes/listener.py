"""The localhost listener: what trace_processor would serve on 127.0.0.1:9001, on a trace that is chosen here.

ui.perfetto.dev looks for an engine there and nowhere else, and so does ``perfetto.TraceProcessor(addr=…)``. The
paths and messages are those of trace_processor's own server (perfetto's src/trace_processor/rpc/httpd.cc).

A client stays with the trace that it began with, though another is chosen: a tab through its WebSocket, Perfetto's
Python client through its one connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse, StreamingResponse
from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection

from service.engine import wire
from service.engine.relay import FILE_PIECE_MAX, NO_OTHER_FILE, Relay, ask, status, told
from service.engine.session import Session
from service.http import problems, shapes
from service.http.authentication import identity
from service.http.bounded_body import SmallBody
from service.http.hosts import LOOPBACK, host_name
from service.http.middleware.access import remark
from service.http.routes.perfetto import NO_TRY_AGAIN, TRY_AGAIN, attach, close_reason
from service.http.routes.traces import as_json
from service.http.server.listening import HOST
from service.http.server.request_head import client_connection
from service.http.services import Parts, Services
from service.http.view_parameters import View
from service.store.catalog import Trace
from service.trace.errors import EngineFailed, NotReady, RequestRefused, TracedockError, UnknownTrace

ORIGINS = ("https://ui.perfetto.dev", "http://localhost:10000", "http://127.0.0.1:10000")
"""The pages that trace_processor's own server lets in."""

USUAL_PORT = 9001
"""The port on which ui.perfetto.dev looks for an engine."""

_PROTOBUF = "application/x-protobuf"
_CALLS = {
    "compute_metric": ("compute_metric_args", "metric_result", 5),
    "trace_summary": ("trace_summary_args", "trace_summary_result", 15),
}
_INTRODUCED_S = 1.0  # the UI gives the status 2 s
_CLOSED_BY_PAGE = 1005  # no code: a page that is left, or loaded again, closes with 1001
_NONE_CHOSEN = "No trace is chosen for this port: PUT /api/v1/listener, or `tracedock open TRACE --listener`."

api = APIRouter(prefix="/listener", tags=["perfetto"], route_class=SmallBody)


class Choice(BaseModel):
    """The trace to serve, or null for none."""

    model_config = ConfigDict(extra="forbid")

    trace: str | None


def _state(parts: Services) -> Response:
    state, port = parts.listener, parts.settings.perfetto_port
    return as_json({"enabled": state.port > 0, "host": HOST, "port": port, "trace": state.trace, "error": state.error})


@api.get("", summary="What the localhost listener serves", responses={200: {"model": shapes.Listener}})
def get_listener(parts: Parts) -> Response:
    """Whether it is on, or why it could not be, its port, and the chosen trace."""
    return _state(parts)


@api.put("", summary="Choose the trace that the localhost listener serves", responses={200: {"model": shapes.Listener}})
def choose_trace(choice: Choice, request: Request, parts: Parts) -> Response:
    """From now on, ui.perfetto.dev and Perfetto's Python client find this trace on the listener.

    Tabs and clients that were connected before stay with the trace that they began with.
    These can't send tokens: whoever is on this machine may ask the trace that is chosen.
    """
    remark(request, trace=choice.trace)
    parts.listener.trace = parts.ready_trace(choice.trace).id if choice.trace is not None else None
    return _state(parts)


# -- the listener's own app ----------------------------------------------------------------------------------------


def chosen_trace(parts: Parts) -> Trace:
    """The chosen trace; raises `NotReady` when none is chosen."""
    if parts.listener.trace is None:
        raise NotReady(_NONE_CHOSEN)
    return parts.catalog.get(parts.listener.trace)


async def asked_session(request: Request, parts: Parts) -> Session:
    """The session of the trace that this connection began with, once its engine has loaded it.

    Raises:
        EngineFailed: the trace was deleted.
        NotReady: no trace is chosen.
    """
    connection = client_connection(request)
    connection.stays_open = True  # Perfetto's client can't connect again
    connection.trace = connection.trace or chosen_trace(parts).id
    try:
        session = parts.session(View(connection.trace), identity(request))
    except UnknownTrace as error:
        raise EngineFailed(
            f"The trace {connection.trace}, with which this connection began, was deleted."
            " Connect again to ask the one that is chosen now."
        ) from error
    await session.settled()
    return session


Chosen = Annotated[Trace, Depends(chosen_trace)]

rpc = APIRouter(route_class=SmallBody)


def _packed(message: Any) -> Response:
    return Response(message.SerializeToString(), media_type=_PROTOBUF)


def _read(body: bytes, message: Any) -> None:
    try:
        message.MergeFromString(body)
    except DecodeError as error:
        raise HTTPException(400, f"The body is no {message.DESCRIPTOR.name}: {error}.") from error


def described(trace: Trace) -> str:
    """The trace's name and id, as readers recognise it."""
    return f"{trace.name} (Tracedock, trace {trace.id})"


@rpc.api_route("/", methods=["GET", "HEAD"])
def get_notice(parts: Parts) -> Response:
    """What this port is, in words."""
    return PlainTextResponse(_notice(parts))


def _notice(parts: Services) -> str:
    state = parts.listener
    served = "No trace is chosen."
    if state.trace is not None:
        trace = parts.catalog.get(state.trace)
        served = f"It serves {described(trace)}\n{state.server_url}/traces/{trace.id}"
    extra = "" if state.port == USUAL_PORT else f"#!/?rpc_port={state.port}"
    flag = "" if state.port == USUAL_PORT else (
        f'\n(The UI looks for port {USUAL_PORT}. For another, switch on its flag "Relax Content Security Policy for'
        ' 127.0.0.1:*" at https://ui.perfetto.dev/#!/flags once.)'
    )  # fmt: skip
    return f"""\
This is Tracedock's port for Perfetto's own tools: one trace at a time, for programs on this machine.

{served}

To look at it, open https://ui.perfetto.dev/{extra} in a browser on this machine,
and answer "YES, use loaded trace".{flag}
To ask it from Python: perfetto.trace_processor.TraceProcessor(addr="{HOST}:{state.port}")

To choose a trace:
- press "Serve" on its page; {state.server_url}/ lists all traces
- tracedock open TRACE --listener
- curl -X PUT {state.server_url}/api/v1/listener -H 'Content-Type: application/json' -d '{{"trace": "ID"}}'
"""


@rpc.get("/status")
@rpc.post("/status")
async def get_status(request: Request, trace: Chosen, parts: Parts) -> Response:
    """The engine's version, and the name under which the UI offers the trace.

    Without a trace, or for a UI that is about to open another file, the answer is an error: the UI then uses the
    engine that it has in the browser. The UI attaches while the trace is still loading, and waits.
    """
    now = asyncio.get_running_loop().time()
    if "origin" in request.headers and parts.listener.opens_other_file(now):
        raise RequestRefused(NO_OTHER_FILE)
    try:
        session = parts.session(View(trace.id))
        await session.introduced(_INTRODUCED_S)
    except TracedockError as error:
        return _packed(status(None, f"{described(trace)}\nIt can't be opened now: {error.detail}"))
    return _packed(status(session, described(trace)))


@rpc.post("/query")
async def query(request: Request, parts: Parts) -> Response:
    """Rows of a query: the concatenation of its batches, which protobuf reads as one ``QueryResult``.

    A client reads nothing else, whatever the status, so it is told there, too, why it can't have an answer.
    """
    question = wire.request(wire.QUERY_STREAMING)
    _read(await request.body(), question.query_args)
    try:
        session = await asked_session(request, parts)
    except TracedockError as error:
        return _packed(wire.QueryResult(error=error.detail, batch=[wire.CellsBatch(is_last_batch=True)]))

    async def batches() -> AsyncIterator[bytes]:
        async with aclosing(ask(session, question, client="listener", owner=identity(request))) as responses:
            async for message in responses:
                yield message.query_result.SerializeToString()

    return StreamingResponse(batches(), media_type=_PROTOBUF)


@rpc.post("/parse")
def parse() -> Response:
    """Refuse a trace; Perfetto's client reads why in the message."""
    message = wire.Rpc(append_result={"error": NO_OTHER_FILE}).append_result
    return Response(message.SerializeToString(), 403, media_type=_PROTOBUF)


@rpc.get("/notify_eof")
@rpc.post("/notify_eof")
@rpc.post("/reset_trace_processor")
def refuse_change() -> Response:
    """Refuse to change the shared trace."""
    raise RequestRefused(NO_OTHER_FILE)


@rpc.post("/restore_initial_tables")
def restore_tables() -> Response:
    """Do nothing: it would drop what the other clients have created."""
    return Response(media_type=_PROTOBUF)


@rpc.post("/{call}")
async def one_answer(call: str, request: Request, parts: Parts) -> Response:
    """The calls that have one answer, in which Perfetto's client reads also why it has no better one."""
    if call not in _CALLS:
        raise RequestRefused(f"The listener does not serve the call {call[:64]!r}.")
    arguments, result, method = _CALLS[call]
    question = wire.request(method)
    _read(await request.body(), getattr(question, arguments))
    try:
        session = await asked_session(request, parts)
        responses = [message async for message in ask(session, question, owner=identity(request))]
    except TracedockError as error:
        responses = [told(method, error)]
    return _packed(getattr(responses[-1], result))


@rpc.websocket("/websocket")
async def websocket(socket: WebSocket, parts: Parts) -> None:
    """The UI's stream."""
    if not allowed(socket):
        await socket.close(NO_TRY_AGAIN, "This page may not use the engine.")
        return
    try:
        trace = chosen_trace(parts)
        session = parts.session(View(trace.id), identity(socket))
    except TracedockError as error:
        await socket.accept()
        await socket.close(TRY_AGAIN, close_reason(error.detail))
        return
    relay = Relay(
        session,
        identity(socket),
        trace_name=described(trace),
        resumable=parts.listener.attach(session),
        request_max=FILE_PIECE_MAX,
    )
    if await attach(socket, session, relay, parts.unanswered) == _CLOSED_BY_PAGE:
        parts.listener.let_go(asyncio.get_running_loop().time())


def allowed(connection: HTTPConnection) -> bool:
    """Whether the request names this host and comes from no foreign page; scripts send no ``Origin``."""
    host = host_name(connection.headers.get("host", ""))
    return host in LOOPBACK and connection.headers.get("origin", ORIGINS[0]) in ORIGINS


async def _guard(connection: HTTPConnection) -> None:
    if connection.scope["type"] == "http" and not allowed(connection):
        raise RequestRefused("The listener serves pages of ui.perfetto.dev and programs on this machine.")


def listener_app(services: Services) -> FastAPI:
    """The listener as an app of its own."""
    app = FastAPI(openapi_url=None, dependencies=[Depends(_guard)])
    app.state.services = services
    problems.install(app)
    app.include_router(rpc)
    app.add_middleware(
        CORSMiddleware, allow_origins=ORIGINS, allow_methods=["*"], allow_headers=["*"],
        allow_private_network=True,
    )  # fmt: skip
    return app

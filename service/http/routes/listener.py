"""The localhost listener: serves a chosen trace on 127.0.0.1:9001 as trace_processor itself would.

ui.perfetto.dev connects to that port only, and ``perfetto.TraceProcessor(addr=…)`` uses the same protocol. The
paths and messages are those of trace_processor's own server (perfetto's src/trace_processor/rpc/httpd.cc).

A client keeps its first trace even if another trace is chosen later: a browser tab while its WebSocket is open, and
Perfetto's Python client while its connection is open.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse, StreamingResponse
from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection

from service.engine.relay import FILE_PIECE_MAX, Relay, ask
from service.engine.session import Session
from service.engine.trace_processor import wire
from service.engine.trace_processor.rpc import NO_OTHER_FILE, PerfettoRequest, error_response, status
from service.http import problems, shapes
from service.http.authentication import identity
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import declares
from service.http.hosts import LOOPBACK, host_name
from service.http.middleware.access import remark
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.perfetto import NO_TRY_AGAIN, TRY_AGAIN, attach, close_reason
from service.http.server.listening import HOST
from service.http.server.request_head import client_connection
from service.http.services import Services, ServicesDep
from service.operations.views import View
from service.store.catalog import Trace
from service.trace.errors import EngineFailed, NotReady, RequestRefused, TracedockError, UnknownTrace

ORIGINS = ("https://ui.perfetto.dev", "http://localhost:10000", "http://127.0.0.1:10000")
"""The pages that trace_processor's own server allows."""

USUAL_PORT = 9001
"""The port to which ui.perfetto.dev connects."""

_PROTOBUF = "application/x-protobuf"
_CALLS = {
    "compute_metric": ("compute_metric_args", "metric_result", 5),
    "trace_summary": ("trace_summary_args", "trace_summary_result", 15),
}
"""The calls with a single result: the protocol's fields for the arguments and the result, and the method's number."""
_INTRODUCED_S = 1.0  # maximum wait for the engine's version; the UI waits 2 s for the status
_CLOSED_BY_PAGE = 1005  # a close frame without a code: the page stays open; a closed or reloaded page sends 1001
_NONE_CHOSEN = "No trace is chosen for this port: PUT /api/v1/listener, or `tracedock open TRACE --listener`."

api = ApiRouter(prefix="/listener", tags=["perfetto"], route_class=SmallBodyRoute)


class ListenerChoice(BaseModel):
    """The trace to serve."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"trace": "14d77f0f19d4"}, {"trace": None}]}
    )

    trace: str | None = Field(description="the id of the trace; null for none")


def _state(services: Services) -> Response:
    state, port = services.listener, services.settings.perfetto_port
    return json_response(
        shapes.Listener(enabled=state.port > 0, host=HOST, port=port, trace=state.trace, error=state.error)
    )


@api.get("", summary="State of the localhost listener", responses={200: {"model": shapes.Listener}})
def get_listener(services: ServicesDep) -> Response:
    """Return whether the listener is enabled, its port, the chosen trace, and the error if the port is unavailable."""
    return _state(services)


@api.put("", summary="Choose the trace that the localhost listener serves", responses={200: {"model": shapes.Listener}})
@declares(audit="listen")
def set_listener(choice: ListenerChoice, request: Request, services: ServicesDep) -> Response:
    """Serve this trace to ui.perfetto.dev and Perfetto's Python client from now on.

    Tabs and clients that are connected already keep their trace. They can't send tokens, so any program on this machine
    may query the chosen trace.
    """
    remark(request, trace=choice.trace)
    services.listener.trace = services.trace_operations.ready(choice.trace).id if choice.trace is not None else None
    return _state(services)


# -- the listener's own app ----------------------------------------------------------------------------------------


def chosen_trace(services: ServicesDep) -> Trace:
    """Return the chosen trace; raises `NotReady` if none is chosen."""
    if services.listener.trace is None:
        raise NotReady(_NONE_CHOSEN)
    return services.catalog.get(services.listener.trace)


async def session_of_connection(request: Request, services: ServicesDep) -> Session:
    """Return the session of this connection's trace, once its engine has loaded the trace.

    The connection keeps the trace that was chosen at its first call.

    Raises:
        EngineFailed: the trace was deleted.
        NotReady: the connection has no trace yet, and no trace is chosen.
    """
    connection = client_connection(request)
    connection.stays_open = True  # Perfetto's client can't connect again
    connection.trace = connection.trace or chosen_trace(services).id
    try:
        session = services.session_operations.open(View(connection.trace), identity(request))
    except UnknownTrace as error:
        raise EngineFailed(
            f"The trace {connection.trace}, with which this connection began, was deleted."
            " Connect again to query the one that is chosen now."
        ) from error
    await session.settled()
    return session


Chosen = Annotated[Trace, Depends(chosen_trace)]

rpc = APIRouter(route_class=SmallBodyRoute)


def _packed(message: Any) -> Response:
    return Response(message.SerializeToString(), media_type=_PROTOBUF)


def _read(body: bytes, message: Any) -> None:
    try:
        message.MergeFromString(body)
    except DecodeError as error:
        raise HTTPException(400, f"The body is not a valid {message.DESCRIPTOR.name}: {error}.") from error


def described(trace: Trace) -> str:
    """Return the trace's name and id as users see them in Perfetto's tools."""
    return f"{trace.name} (Tracedock, trace {trace.id})"


@rpc.api_route("/", methods=["GET", "HEAD"])
def get_notice(services: ServicesDep) -> Response:
    """Return a text that explains this port to users."""
    return PlainTextResponse(_notice(services))


def _notice(services: Services) -> str:
    state = services.listener
    served = "No trace is chosen."
    if state.trace is not None:
        trace = services.catalog.get(state.trace)
        served = f"It serves {described(trace)}\n{state.server_url}/traces/{trace.id}"
    extra = "" if state.port == USUAL_PORT else f"#!/?rpc_port={state.port}"
    flag = "" if state.port == USUAL_PORT else (
        f'\n(The UI connects to port {USUAL_PORT}. For another, switch on its flag "Relax Content Security Policy for'
        ' 127.0.0.1:*" at https://ui.perfetto.dev/#!/flags once.)'
    )  # fmt: skip
    return f"""\
This is Tracedock's port for Perfetto's own tools: one trace at a time, for programs on this machine.

{served}

To view it, open https://ui.perfetto.dev/{extra} in a browser on this machine,
and answer "YES, use loaded trace".{flag}
To query it from Python: perfetto.trace_processor.TraceProcessor(addr="{HOST}:{state.port}")

To choose a trace:
- press "Serve" on its page; {state.server_url}/ lists all traces
- tracedock open TRACE --listener
- curl -X PUT {state.server_url}/api/v1/listener -H 'Content-Type: application/json' -d '{{"trace": "ID"}}'
"""


@rpc.get("/status")
@rpc.post("/status")
async def get_status(request: Request, trace: Chosen, services: ServicesDep) -> Response:
    """Return the engine's version, and the name under which the UI offers the trace.

    If no trace is chosen, or the UI is about to open another file, the response is an error. The UI then uses its own
    engine in the browser. The response does not wait until the trace is loaded: the UI attaches before, and waits.
    """
    now = asyncio.get_running_loop().time()
    if "origin" in request.headers and services.listener.opens_other_file(now):
        raise RequestRefused(NO_OTHER_FILE)
    try:
        session = services.session_operations.open(View(trace.id))
        await session.version_known(_INTRODUCED_S)
    except TracedockError as error:
        return _packed(status(None, f"{described(trace)}\nIt can't be opened now: {error.detail}"))
    return _packed(status(session.version, described(trace)))


@rpc.post("/query")
async def query(request: Request, services: ServicesDep) -> Response:
    """Stream the rows of a query in batches. Protobuf parses the concatenated batches as one ``QueryResult``.

    Clients ignore the status of the response, so errors are also returned in a ``QueryResult``.
    """
    question = wire.request(wire.QUERY_STREAMING)
    _read(await request.body(), question.query_args)
    try:
        session = await session_of_connection(request, services)
    except TracedockError as error:
        return _packed(wire.QueryResult(error=error.detail, batch=[wire.CellsBatch(is_last_batch=True)]))

    async def batches() -> AsyncIterator[bytes]:
        answer = ask(session, PerfettoRequest(question), client="listener", owner=identity(request))
        async with aclosing(answer) as responses:
            async for response in responses:
                yield wire.Rpc.FromString(response).query_result.SerializeToString()

    return StreamingResponse(batches(), media_type=_PROTOBUF)


@rpc.post("/parse")
def parse() -> Response:
    """Refuse to load another trace; Perfetto's client reads the reason in the message."""
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
    """Do nothing: the call would drop the tables of other clients."""
    return Response(media_type=_PROTOBUF)


@rpc.post("/{call}")
async def single_result(call: str, request: Request, services: ServicesDep) -> Response:
    """Serve the calls with a single result. Errors are in the result, too, where Perfetto's client reads them."""
    if call not in _CALLS:
        raise RequestRefused(f"The listener does not serve the call {call[:64]!r}.")
    arguments, result, method = _CALLS[call]
    question = wire.request(method)
    _read(await request.body(), getattr(question, arguments))
    try:
        session = await session_of_connection(request, services)
        answer = ask(session, PerfettoRequest(question), owner=identity(request))
        response = wire.Rpc.FromString([response async for response in answer][-1])
    except TracedockError as error:
        response = error_response(method, error)
    return _packed(getattr(response, result))


@rpc.websocket("/websocket")
async def websocket(socket: WebSocket, services: ServicesDep) -> None:
    """Serve the UI's stream of requests."""
    if not allowed(socket):
        await socket.close(NO_TRY_AGAIN, "This page may not use the engine.")
        return
    try:
        trace = chosen_trace(services)
        session = services.session_operations.open(View(trace.id), identity(socket))
    except TracedockError as error:
        await socket.accept()
        await socket.close(TRY_AGAIN, close_reason(error.detail))
        return
    relay = Relay(
        session,
        identity(socket),
        trace_name=described(trace),
        resumable=services.listener.attach(session),
        request_max=FILE_PIECE_MAX,
    )
    if await attach(socket, session, relay, services.unanswered) == _CLOSED_BY_PAGE:
        services.listener.detach(asyncio.get_running_loop().time())


def allowed(connection: HTTPConnection) -> bool:
    """Return whether a request is for this host, and from an allowed page or a program; programs send no ``Origin``."""
    host = host_name(connection.headers.get("host", ""))
    return host in LOOPBACK and connection.headers.get("origin", ORIGINS[0]) in ORIGINS


async def _guard(connection: HTTPConnection) -> None:
    if connection.scope["type"] == "http" and not allowed(connection):
        raise RequestRefused("The listener serves pages of ui.perfetto.dev and programs on this machine.")


def listener_app(services: Services) -> FastAPI:
    """Build the listener's own app."""
    app = FastAPI(openapi_url=None, dependencies=[Depends(_guard)])
    app.state.services = services
    problems.install(app)
    app.include_router(rpc)
    app.add_middleware(
        CORSMiddleware, allow_origins=ORIGINS, allow_methods=["*"], allow_headers=["*"],
        allow_private_network=True,
    )  # fmt: skip
    return app

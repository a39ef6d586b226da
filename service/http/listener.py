"""The localhost listener: what trace_processor would serve on 127.0.0.1:9001, on a trace that is chosen here.

ui.perfetto.dev looks for an engine there and nowhere else, and so does ``perfetto.TraceProcessor(addr=…)``. The
paths and messages are those of trace_processor's own server (perfetto's src/trace_processor/rpc/httpd.cc).
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response, WebSocket
from fastapi.responses import StreamingResponse
from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection

from service.engine import wire
from service.engine.relay import ask, status
from service.engine.session import Session
from service.http import errors, shapes
from service.http.access import identity
from service.http.bodies import SmallBody
from service.http.doors import remark
from service.http.hosts import LOOPBACK, host_name
from service.http.perfetto import NO_TRY_AGAIN, TRY_AGAIN, attach
from service.http.services import Parts, Services
from service.http.traces import as_json
from service.http.views import View
from service.trace.errors import NotReady, RequestRefused, TracedockError

HOST = "127.0.0.1"
ORIGINS = ("https://ui.perfetto.dev", "http://localhost:10000", "http://127.0.0.1:10000")
"""The pages that trace_processor's own server lets in."""

_PROTOBUF = "application/x-protobuf"
_CALLS = {
    "compute_metric": ("compute_metric_args", "metric_result", 5),
    "trace_summary": ("trace_summary_args", "trace_summary_result", 15),
}

api = APIRouter(prefix="/listener", tags=["perfetto"], route_class=SmallBody)


class Choice(BaseModel):
    """The trace to serve, or null for none."""

    model_config = ConfigDict(extra="forbid")

    trace: str | None


def _state(parts: Services) -> Response:
    port = parts.settings.perfetto_port
    return as_json({"enabled": port > 0, "host": HOST, "port": port, "trace": parts.listening_on})


@api.get("", summary="What the localhost listener serves", responses={200: {"model": shapes.Listener}})
def get_listener(parts: Parts) -> Response:
    """Whether it is on, its port, and the chosen trace."""
    return _state(parts)


@api.put("", summary="Choose the trace that the localhost listener serves", responses={200: {"model": shapes.Listener}})
def choose_trace(choice: Choice, request: Request, parts: Parts) -> Response:
    """From now on, ui.perfetto.dev and Perfetto's Python client find this trace on the listener.

    These can't send tokens: whoever is on this machine may ask the trace that is chosen.
    """
    remark(request, trace=choice.trace)
    parts.listening_on = parts.ready_trace(choice.trace).id if choice.trace is not None else None
    return _state(parts)


# -- the listener's own app ----------------------------------------------------------------------------------------


async def chosen_session(parts: Parts, connection: HTTPConnection) -> Session:
    """The session of the chosen trace; raises `NotReady` when none is chosen."""
    if parts.listening_on is None:
        raise NotReady("No trace is chosen for this port: PUT /api/v1/listener, or `tracedock open --listener`.")
    return parts.session(View(parts.listening_on), identity(connection))


async def loaded_session(session: Annotated[Session, Depends(chosen_session)]) -> Session:
    """The session of the chosen trace, once its engine has loaded it."""
    await session.settled()
    return session


Chosen = Annotated[Session, Depends(chosen_session)]
Loaded = Annotated[Session, Depends(loaded_session)]

rpc = APIRouter(route_class=SmallBody)


def _packed(message: Any) -> Response:
    return Response(message.SerializeToString(), media_type=_PROTOBUF)


def _read(body: bytes, message: Any) -> None:
    try:
        message.MergeFromString(body)
    except DecodeError as error:
        raise HTTPException(400, f"The body is no {message.DESCRIPTOR.name}: {error}.") from error


@rpc.get("/status")
@rpc.post("/status")
async def get_status(session: Chosen) -> Response:
    """The engine's version."""
    return _packed(status(session))


@rpc.post("/query")
async def query(request: Request, parts: Parts) -> Response:
    """Rows of a query: the concatenation of its batches, which protobuf reads as one ``QueryResult``.

    A client reads nothing else, whatever the status, so it is told there, too, why it can't have an answer.
    """
    question = wire.request(wire.QUERY_STREAMING)
    _read(await request.body(), question.query_args)
    try:
        session = await loaded_session(await chosen_session(parts, request))
    except TracedockError as error:
        return _packed(wire.QueryResult(error=error.detail, batch=[wire.CellsBatch(is_last_batch=True)]))

    async def batches() -> AsyncIterator[bytes]:
        async with aclosing(ask(session, question, owner=identity(request))) as responses:
            async for message in responses:
                yield message.query_result.SerializeToString()

    return StreamingResponse(batches(), media_type=_PROTOBUF)


@rpc.post("/{call}")
async def one_answer(call: str, request: Request, session: Loaded) -> Response:
    """The calls that have one answer; those that would change the shared trace are refused."""
    if call in ("parse", "notify_eof", "reset_trace_processor"):
        raise RequestRefused("All clients share this trace: none can load another into its engine.")
    if call == "restore_initial_tables":  # it would drop what the other clients have created
        return Response(media_type=_PROTOBUF)
    if call not in _CALLS:
        raise RequestRefused(f"The listener does not serve the call {call[:64]!r}.")
    arguments, answer, method = _CALLS[call]
    question = wire.request(method)
    _read(await request.body(), getattr(question, arguments))
    return _packed([getattr(message, answer) async for message in ask(session, question, owner=identity(request))][-1])


@rpc.websocket("/websocket")
async def websocket(socket: WebSocket, parts: Parts) -> None:
    """The UI's stream."""
    if not allowed(socket):
        await socket.close(NO_TRY_AGAIN, "This page may not use the engine.")
        return
    try:
        session = await chosen_session(parts, socket)
    except TracedockError as error:
        await socket.accept()
        await socket.close(TRY_AGAIN, error.detail[:120])
        return
    await attach(socket, session, parts.unanswered)


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
    errors.install(app)
    app.include_router(rpc)
    app.add_middleware(
        CORSMiddleware, allow_origins=ORIGINS, allow_methods=["*"], allow_headers=["*"],
        allow_private_network=True,
    )  # fmt: skip
    return app

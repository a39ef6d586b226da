"""``POST /traces/{id}/query``: SQL on a trace."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from service.engine.result import Result
from service.http import shapes, tables
from service.http.authentication import identity
from service.http.bounded_body import SmallBody
from service.http.routes.sessions import WaitForEngine, loading
from service.http.services import Parts
from service.http.view_parameters import View
from service.trace.errors import TracedockError
from service.trace.selection import Args, Selection

SQL_MAX = 4 << 20

log = logging.getLogger(__name__)

router = APIRouter(prefix="/traces", tags=["query"], route_class=SmallBody)


class QueryRequest(BaseModel):
    """A question in PerfettoSQL."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(
        min_length=1,
        max_length=SQL_MAX,
        pattern=r"^[^\x00]+$",  # the engine would read no further
        description="statements; the last one's rows are the answer",
    )
    limit: int | None = Field(
        -1, ge=-1, strict=True, description="rows to answer with; null: all; -1 or absent: the server's limit"
    )
    selection: Selection | None = Field(None, description="ask only this part of the trace, on an engine of its own")
    args: Args = Field("all", description="which arguments of events the engine has; fewer load sooner")
    timeout_s: float | None = Field(None, gt=0, le=86400, allow_inf_nan=False, description="deadline; null: server's")


@asynccontextmanager
async def closed_when_left(request: Request, result: Result) -> AsyncIterator[None]:
    """Close the result, and so stop its query, if the client leaves within the block."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        result.abandon()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


class TableResponse(StreamingResponse):
    """A result in one of its forms; however the response ends, the result is closed, and so its query stopped."""

    def __init__(self, result: Result, form: str) -> None:
        self._result = result
        self._pieces = tables.ENCODERS[form](result)
        super().__init__(self._pieces, media_type=form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        try:
            async with aclosing(self._pieces):
                await super().__call__(scope, receive, send)
        except TracedockError as error:  # with the last chunk missing, the server cuts the connection
            log.warning("the answer to a query was cut off: %s", error.detail)
        finally:
            self._result.close()


@router.post(
    "/{trace_id}/query", summary="Ask SQL", responses={200: {"model": shapes.Table}, 202: {"model": shapes.Session}}
)
async def query_trace(
    trace_id: str,
    question: QueryRequest,
    request: Request,
    parts: Parts,
    wait: WaitForEngine = 30,
) -> Response:
    """Run SQL on the engine of the trace, or of a selection of it, which is started if it is not running.

    Answers 200 with a table in the form that ``Accept`` names (`application/json`, `application/x-ndjson`,
    `text/csv`, `application/vnd.apache.arrow.stream`), or 202 with the session if the engine is still loading
    after ``wait`` seconds. A client that leaves stops its query.
    """
    client = identity(request)
    session = parts.session(View(trace_id, question.selection, question.args), client)
    if not await session.settled(wait):
        return loading(session)
    settings = parts.settings
    result = session.query(
        question.sql,
        limit=settings.query_limit if question.limit == -1 else question.limit,
        timeout_s=question.timeout_s or settings.query_timeout_s,
        client=client,
        owner=client,
    )
    form = tables.accepted(request.headers.get("accept", ""))
    try:
        async with closed_when_left(request, result):
            await (result.complete() if form in tables.TYPES_FIRST else result.first())
    except BaseException:
        result.close()
        raise
    return TableResponse(result, form)

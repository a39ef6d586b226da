"""``POST /traces/{id}/query``: run SQL on a trace."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from service.engine.result import Result
from service.http import shapes, tables
from service.http.authentication import identity
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import declares
from service.http.disconnects import disconnected
from service.http.openapi import fragments
from service.http.resource_parameters import TraceId
from service.http.routers import ApiRouter
from service.http.routes.sessions import LOADING, WaitForEngine, loading
from service.http.services import ServicesDep
from service.http.view_parameters import SOURCE
from service.operations.views import View
from service.trace.errors import TracedockError
from service.trace.selection import Selection
from service.trace.selection_fields import Args, ViewSource

SQL_MAX = 4 << 20
"""Maximum characters of the SQL of a query."""

log = logging.getLogger(__name__)

router = ApiRouter(prefix="/traces", tags=["query"], route_class=SmallBodyRoute)


class QueryRequest(BaseModel):
    """A query in PerfettoSQL."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"sql": "SELECT name, dur FROM slice ORDER BY dur DESC", "limit": 10},
                {"sql": "SELECT count(*) AS n FROM slice", "selection": {"names": ["aten::*"]}, "args": "none"},
            ]
        },
    )

    sql: str = Field(
        min_length=1,
        max_length=SQL_MAX,
        pattern=r"^[^\x00]+$",  # the engine would ignore all text after a NUL
        description="statements; the result has the rows of the last one",
    )
    limit: int | None = Field(
        -1, ge=-1, strict=True, description="rows of the result; null: all; -1 or absent: the server's limit"
    )
    selection: Selection | None = Field(None, description="only this part of the trace, on an engine of its own")
    args: Args = Field("all", description="which arguments of events the engine has; fewer load faster")
    source: ViewSource | None = Field(None, description=SOURCE)
    timeout_s: float | None = Field(
        None, gt=0, le=86400, allow_inf_nan=False, description="seconds after which it is stopped; null: the server's"
    )


@asynccontextmanager
async def closed_on_disconnect(request: Request, result: Result) -> AsyncIterator[None]:
    """Stop the query of a result if the client disconnects within the ``async with`` block."""

    async def watch() -> None:
        await disconnected(request)
        result.abandon()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


class TableResponse(StreamingResponse):
    """A response that streams a result in one of the `ENCODERS` formats.

    However the response ends, the result is then closed, which stops its query.
    """

    def __init__(self, result: Result, form: str) -> None:
        self._result = result
        self._pieces = tables.ENCODERS[form](result)
        super().__init__(self._pieces, media_type=form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        try:
            async with aclosing(self._pieces):
                await super().__call__(scope, receive, send)
        except TracedockError as error:  # the last chunk is missing, so the server closes the connection
            log.warning("the response to a query was cut off: %s", error.detail)
        finally:
            self._result.close()


@router.post(
    "/{trace_id}/query",
    summary="Run SQL",
    responses={
        200: {
            "description": "The rows, in the format that `Accept` names",
            "model": shapes.QueryResult,
            "content": fragments.content(
                {
                    tables.NDJSON: fragments.NDJSON_ROWS,
                    tables.CSV: fragments.CSV_ROWS,
                    tables.ARROW: fragments.ARROW_STREAM,
                }
            ),
        },
        202: LOADING,
    },
)
@declares("read")
async def run_query(
    trace_id: TraceId,
    query: QueryRequest,
    request: Request,
    services: ServicesDep,
    wait: WaitForEngine = 30,
) -> Response:
    """Run SQL on the engine of the trace, of a selection or of its original, which is started if it is not running.

    Returns 200 with a table in the format that ``Accept`` names (`application/json`, `application/x-ndjson`,
    `text/csv`, `application/vnd.apache.arrow.stream`), or 202 with the session if the engine is still loading
    after ``wait`` seconds. A query stops when its client disconnects.
    """
    client = identity(request)
    session = services.session_operations.open(View(trace_id, query.selection, query.args, query.source), client)
    if not await session.settled(wait):
        return loading(session)
    settings = services.settings
    result = session.query(
        query.sql,
        limit=settings.query_limit if query.limit == -1 else query.limit,
        timeout_s=query.timeout_s or settings.query_timeout_s,
        client=client,
        owner=client,
    )
    form = tables.accepted(request.headers.get("accept", ""))
    try:
        async with closed_on_disconnect(request, result):
            await (result.complete() if form in tables.TYPES_FIRST else result.first())
    except BaseException:
        result.close()
        raise
    return TableResponse(result, form)

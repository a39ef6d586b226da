"""``/traces``: upload, list, describe, change and delete traces."""

import asyncio
from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.bounded_body import SmallBodyRoute
from service.http.cursors import cursor_of, read_cursor
from service.http.declarations import declares
from service.http.digests import digests_of
from service.http.file_body import receive_file
from service.http.openapi import fragments
from service.http.presenters import trace_in_brief, trace_object
from service.http.resource_parameters import Cursor, Limit, TraceId
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.services import Services, ServicesDep
from service.store.catalog import State, Trace, new_trace_id
from service.store.groups import group_name
from service.store.jobs import Priority
from service.store.uploads import Upload, plain_name

WAIT_MAX_S = 3600.0

Wait = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, allow_inf_nan=False, description="seconds to wait until it is ready or failed")
]

Urgency = Annotated[shapes.JobPriority, Query(description="`bulk` waits in the queue behind all `interactive` jobs")]

router = ApiRouter(prefix="/traces", tags=["traces"])
# Changes have their own router: the bodies of uploads, on the other one, are not bounded.
changes = ApiRouter(prefix="/traces", tags=["traces"], route_class=SmallBodyRoute)


async def _settled(services: Services, trace: Trace, wait_s: float) -> Trace:
    if not wait_s or trace.state.settled:
        return trace
    return await services.ingests.settled(trace.id, within_s=wait_s)


@router.put(
    "/{filename:path}",
    status_code=201,
    summary="Upload a trace: the body is the file",
    responses={201: {"description": "The trace", "model": shapes.Trace, "headers": fragments.LOCATION}},
    openapi_extra={
        "parameters": fragments.DIGESTS,
        "requestBody": fragments.body(
            "the file: a trace as JSON or Perfetto's protobuf, an SQLite export of Nsight Systems or a CUDA memory"
            " snapshot; plain, or with gzip or zstd; any content type is accepted",
            "application/octet-stream",
        ),
    },
)
@declares(audit="upload", idempotent=True, receives_trace=True)
async def upload_trace(
    filename: Annotated[str, Path(description="the name of the file, like `rank0.pt.trace.json.gz`")],
    request: Request,
    services: ServicesDep,
    wait: Wait = 0,
    group: Annotated[
        str | None, Query(max_length=255, description="the name of its group, which is created if there is none")
    ] = None,
    priority: Urgency = "interactive",
) -> Response:
    """Stream the body to disk and ingest it, while it arrives or later from the queue.

    Returns 201 with the trace and its ``Location`` once the bytes are safe on disk. ``Repr-Digest`` and
    ``Content-Digest`` are verified if they are sent.
    """
    name, group = plain_name(filename), group_name(group) if group else None
    promised = digests_of(request.headers)
    trace_id = new_trace_id()
    with Upload(services.folder, trace_id, limit=services.settings.max_upload_bytes, digests=promised) as upload:
        async with services.ingests.following(trace_id, name) as following:
            await receive_file(request, upload, services.room, on_block=following.grew)
            received = await asyncio.to_thread(upload.keep)
            trace = await services.intake.keep(
                trace_id, name=name, received=received, group=group, priority=Priority[priority.upper()]
            )
    trace = await _settled(services, trace, wait)
    content = trace_object(trace, services.ingests.progress(trace.id))
    return json_response(content, 201, Location=f"/api/v1/traces/{trace.id}")


@router.get("", summary="List traces, newest first", responses={200: {"model": shapes.Traces}})
def list_traces(
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: Annotated[State | None, Query(description="only those in this state")] = None,
    name: Annotated[str, Query(description="part of the name, in any case")] = "",
    parent: Annotated[str | None, Query(description="the trace that they were cut out of")] = None,
    group: Annotated[str | None, Query(description="the id or the name of the group that they belong to")] = None,
) -> Response:
    """Return a page of traces without their longer lists; ``next`` is the cursor of the following page, or null."""
    rows = services.catalog.page(
        limit=limit + 1, after=read_cursor(cursor), state=state, name=name, parent=parent, brief=True,
        group=None if group is None else services.groups.find(group).id,
    )  # fmt: skip
    page = rows[:limit]
    following = cursor_of(page[-1].created_ns, page[-1].id) if len(rows) > limit else None
    traces = [trace_in_brief(trace, services.ingests.progress(trace.id)) for trace in page]
    return json_response({"traces": traces, "next": following})


@router.get("/{trace_id}", summary="Describe a trace", responses={200: {"model": shapes.Trace}})
async def get_trace(trace_id: TraceId, services: ServicesDep, wait: Wait = 0) -> Response:
    """Return a trace with its summary; with ``wait``, once it is ready or failed, or after that many seconds."""
    trace = await _settled(services, services.catalog.get(trace_id), wait)
    return json_response(trace_object(trace, services.ingests.progress(trace.id)))


class TraceChange(BaseModel):
    """Fields of a trace to change."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"pinned": True}, {"group": "llama/70B"}, {"group": None}]}
    )

    pinned: bool | None = Field(None, description="whether retention keeps it, however old it is")
    group: Annotated[str, Field(max_length=255)] | None = Field(
        None, description="the name of its new group, which is created if there is none; null removes it from its group"
    )


@changes.patch("/{trace_id}", summary="Pin a trace, or move it to a group", responses={200: {"model": shapes.Trace}})
@declares(audit="change")
def change_trace(trace_id: TraceId, change: TraceChange, services: ServicesDep) -> Response:
    """Change the given fields of a trace."""
    name = group_name(change.group) if change.group else ""
    new_group = name if "group" in change.model_fields_set else None
    trace = services.catalog.update(trace_id, pinned=change.pinned, group=new_group)
    return json_response(trace_object(trace, services.ingests.progress(trace.id)))


@router.delete("/{trace_id}", status_code=204, summary="Delete a trace and all that was derived from it")
@declares(audit="delete")
async def delete_trace(trace_id: TraceId, services: ServicesDep) -> Response:
    """Stop all work on the trace, and remove it from the catalog and the disk."""
    await services.trace_operations.remove(trace_id)
    return Response(status_code=204)

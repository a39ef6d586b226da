"""``/traces``: upload, list, describe, delete."""

import asyncio
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.body_stream import BLOCK, announced_size, receiving
from service.http.cursors import at_of, cursor_of, read_cursor
from service.http.digests import promised_digests
from service.http.services import Parts, Services
from service.jobs.runner import Following
from service.store.catalog import State, Trace, new_trace_id
from service.store.groups import group_name
from service.store.jobs import Priority
from service.store.room import Room
from service.store.uploads import Upload, plain_name
from service.streaming.source import Progress
from service.trace.summary import Summary

WAIT_MAX_S = 3600.0
_LONG_LISTS = ("processes", "threads", "counts", "steps", "ranks", "totals")
_NOTHING_YET = {name: getattr(Summary(format=""), name) for name in Summary.__dataclass_fields__} | {"format": None}

Wait = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, allow_inf_nan=False, description="seconds to wait until it is ready or failed")
]

Urgency = Annotated[
    Literal["interactive", "bulk"],
    Query(description="`bulk` waits for its turn behind what others have asked for, as long as there is any"),
]

router = APIRouter(prefix="/traces", tags=["traces"])


def described(trace: Trace, progress: Progress | None) -> dict[str, Any]:
    """A trace as the API shows it."""
    summary = trace.summary or _NOTHING_YET
    now = progress or Progress()
    if trace.state.settled:
        now = Progress(trace.size, summary["events"].get("in", 0))
    return {
        "id": trace.id,
        "name": trace.name,
        "state": trace.state,
        "error": trace.error,
        "created_at": at_of(trace.created_ns),
        "size": trace.size,
        "sha256": trace.sha256 or None,
        **_NOTHING_YET | summary,
        "steps_count": _steps_count(summary),
        "events": summary["events"] or {"in": 0, "kept": 0, "refused": 0},
        "group": {"id": trace.group_id, "name": trace.group_name} if trace.group_id else None,
        "pinned": trace.pinned,
        "path": trace.path,
        "parent": trace.parent,
        "selection": trace.selection,
        "job": None if trace.job is None else str(trace.job),
        "progress": {"bytes": now.bytes, "bytes_total": trace.size, "events": now.events},
    }


def _steps_count(summary: dict[str, Any]) -> int:
    """How many steps a trace has, of which its summary may list some or none."""
    listed: int = summary["steps_count"] if "steps_count" in summary else len(summary["steps"])
    total: int = summary.get("totals", {}).get("steps", listed)
    return total


def in_brief(trace: Trace, progress: Progress | None) -> dict[str, Any]:
    """A trace as lists show it: without what can be long."""
    whole = described(trace, progress)
    return {key: value for key, value in whole.items() if key not in _LONG_LISTS}


def as_json(value: Any, status: int = 200, **headers: str) -> Response:
    """A JSON response."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


async def _receive(request: Request, upload: Upload, following: Following, room: Room) -> None:
    """Write the body as it comes, in blocks, each in a thread: hashing and the disk must not hold the loop.

    Who follows hears of each whole block; a body of less than one is read at once when it is kept.
    """

    def write(block: memoryview) -> None:
        room.check(len(block))
        upload.write(block)
        room.grew(len(block))

    async def take(block: memoryview) -> None:
        await asyncio.to_thread(write, block)
        if len(block) >= BLOCK:
            following.grew(upload.size)

    async with receiving(request) as body:
        if size := announced_size(request):
            upload.check_size(size)
            await asyncio.to_thread(room.check, size)
        await body.each(take)


async def _settled(parts: Services, trace: Trace, wait: float) -> Trace:
    return await parts.runner.settled(trace.id, within_s=wait) if wait and not trace.state.settled else trace


@router.put(
    "/{filename:path}",
    status_code=201,
    summary="Upload a trace: the body is the file",
    responses={201: {"model": shapes.Trace}},
)
async def upload_trace(
    filename: str,
    request: Request,
    parts: Parts,
    wait: Wait = 0,
    group: Annotated[
        str | None, Query(max_length=255, description="the name of its group, which is made if there is none")
    ] = None,
    priority: Urgency = "interactive",
) -> Response:
    """Stream the body to disk and ingest it, as it comes or in its turn.

    Answers 201 with the trace and its ``Location`` once the bytes are safe on disk. ``Repr-Digest`` and
    ``Content-Digest`` are verified when they are sent.
    """
    name, group = plain_name(filename), group_name(group) if group else None
    headers = request.headers
    promised = promised_digests([*headers.getlist("repr-digest"), *headers.getlist("content-digest")])
    trace_id = new_trace_id()
    with Upload(parts.folder, trace_id, limit=parts.settings.max_upload_bytes, digests=promised) as upload:
        async with parts.runner.following(trace_id, name) as following:
            await _receive(request, upload, following, parts.room)
            received = await asyncio.to_thread(upload.keep)
            trace = await parts.arrivals.keep(
                trace_id, name=name, received=received, group=group, priority=Priority[priority.upper()]
            )
    trace = await _settled(parts, trace, wait)
    return as_json(described(trace, parts.runner.progress(trace.id)), 201, Location=f"/api/v1/traces/{trace.id}")


@router.get("", summary="List traces, newest first", responses={200: {"model": shapes.Traces}})
def list_traces(
    parts: Parts,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
    state: State | None = None,
    name: Annotated[str, Query(description="part of the name, in any case")] = "",
    parent: Annotated[str | None, Query(description="the trace that they were cut out of")] = None,
    group: Annotated[str | None, Query(description="the id or the name of the group that they belong to")] = None,
) -> Response:
    """One page of traces, each without its longer lists; ``next`` is the cursor of the following page, or null."""
    traces = parts.catalog.page(
        limit=limit + 1, after=read_cursor(cursor), state=state, name=name, parent=parent, brief=True,
        group=None if group is None else parts.groups.find(group).id,
    )  # fmt: skip
    page = traces[:limit]
    following = cursor_of(page[-1].created_ns, page[-1].id) if len(traces) > limit else None
    return as_json({"traces": [in_brief(t, parts.runner.progress(t.id)) for t in page], "next": following})


@router.get("/{trace_id}", summary="Describe a trace", responses={200: {"model": shapes.Trace}})
async def describe_trace(trace_id: str, parts: Parts, wait: Wait = 0) -> Response:
    """All that is known of a trace; with ``wait``, once it is ready or failed, but after so many seconds anyway."""
    trace = await _settled(parts, parts.catalog.get(trace_id), wait)
    return as_json(described(trace, parts.runner.progress(trace.id)))


class TraceChange(BaseModel):
    """What is to be another of a trace."""

    model_config = ConfigDict(extra="forbid")

    pinned: bool | None = Field(None, description="whether retention leaves it alone, however old it is")
    group: Annotated[str, Field(max_length=255)] | None = Field(
        None, description="the name of the group that it belongs to from now on, made if there is none; null: to none"
    )


@router.patch("/{trace_id}", summary="Pin a trace, or put it into a group", responses={200: {"model": shapes.Trace}})
def change_trace(trace_id: str, asked: TraceChange, parts: Parts) -> Response:
    """Change what is given; the rest stays."""
    group = group_name(asked.group) if asked.group else ""
    told = group if "group" in asked.model_fields_set else None
    trace = parts.catalog.change(trace_id, pinned=asked.pinned, group=told)
    return as_json(described(trace, parts.runner.progress(trace.id)))


@router.delete("/{trace_id}", status_code=204, summary="Delete a trace and all that was made of it")
async def delete_trace(trace_id: str, parts: Parts) -> Response:
    """Stop what works on the trace and remove it from catalog and disk."""
    await parts.remove(trace_id)
    return Response(status_code=204)

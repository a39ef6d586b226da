"""``/traces/{id}/split`` and ``/traces/merge``: traces made of traces."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.authentication import check_write
from service.http.bounded_body import SmallBody
from service.http.disconnects import unless_left
from service.http.routes.jobs import described
from service.http.routes.traces import Urgency, Wait, as_json
from service.http.services import Parts, Services
from service.store.jobs import Priority
from service.store.uploads import plain_name
from service.trace.errors import CannotMerge, again
from service.trace.piece import Align, By
from service.trace.selection import Number, Selection, share_of_time

MERGED_MAX = 4096
"""Traces that can become one."""

CHECKED_S = 10.0
"""How long an answer waits for a job to find out whether there is anything to do."""

router = APIRouter(tags=["split and merge"], route_class=SmallBody)


class SplitRequest(BaseModel):
    """Into which pieces to split a trace."""

    model_config = ConfigDict(extra="forbid")

    selection: Selection = Field(Selection(), description="what to keep of it; nothing given: all")
    by: By | None = Field(None, description="one piece for each step, each stream, …; without it, a single piece")
    value: Annotated[int, Field(ge=1, lt=1 << 63, strict=True)] | None = Field(
        None,
        description="of `duration`: ns of each piece; of `parts`: how many; of `size`: bytes of each as JSON, at most",
    )
    dry_run: bool = Field(False, description="answer at once with the pieces that would be made, and make none")


class OverlayRequest(BaseModel):
    """What to show on top of a trace."""

    model_config = ConfigDict(extra="forbid")

    analysis: Literal["critical_path"] = Field(description="the analysis whose answer is shown")
    selection: Selection = Field(Selection(), description="what to keep of the trace; nothing given: all")


class MergeRequest(BaseModel):
    """Which traces become one."""

    model_config = ConfigDict(extra="forbid")

    traces: list[str] = Field(
        min_length=2, max_length=MERGED_MAX, description="ids: of ranks, or of parts of one trace"
    )
    ranks: list[Number] | None = Field(None, description="the rank of each, where the traces do not tell it")
    align: Align = Field(
        "collectives",
        description="how clocks become one: not at all, by `baseTimeNanoseconds`, or also by when collectives end",
    )
    name: str | None = Field(None, max_length=255, description="of the trace that is made")


async def _begun(kind: str, request: dict[str, Any], urgency: Urgency, wait: float, parts: Services) -> Response:
    """The answer to who asks for a job: 202 with the job, once it is known that there is something to do."""
    job = parts.making.submit(kind, request, priority=Priority[urgency.upper()])
    await parts.making.checked(job.id, within_s=CHECKED_S)
    if wait:
        await parts.board.settled(job.id, within_s=wait)
    job = parts.jobs.get(job.id)
    if job.error:
        raise again(job.error)
    return as_json(described(job, parts), 202, Location=f"/api/v1/jobs/{job.id}")


@router.post(
    "/traces/{trace_id}/split",
    status_code=202,
    summary="Cut a trace into traces",
    responses={202: {"model": shapes.Job}, 200: {"model": shapes.Plan}},
)
async def split_trace(
    trace_id: str,
    asked: SplitRequest,
    request: Request,
    parts: Parts,
    wait: Wait = 0,
    priority: Urgency = "interactive",
) -> Response:
    """Make a trace of each piece that has any event: its `parent` is this one, its `selection` what it keeps of it.

    Answers 202 with the job that makes them. What can't be cut is 422, and says what there is. A dry run ends when its
    client leaves, and after `TRACEDOCK_ANALYSIS_TIMEOUT_S` with 504.
    """
    trace = parts.ready_trace(trace_id)
    wanted = {
        "trace": trace.id, "selection": asked.selection.as_dict(), "by": asked.by, "value": asked.value,
    }  # fmt: skip
    if asked.dry_run:
        pieces = await unless_left(request, parts.making.plan(wanted))
        return as_json({"pieces": pieces, "events": sum(piece["events"] for piece in pieces)})
    check_write(request)
    share = share_of_time(asked.selection, trace.summary or {})
    await asyncio.to_thread(parts.room.check, round(parts.folder.size_of(trace.id) * share))
    return await _begun("split", wanted, priority, wait, parts)


@router.post(
    "/traces/{trace_id}/overlay",
    status_code=202,
    summary="Make a trace that shows its critical path",
    responses={202: {"model": shapes.Job}},
)
async def overlay_trace(
    trace_id: str, asked: OverlayRequest, parts: Parts, wait: Wait = 0, priority: Urgency = "interactive"
) -> Response:
    """Make a trace of this one, or of a selection of it, with the critical path as a track of its own.

    Arrows lead along that track, and from one thread or stream to another where the path does. The new trace's `parent`
    is this one; `/traces/{id}/perfetto` opens it like any other. Answers 202 with the job that makes it.
    """
    trace = parts.ready_trace(trace_id)
    share = share_of_time(asked.selection, trace.summary or {})
    await asyncio.to_thread(parts.room.check, round(parts.folder.size_of(trace.id) * share))
    wanted = {"trace": trace.id, "analysis": asked.analysis, "selection": asked.selection.as_dict()}
    return await _begun("overlay", wanted, priority, wait, parts)


@router.post(
    "/traces/merge", status_code=202, summary="Make one trace of several", responses={202: {"model": shapes.Job}}
)
async def merge_traces(
    asked: MergeRequest, parts: Parts, wait: Wait = 0, priority: Urgency = "interactive"
) -> Response:
    """Put the ranks of a run onto one clock and into one trace, or parts of one trace back together.

    Processes tell their rank, and ids that several ranks use are told apart. How each clock was moved, and how far the
    collectives still are apart, is in `ranks` of the trace. Answers 202 with the job.
    """
    if len(set(asked.traces)) < len(asked.traces):
        raise CannotMerge("A trace can't be merged with itself.")
    if asked.ranks is not None and len(asked.ranks) != len(asked.traces):
        raise CannotMerge(f"{len(asked.ranks)} ranks are given for {len(asked.traces)} traces.")
    for trace_id in asked.traces:
        parts.ready_trace(trace_id)
    await asyncio.to_thread(parts.room.check, sum(map(parts.folder.size_of, asked.traces)))
    name = plain_name(asked.name) if asked.name else f"merged-{len(asked.traces)}.pt.trace.json.gz"
    request = {"traces": asked.traces, "ranks": asked.ranks, "align": asked.align, "name": name}
    return await _begun("merge", request, priority, wait, parts)

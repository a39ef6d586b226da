"""``/traces/{id}/split``, ``/traces/{id}/overlay`` and ``/traces/merge``: traces made from other traces."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.authentication import check_write
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import declares
from service.http.disconnects import cancelled_on_disconnect
from service.http.openapi import fragments
from service.http.presenters import job_object
from service.http.resource_parameters import TraceId
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.traces import Urgency, Wait
from service.http.services import Services, ServicesDep
from service.jobs.derivations import Derivation, Merge, Overlay, Split, ready_source
from service.jobs.mergeable import mergeable
from service.operations.groups import MEMBERS_MAX
from service.store.jobs import Priority
from service.store.uploads import plain_name
from service.trace.errors import CannotMerge, error_from_document
from service.trace.piece import Align, By, merged_name
from service.trace.selection import Number, Selection, share_of_time

CHECK_WAIT_S = 10.0
"""Maximum seconds that a response waits for a job to check its request."""
ALIGN_DESCRIPTION = "how to align the clocks: not at all, by `baseTimeNanoseconds`, or also by the ends of collectives"

Cycle = Annotated[int, Field(ge=0, strict=True)] | None
CYCLE_FIELD = Field(
    None, description="only the traces of this cycle, by its number; needed if a rank has two traces of one kind"
)

JOB: dict[int | str, dict[str, Any]] = {
    202: {"description": "The job that makes the traces", "model": shapes.Job, "headers": fragments.JOB_LOCATION}
}
"""The response of a route that makes traces."""

router = ApiRouter(tags=["split and merge"], route_class=SmallBodyRoute)


class SplitRequest(BaseModel):
    """The pieces to split a trace into."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"by": "step"},
                {"by": "parts", "value": 2, "dry_run": True},
                {"selection": {"categories": ["cpu_op"], "window": {"start_ns": 0, "relative": True}}},
            ]
        },
    )

    selection: Selection = Field(Selection(), description="the part of the trace to keep; by default all of it")
    by: By | None = Field(
        None,
        description="one piece for each step, each stream, …; `device` makes one for each device of each rank; without"
        " it, a single piece",
    )
    value: Annotated[int, Field(ge=1, lt=1 << 63, strict=True)] | None = Field(
        None,
        description="for `duration`, ns of each piece; for `parts`, their number; for `size`, maximum bytes of each as"
        " JSON",
    )
    dry_run: bool = Field(False, description="return the pieces at once, and make no traces")


class OverlayRequest(BaseModel):
    """The analysis to show on top of a trace."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"analysis": "critical_path"}]})

    analysis: Literal["critical_path"] = Field(description="the analysis whose result is shown")
    selection: Selection = Field(Selection(), description="the part of the trace to keep; by default all of it")


class MergeRequest(BaseModel):
    """The traces to merge."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"traces": ["14d77f0f19d4", "5a41c02f9be7"], "name": "run.pt.trace.json.gz"}]},
    )

    traces: list[str] = Field(
        min_length=2, max_length=MEMBERS_MAX, description="ids: of ranks, or of parts of one trace"
    )
    ranks: list[Number] | None = Field(None, description="the rank of each, if the traces do not have it")
    align: Align = Field(
        "collectives",
        description=ALIGN_DESCRIPTION,
    )
    cycle: Cycle = CYCLE_FIELD
    name: str | None = Field(None, max_length=255, description="of the new trace")


async def _submit(derivation: Derivation, urgency: Urgency, wait_s: float, services: Services) -> Response:
    """Queue a job, and return 202 with the job after it has checked its request.

    Args:
        derivation: the request of the job.
        urgency: the priority of the job.
        wait_s: maximum seconds to wait for the end of the job; 0 waits only for the check.
        services: the parts of the service.

    Raises:
        TracedockError: the job has failed.
    """
    job = services.derivations.submit(derivation, priority=Priority[urgency.upper()])
    await services.derivations.checked(job.id, within_s=CHECK_WAIT_S)
    if wait_s:
        await services.monitor.settled(job.id, within_s=wait_s)
    job = services.jobs.get(job.id)
    if job.error:
        raise error_from_document(job.error)
    return json_response(job_object(job, services.monitor), 202, Location=f"/api/v1/jobs/{job.id}")


async def _check_room(services: Services, trace_id: str, share: float) -> None:
    """Raise `InsufficientStorage` if the disk has no room for a share (0 to 1) of a trace's columns."""
    await asyncio.to_thread(services.room.check, round(services.folder.size_of(trace_id) * share))


@router.post(
    "/traces/{trace_id}/split",
    status_code=202,
    summary="Cut a trace into traces",
    responses=JOB | {200: {"description": "The pieces, for a `dry_run`", "model": shapes.SplitPlan}},
)
# a dry run needs read scope only; for other requests, the handler checks for write scope
@declares("read", audit="split", unlogged_status=200, idempotent=True)
async def split_trace(
    trace_id: TraceId,
    split: SplitRequest,
    request: Request,
    services: ServicesDep,
    wait: Wait = 0,
    priority: Urgency = "interactive",
) -> Response:
    """Make a trace of each piece that has events. Its `parent` is this trace, its `selection` the part that it keeps.

    Returns 202 with the job that makes the traces, or 422 if the trace can't be cut so. A dry run ends when its client
    disconnects, and after `TRACEDOCK_ANALYSIS_TIMEOUT_S` with 504. All but a dry run needs a token with the scope
    `write`.
    """
    trace = services.trace_operations.ready(trace_id)
    derivation = Split(trace.id, split.selection, split.by, split.value)
    if split.dry_run:
        plan = await cancelled_on_disconnect(request, services.split_planner.plan(derivation))
        pieces = [shapes.SplitPiece(**piece.as_dict()) for piece in plan.pieces]
        return json_response(shapes.SplitPlan(pieces=pieces, events=sum(piece.events for piece in pieces)))
    check_write(request)
    await _check_room(services, trace.id, share_of_time(split.selection, trace.summary_or_empty))
    return await _submit(derivation, priority, wait, services)


@router.post(
    "/traces/{trace_id}/overlay",
    status_code=202,
    summary="Make a trace that shows its critical path",
    responses=JOB,
)
@declares(audit="overlay", idempotent=True)
async def overlay_trace(
    trace_id: TraceId, overlay: OverlayRequest, services: ServicesDep, wait: Wait = 0, priority: Urgency = "interactive"
) -> Response:
    """Make a trace of this one, or of a selection of it, with the critical path as an additional track.

    Arrows connect the events of that track, and the threads and streams that the path passes. The `parent` of the new
    trace is this one, and `/traces/{id}/perfetto` opens it like any other. Returns 202 with the job that makes it.
    """
    trace = services.trace_operations.ready(trace_id)
    await _check_room(services, trace.id, share_of_time(overlay.selection, trace.summary_or_empty))
    return await _submit(Overlay(trace.id, overlay.analysis, overlay.selection), priority, wait, services)


@router.post("/traces/merge", status_code=202, summary="Make one trace of several", responses=JOB)
@declares(audit="merge", idempotent=True)
async def merge_traces(
    merge: MergeRequest, services: ServicesDep, wait: Wait = 0, priority: Urgency = "interactive"
) -> Response:
    """Merge the ranks of a run into one trace with one clock, or join the parts of a trace again.

    The names of processes have their rank, and ids that several ranks use are made distinct. `ranks` of the new trace
    has the shift of each clock, and how far apart the collectives still end. Returns 202 with the job.

    Two traces of one rank and kind are of two cycles, of which ``cycle`` chooses one; without it, they are 422.
    """
    if len(set(merge.traces)) < len(merge.traces):
        raise CannotMerge("A trace can't be merged with itself.")
    if merge.ranks is not None and len(merge.ranks) != len(merge.traces):
        raise CannotMerge(f"{len(merge.ranks)} ranks are given for {len(merge.traces)} traces.")
    for trace_id in merge.traces:
        services.trace_operations.ready(trace_id)
    traces, ranks = await asyncio.to_thread(_of_cycle, merge, services)
    await asyncio.to_thread(services.room.check, sum(map(services.folder.size_of, traces)))
    name = plain_name(merge.name) if merge.name else merged_name(len(traces), merge.cycle)
    return await _submit(Merge(traces, ranks, merge.align, name), priority, wait, services)


def _of_cycle(merge: MergeRequest, services: Services) -> tuple[list[str], list[int] | None]:
    """Return the ids of the traces to merge, and their ranks if these are given; see `mergeable`.

    Raises:
        UnknownCycle: see `mergeable`.
        CannotMerge: see `mergeable`, or the chosen cycle has only one trace.
    """
    ranks: Sequence[int | None] = merge.ranks or [None] * len(merge.traces)
    pairs = [
        (trace_id, replace(ready_source(services.catalog, services.folder, trace_id), rank=rank))
        for trace_id, rank in zip(merge.traces, ranks, strict=True)
    ]
    chosen = mergeable(pairs, merge.cycle, lambda pair: pair[1])
    if len(chosen) < 2:
        [(_, source)] = chosen
        raise CannotMerge(f"The cycle {merge.cycle} has only one trace, {source.name}; a merge takes two or more.")
    given_ranks = [source.rank for _, source in chosen if source.rank is not None]
    return [trace_id for trace_id, _ in chosen], given_ranks or None

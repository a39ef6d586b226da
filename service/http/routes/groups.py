"""``/groups``: the traces of one run, listed, asked, merged and deleted together."""

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.analysis.answers import question_of
from service.http import shapes
from service.http.bounded_body import SmallBody
from service.http.cursors import at_of, cursor_of, read_cursor
from service.http.members import asked_of, members_of, settle_all, told
from service.http.parameters import also_takes
from service.http.routes.analysis import Form, ask, parameters_of_named
from service.http.routes.analysis import list_analyses as list_of_trace
from service.http.routes.derived_traces import MERGED_MAX, MergeRequest, merge_traces
from service.http.routes.traces import Wait, as_json
from service.http.selection_parameters import Chosen
from service.http.services import Parts, Services
from service.http.tables import ARROW, CSV
from service.store.catalog import Trace
from service.store.groups import Group, group_name
from service.store.lists import whole_summary
from service.trace.cycles import cycles_of
from service.trace.errors import BadQuestion, CannotMerge, UnknownTrace
from service.trace.piece import Align

router = APIRouter(prefix="/groups", tags=["groups"], route_class=SmallBody)

Name = Annotated[str, Field(min_length=1, max_length=255)]
RunId = Annotated[str, Field(max_length=255)]
Traces = Annotated[list[str], Field(max_length=MERGED_MAX)]


class GroupRequest(BaseModel):
    """A group that is to be."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    run_id: RunId | None = Field(None, description="what its maker calls the run")
    traces: Traces = Field([], description="ids; they leave the groups that they are in")


class GroupChange(BaseModel):
    """What is to be another of a group."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    run_id: RunId | None = None
    traces: Traces | None = Field(None, description="ids of all that are in it from now on")


class GroupMerge(BaseModel):
    """How the ranks of a group become one trace."""

    model_config = ConfigDict(extra="forbid")

    align: Align = "collectives"
    name: Annotated[str, Field(max_length=255)] | None = Field(None, description="of the trace that is made")


def described(group: Group) -> dict[str, Any]:
    """A group as lists show it."""
    return {
        "id": group.id, "name": group.name, "run_id": group.run_id, "created_at": at_of(group.created_ns),
        "traces": group.traces, "size": group.size,
    }  # fmt: skip


def with_ranks(parts: Services, group: Group) -> dict[str, Any]:
    """A group as it is shown alone."""
    members = members_of(parts, group.id)
    read = [with_all_steps(parts, one) for one in members if one.summary]
    cycles = cycles_of([one.summary or {} for one in read])
    numbers = dict(zip((one.id for one in read), cycles.numbers, strict=True))
    ranks = [
        {
            "rank": told(one, "rank"), "cycle": numbers.get(one.id), "world_size": told(one, "world_size"),
            "host": told(one, "host"), "trace": one.id, "name": one.name, "state": one.state, "size": one.size,
            "pinned": one.pinned, "events": (told(one, "events") or {}).get("kept", 0),
        }
        for one in members
    ]  # fmt: skip
    sizes = {one["world_size"] for one in ranks} - {None}
    world_size = sizes.pop() if len(sizes) == 1 else None
    world = range(min(world_size or 0, MERGED_MAX))
    by_cycle = [
        _cycle(number, [one for one in read if numbers[one.id] == number], world) for number in range(cycles.count)
    ]
    missing = {rank for cycle in by_cycle for rank in cycle["missing"]} if by_cycle else {*world}
    return described(group) | {
        "world_size": world_size, "missing": sorted(missing), "cycles": by_cycle, "cycles_by": cycles.told_by,
        "ranks": sorted(ranks, key=lambda one: one["cycle"] or 0),
    }  # fmt: skip


def with_all_steps(parts: Services, trace: Trace) -> Trace:
    """The trace, whose summary has all of its steps."""
    if "steps" not in (told(trace, "totals") or {}):
        return trace
    return replace(trace, summary=dict(whole_summary(trace.summary or {}, parts.folder.columns_of(trace.id))))


def _cycle(number: int, traces: list[Trace], world: range) -> dict[str, Any]:
    """The traces of a cycle together: their ranks, steps and times."""
    present = {told(one, "rank") for one in traces} - {None}
    steps = {step["number"] for one in traces for step in told(one, "steps")}
    bounds = [(one, told(one, "base_ns") or 0) for one in traces if told(one, "bounds")]
    return {
        "cycle": number,
        "traces": len(traces),
        "ranks": sorted(present),
        "missing": [rank for rank in world if rank not in present],
        "first_step": min(steps, default=None),
        "last_step": max(steps, default=None),
        "start_ns": min((base + told(one, "bounds")["start_ns"] for one, base in bounds), default=None),
        "end_ns": max((base + told(one, "bounds")["end_ns"] for one, base in bounds), default=None),
    }


@router.get("", summary="List groups, newest first", responses={200: {"model": shapes.Groups}})
def list_groups(
    parts: Parts,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
    name: Annotated[str, Query(description="part of the name, in any case")] = "",
) -> Response:
    """One page of groups; ``next`` is the cursor of the following page, or null."""
    found = parts.groups.page(limit=limit + 1, after=read_cursor(cursor), name=name)
    page = found[:limit]
    following = cursor_of(page[-1].created_ns, page[-1].id) if len(found) > limit else None
    return as_json({"groups": [described(one) for one in page], "next": following})


@router.post("", status_code=201, summary="Make a group", responses={201: {"model": shapes.Group}})
def make_group(asked: GroupRequest, parts: Parts) -> Response:
    """Put traces together. A group is also made by the first upload or import that names it."""
    made = parts.groups.add(group_name(asked.name), run_id=asked.run_id, traces=asked.traces)
    return as_json(with_ranks(parts, made), 201, Location=f"/api/v1/groups/{made.id}")


@router.get("/{group_id}", summary="Describe a group", responses={200: {"model": shapes.Group}})
def describe_group(group_id: str, parts: Parts) -> Response:
    """A group with its ranks, and which of its world are missing."""
    return as_json(with_ranks(parts, parts.groups.get(group_id)))


@router.patch("/{group_id}", summary="Rename a group, or change its traces", responses={200: {"model": shapes.Group}})
def change_group(group_id: str, asked: GroupChange, parts: Parts) -> Response:
    """Change what is given; the rest stays."""
    name = None if asked.name is None else group_name(asked.name)
    changed = parts.groups.change(group_id, name=name, run_id=asked.run_id, traces=asked.traces)
    return as_json(with_ranks(parts, changed))


@router.delete("/{group_id}", status_code=204, summary="Dissolve a group, or delete it with its traces")
async def delete_group(
    group_id: str,
    parts: Parts,
    traces: Annotated[bool, Query(description="delete its traces, too; without it, they stay")] = False,
) -> Response:
    """Its traces stay, and belong to none; with ``traces=true`` they are deleted as each alone would be."""
    while members := members_of(parts, group_id) if traces else ():
        for one in members:
            with suppress(UnknownTrace):  # somebody else was faster
                await parts.remove(one.id)
    parts.groups.remove(group_id)
    return Response(status_code=204)


@router.post(
    "/{group_id}/merge", status_code=202, summary="Make one trace of a group", responses={202: {"model": shapes.Job}}
)
async def merge_group(group_id: str, asked: GroupMerge, parts: Parts, wait: Wait = 0) -> Response:
    """As ``POST /traces/merge`` of all of its traces; of fewer than two there is nothing to merge, which is 422."""
    members = members_of(parts, group_id)
    if len(members) < 2:
        name = parts.groups.get(group_id).name
        count = f"{len(members)} trace{'s' * (len(members) != 1)}"
        raise CannotMerge(
            f"The group {name!r} has {count}; a merge takes two or more.", traces=[one.id for one in members]
        )
    return await merge_traces(
        MergeRequest(traces=[one.id for one in members], ranks=None, align=asked.align, name=asked.name), parts, wait
    )


@router.get("/{group_id}/analysis", summary="What can be asked of a group", responses={200: {"model": shapes.Analyses}})
def list_analyses(group_id: str, request: Request, parts: Parts, selection: Chosen) -> Response:
    """What can be asked of its first trace; of some analyses it needs more than one."""
    return list_of_trace(asked_of(parts, group_id)[0][0], request, parts, selection)


@router.get(
    "/{group_id}/analysis/{name}",
    summary="Ask all ranks of a group",
    responses={200: {"model": shapes.Answer, "content": {media_type: {} for media_type in (CSV, ARROW)}}},
)
@also_takes(parameters_of_named)
async def ask_group(  # noqa: PLR0913, PLR0917 - FastAPI takes the parameters of a request so
    group_id: str,
    name: str,
    request: Request,
    parts: Parts,
    selection: Chosen,
    base: Annotated[
        list[str] | None,
        Query(max_length=MERGED_MAX, description="of `compare`: ids of traces, or of a group, to compare with"),
    ] = None,
    wait: Wait = 0,
    table: Annotated[str | None, Query(description="of `csv` and `arrow`: which of the tables")] = None,
    form: Annotated[Form | None, Query(alias="format", description="instead of an `Accept` field")] = None,
) -> Response:
    """As ``GET /traces/{id}/analysis/{name}`` with ``traces``: the analyses, and what they take, are the same.

    Traces that could not be read are left out, and ``Tracedock-Left-Out`` tells their ids. Traces that are not ready
    yet make it 409, and are named; with ``wait``, they are waited for. ``compare`` needs the other side as ``base``.
    """
    if question_of(name).compared and not base:
        group = parts.groups.get(group_id)
        raise BadQuestion(
            f"{name} takes exactly two sides, and only one is given: the group {group.name!r} of {group.traces} traces."
            " Name the base, another group or traces, with `base`."
        )
    await settle_all(parts, [group_id], wait)
    (first, *others), failed = asked_of(parts, group_id)
    answer = await ask(name, first, request, parts, selection, others, base, wait, table, form)
    if failed:
        answer.headers["Tracedock-Left-Out"] = ", ".join(failed)
    return answer

"""``/groups``: list, describe, analyse, merge and delete the traces of one run together."""

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.analysis.catalogue import question_of
from service.http import shapes
from service.http.bounded_body import SmallBodyRoute
from service.http.cursors import cursor_of, read_cursor
from service.http.declarations import declares
from service.http.openapi import fragments
from service.http.parameters import also_takes
from service.http.presenters import group_in_brief, group_object
from service.http.resource_parameters import ChosenCycle, Cursor, GroupId, Limit
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.analysis import (
    ANSWERS,
    BaseCycle,
    BaseSelection,
    Form,
    Offset,
    RowLimit,
    Tables,
    answer_question,
    list_analyses,
    parameters_of_path,
)
from service.http.routes.derived_traces import ALIGN_DESCRIPTION, CYCLE_FIELD, JOB, Cycle, MergeRequest, merge_traces
from service.http.routes.traces import Wait
from service.http.selection_parameters import Selected
from service.http.services import Services, ServicesDep
from service.operations.groups import MEMBERS_MAX
from service.store.groups import Group, group_name
from service.trace.errors import BadAnalysisRequest, CannotMerge
from service.trace.piece import Align

router = ApiRouter(prefix="/groups", tags=["groups"], route_class=SmallBodyRoute)

_GROUP_ANSWERS: dict[int | str, dict[str, Any]] = ANSWERS | {
    200: ANSWERS[200]
    | {
        "headers": ANSWERS[200]["headers"]
        | fragments.header_fields({"Tracedock-Left-Out": "the ids of traces that could not be read, if there are any"})
    }
}

Name = Annotated[str, Field(min_length=1, max_length=255)]
RunId = Annotated[str, Field(max_length=255)]
Traces = Annotated[list[str], Field(max_length=MEMBERS_MAX)]


class GroupRequest(BaseModel):
    """A group to create."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "llama/70B", "run_id": "1234", "traces": ["14d77f0f19d4"]}]},
    )

    name: Name = Field(description="its name, a line of text that no other group has")
    run_id: RunId | None = Field(None, description="the id of the run in another system")
    traces: Traces = Field([], description="ids; they leave the groups that they are in")


class GroupChange(BaseModel):
    """Fields of a group to change."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "llama/70B, long context"}, {"pinned": True}]}
    )

    name: Name | None = Field(None, description="its new name; null leaves it as it is")
    run_id: RunId | None = Field(None, description="the id of the run in another system; null removes it")
    traces: Traces | None = Field(None, description="ids of all its traces from now on")
    pinned: bool | None = Field(None, description="whether retention keeps all its traces, however old they are")


class GroupMerge(BaseModel):
    """The trace to make of the ranks of a group."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"align": "base"}, {"cycle": 0}]})

    align: Align = Field("collectives", description=ALIGN_DESCRIPTION)
    cycle: Cycle = CYCLE_FIELD
    name: Annotated[str, Field(max_length=255)] | None = Field(None, description="of the new trace")


def _described(services: Services, group: Group) -> shapes.Group:
    return group_object(group, services.group_operations.ranks(group))


@router.get("", summary="List groups, newest first", responses={200: {"model": shapes.Groups}})
def list_groups(
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    name: Annotated[str, Query(description="part of the name, in any case")] = "",
) -> Response:
    """Return a page of groups; ``next`` is the cursor of the following page, or null."""
    rows = services.groups.page(limit=limit + 1, after=read_cursor(cursor), name=name)
    page = rows[:limit]
    following = cursor_of(page[-1].created_ns, page[-1].id) if len(rows) > limit else None
    return json_response(shapes.Groups(groups=[group_in_brief(group) for group in page], next=following))


@router.post(
    "",
    status_code=201,
    summary="Create a group",
    responses={201: {"description": "The group", "model": shapes.Group, "headers": fragments.LOCATION}},
)
@declares(audit="make group", idempotent=True)
def create_group(new: GroupRequest, services: ServicesDep) -> Response:
    """Create a group of traces. The first upload or import that names a group creates it, too."""
    group = services.groups.add(group_name(new.name), run_id=new.run_id, traces=new.traces)
    return json_response(_described(services, group), 201, Location=f"/api/v1/groups/{group.id}")


@router.get("/{group_id}", summary="Describe a group", responses={200: {"model": shapes.Group}})
def get_group(group_id: GroupId, services: ServicesDep) -> Response:
    """Return a group with its ranks, and those that are missing from its world."""
    return json_response(_described(services, services.groups.get(group_id)))


@router.patch(
    "/{group_id}", summary="Rename or pin a group, or change its traces", responses={200: {"model": shapes.Group}}
)
@declares(audit="change group")
def change_group(group_id: GroupId, change: GroupChange, services: ServicesDep) -> Response:
    """Change the given fields of a group; a null ``run_id`` removes the run's id."""
    name = None if change.name is None else group_name(change.name)
    run_id = change.run_id or "" if "run_id" in change.model_fields_set else None
    group = services.groups.update(group_id, name=name, run_id=run_id, traces=change.traces, pinned=change.pinned)
    return json_response(_described(services, group))


@router.delete("/{group_id}", status_code=204, summary="Dissolve a group, or delete it with its traces")
@declares(audit="delete group")
async def delete_group(
    group_id: GroupId,
    services: ServicesDep,
    traces: Annotated[bool, Query(description="delete its traces, too; without it, they stay")] = False,
) -> Response:
    """Dissolve the group, whose traces then belong to none; with ``traces=true``, delete its traces first.

    The files that are attached to the group are deleted; those of its traces stay with these.
    """
    if traces:
        await services.group_operations.remove_traces(group_id)
    services.groups.remove(group_id)
    return Response(status_code=204)


@router.post("/{group_id}/merge", status_code=202, summary="Make one trace of a group", responses=JOB)
@declares(audit="merge", idempotent=True)
async def merge_group(group_id: GroupId, merge: GroupMerge, services: ServicesDep, wait: Wait = 0) -> Response:
    """Merge the traces of the group, as ``POST /traces/merge`` does; fewer than two traces are 422.

    If a trace is not ready or could not be read, the answer is 409 and names it.

    The traces of a group of several cycles are merged one cycle at a time: ``cycle`` chooses one.
    """
    members = services.group_operations.members(group_id)
    if len(members) < 2:
        name = services.groups.get(group_id).name
        count = f"{len(members)} trace{'s' * (len(members) != 1)}"
        raise CannotMerge(
            f"The group {name!r} has {count}; a merge takes two or more.", traces=[trace.id for trace in members]
        )
    members = services.group_operations.members_to_merge(group_id)
    request = MergeRequest(
        traces=[trace.id for trace in members], ranks=None, align=merge.align, name=merge.name, cycle=merge.cycle
    )
    return await merge_traces(request, services, wait)


@router.get("/{group_id}/analysis", summary="List the analyses of a group", responses={200: {"model": shapes.Analyses}})
def list_group_analyses(group_id: GroupId, request: Request, services: ServicesDep, selection: Selected) -> Response:
    """Return the analyses that apply to its first trace; some need more than one trace."""
    trace_ids, _ = services.group_operations.ready_members(group_id)
    return list_analyses(trace_ids[0], request, services, selection)


@router.get(
    "/{group_id}/analysis/{name}",
    summary="Run an analysis on all ranks of a group",
    response_class=Response,
    responses=_GROUP_ANSWERS,
    openapi_extra={"parameters": [fragments.IF_NONE_MATCH]},
)
@also_takes(parameters_of_path)
async def analyze_group(  # noqa: PLR0913, PLR0917 - FastAPI passes each request parameter as an argument
    group_id: GroupId,
    name: str,
    request: Request,
    services: ServicesDep,
    selection: Selected,
    base: Annotated[
        list[str] | None,
        Query(max_length=MEMBERS_MAX, description="for comparisons: ids of traces, or of a group, to compare with"),
    ] = None,
    base_selection: BaseSelection = None,
    wait: Wait = 0,
    tables: Tables = None,
    form: Annotated[Form | None, Query(alias="format", description="instead of an `Accept` field")] = None,
    limit: RowLimit = None,
    offset: Offset = 0,
    cycle: ChosenCycle = None,
    base_cycle: BaseCycle = None,
) -> Response:
    """Run an analysis as ``GET /traces/{id}/analysis/{name}`` with ``traces`` does, with the same parameters.

    Traces that could not be read are left out, and ``Tracedock-Left-Out`` has their ids. If a trace is not ready, the
    response is 409 and has its id; ``wait`` waits for such traces. ``compare`` needs the other side as ``base``.
    """
    if question_of(name).compare_sides and not base:
        group = services.groups.get(group_id)
        raise BadAnalysisRequest(
            f"{name} takes exactly two sides, and only one is given: the group {group.name!r} of {group.traces} traces."
            " Name the base, another group or traces, with `base`."
        )
    await services.group_operations.settle([group_id], wait)
    (first, *others), failed = services.group_operations.ready_members(group_id)
    response = await answer_question(
        name, first, request, services, selection, others, base, base_selection, wait, tables, form, limit, offset,
        cycle, base_cycle,
    )  # fmt: skip
    if failed:
        response.headers["Tracedock-Left-Out"] = ", ".join(failed)
    return response

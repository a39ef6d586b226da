"""``/baselines``: names for the traces and groups that others are compared with."""

from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import declares
from service.http.presenters import baseline_in_brief, baseline_object
from service.http.resource_parameters import Limit
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.services import ServicesDep

router = ApiRouter(prefix="/baselines", tags=["baselines"], route_class=SmallBodyRoute)

BaselineName = Annotated[str, Path(description="the name of the baseline")]


class BaselineTarget(BaseModel):
    """The trace or the group that a baseline shall name."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"target": "14d77f0f19d4"}]})

    target: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="id of a trace or of a group")


@router.get("", summary="List baselines by name", responses={200: {"model": shapes.Baselines}})
def list_baselines(
    services: ServicesDep,
    limit: Limit = 50,
    after: Annotated[str, Query(description="`next` of the page before")] = "",
) -> Response:
    """Return a page of baselines with their present targets; ``next`` is `after` of the following page, or null."""
    rows = services.baselines.page(limit=limit + 1, after=after)
    page = rows[:limit]
    following = page[-1].name if len(rows) > limit else None
    return json_response(shapes.Baselines(baselines=[baseline_in_brief(entry) for entry in page], next=following))


@router.get("/{name}", summary="Describe a baseline", responses={200: {"model": shapes.Baseline}})
def get_baseline(name: BaselineName, services: ServicesDep) -> Response:
    """Return a baseline with its present target, and with those that it had before."""
    return json_response(baseline_object(services.baselines.history(name)))


@router.put(
    "/{name}", summary="Set a baseline", responses={200: {"model": shapes.Baseline}, 201: {"model": shapes.Baseline}}
)
@declares(audit="set baseline")
def set_baseline(name: BaselineName, new: BaselineTarget, services: ServicesDep) -> Response:
    """Set a baseline to a trace or a group, which retention then keeps; the name is created if there is none.

    If a client deletes the target, the baseline stays, and its ``target`` is null.
    """
    is_new = services.baselines.set(name, new.target)
    return json_response(baseline_object(services.baselines.history(name)), 201 if is_new else 200)


@router.delete("/{name}", status_code=204, summary="Delete a baseline")
@declares(audit="delete baseline")
def delete_baseline(name: BaselineName, services: ServicesDep) -> Response:
    """Delete a baseline with its history; the traces and groups stay."""
    services.baselines.remove(name)
    return Response(status_code=204)

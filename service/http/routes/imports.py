"""``/traces/import`` and ``/imports``: traces of files that the server's own disk has."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.bounded_body import SmallBody
from service.http.cursors import at_of
from service.http.middleware.access import remark
from service.http.routes.jobs import described as described_job
from service.http.routes.traces import Wait, as_json
from service.http.services import Parts, Services
from service.store.groups import group_name
from service.store.imports import Order
from service.store.taking import Mode
from service.store.uploads import plain_name

router = APIRouter(tags=["import"], route_class=SmallBody)

FILES_MAX = 1000


class ImportRequest(BaseModel):
    """What to import."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(
        min_length=1,
        max_length=4096,
        description="a file, a folder, a pattern with `*`, `?` and `**`, or a tar of traces: below an import root, and"
        " counted from each of them if it is not absolute",
    )
    mode: Mode = Field(
        "auto",
        description="`link` gives each file a second name in the data folder, and copies it where that can't be;"
        " `reference` leaves it where it lies; `auto` is a link or else a reference; `copy` is a copy",
    )
    group: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None, description="the name of the group that they belong to, made if there is none; a tar makes its own"
    )
    name: str | None = Field(None, max_length=255, description="of the trace, instead of the file's")
    watch: bool = Field(False, description="take new files, too, from now on, until `DELETE /imports/{id}`")


def described(order: Order, parts: Services) -> dict[str, Any]:
    """An import as the API shows it."""
    taken, skipped = parts.importing.orders.counts(order.id)
    return {
        "id": order.id,
        **order.request,
        "watching": order.watches,
        "created_at": at_of(order.created_ns),
        "ended_at": None if order.ended_ns is None else at_of(order.ended_ns),
        "job": None if order.job is None else str(order.job),
        "taken": taken,
        "skipped": skipped,
    }


@router.post(
    "/traces/import",
    status_code=202,
    summary="Make traces of files on the server's disk",
    responses={202: {"model": shapes.Job}},
)
async def import_traces(asked: ImportRequest, request: Request, parts: Parts, wait: Wait = 0) -> Response:
    """Take what a path stands for, below the roots that are set, through no link that leads out of them.

    Answers 202 with the job; its result tells of each file which trace it became, or why it became none. What is
    imported again under its name into its group is the trace that it was.
    """
    told = {
        "path": asked.path, "mode": asked.mode, "group": asked.group and group_name(asked.group),
        "name": asked.name and plain_name(asked.name),
    }  # fmt: skip
    remark(request, path=asked.path[:1000])
    job = await parts.importing.submit(told, watch=asked.watch)
    if wait:
        job = await parts.board.settled(job.id, within_s=wait)
    return as_json(described_job(job, parts), 202, Location=f"/api/v1/jobs/{job.id}")


@router.get("/imports", summary="Imports that watch for new files", responses={200: {"model": shapes.Imports}})
def list_imports(parts: Parts) -> Response:
    """Those that take new files as they come, the oldest first."""
    return as_json({"imports": [described(one, parts) for one in parts.importing.orders.watching()]})


@router.get("/imports/{import_id}", summary="What an import has taken", responses={200: {"model": shapes.Import}})
def describe_import(
    import_id: str,
    parts: Parts,
    limit: Annotated[int, Query(ge=1, le=FILES_MAX)] = 100,
    after: Annotated[str, Query(description="`next` of the page before")] = "",
) -> Response:
    """An import, and what became of each file, by path; ``next`` leads to those after these, or is null."""
    orders = parts.importing.orders
    order = orders.get(import_id)
    found = orders.files(import_id, limit=limit + 1, after=after)
    files = [{"path": one.path, "trace": one.trace, "why": one.why} for one in found[:limit]]
    following = found[limit - 1].path if len(found) > limit else None
    return as_json(described(order, parts) | {"files": files, "next": following})


@router.delete("/imports/{import_id}", summary="End an import", responses={200: {"model": shapes.ImportInBrief}})
async def end_import(import_id: str, parts: Parts) -> Response:
    """Take no more files, and cancel the job that does; what was taken stays."""
    return as_json(described(await parts.importing.end(import_id), parts))

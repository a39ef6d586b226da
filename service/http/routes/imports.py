"""``/traces/import`` and ``/imports``: make traces from files on the server's disk and objects in buckets."""

from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.bounded_body import SmallBodyRoute
from service.http.declarations import declares
from service.http.middleware.access import remark
from service.http.openapi import fragments
from service.http.presenters import import_in_brief, import_object, job_object
from service.http.resource_parameters import ImportId
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.traces import Wait
from service.http.services import ServicesDep
from service.store.file_import import Mode
from service.store.groups import group_name
from service.store.imports import ImportSpec
from service.store.uploads import plain_name

router = ApiRouter(tags=["import"], route_class=SmallBodyRoute)

FILES_MAX = 1000
"""Maximum number of files in a page of an import."""


class ImportRequest(BaseModel):
    """The files to import."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"path": "runs/**/*.pt.trace.json.gz", "group": "llama/70B"}, {"path": "runs", "watch": True}]
        },
    )

    path: str = Field(
        min_length=1,
        max_length=4096,
        description="a file, a folder, a pattern with `*`, `?` and `**`, or a tar of traces, below an import root;"
        " a relative path is tried in each root, and a URL names objects of a bucket",
    )
    mode: Mode = Field(
        "auto",
        description="`link` makes a hard link in the data folder, or a copy where links are impossible; `reference`"
        " leaves the file in place; `auto` is a link or else a reference; `copy` is a copy. Objects of buckets can't be"
        " linked",
    )
    group: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None, description="the name of their group, which is created if there is none; by default, a tar has its own"
    )
    name: str | None = Field(None, max_length=255, description="of the trace, instead of the file's")
    watch: bool = Field(False, description="also import new files from now on, until `DELETE /imports/{id}`")


@router.post(
    "/traces/import",
    status_code=202,
    summary="Make traces of files on the server's disk",
    responses={
        202: {"description": "The job that imports the files", "model": shapes.Job, "headers": fragments.JOB_LOCATION}
    },
)
@declares(audit="import", idempotent=True)
async def import_traces(new: ImportRequest, request: Request, services: ServicesDep, wait: Wait = 0) -> Response:
    """Import the files or objects of a path below the configured roots; links that lead out are not followed.

    Returns 202 with the job. Its result has the trace of each file, or the reason why there is none. A file that was
    imported before, under the same name into the same group, keeps its trace.
    """
    spec = ImportSpec(
        new.path, new.mode, new.group and group_name(new.group), new.name and plain_name(new.name), watch=new.watch
    )
    remark(request, path=new.path[:1000])
    job = await services.imports.submit(spec)
    if wait:
        job = await services.monitor.settled(job.id, within_s=wait)
    return json_response(job_object(job, services.monitor), 202, Location=f"/api/v1/jobs/{job.id}")


@router.get("/imports", summary="List imports that watch for new files", responses={200: {"model": shapes.Imports}})
def list_imports(services: ServicesDep) -> Response:
    """Return the imports that take new files as they arrive, oldest first, and the folders that may be imported."""
    orders = services.imports.orders
    watching = [import_in_brief(order, orders) for order in orders.watching()]
    return json_response(shapes.Imports(imports=watching, roots=services.imports.roots))


@router.get("/imports/{import_id}", summary="Describe an import", responses={200: {"model": shapes.Import}})
def get_import(
    import_id: ImportId,
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=FILES_MAX, description="maximum number of files of the page")] = 100,
    after: Annotated[str, Query(description="`next` of the page before")] = "",
) -> Response:
    """Return an import with a page of its files, by path; ``next`` is `after` of the following page, or null."""
    orders = services.imports.orders
    return json_response(import_object(orders.get(import_id), orders, limit=limit, after=after))


@router.delete("/imports/{import_id}", summary="End an import", responses={200: {"model": shapes.ImportInBrief}})
@declares(audit="end import")
async def end_import(import_id: ImportId, services: ServicesDep) -> Response:
    """Stop taking files, and cancel the job that takes them; the traces so far stay."""
    order = await services.imports.end(import_id)
    return json_response(import_in_brief(order, services.imports.orders))

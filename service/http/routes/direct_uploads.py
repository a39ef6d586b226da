"""``/uploads/direct``: uploads whose bytes go into a bucket by a presigned request, past this server."""

from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.http import shapes
from service.http.authentication import uploader
from service.http.bounded_body import SmallBodyRoute
from service.http.cursors import timestamp
from service.http.declarations import declares
from service.http.openapi import fragments
from service.http.presenters import trace_object
from service.http.resource_parameters import UploadId
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.traces import Wait
from service.http.services import ServicesDep
from service.jobs.direct_uploads import DirectUploadRequest
from service.store.groups import group_name
from service.store.jobs import Priority
from service.store.uploads import plain_name

router = ApiRouter(prefix="/uploads/direct", tags=["uploads"], route_class=SmallBodyRoute)


class NewDirectUpload(BaseModel):
    """The file to upload."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "rank0.pt.trace.json.gz", "size": 1_000_000, "group": "llama/70B"}]},
    )

    name: str = Field(max_length=255, description="the name of the file, like `rank0.pt.trace.json.gz`")
    size: int = Field(ge=0, lt=1 << 63, description="its bytes, exactly")
    group: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None, description="the name of its group, which is created if there is none"
    )
    priority: shapes.JobPriority = Field(
        "interactive", description="`bulk` waits in the queue behind all `interactive` jobs"
    )


@router.post(
    "",
    status_code=201,
    summary="Begin an upload into the server's bucket",
    responses={201: {"description": "The request to send", "model": shapes.DirectUploadRequest}},
)
@declares(audit="begin direct upload")  # not idempotent: the address must not be kept with the key
async def begin_direct_upload(new: NewDirectUpload, request: Request, services: ServicesDep) -> Response:
    """Return a presigned request that writes one new object of this size. Send it, then complete the upload.

    The bucket refuses a second object, another size or method, and requests that begin after ``url_expires_at``.
    """
    upload, presigned = await services.direct_uploads.begin(
        DirectUploadRequest(
            plain_name(new.name),
            new.size,
            new.group and group_name(new.group),
            Priority[new.priority.upper()],
            uploader(request),
        )
    )
    content = shapes.DirectUploadRequest(
        id=upload.id,
        method="PUT",
        url=presigned.url,
        headers=dict(presigned.headers),
        url_expires_at=timestamp(upload.url_expires_ns),
        expires_at=timestamp(upload.expires_ns),
    )
    return json_response(content, 201, Location=f"/api/v1/uploads/direct/{upload.id}", **{"Cache-Control": "no-store"})


@router.get("/{upload_id}", summary="Describe a direct upload", responses={200: {"model": shapes.DirectUpload}})
async def get_direct_upload(upload_id: UploadId, services: ServicesDep) -> Response:
    """Return a direct upload, with the id of its trace once it is complete."""
    upload, trace = await services.direct_uploads.status(upload_id)
    return json_response(
        shapes.DirectUpload(
            id=upload.id,
            name=upload.name,
            size=upload.size,
            state="complete" if trace else "open",
            expires_at=timestamp(upload.expires_ns),
            trace=trace and trace.id,
        )
    )


@router.post(
    "/{upload_id}/complete",
    summary="Make a trace of the uploaded object",
    responses={200: {"description": "The trace", "model": shapes.Trace, "headers": fragments.LOCATION}},
)
@declares(audit="upload")
async def complete_direct_upload(upload_id: UploadId, services: ServicesDep, wait: Wait = 0) -> Response:
    """Check the size of the object, compute its SHA-256, and queue its ingest, which reads it from the bucket.

    A repeated request returns the same trace. If its ingest failed because the bucket did, it is queued again.
    """
    trace = await services.direct_uploads.complete(upload_id)
    if wait and not trace.state.settled:
        trace = await services.ingests.settled(trace.id, within_s=wait)
    content = trace_object(trace, services.ingests.progress(trace.id))
    return json_response(content, Location=f"/api/v1/traces/{trace.id}")


@router.delete("/{upload_id}", status_code=204, summary="Give up a direct upload")
@declares(audit="end upload")
async def end_direct_upload(upload_id: UploadId, services: ServicesDep) -> Response:
    """Remove an open upload and its object; the trace of a complete one stays."""
    await services.direct_uploads.end(upload_id)
    return Response(status_code=204)

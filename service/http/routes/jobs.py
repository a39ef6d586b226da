"""``/jobs``: list, follow and cancel jobs."""

from typing import Annotated

from fastapi import Header, Query, Response

from service.http import shapes
from service.http.cursors import cursor_of, read_cursor
from service.http.declarations import declares
from service.http.job_events import event_id, job_events, stream
from service.http.openapi import fragments
from service.http.presenters import job_object
from service.http.resource_parameters import Cursor, JobId, Limit
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.traces import Wait
from service.http.services import ServicesDep
from service.store.jobs import JobState

router = ApiRouter(prefix="/jobs", tags=["jobs"])


@router.get("", summary="List jobs, newest first", responses={200: {"model": shapes.Jobs}})
def list_jobs(
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: Annotated[list[JobState] | None, Query(description="only those in this state, or one of these")] = None,
    kind: Annotated[str | None, Query(description="`ingest`, `split`, `merge`, `overlay` or `import`")] = None,
    trace: Annotated[str | None, Query(description="only those that read this trace, or have made it")] = None,
) -> Response:
    """Return a page of jobs; ``next`` is the cursor of the following page, or null."""
    after = read_cursor(cursor)
    rows = services.jobs.page(limit=limit + 1, before=after and after[0], states=state or (), kind=kind, trace=trace)
    page = rows[:limit]
    following = cursor_of(page[-1].id, "job") if len(rows) > limit else None
    return json_response(shapes.Jobs(jobs=[job_object(job, services.monitor) for job in page], next=following))


@router.get("/{job_id}", summary="Describe a job", responses={200: {"model": shapes.Job}})
async def get_job(job_id: JobId, services: ServicesDep, wait: Wait = 0) -> Response:
    """Return a job; with ``wait``, once it has ended, or after that many seconds."""
    if wait:
        await services.monitor.settled(job_id, within_s=wait)
    return json_response(job_object(services.jobs.get(job_id), services.monitor))


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses={
        200: {
            "description": "The events; each has an `id`, and a `Job` as its data",
            "content": fragments.content({"text/event-stream": fragments.described("the events", fragments.TEXT)}),
        },
        204: {"description": "There are no events after `Last-Event-ID`"},
    },
)
async def follow_job(
    job_id: JobId,
    services: ServicesDep,
    last: Annotated[str, Header(alias="Last-Event-ID", description="the `id` of the last received event")] = "",
) -> Response:
    """Stream the job as server-sent events whenever it changes, until it ends.

    A client that reconnects with ``Last-Event-ID`` receives only later events, and 204 if there are none.
    """
    job = services.jobs.get(job_id)
    if job.state.is_final and last == event_id(job, services.monitor.progress(job_id)):
        return Response(status_code=204)
    return stream(job_events(services.monitor, job_id, lambda job: job_object(job, services.monitor), last=last))


@router.delete("/{job_id}", summary="Cancel a job", responses={200: {"model": shapes.Job}})
@declares(audit="cancel")
async def cancel_job(job_id: JobId, services: ServicesDep) -> Response:
    """Cancel a job and remove its unfinished results; a job that has ended stays as it is.

    The trace of a cancelled ingest stays, with the state ``failed``. Traces that an import has created stay.
    """
    return json_response(job_object(await services.monitor.cancel(job_id), services.monitor))

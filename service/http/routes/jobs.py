"""``/jobs``: the queue, how far each job is, and the way to cancel it."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from service.http import shapes
from service.http.cursors import at_of, cursor_of, read_cursor
from service.http.job_events import mark_of, streamed, told
from service.http.routes.traces import Wait, as_json
from service.http.services import Parts, Services
from service.store.catalog import INGEST
from service.store.jobs import Job, JobState
from service.streaming.source import Progress

router = APIRouter(prefix="/jobs", tags=["jobs"])


def described(job: Job, parts: Services) -> dict[str, Any]:
    """A job as the API shows it."""
    now = parts.board.progress(job.id) or _at_rest(job)
    left_s = parts.board.left_s(job.id)
    return {
        "id": str(job.id),
        "kind": job.kind,
        "state": job.state,
        "priority": job.priority.name.lower(),
        "trace": job.trace or None,
        "request": job.request,
        "attempts": job.attempts,
        "created_at": at_of(job.created_ns) if job.created_ns else None,
        "started_at": at_of(job.started_ns) if job.started_ns else None,
        "ended_at": at_of(job.ended_ns) if job.ended_ns else None,
        "progress": {
            "bytes": now.bytes,
            "bytes_total": now.bytes_total,
            "events": now.events,
            "events_total": now.events_total,
        },
        "eta_s": None if left_s is None else round(left_s, 1),
        "result": job.result,
        "error": job.error,
    }


def _at_rest(job: Job) -> Progress:
    """How far a job is on which nobody works: all of it is done, or nothing."""
    size = job.size if job.kind == INGEST else 0
    done = size if job.state is JobState.DONE else 0
    return Progress(bytes=done, events=job.events, events_total=job.events, bytes_total=size)


@router.get("", summary="List jobs, newest first", responses={200: {"model": shapes.Jobs}})
def list_jobs(
    parts: Parts,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
    state: Annotated[list[JobState] | None, Query(description="only those in this state, or one of these")] = None,
    kind: Annotated[str | None, Query(description="`ingest`, `split`, `merge`, `overlay` or `import`")] = None,
    trace: Annotated[str | None, Query(description="those that work on this trace, or have made it")] = None,
) -> Response:
    """One page of jobs; ``next`` is the cursor of the following page, or null."""
    after = read_cursor(cursor)
    found = parts.jobs.page(limit=limit + 1, before=after and after[0], states=state or (), kind=kind, trace=trace)
    page = found[:limit]
    following = cursor_of(page[-1].id, "job") if len(found) > limit else None
    return as_json({"jobs": [described(job, parts) for job in page], "next": following})


@router.get("/{job_id}", summary="How far a job has come", responses={200: {"model": shapes.Job}})
async def get_job(job_id: int, parts: Parts, wait: Wait = 0) -> Response:
    """A job; with ``wait``, once it is over, but after so many seconds anyway."""
    if wait:
        await parts.board.settled(job_id, within_s=wait)
    return as_json(described(parts.jobs.get(job_id), parts))


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses={200: {"model": shapes.Job, "content": {"text/event-stream": {}}}},
)
async def follow_job(
    job_id: int,
    parts: Parts,
    last: Annotated[str, Header(alias="Last-Event-ID", description="the `id` of the event that was heard last")] = "",
) -> Response:
    """Server-sent events, each with all of the job, up to the one that it ends with.

    Who comes back with ``Last-Event-ID`` hears only what is new since, and 204 if nothing will be.
    """
    job = parts.jobs.get(job_id)
    if job.state.over and last == mark_of(job, parts.board.progress(job_id)):
        return Response(status_code=204)
    return streamed(told(parts.board, job_id, lambda one: described(one, parts), last=last))


@router.delete("/{job_id}", summary="Cancel a job", responses={200: {"model": shapes.Job}})
async def cancel_job(job_id: int, parts: Parts) -> Response:
    """End a job and remove what it has made; one that is over stays as it is.

    The trace of an ingest stays, too, as one that can't be read.
    """
    return as_json(described(await parts.board.cancel(job_id), parts))

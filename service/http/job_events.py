"""The state and progress of a job as server-sent events, which a client can resume after a lost connection."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from fastapi import Response
from starlette.responses import StreamingResponse

from service.http.responses import Content, to_json
from service.jobs.job_monitor import JobMonitor
from service.store.jobs import Job
from service.streaming.source import Progress
from service.trace.errors import UnknownJob

HEARTBEAT_S = 15.0
RETRY_MS = 1000
"""Milliseconds that a client waits before it connects again."""


def event_id(job: Job, progress: Progress | None) -> str:
    """Return the id of the event that describes this state and progress; it survives a restart of the server."""
    progress = progress or Progress()
    return f"{job.attempts}.{job.state}.{progress.bytes}.{progress.events}"


async def job_events(
    monitor: JobMonitor,
    job_id: int,
    describe: Callable[[Job], Content],
    *,
    last: str = "",
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncGenerator[bytes]:
    """Yield server-sent events when a job changes, until it ends.

    Each event describes the whole job; changes in quick succession may share one.

    Args:
        monitor: reports changes of jobs.
        job_id: the id of the job.
        describe: returns the JSON object of the job.
        last: the id of the last event that the client received; empty for a new client.
        heartbeat_s: seconds without a change after which a comment is sent, so that proxies keep the connection.
    """
    yield b"retry: %d\n\n" % RETRY_MS
    with monitor.watching(job_id) as changed:
        while not monitor.closed:
            changed.clear()
            try:
                job = monitor.jobs.get(job_id)
            except UnknownJob:  # deleted from the history: it ended long ago
                return
            current = event_id(job, monitor.progress(job_id))
            if current != last:
                last = current
                yield b"id: %s\ndata: %s\n\n" % (current.encode(), to_json(describe(job)))
            if job.state.is_final:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_s):
                    await changed.wait()
            if not changed.is_set():
                yield b": nothing new\n\n"


def stream(events: AsyncGenerator[bytes]) -> Response:
    """Return a response that streams events."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )

"""Server-sent events: how a job goes, told as it goes, and after a break from where it was left."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import orjson
from fastapi import Response
from starlette.responses import StreamingResponse

from service.jobs.board import Board
from service.store.jobs import Job
from service.streaming.source import Progress
from service.trace.errors import UnknownJob

HEARTBEAT_S = 15.0
RETRY_MS = 1000


def mark_of(job: Job, progress: Progress | None) -> str:
    """What an event has told of a job, as its id: it means the same to a server that was started anew."""
    now = progress or Progress()
    return f"{job.attempts}.{job.state}.{now.bytes}.{now.events}"


async def told(
    board: Board,
    job_id: int,
    described: Callable[[Job], dict[str, Any]],
    *,
    last: str = "",
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncGenerator[bytes]:
    """Yield an event whenever there is news of a job, up to its end; each tells all of the job.

    Args:
        board: where the news are.
        job_id: of the job.
        described: the job as it is told.
        last: the id of the event that was heard last.
        heartbeat_s: after so long without news it is said that there are none, lest somebody between give up.
    """
    yield b"retry: %d\n\n" % RETRY_MS
    with board.watching(job_id) as news:
        while not board.closed:
            news.clear()
            try:
                job = board.jobs.get(job_id)
            except UnknownJob:  # forgotten: it was over long ago
                return
            mark = mark_of(job, board.progress(job_id))
            if mark != last:
                last = mark
                yield b"id: %s\ndata: %s\n\n" % (mark.encode(), orjson.dumps(described(job)))
            if job.state.over:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_s):
                    await news.wait()
            if not news.is_set():
                yield b": nothing new\n\n"


def streamed(events: AsyncGenerator[bytes]) -> Response:
    """Events as they go over the wire."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )

"""``/traces``: upload, list, describe, delete."""

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect

from service.http import shapes
from service.http.digests import promised_digests
from service.http.services import Parts, Services
from service.jobs.runner import Following
from service.store.catalog import State, Trace, new_trace_id
from service.store.uploads import Upload, plain_name
from service.streaming.source import Progress
from service.trace.errors import BadCursor, DiskFull, IncompleteBody, TracedockError
from service.trace.summary import Summary

BLOCK = 1 << 20
LINGER_S = 2.0
WAIT_MAX_S = 3600.0
_LONG_LISTS = ("processes", "threads", "counts", "steps", "ranks")
_NOTHING_YET = {name: getattr(Summary(format=""), name) for name in Summary.__dataclass_fields__} | {"format": None}

Wait = Annotated[
    float, Query(ge=0, le=WAIT_MAX_S, allow_inf_nan=False, description="seconds to wait until it is ready or failed")
]

router = APIRouter(prefix="/traces", tags=["traces"])


def described(trace: Trace, progress: Progress | None) -> dict[str, Any]:
    """A trace as the API shows it."""
    summary = trace.summary or _NOTHING_YET
    now = progress or Progress()
    if trace.state.settled:
        now = Progress(trace.size, summary["events"].get("in", 0))
    return {
        "id": trace.id,
        "name": trace.name,
        "state": trace.state,
        "error": trace.error,
        "created_at": f"{datetime.fromtimestamp(trace.created_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
        "size": trace.size,
        "sha256": trace.sha256 or None,
        **_NOTHING_YET | summary,
        "steps_count": len(summary["steps"]),
        "events": summary["events"] or {"in": 0, "kept": 0, "refused": 0},
        "group": None,
        "parent": trace.parent,
        "selection": trace.selection,
        "progress": {"bytes": now.bytes, "bytes_total": trace.size, "events": now.events},
    }


def in_brief(trace: Trace, progress: Progress | None) -> dict[str, Any]:
    """A trace as lists show it: without what can be long."""
    whole = described(trace, progress)
    return {key: value for key, value in whole.items() if key not in _LONG_LISTS}


def as_json(value: Any, status: int = 200, **headers: str) -> Response:
    """A JSON response."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


async def _receive(request: Request, upload: Upload, following: Following) -> None:
    """Write the body as it comes, in blocks, each in a thread: hashing and the disk must not hold the loop.

    Who follows hears of each whole block; a body of less than one is read at once when it is kept.
    """
    announced = request.headers.get("content-length")
    block, chunks = bytearray(), request.stream()
    try:
        if announced and announced.isdecimal():
            upload.check_size(int(announced))
        async for chunk in chunks:
            block += chunk
            if len(block) >= BLOCK:
                await asyncio.to_thread(upload.write, block)
                following.grew(upload.size)
                block = bytearray()
    except ClientDisconnect as error:
        raise IncompleteBody(f"The client left after {upload.size + len(block)} bytes.") from error
    except TracedockError:
        if "expect" not in request.headers:  # else it waits for the answer before it sends more
            await _hear_out(chunks)
        raise
    await asyncio.to_thread(upload.write, block)


async def _hear_out(chunks: AsyncGenerator[bytes]) -> None:
    """Take what else the client sends, for a while: who is cut off in mid-sentence reads no answer."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(LINGER_S):
            async for _ in chunks:
                pass


async def _settled(parts: Services, trace: Trace, wait: float) -> Trace:
    return await parts.runner.settled(trace.id, within_s=wait) if wait and not trace.state.settled else trace


@router.put(
    "/{filename:path}",
    status_code=201,
    summary="Upload a trace: the body is the file",
    responses={201: {"model": shapes.Trace}},
)
async def upload_trace(filename: str, request: Request, parts: Parts, wait: Wait = 0) -> Response:
    """Stream the body to disk and ingest it, as it comes or in its turn.

    Answers 201 with the trace and its ``Location`` once the bytes are safe on disk. ``Repr-Digest`` and
    ``Content-Digest`` are verified when they are sent.
    """
    name = plain_name(filename)
    headers = request.headers
    promised = promised_digests([*headers.getlist("repr-digest"), *headers.getlist("content-digest")])
    trace_id = new_trace_id()
    with Upload(parts.folder, trace_id, limit=parts.settings.max_upload_bytes, digests=promised) as upload:
        async with parts.runner.following(trace_id, name) as following:
            await _receive(request, upload, following)
            received = await asyncio.to_thread(upload.keep)
            trace = await asyncio.to_thread(
                parts.catalog.add, trace_id, name=name, size=received.size, sha256=received.sha256
            )
            following.kept()
    parts.prepare()
    trace = await _settled(parts, trace, wait)
    return as_json(described(trace, parts.runner.progress(trace.id)), 201, Location=f"/api/v1/traces/{trace.id}")


@router.get("", summary="List traces, newest first", responses={200: {"model": shapes.Traces}})
def list_traces(
    parts: Parts,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
    state: State | None = None,
    name: Annotated[str, Query(description="part of the name, in any case")] = "",
    parent: Annotated[str | None, Query(description="the trace that they were cut out of")] = None,
) -> Response:
    """One page of traces, each without its longer lists; ``next`` is the cursor of the following page, or null."""
    traces = parts.catalog.page(limit=limit + 1, after=_after(cursor), state=state, name=name, parent=parent)
    page = traces[:limit]
    following = _cursor(page[-1]) if len(traces) > limit else None
    return as_json({"traces": [in_brief(t, parts.runner.progress(t.id)) for t in page], "next": following})


def _cursor(trace: Trace) -> str:
    return base64.urlsafe_b64encode(f"{trace.created_ns}.{trace.id}".encode()).decode()


def _after(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    try:
        created, trace_id = base64.urlsafe_b64decode(cursor).decode().split(".")
        int(created).to_bytes(8, signed=True)  # SQLite compares no larger ones
        return int(created), trace_id
    except (ValueError, OverflowError, binascii.Error) as error:
        raise BadCursor(f"{cursor[:100]!r} is not the `next` of a page.") from error


@router.get("/{trace_id}", summary="Describe a trace", responses={200: {"model": shapes.Trace}})
async def describe_trace(trace_id: str, parts: Parts, wait: Wait = 0) -> Response:
    """All that is known of a trace; with ``wait``, once it is ready or failed, but after so many seconds anyway."""
    trace = await _settled(parts, parts.catalog.get(trace_id), wait)
    return as_json(described(trace, parts.runner.progress(trace.id)))


@router.delete("/{trace_id}", status_code=204, summary="Delete a trace and all that was made of it")
async def delete_trace(trace_id: str, parts: Parts) -> Response:
    """Stop what works on the trace and remove it from catalog and disk."""
    try:
        await asyncio.to_thread(parts.catalog.remove, trace_id)  # first: from here on nobody can begin anything on it
    except DiskFull:  # for the catalog's own note of it; the trace's bytes make room for that
        await asyncio.to_thread(parts.folder.remove, trace_id)
        await asyncio.to_thread(parts.catalog.remove, trace_id)
    await parts.runner.cancel(trace_id)
    await parts.making.forget(trace_id)
    await parts.fleet.shut_all(trace_id)
    await asyncio.to_thread(parts.folder.remove, trace_id)
    if parts.listening_on == trace_id:
        parts.listening_on = None
    return Response(status_code=204)

"""``/attachments``: files that are kept beside a trace or a run."""

import asyncio
import secrets
from dataclasses import replace
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query, Request, Response

from service.formats.attachments import HEAD_SIZE, attachment_kind
from service.formats.execution_trace import ExecutionTraceFile
from service.formats.reports import as_csv, read_report
from service.http import shapes
from service.http.authentication import identity
from service.http.cursors import cursor_of, read_cursor
from service.http.declarations import declares
from service.http.digests import digests_of, repr_digest
from service.http.file_body import receive_file
from service.http.file_download import FileDownload
from service.http.openapi import fragments
from service.http.presenters import attachment_object
from service.http.resource_parameters import AttachmentId, Cursor, GroupId, Limit, TraceId
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.routes.analysis import source_of
from service.http.services import Services, ServicesDep
from service.http.tables import CSV, JSON
from service.store.attachments import Attachment
from service.store.catalog import State
from service.store.uploads import Received, Upload, plain_name
from service.trace.errors import BadAttachment, UnknownAttachment, UnknownTable

BINARY = "application/octet-stream"

TABLES_MAX = 1 << 20
"""Maximum number of a table."""

AttachedName = Annotated[str, Path(description="the name of the file, like `et_rank0.json`")]
_ATTACHED: dict[str, Any] = {
    "responses": {
        200: {"description": "The attachment: its owner has this file already", "model": shapes.Attachment},
        201: {"description": "The new attachment", "model": shapes.Attachment, "headers": fragments.LOCATION},
    },
    "openapi_extra": {
        "parameters": fragments.DIGESTS,
        "requestBody": fragments.body(
            "the file: an execution trace, a report of DeepSpeed, a table of `key_averages()`, a summary of `nsys"
            " stats`, or other text in UTF-8; plain, or with gzip or zstd; any content type is accepted",
            BINARY,
        ),
    },
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": fragments.content({BINARY: fragments.BINARY}),
        "headers": fragments.header_fields(
            {
                "Content-Disposition": "the name of the file",
                "ETag": "the tag of the file",
                "Last-Modified": "when the file was written",
                "Repr-Digest": "the SHA-256 of the file",
            }
        ),
    },
    206: {
        "description": "The part that `Range` names",
        "content": fragments.content(dict.fromkeys((BINARY, "multipart/byteranges"), fragments.BINARY)),
        "headers": fragments.header_fields({"Content-Range": "the part, and the size of the whole"}),
    },
    304: fragments.NOT_MODIFIED,
    416: fragments.BAD_RANGE,
}

router = ApiRouter(tags=["attachments"])


@router.put(
    "/traces/{trace_id}/attachments/{filename:path}", status_code=201, summary="Attach a file to a trace", **_ATTACHED
)
@declares(audit="attach")
async def attach_to_trace(
    trace_id: TraceId, filename: AttachedName, request: Request, services: ServicesDep
) -> Response:
    """Keep a file beside a trace; it is deleted with the trace.

    Its kind is recognised by its content. An execution trace gives `operators` with `group_by=shapes` the shapes that
    the trace lacks, if both are of the same capture. A trace is refused: upload it.

    If the trace has the same bytes under the same name already, the response is 200 with that attachment.
    ``Repr-Digest`` and ``Content-Digest`` are verified if they are sent.
    """
    services.catalog.get(trace_id)
    return await _attach(request, services, filename, trace=trace_id)


@router.put(
    "/groups/{group_id}/attachments/{filename:path}", status_code=201, summary="Attach a file to a group", **_ATTACHED
)
@declares(audit="attach")
async def attach_to_group(
    group_id: GroupId, filename: AttachedName, request: Request, services: ServicesDep
) -> Response:
    """Keep a file beside a run, as ``PUT /traces/{id}/attachments/{name}`` does beside a trace.

    It is deleted with the group. An execution trace belongs to the traces of the rank in its name.
    """
    services.groups.get(group_id)
    return await _attach(request, services, filename, group=group_id)


async def _attach(
    request: Request, services: Services, filename: str, *, trace: str | None = None, group: str | None = None
) -> Response:
    """Receive a file, recognise its kind, and record it."""
    name, attachment_id = plain_name(filename), secrets.token_hex(6)
    attachments = services.attachments

    def keep(upload: Upload) -> tuple[Attachment, bool]:
        kind = attachment_kind(upload.head(HEAD_SIZE)) if upload.size else "text"
        received: Received = upload.keep()
        return attachments.add(attachment_id, name=name, kind=kind, received=received, trace=trace, group=group)

    with Upload(
        services.folder,
        attachment_id,
        limit=services.settings.max_attachment_bytes,
        digests=digests_of(request.headers),
        target=attachments.path(attachment_id),
    ) as upload:
        await receive_file(request, upload, services.room)
        attachment, is_new = await asyncio.to_thread(keep, upload)
    content = attachment_object(attachment)
    if not is_new:
        return json_response(content)
    return json_response(content, 201, Location=f"/api/v1/attachments/{attachment.id}")


@router.get(
    "/traces/{trace_id}/attachments",
    summary="List the attachments of a trace",
    responses={200: {"model": shapes.Attachments}},
)
def list_trace_attachments(
    trace_id: TraceId, services: ServicesDep, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Return a page of attachments, newest first; ``next`` is the cursor of the following page, or null."""
    services.catalog.get(trace_id)
    return _page(services, trace_id, limit, cursor)


@router.get(
    "/groups/{group_id}/attachments",
    summary="List the attachments of a group and of its traces",
    responses={200: {"model": shapes.Attachments}},
)
def list_group_attachments(
    group_id: GroupId, services: ServicesDep, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Return a page of attachments, newest first; ``next`` is the cursor of the following page, or null."""
    services.groups.get(group_id)
    return _page(services, group_id, limit, cursor)


def _page(services: Services, owner: str, limit: int, cursor: str | None) -> Response:
    rows = services.attachments.page(owner, limit=limit + 1, after=read_cursor(cursor))
    page = rows[:limit]
    following = cursor_of(page[-1].created_ns, page[-1].id) if len(rows) > limit else None
    return json_response(shapes.Attachments(attachments=[attachment_object(row) for row in page], next=following))


@router.get(
    "/attachments/{attachment_id}", summary="Describe an attachment", responses={200: {"model": shapes.Attachment}}
)
def get_attachment(attachment_id: AttachmentId, services: ServicesDep) -> Response:
    """Return an attachment with its owner and its kind."""
    return json_response(attachment_object(services.attachments.get(attachment_id)))


@router.get(
    "/attachments/{attachment_id}/file",
    summary="Download an attachment",
    response_class=Response,
    responses=_FILE,
    openapi_extra={
        "parameters": [
            *(fragments.IF_MATCH, fragments.IF_UNMODIFIED_SINCE, fragments.IF_NONE_MATCH),
            fragments.header_parameter("Range", "part of the file, like `bytes=0-1023`"),
        ]
    },
)
def download_attachment(attachment_id: AttachmentId, services: ServicesDep) -> Response:
    """Return the bytes as they were sent; 304 if the ETag matches."""
    attachment = services.attachments.get(attachment_id)
    headers = {"ETag": f'"{attachment.sha256}"', "Repr-Digest": repr_digest(attachment.sha256)}
    path = services.attachments.path(attachment_id)
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise _is_gone(attachment_id) from error
    return FileDownload(path, filename=attachment.name, media_type=BINARY, headers=headers, stat_result=status)


@router.get(
    "/attachments/{attachment_id}/tables",
    summary="Read the tables and the text of an attachment",
    response_class=Response,
    responses={
        200: {
            "description": "The tables and the text as JSON, or one table as CSV",
            "model": shapes.AttachmentTables,
            "content": fragments.content({JSON: {}, CSV: fragments.CSV_ROWS}),
        }
    },
)
def get_attachment_tables(
    attachment_id: AttachmentId,
    services: ServicesDep,
    form: Annotated[Literal["json", "csv"], Query(alias="format", description="CSV has one table")] = "json",
    table: Annotated[int, Query(ge=0, le=TABLES_MAX, description="number of the table in CSV, from 0")] = 0,
) -> Response:
    """Return the tables of a report, and its text.

    Cells are the text of the file: figures keep their rounding and their units. What does not fit a table is only in
    the text, and ``reason`` says why.
    """
    attachment = services.attachments.get(attachment_id)
    try:
        report = read_report(services.attachments.path(attachment_id), attachment.kind)
    except FileNotFoundError as error:
        raise _is_gone(attachment_id) from error
    if form == "json":
        return json_response(shapes.AttachmentTables.model_validate(report))
    if table >= len(report.tables):
        count = f"{len(report.tables)} table{'s' * (len(report.tables) != 1)}"
        raise UnknownTable(f"The attachment {attachment.name!r} has {count}, and no table {table}.")
    return Response(as_csv(report.tables[table]), media_type=CSV)


@router.get(
    "/attachments/{attachment_id}/match",
    summary="Compare an execution trace with the traces that it may describe",
    responses={200: {"model": shapes.AttachmentMatches}},
)
async def match_attachment(attachment_id: AttachmentId, request: Request, services: ServicesDep) -> Response:
    """Return how many operators of each trace have the id and the name of a node, and gain its shapes.

    The traces are the one that it is attached to or, for a group, the ready ones of the rank in its name. The shapes
    are used if 95 % of the operators that have the id of a node have its name, too.
    """
    attachment = services.attachments.get(attachment_id)
    if attachment.kind != "execution_trace":
        raise BadAttachment(
            f"The attachment {attachment.name!r} is no execution trace, but of the kind {attachment.kind}."
        )
    file = ExecutionTraceFile(services.attachments.path(attachment_id), attachment.name)
    traces, reason = _described_traces(services, attachment)
    matches = []
    for trace_id in traces:
        source = replace(source_of(services, trace_id, None), execution_traces=(file,))
        match = await services.analyses.match(source, client=" ".join(identity(request)))
        matches.append(orjson.loads(match) | {"trace": trace_id})
    return json_response({"matches": matches, "reason": reason})


def _described_traces(services: Services, attachment: Attachment) -> tuple[list[str], str | None]:
    """Return the ids of the ready traces that an execution trace may describe, or the reason why there are none."""
    if attachment.trace is not None:
        return [services.trace_operations.ready(attachment.trace).id], None
    if attachment.group_id is None or attachment.rank is None:
        return [], "Its name has no rank, such as `et_rank0.json`: attach it to a trace."
    members = services.group_operations.members(attachment.group_id)
    ready = [trace for trace in members if trace.state is State.READY]
    traces = [trace.id for trace in ready if trace.summary_or_empty.rank == attachment.rank]
    return traces, None if traces else f"The group has no trace of rank {attachment.rank} that is ready."


def _is_gone(attachment_id: str) -> UnknownAttachment:
    return UnknownAttachment(f"The attachment {attachment_id} is being deleted.")


@router.delete("/attachments/{attachment_id}", status_code=204, summary="Delete an attachment")
@declares(audit="delete attachment")
def delete_attachment(attachment_id: AttachmentId, services: ServicesDep) -> Response:
    """Delete the file; the trace or the run stays."""
    services.attachments.remove(attachment_id)
    return Response(status_code=204)

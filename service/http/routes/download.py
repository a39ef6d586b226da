"""``/traces/{id}/download`` and ``/envelope``: download a trace in one of its formats."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.formats.names import child_name, listed, stem
from service.http import shapes
from service.http.digests import repr_digest
from service.http.file_download import FileDownload
from service.http.object_response import ObjectResponse
from service.http.openapi import fragments
from service.http.problems import as_problem
from service.http.resource_parameters import TraceId
from service.http.routers import ApiRouter
from service.http.selection_parameters import Selected
from service.http.services import Services, ServicesDep
from service.jobs.children.tasks.documents import Cut
from service.store.catalog import Trace
from service.store.export import Order, envelope_members
from service.store.external_files import open_unchanged
from service.store.folder import EVENTS
from service.trace.errors import BadSelection, FormatUnavailable, NotReady, NotRedactable, TracedockError

Format = Literal["original", "json", "json.gz", "pftrace", "pftrace.gz", "parquet"]

MEDIA_TYPES: dict[Format, str] = {
    "original": "application/octet-stream",
    "json": "application/json",
    "json.gz": "application/gzip",
    "pftrace": "application/protobuf",
    "pftrace.gz": "application/gzip",
    "parquet": "application/vnd.apache.parquet",
}
DOCUMENTS: tuple[Format, ...] = ("json", "json.gz")
"""The formats of a JSON document."""

WRITTEN: tuple[Format, ...] = (*DOCUMENTS, "pftrace", "pftrace.gz")
"""The formats that are written for each download, so that secrets can be left out."""

_RANGES = (MEDIA_TYPES["original"], MEDIA_TYPES["parquet"], "multipart/byteranges")
"""The media types of a part of a file; several ranges are sent as several parts."""

_CONTENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The trace",
        "content": fragments.content(
            {
                MEDIA_TYPES["original"]: fragments.described("`original`: the uploaded file", fragments.BINARY),
                MEDIA_TYPES["json.gz"]: fragments.described(
                    "`json.gz`, `pftrace.gz`: the document or the packets, compressed", fragments.BINARY
                ),
                MEDIA_TYPES["pftrace"]: fragments.described(
                    "`pftrace`: the packets of a Perfetto trace", fragments.BINARY
                ),
                MEDIA_TYPES["json"]: fragments.described("`json`: the document", {"type": "object"}),
                MEDIA_TYPES["parquet"]: fragments.described("`parquet`: the columns of the events", fragments.BINARY),
            }
        ),
        "headers": fragments.header_fields(
            {
                "Content-Disposition": "the file name of the download",
                "ETag": "the tag of `original` or `parquet`",
                "Last-Modified": "when `original` or `parquet` was written",
                "Repr-Digest": "the SHA-256 of `original`",
            }
        ),
    },
    206: {
        "description": "The part that `Range` names",
        "content": fragments.content(dict.fromkeys(_RANGES, fragments.BINARY)),
        "headers": fragments.header_fields({"Content-Range": "the part, and the size of the whole"}),
    },
    304: fragments.NOT_MODIFIED,
    416: fragments.BAD_RANGE,
}

router = ApiRouter(prefix="/traces", tags=["traces"])


@router.head("/{trace_id}/download", include_in_schema=False)
@router.get(
    "/{trace_id}/download",
    summary="Download a trace, as uploaded or in another format",
    response_class=Response,
    responses=_CONTENTS,
    openapi_extra={
        "parameters": [
            *(fragments.IF_MATCH, fragments.IF_UNMODIFIED_SINCE, fragments.IF_NONE_MATCH),
            fragments.header_parameter("Range", "part of `original` or `parquet`, like `bytes=0-1023`"),
        ]
    },
)
def download_trace(
    trace_id: TraceId,
    request: Request,
    services: ServicesDep,
    selection: Selected,
    form: Annotated[
        Format | None,
        Query(
            alias="format",
            description="the uploaded file, a JSON document or a Perfetto trace written anew, or the columns; by"
            " default the file, or `json.gz` if there is none",
        ),
    ] = None,
    order: Annotated[
        Order, Query(description="of the events in `json` and `json.gz`: by time, or as in the uploaded file")
    ] = "time",
    redact: Annotated[bool, Query(description="leave out likely secrets: not from `original` and `parquet`")] = False,
) -> Response:
    """Return the whole trace, or a selection of it as a JSON document or a Perfetto trace.

    ``original`` is the uploaded file, with ``Range``, ``ETag`` and ``Repr-Digest``; ``parquet`` has the columns of its
    events, with ``Range`` and ``ETag``; both return 304 if the ETag matches. ``json`` and ``json.gz`` are a document
    with an event on each line; ``pftrace`` and ``pftrace.gz`` are Perfetto's protobuf. Both are written as they are
    sent: if the connection ends early, it failed.
    """
    trace = services.catalog.get(trace_id)
    form = form or ("original" if selection is None and trace.has_original else "json.gz")
    if redact and form not in WRITTEN:
        detail = f"A copy without secrets is written as {listed(WRITTEN)}; {form} is not changed."
        raise NotRedactable(detail, formats=WRITTEN)
    if (selection is not None and form not in WRITTEN) or (form == "original" and not trace.sha256):
        subject = "A selection" if selection is not None else "A trace that was made here"
        raise FormatUnavailable(f"{subject} is written as {listed(WRITTEN)}, and not as {form}.", formats=WRITTEN)
    if selection is not None and order != "time":
        raise BadSelection("The events of a selection are written by time.")
    if form not in DOCUMENTS and form in WRITTEN and order != "time":
        raise FormatUnavailable(
            f"The original order of events is written as {listed(DOCUMENTS)}, and not as {form}.", formats=DOCUMENTS
        )
    if form == "original":
        return _original(trace, services)
    trace = services.trace_operations.ready(trace_id)
    if form == "parquet":
        return _columns(trace, services)
    headers = _attachment(file_name(trace.name, form, cut=selection is not None, redact=redact))
    if request.method == "HEAD" and selection is None:
        head = Response(media_type=MEDIA_TYPES[form], headers=headers)
        del head.headers["Content-Length"]  # it is not known yet
        return head
    columns, pack = services.folder.columns_of(trace.id), form.endswith(".gz")
    cut = None if selection is None else Cut(selection, trace.summary_or_empty, trace.identity)
    if form in DOCUMENTS:
        pieces = services.exports.document(columns, pack=pack, order=order, redact=redact, cut=cut)
    else:
        pieces = services.exports.pftrace(columns, trace.summary_or_empty, pack=pack, redact=redact, cut=cut)
    return ProcessOutput(_without_body(pieces) if request.method == "HEAD" else pieces, MEDIA_TYPES[form], headers)


async def _without_body(pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield no bytes of a document, but raise the error of its first piece, such as that of its selection."""
    async with aclosing(pieces):
        await anext(pieces, b"")
    yield b""


@router.get(
    "/{trace_id}/envelope",
    summary="The document of a trace without its events",
    response_class=Response,
    responses={200: {"model": shapes.Envelope}},
)
def get_envelope(trace_id: TraceId, services: ServicesDep) -> Response:
    """Return all keys of the document but its events: devices, versions, notes of the program.

    Secrets are always left out. An envelope of more than 8 MiB is refused with 413: download the trace instead.
    """
    trace = services.trace_operations.ready(trace_id)
    return Response(envelope_members(services.folder.columns_of(trace.id)), media_type="application/json")


class ProcessOutput(StreamingResponse):
    """A response with the output of a process, sent while the process writes it.

    If the process fails before its first byte, the response is an error. If it fails later, the connection is closed in
    the middle of the body, so that the client does not take the body for complete. The process ends when the client
    disconnects.
    """

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str, headers: dict[str, str]) -> None:
        self._pieces = pieces
        super().__init__(pieces, media_type=media_type, headers=headers)

    async def stream_response(self, send: Send) -> None:
        """Send the output, or the error response."""
        async with aclosing(self._pieces):
            try:
                first = await anext(self._pieces, b"")
            except TracedockError as error:
                await _send_complete(as_problem(error), send)
                return
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_complete(response: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


def file_name(name: str, form: Format, *, cut: bool = False, redact: bool = False) -> str:
    """Return the file name of a download: the name of the trace, with the suffix of the format instead of its own."""
    base = child_name(name, "cut") if cut else name
    return f"{stem(base)}{'.redacted' if redact else ''}.{form}"


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}"}


def _original(trace: Trace, services: Services) -> Response:
    services.originals.check_served(trace)
    headers = {"ETag": f'"{trace.sha256}"', "Repr-Digest": repr_digest(trace.sha256)}
    if stored := services.originals.object_of(trace):
        return ObjectResponse(
            stored, trace.created_ns, filename=trace.name, media_type=MEDIA_TYPES["original"], headers=headers
        )
    path = services.originals.path_of(trace)
    if trace.path_mark:  # another program may change the file
        return _OpenFileResponse(
            open_unchanged(path, trace.path_mark),
            filename=trace.name, media_type=MEDIA_TYPES["original"], headers=headers,
        )  # fmt: skip
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise NotReady(f"The bytes of the trace {trace.id} are gone from the data folder.") from error
    return FileDownload(
        path, filename=trace.name, media_type=MEDIA_TYPES["original"], headers=headers, stat_result=status
    )


class _OpenFileResponse(FileDownload):
    """A response with an open file, even if the path of that file names another one by now."""

    def __init__(self, file: int, **options: Any) -> None:
        self._file = file
        super().__init__(f"/dev/fd/{file}", stat_result=os.fstat(file), **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, and close it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._file)


def _columns(trace: Trace, services: Services) -> Response:
    path = services.folder.columns_of(trace.id) / EVENTS
    if not path.exists():
        raise NotReady(f"The trace {trace.id} was read by a version that kept no columns, or the columns were removed.")
    status = path.stat()
    headers = {"ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"'}
    name = file_name(trace.name, "parquet")
    return FileDownload(path, filename=name, media_type=MEDIA_TYPES["parquet"], headers=headers, stat_result=status)

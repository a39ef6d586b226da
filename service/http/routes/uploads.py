"""``/uploads``: resumable uploads with the protocol tus 1.0, https://tus.io/protocols/resumable-upload.

The extensions creation, creation-with-upload, creation-defer-length, checksum, termination and expiration are
supported. The extension concatenation, for parts uploaded in parallel, is not supported: joining and hashing the parts
would take as long as the parallel upload saves.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from fastapi import Request, Response

from service.http import shapes
from service.http.authentication import uploader
from service.http.body_stream import Body, announced_size, receiving
from service.http.declarations import declares
from service.http.deferred_route import DeferredRoute
from service.http.openapi import fragments
from service.http.problems import as_problem
from service.http.resource_parameters import UploadId
from service.http.responses import json_response
from service.http.routers import ApiRouter
from service.http.services import ServicesDep
from service.jobs.resumable_uploads import ChunkWriter, UploadStatus
from service.store.catalog import new_trace_id
from service.store.groups import group_name
from service.store.jobs import Priority
from service.store.resumable import CHECKSUMS, Announced
from service.store.uploads import plain_name
from service.trace.errors import BadUpload, EmptyBody, TracedockError, WrongType, WrongVersion

VERSION = "1.0.0"
EXTENSIONS = "creation,creation-with-upload,creation-defer-length,checksum,termination,expiration"
CHUNK_TYPE = "application/offset+octet-stream"
STALLED_S = 20.0
"""Seconds without a byte after which a chunk ends: the connection counts as dead, and the client may send again."""
METADATA_MAX = 4096
"""Maximum bytes of ``Upload-Metadata``."""

_PRIORITIES = {priority.name.lower(): priority for priority in Priority}
_TUS_HEADERS = {"Tus-Resumable": VERSION, "Tus-Version": VERSION, "Tus-Extension": EXTENSIONS}


class _TusRoute(DeferredRoute):
    """A route that checks the tus version, and adds the header fields of tus to all responses, including errors."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def versioned(request: Request) -> Response:
            try:
                self._check(request)
                response = await handle(request)
            except TracedockError as error:
                response = as_problem(error)
                if "offset" in error.extra:
                    response.headers["Upload-Offset"] = str(error.extra["offset"])
            response.headers["Tus-Resumable"] = VERSION
            if response.status_code == 412:
                response.headers["Tus-Version"] = VERSION
            return response

        return versioned

    @staticmethod
    def _check(request: Request) -> None:
        """Raise `WrongVersion` if the client uses another version of tus; GET and OPTIONS need not name a version."""
        version = request.headers.get("tus-resumable", VERSION if request.method in ("GET", "OPTIONS") else "")
        if version != VERSION:
            raise WrongVersion(f"Send `Tus-Resumable: {VERSION}`, not {version[:20]!r}.")


_VERSION = fragments.header_parameter(
    "Tus-Resumable",
    "version of tus",
    {"type": "string", "pattern": f"^{re.escape(VERSION)}$", "default": VERSION},
    required=True,
)
_LENGTH = fragments.header_parameter("Upload-Length", "bytes of the whole file", fragments.COUNT)
_CHECKSUM = fragments.header_parameter(
    "Upload-Checksum", f"digest of the body: one of {', '.join(CHECKSUMS)}, a space and its base64"
)
_OFFSET_FIELDS = {
    "Upload-Offset": "bytes on disk",
    "Upload-Expires": "when the upload is removed if no byte arrives before",
    "Tracedock-Trace": "the id of the trace, once the upload is complete",
}


def _request(*parameters: dict[str, Any], chunk: str = "", required: bool = True) -> dict[str, Any]:
    """Return the header fields of a request of tus, and its body, if `chunk` describes one."""
    request: dict[str, Any] = {"parameters": [_VERSION, *parameters]}
    return request | {"requestBody": fragments.body(chunk, CHUNK_TYPE, required=required)} if chunk else request


def _response(text: str, **fields: str) -> dict[str, Any]:
    """Return the description of a response of tus, which has only header fields."""
    names = {name.replace("_", "-"): description for name, description in fields.items()}
    return {"description": text, "headers": fragments.header_fields({"Tus-Resumable": "version of tus"} | names)}


router = ApiRouter(prefix="/uploads", tags=["uploads"], route_class=_TusRoute)


@router.options(
    "",
    status_code=204,
    summary="The supported features of tus",
    responses={
        204: _response(
            "The features",
            Tus_Version="versions of tus",
            Tus_Extension="extensions of tus",
            Tus_Max_Size="maximum bytes of a file",
            Tus_Checksum_Algorithm="algorithms of `Upload-Checksum`",
        )
    },
)
async def get_upload_options(services: ServicesDep) -> Response:
    """Return the version, the extensions, the limits and the checksums."""
    limits = {"Tus-Max-Size": str(services.settings.max_upload_bytes), "Tus-Checksum-Algorithm": ",".join(CHECKSUMS)}
    return Response(status_code=204, headers=_TUS_HEADERS | limits)


@router.post(
    "",
    status_code=201,
    response_class=Response,
    summary="Begin a resumable upload",
    responses={201: _response("The upload", Location="the path of the upload", **_OFFSET_FIELDS)},
    openapi_extra=_request(
        _LENGTH,
        fragments.header_parameter(
            "Upload-Defer-Length", "instead of a length, which a later chunk has", {"type": "string", "pattern": "^1$"}
        ),
        fragments.header_parameter(
            "Upload-Metadata",
            "`filename`, `group` and `priority`: each a name, a space and its base64, with commas between",
        ),
        _CHECKSUM,
        chunk="the first bytes of the file",
        required=False,
    ),
)
# only the request that completes the trace is logged
@declares(audit="upload", unlogged_status=201, idempotent=True, receives_trace=True)
async def begin_upload(request: Request, services: ServicesDep) -> Response:
    """Begin an upload with ``Upload-Length`` or ``Upload-Defer-Length: 1``; a body has the first bytes.

    ``Upload-Metadata`` has the ``filename``, and optionally the ``group`` and the ``priority`` of the ingest.
    """
    async with receiving(request, stalled_s=STALLED_S) as body:
        announced = _announced(request)
        size = announced_size(request)
        with_chunk = request.headers.get("content-type") == CHUNK_TYPE
        if (size or "transfer-encoding" in request.headers) and not with_chunk:
            raise WrongType(f"Send the first bytes as {CHUNK_TYPE}.")
        checksum = _checksum(request)
        status = await services.uploads.begin(announced)
        if with_chunk:
            async with services.uploads.writing(announced.id, 0, checksum=checksum) as writing:
                await _write(body, writing, size)
            status = await services.uploads.status(announced.id)
    location = {"Location": f"/api/v1/uploads/{announced.id}"}
    return Response(status_code=201, headers=location | _progress(status) | _trace_headers(status))


@router.head(
    "/{upload_id}",
    response_class=Response,
    summary="Offset of an upload",
    responses={
        200: _response(
            "The offset",
            Upload_Length="bytes of the whole file",
            Upload_Defer_Length="`1` until the length is known",
            Upload_Metadata="as it was sent",
            **_OFFSET_FIELDS,
        )
    },
    openapi_extra=_request(),
)
async def get_upload_offset(upload_id: UploadId, services: ServicesDep) -> Response:
    """Return ``Upload-Offset``, the number of bytes on disk."""
    status = await services.uploads.status(upload_id)
    upload = status.announced
    length = {"Upload-Defer-Length": "1"} if upload.length is None else {"Upload-Length": str(upload.length)}
    metadata = {"Upload-Metadata": upload.metadata} if upload.metadata else {}
    headers = {"Cache-Control": "no-store"} | _progress(status) | length | metadata | _trace_headers(status)
    return Response(status_code=200, headers=headers)


@router.get("/{upload_id}", summary="Describe an upload", responses={200: {"model": shapes.Upload}})
async def get_upload(upload_id: UploadId, services: ServicesDep) -> Response:
    """Return the offset of an upload, and the id of its trace once it is complete."""
    status = await services.uploads.status(upload_id)
    upload, ends_at = status.announced, status.ends_at
    return json_response(
        shapes.Upload(
            id=upload.id,
            name=upload.name,
            length=upload.length,
            offset=status.offset,
            expires_at=None if ends_at is None else f"{datetime.fromtimestamp(ends_at, UTC):%Y-%m-%dT%H:%M:%S}Z",
            trace=status.trace,
        )
    )


@router.patch(
    "/{upload_id}",
    status_code=204,
    summary="Send the next chunk of an upload",
    responses={204: _response("The bytes are on disk", **_OFFSET_FIELDS)},
    openapi_extra=_request(
        fragments.header_parameter("Upload-Offset", "bytes before the chunk", fragments.COUNT, required=True),
        _LENGTH,
        _CHECKSUM,
        chunk="the next bytes of the file",
    ),
)
@declares(audit="upload", unlogged_status=204, receives_trace=True)
async def upload_chunk(upload_id: UploadId, request: Request, services: ServicesDep) -> Response:
    """Append the body at ``Upload-Offset``.

    The response to the last chunk has the id of the trace in ``Tracedock-Trace``. The bytes of an interrupted
    chunk are kept, unless it has an ``Upload-Checksum``.
    """
    async with receiving(request, stalled_s=STALLED_S) as body:
        if request.headers.get("content-type") != CHUNK_TYPE:
            raise WrongType(f"Send a chunk as {CHUNK_TYPE}.")
        offset = _number(request, "Upload-Offset")
        if offset is None:
            raise BadUpload("A chunk needs an `Upload-Offset`.")
        length, checksum = _number(request, "Upload-Length"), _checksum(request)
        async with services.uploads.writing(upload_id, offset, length=length, checksum=checksum) as writing:
            await _write(body, writing, announced_size(request))
    status = await services.uploads.status(upload_id)
    return Response(status_code=204, headers=_progress(status) | _trace_headers(status))


@router.post(
    "/{upload_id}",
    status_code=204,
    summary="PATCH or DELETE, for clients that can't send these",
    responses={204: _response("It is done", **_OFFSET_FIELDS)},
    openapi_extra=_request(
        fragments.header_parameter(
            "X-HTTP-Method-Override", "the method", {"type": "string", "enum": ["PATCH", "DELETE"]}, required=True
        ),
        fragments.header_parameter("Upload-Offset", "for PATCH: bytes before the chunk", fragments.COUNT),
        _LENGTH,
        _CHECKSUM,
        chunk="for PATCH: the next bytes of the file",
        required=False,
    ),
)
@declares(audit="upload", unlogged_status=204, receives_trace=True)
async def override_upload_method(upload_id: UploadId, request: Request, services: ServicesDep) -> Response:
    """Apply the method in ``X-HTTP-Method-Override``."""
    method = request.headers.get("x-http-method-override", "")
    if method == "PATCH":
        return await upload_chunk(upload_id, request, services)
    if method == "DELETE":
        return await end_upload(upload_id, services)
    raise BadUpload("`X-HTTP-Method-Override` is PATCH or DELETE.")


@router.delete("/{upload_id}", status_code=204, summary="End an upload", openapi_extra=_request())
@declares(audit="end upload")
async def end_upload(upload_id: UploadId, services: ServicesDep) -> Response:
    """Remove an incomplete upload; the trace of a complete one stays."""
    await services.uploads.end(upload_id)
    return Response(status_code=204)


async def _write(body: Body, writing: ChunkWriter, size: int | None) -> None:
    if size is not None:
        await writing.expect(size)
    await body.each(writing.write)


def _progress(status: UploadStatus) -> dict[str, str]:
    headers = {"Upload-Offset": str(status.offset)}
    if status.ends_at is not None:
        headers["Upload-Expires"] = format_datetime(datetime.fromtimestamp(status.ends_at, UTC), usegmt=True)
    return headers


def _trace_headers(status: UploadStatus) -> dict[str, str]:
    if not status.trace:
        return {}
    return {"Tracedock-Trace": status.trace, "Link": f'</api/v1/traces/{status.trace}>; rel="item"'}


# -- header fields -----------------------------------------------------------------------------------------------------


def _announced(request: Request) -> Announced:
    length, deferred = _number(request, "Upload-Length"), request.headers.get("upload-defer-length")
    if deferred not in (None, "1") or (length is None) != (deferred == "1"):
        raise BadUpload("An upload needs either an `Upload-Length` or `Upload-Defer-Length: 1`.")
    if length == 0:
        raise EmptyBody("A trace has at least one byte.")
    field = request.headers.get("upload-metadata", "")
    metadata, upload_id = _metadata(field), new_trace_id()
    name = metadata.get("filename") or metadata.get("name") or f"upload-{upload_id}"
    group, priority = metadata.get("group") or None, metadata.get("priority", "interactive")
    if priority not in _PRIORITIES:
        raise BadUpload(f"The priority is one of {', '.join(_PRIORITIES)}, not {priority[:40]!r}.")
    group = group and group_name(group)
    return Announced(upload_id, plain_name(name), length, field, group, _PRIORITIES[priority], uploader(request))


def _number(request: Request, field: str) -> int | None:
    value = request.headers.get(field)
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise BadUpload(f"`{field}: {value[:40]}` is not a number of bytes.")
    return int(value)


def _metadata(field: str) -> dict[str, str]:
    """Parse ``Upload-Metadata``: names, each with a value in base64; raises `BadUpload`."""
    if len(field) > METADATA_MAX:
        raise BadUpload(f"`Upload-Metadata` is longer than {METADATA_MAX} bytes.")
    metadata: dict[str, str] = {}
    for pair in filter(None, map(str.strip, field.split(","))):
        name, _, value = pair.partition(" ")
        if name in metadata:
            raise BadUpload(f"`Upload-Metadata` has {name[:40]!r} twice.")
        try:
            metadata[name] = base64.b64decode(value.strip(), validate=True).decode()
        except ValueError as error:
            raise BadUpload(f"The value of {name[:40]!r} in `Upload-Metadata` is not base64 of UTF-8.") from error
    return metadata


def _checksum(request: Request) -> tuple[str, bytes] | None:
    field = request.headers.get("upload-checksum")
    if field is None:
        return None
    algorithm, _, value = field.partition(" ")
    if algorithm not in CHECKSUMS:
        raise BadUpload(f"A checksum is one of {', '.join(CHECKSUMS)}, not {algorithm[:40]!r}.")
    try:
        digest = base64.b64decode(value.strip(), validate=True)
    except binascii.Error as error:
        raise BadUpload("The value of `Upload-Checksum` is not base64.") from error
    if len(digest) != hashlib.new(algorithm, usedforsecurity=False).digest_size:
        raise BadUpload(f"The value of `Upload-Checksum` has {len(digest)} bytes, which is no length of {algorithm}.")
    return algorithm, digest

"""Error responses: the table that maps errors to HTTP statuses, and the one format of all errors.

The format is RFC 9457 ``application/problem+json`` with a stable ``code``.
"""

import inspect
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.trace import errors

log = logging.getLogger(__name__)

STATUS: dict[type[errors.TracedockError], int] = {
    errors.BadName: 400,
    errors.EmptyBody: 400,
    errors.IncompleteBody: 400,
    errors.BadDigest: 400,
    errors.DigestMismatch: 400,
    errors.TooLarge: 413,
    errors.BadAttachment: 422,
    errors.ExpectationFailed: 417,
    errors.ResumableError: 400,
    errors.UnknownUpload: 404,
    errors.UploadGone: 410,
    errors.UploadLocked: 423,
    errors.TooManyUploads: 429,
    errors.WrongOffset: 409,
    errors.WrongType: 415,
    errors.ChecksumMismatch: 460,
    errors.WrongVersion: 412,
    errors.DirectUploadsOff: 403,
    errors.ObjectMissing: 409,
    errors.WrongSize: 409,
    errors.ImportRefused: 403,
    errors.NothingToImport: 404,
    errors.UnknownImport: 404,
    errors.LocationError: 503,
    errors.BadLocation: 400,
    errors.UnknownLocation: 404,
    errors.SourceChanged: 409,
    errors.LocationDenied: 502,
    errors.DiskFull: 507,
    errors.IngestError: 422,
    errors.UnknownTrace: 404,
    errors.UnknownAnalysis: 404,
    errors.UnknownGroup: 404,
    errors.BadGroupName: 400,
    errors.GroupExists: 409,
    errors.UnknownAttachment: 404,
    errors.UnknownTable: 404,
    errors.UnknownBaseline: 404,
    errors.BadBaselineName: 400,
    errors.UnknownJob: 404,
    errors.NotReady: 409,
    errors.BadCursor: 400,
    errors.EngineUnavailable: 503,
    errors.EngineBusy: 503,
    errors.ClientBlocked: 429,
    errors.StatementBlocked: 422,
    errors.TooLargeForEngine: 422,
    errors.EngineFailed: 502,
    errors.RequestRefused: 403,
    errors.SqlRefused: 403,
    errors.SqlError: 400,
    errors.QueryTimeout: 504,
    errors.DeadlineExceeded: 504,
    errors.ResultTooLarge: 413,
    errors.Unauthorized: 401,
    errors.UnknownToken: 404,
    errors.TokenExists: 409,
    errors.BadTokenName: 400,
    errors.WrongHost: 421,
    errors.AccessError: 403,
    errors.JobDied: 502,
    errors.CatalogUnwritable: 503,
    errors.FleetError: 503,
    errors.BadFleetRequest: 422,
    errors.UnknownDataset: 404,
    errors.UnknownFleetRun: 404,
    errors.UnknownQuestion: 404,
    errors.TaskFailed: 502,
    errors.Cancelled: 409,
    errors.IdempotencyError: 400,
    errors.IdempotencyKeyBusy: 409,
    errors.IdempotencyKeyReused: 422,
    errors.SelectionError: 422,
    errors.FormatUnavailable: 422,
    errors.NotRedactable: 422,
    errors.SourceUnavailable: 422,
    errors.ExportError: 502,
    errors.AnalysisError: 422,
    errors.RequestError: 422,
    errors.BodyNotJson: 415,
    errors.BadRange: 416,
    errors.PreconditionFailed: 412,
}


@dataclass(frozen=True, order=True)
class ProblemKind:
    """A kind of error.

    Attributes:
        status: the HTTP status of its responses.
        code: its stable name.
        title: what it is, for people.
    """

    status: int
    code: str
    title: str


BAD_REQUEST = ProblemKind(422, "bad_request", "The request can't be understood")
INTERNAL = ProblemKind(500, errors.TracedockError.code, "The service has a bug")
HEAD_PROBLEMS = {
    kind.status: kind
    for kind in (
        ProblemKind(408, "too_slow", "The request arrives too slowly"),
        ProblemKind(414, "target_too_long", "The address is too long"),
        ProblemKind(431, "head_too_large", "The head of the request is too large"),
        ProblemKind(503, "too_many_connections", "Too many connections are open"),
    )
}
"""Kinds of errors in the head of a request, by status; all others are `BAD_HEAD`."""
BAD_HEAD = ProblemKind(400, "bad_request", "The head of the request is malformed")
_OF_FRAMEWORK = (
    *(ProblemKind(404, "not_found", "Not Found"), ProblemKind(405, "method_not_allowed", "Method Not Allowed")),
    *(BAD_REQUEST, INTERNAL, BAD_HEAD, *HEAD_PROBLEMS.values()),
)


NOT_OF_API = (
    errors.BadExecutionTrace,  # it is a reason in an answer
    *(errors.FleetUnavailable, errors.ClusterLost, errors.BadDataset),
)
"""Errors that no route of the API raises."""


def problem_kinds() -> list[ProblemKind]:
    """Return all kinds of errors that responses of the API have, by status and code."""
    return sorted({*_OF_FRAMEWORK, *_kinds_of(errors.TracedockError)})


def _kinds_of(base: type[errors.TracedockError]) -> Iterator[ProblemKind]:
    for error in base.__subclasses__():
        if error in NOT_OF_API:
            continue
        if "code" in vars(error) and len(inspect.signature(error).parameters):
            yield ProblemKind(status_of(error("")), error.code, error.title)
        yield from _kinds_of(error)


def status_of(error: errors.TracedockError) -> int:
    """Return the status of an error: that of its class or nearest base class in `STATUS`, else 500."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def problem(status: int, code: str, title: str, detail: str, /, **extra: Any) -> Response:
    """Return an error response; `extra` fields never replace the fields that all errors have."""
    body = {"type": f"urn:tracedock:{code}", "title": title, "status": status, "detail": detail, "code": code}
    headers = {"Retry-After": str(extra["retry_after_s"])} if "retry_after_s" in extra else None
    return Response(orjson.dumps(extra | body), status, headers, media_type="application/problem+json")


def as_problem(error: errors.TracedockError) -> Response:
    """Return the response for an error of the service."""
    return problem(status_of(error), error.code, error.title, error.detail, **error.extra)


async def tracedock_problem(_: Request, error: Exception) -> Response:
    """Return the response for an error of the service."""
    if not isinstance(error, errors.TracedockError):
        raise error
    return as_problem(error)


async def framework_problem(_: Request, error: Exception) -> Response:
    """Return the response for an error of the framework, such as an unknown path."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 413:
        return as_problem(errors.TooLarge(str(error.detail)))
    phrase = HTTPStatus(error.status_code).phrase
    response = problem(error.status_code, phrase.lower().replace(" ", "_"), phrase, str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def invalid_request(_: Request, error: Exception) -> Response:
    """Return the response for a request with invalid parameters."""
    if not isinstance(error, RequestValidationError):
        raise error
    faults = [{"where": ".".join(map(str, fault["loc"])), "what": fault["msg"]} for fault in error.errors()]
    detail = "; ".join(f"{fault['where']}: {fault['what']}" for fault in faults)
    return problem(BAD_REQUEST.status, BAD_REQUEST.code, BAD_REQUEST.title, detail, faults=faults)


async def _disconnected(_: Request, __: Exception) -> Response:
    """End a request whose client has disconnected; no client reads the response."""
    return Response(status_code=499)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = f"{type(error).__name__} in {request.method}."
    return problem(INTERNAL.status, INTERNAL.code, INTERNAL.title, detail)


def install(app: FastAPI) -> None:
    """Install handlers that return all errors of the app in the format of this module."""
    app.add_exception_handler(errors.TracedockError, tracedock_problem)
    app.add_exception_handler(HTTPException, framework_problem)
    app.add_exception_handler(RequestValidationError, invalid_request)
    app.add_exception_handler(ClientDisconnect, _disconnected)
    app.add_exception_handler(Exception, _unexpected)

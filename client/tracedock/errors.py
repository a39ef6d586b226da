"""Errors of the client, and the table that chooses an error by the code or the status of a refusal.

ClientError
├── UnreachableError         no server answers, or the connection broke
├── ApiError                 the server refused the request, or its work failed; `code` is stable
│   ├── InvalidRequestError  the request is malformed, or contradicts itself
│   │   ├── SelectionError   a selection that is malformed, names what the trace does not have, or matches no event
│   │   └── SqlError         SQL that the engine or the server refuses
│   ├── UnauthorizedError    no token, or an unknown one
│   ├── ForbiddenError       the token, the host name or the address does not permit the request
│   ├── NotFoundError        no trace, group, job, analysis or page has that id or name
│   ├── ConflictError        the request does not fit the present state
│   │   └── NotReadyError    the trace is still read, or failed
│   ├── NotApplicableError   the trace lacks the data that the analysis or the format needs
│   ├── UnreadableTraceError the file can't be read as a trace
│   ├── TooLargeError        the body, the trace or the result exceeds a limit
│   ├── NoRoomError          the server has not enough disk space
│   ├── BusyError            too many requests, or the server is unavailable for now
│   ├── DeadlineError        the query or the work took too long
│   ├── CancelledError       the job was cancelled
│   ├── ServerFailureError   an engine or a process of the server failed
│   └── ForeignServerError   the answer is not that of a Tracedock server
├── WaitTimeoutError         the client has waited as long as it was allowed to
├── DigestMismatchError      an upload was damaged in transit
├── DamagedDownloadError     a download was damaged in transit
├── MissingPackageError      the conversion of a table needs a package that is not installed
├── AmbiguousTraceError      the text matches several traces
├── AmbiguousTargetError     the text matches a trace and a group
└── AmbiguousFileError       the text matches a local file, and a trace or a group on the server
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Base class; the text of an error is a message for the user."""


class UnreachableError(ClientError):
    """No server answers at `url` (`connected` is false), or the connection broke."""

    def __init__(self, url: str, reason: str, *, connected: bool) -> None:
        self.url, self.reason, self.connected = url, reason, connected
        super().__init__(
            f"the connection to the server at {url} broke: {reason}"
            if connected
            else f"cannot reach a server at {url}: {reason}\n"
            "Start one with `tracedock serve` (or `make run`), or name another with --url or TRACEDOCK_URL."
        )


class ApiError(ClientError):
    """Refusal by the API (RFC 9457).

    Attributes:
        code: stable name of the reason.
        title: the reason, for people.
        detail: a sentence that says what happened.
        status: HTTP status; 200 if the error is that of a job, a trace or a session.
        extras: the problem's further members.
    """

    def __init__(
        self, code: str, title: str, detail: str, status: int, extras: Mapping[str, Any] | None = None
    ) -> None:
        self.code, self.title, self.detail, self.status = code, title, detail, status
        self.extras: Mapping[str, Any] = extras or {}
        super().__init__(f"{title}: {detail} ({code})" if detail else f"{title} ({code})")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with all attributes, so that it can leave a worker process."""
        return type(self), (self.code, self.title, self.detail, self.status, dict(self.extras))

    @classmethod
    def of_problem(cls, problem: Mapping[str, Any], status: int) -> ApiError:
        """Create the error from a problem document, or from the `error` of a trace, a job or a session."""
        standard = {"type", "code", "title", "detail", "status"}
        code = str(problem.get("code") or f"http_{status}")
        return kind_of(code, status)(
            code=code,
            title=str(problem.get("title") or "The server gave no reason"),
            detail=str(problem.get("detail") or ""),
            status=status,
            extras={key: value for key, value in problem.items() if key not in standard},
        )

    @property
    def position(self) -> str | None:
        """The place in the SQL (`line 1, column 8`) or in the file (`byte 4096`), if known."""
        line, column, offset = (self.extras.get(key) for key in ("line", "column", "offset"))
        if line is not None:
            return f"line {line}" if column is None else f"line {line}, column {column}"
        return None if offset is None else f"byte {offset}"

    @property
    def retry_after_s(self) -> float | None:
        """The seconds after which the server advises to repeat the request; None if it gives no advice."""
        value = self.extras.get("retry_after_s")
        return float(value) if isinstance(value, (int, float)) and value >= 0 else None


class InvalidRequestError(ApiError):
    """The request is malformed, or contradicts itself."""


class SelectionError(InvalidRequestError):
    """The selection is malformed, names what the trace does not have, or matches no event."""


class SqlError(InvalidRequestError):
    """The engine or the server refuses the SQL; `position` is the place of a syntax error."""


class UnauthorizedError(ApiError):
    """The request has no token, or an unknown one."""


class ForbiddenError(ApiError):
    """The token, the host name or the address does not permit the request."""


class NotFoundError(ApiError):
    """No trace, group, job, analysis or page has that id or name."""


class ConflictError(ApiError):
    """The request does not fit the present state."""


class NotReadyError(ConflictError):
    """The trace is still read, or failed."""


class NotApplicableError(ApiError):
    """The trace lacks the data that the analysis or the format needs."""


class UnreadableTraceError(ApiError):
    """The file can't be read as a trace."""


class TooLargeError(ApiError):
    """The body, the trace or the result exceeds a limit."""


class NoRoomError(ApiError):
    """The server has not enough disk space."""


class BusyError(ApiError):
    """Too many requests, or the server is unavailable for now."""


class DeadlineError(ApiError):
    """The query or the work took too long."""


class CancelledError(ApiError):
    """The job was cancelled."""


class ServerFailureError(ApiError):
    """An engine or a process of the server failed."""


class ForeignServerError(ApiError):
    """The answer is not that of a Tracedock server."""


KINDS: Mapping[type[ApiError], tuple[str, ...]] = {
    SelectionError: (
        *("bad_selection", "unknown_choice", "nothing_selected"),
        *("bad_slice", "unknown_slice", "ambiguous_slice", "unknown_cycle", "cannot_merge"),
    ),
    SqlError: ("sql_error", "sql_refused", "sql_kills_engine"),
    NotReadyError: ("not_ready",),
    NotApplicableError: ("not_applicable", "no_such_form", "not_redactable"),
    UnreadableTraceError: (
        *("bad_compression", "truncated", "not_json", "not_a_trace", "unreadable"),
        *("original_changed", "worker_died"),
    ),
    TooLargeError: ("too_large_for_engine",),
    CancelledError: ("cancelled",),
    ServerFailureError: (
        *("catalog_in_use", "engine_failed", "engine_outgrew", "engine_stuck", "export_failed", "job_died"),
        "internal",
    ),
    NoRoomError: ("disk_full", "no_room"),
    DeadlineError: ("query_timeout", "deadline_exceeded"),
    ForeignServerError: ("unexpected_answer",),
}
"""The codes of each kind of error; all other codes have the kind of their status."""

STATUSES: Mapping[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    413: TooLargeError,
    421: ForbiddenError,
    423: ConflictError,
    429: BusyError,
    503: BusyError,
    504: DeadlineError,
    507: NoRoomError,
}
"""The kind of error of each status that has its own."""

_BY_CODE = {code: kind for kind, codes in KINDS.items() for code in codes}


def kind_of(code: str, status: int) -> type[ApiError]:
    """Return the class of a refusal: that of its code, else that of its status."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status in STATUSES:
        return STATUSES[status]
    if 400 <= status < 500:
        return InvalidRequestError
    return ServerFailureError if status >= 500 else ApiError


class WaitTimeoutError(ClientError):
    """The client has waited as long as it was allowed to; `status` is the trace or the job as it was last."""

    def __init__(self, status: Mapping[str, Any], timeout_s: float) -> None:
        self.status, self.timeout_s = status, timeout_s
        super().__init__(f"{status['id']} is still {status['state']} after {timeout_s:g} s")


class DigestMismatchError(ClientError):
    """The digest of the server's trace is not that of the sent bytes; the trace is kept for inspection."""

    def __init__(self, trace: Mapping[str, Any], *, sent: str) -> None:
        self.trace, self.sent = trace, sent
        super().__init__(
            f"the bytes changed in transit: sent sha256 {sent}, but the server holds {trace['sha256']} "
            f"as trace {trace['id']}. Remove it and send the file again."
        )


class DamagedDownloadError(ClientError):
    """The received bytes do not match the server's digest."""

    def __init__(self, name: str, *, expected: str, received: str) -> None:
        super().__init__(
            f"the bytes of {name} changed in transit: received sha256 {received}, not {expected}. Try again."
        )


class MissingPackageError(ClientError, ImportError):
    """The conversion of a table needs a package that is not installed; `extra` is the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"this needs the package {package}: pip install 'tracedock[{extra}]'")


class AmbiguousTraceError(ClientError):
    """The text is the name, or the start of the id, of several traces."""

    def __init__(self, text: str, traces: Sequence[Mapping[str, Any]]) -> None:
        self.text, self.traces = text, traces
        listed = "\n".join(f"  {trace['id']}  {trace['created_at']}  {trace['name']}" for trace in traces)
        super().__init__(f"{text!r} matches {len(traces)} traces; give the id of one:\n{listed}")


class AmbiguousTargetError(ClientError):
    """The text matches both a trace and a group."""

    def __init__(self, text: str, traces: Sequence[Mapping[str, Any]], group: Mapping[str, Any]) -> None:
        self.text, self.traces, self.group = text, traces, group
        listed = "\n".join(
            [f"  {trace['id']}  {trace['created_at']}  {trace['name']}" for trace in traces]
            + [f"  {group['id']}  {group['created_at']}  {group['name']} (a group of {group['traces']} traces)"]
        )
        super().__init__(f"{text!r} matches a trace and a group; give the id of one:\n{listed}")


class AmbiguousFileError(ClientError):
    """The text matches both a local file, and a trace or a group on the server."""

    def __init__(self, text: str, url: str, ids: Sequence[str]) -> None:
        self.text, self.url, self.ids = text, url, ids
        super().__init__(
            f"{text!r} matches a local file, and {url} has something of that name, too; write ./{text} for the file, or"
            f" the id: {', '.join(ids)}"
        )

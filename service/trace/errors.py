"""Every error of the domain.

TracedockError
├── UploadError
│   ├── BadName              a file name that is no plain name
│   ├── EmptyBody            an upload of no bytes
│   ├── TooLarge             a body beyond the configured size
│   ├── IncompleteBody       a body that ended before its announced length
│   ├── BadDigest            a digest header that can't be read
│   ├── DigestMismatch       bytes other than the digest promised
│   ├── UnmetExpectation     what a client expects before it sends a body, and is not done here
│   ├── ResumableError       a resumable upload can't go on so
│   │   ├── BadUpload        its request can't be understood
│   │   ├── UnknownUpload    no upload has that id
│   │   ├── UploadGone       it expired, or was ended
│   │   ├── UploadLocked     another chunk of it is on its way
│   │   ├── WrongOffset      it is not that far, or further
│   │   ├── WrongType        a chunk that is not called one
│   │   ├── ChecksumMismatch  bytes other than a chunk's checksum promised
│   │   ├── TooManyUploads   as many as may be are under way
│   │   └── WrongVersion     another version of tus than is spoken here
│   ├── ImportRefused        a path that nothing may be imported from
│   ├── NothingToImport      a path of no file
│   └── DiskFull             no room for the bytes
│       └── NoRoom           more than the quota, or the free space that is to stay
├── IngestError              the file can't be read as a trace; `offset` says where
│   ├── BadCompression       the compressed stream is damaged
│   ├── Truncated            the file ends in the middle
│   ├── NotJson              the bytes are no JSON document
│   ├── NotATrace            JSON, but without trace events
│   ├── OriginalChanged      somebody changed the file that was imported
│   └── WorkerDied           the process that read the file ended before its answer
├── CatalogError
│   ├── UnknownImport        no import has that id
│   ├── UnknownTrace         no trace has that id
│   ├── UnknownGroup         no group has that id
│   ├── BadGroupName         a name that no group can have
│   ├── GroupExists          another group has that name
│   ├── UnknownJob           no job has that id
│   ├── NotReady             the trace has not been read, or could not be
│   ├── BadCursor            a page's cursor that was not given out
│   ├── CatalogInUse         another server has the data folder
│   └── CatalogUnwritable    nothing can be noted in it
├── SelectionError           what was selected can't be had
│   ├── BadSelection         it can't be understood
│   ├── UnknownChoice        it names what the trace does not have
│   ├── NothingSelected      no event matches it
│   ├── BadSlice             text that names no slice
│   ├── UnknownSlice         a slice that the trace, or the selection of it, does not have
│   ├── AmbiguousSlice       a name and a time that several slices have
│   └── CannotMerge          traces that can't become one
├── ExportError
│   ├── NoSuchForm           a form that a trace, or a selection of it, can't be had in
│   ├── NotRedactable        a form of a trace in which no secrets can be hidden
│   └── ExportFailed         the document can't be written from the columns
├── AnalysisError            what was asked of a trace can't be answered
│   ├── UnknownQuestion      there is no analysis of that name
│   ├── BadQuestion          a parameter that it does not have, or a table
│   └── NotApplicable        the trace has nothing that it is about
├── AccessError              the door stays shut
│   ├── Unauthorized         no token, or none that is known
│   ├── ForbiddenScope       a token that may not do this
│   ├── WrongHost            a request that names another host, as after DNS rebinding
│   ├── WrongOrigin          a request that another site's page has made
│   ├── UnknownToken         no token has that name
│   ├── TokenExists          another token has that name
│   ├── BadTokenName         a name that no token can have
│   ├── TokenNeeded          a server that others can reach, and no token
│   └── BadOrigin            a setting that names no origin
├── RequestError             a request that breaks the contract of its route
│   ├── UnknownParameter     a query parameter that the route does not have
│   ├── RepeatedParameter    several values of a query parameter that takes one
│   └── BodyNotJson          a body that is called something else than JSON
├── DeadlineExceeded         the work took longer than the server lets it
├── JobDied                  the process that made traces ended before its answer
├── Cancelled                nobody wants it any more
├── IdempotencyError
│   ├── BadIdempotencyKey    a key that can't be one
│   ├── IdempotencyKeyBusy   the first request with the key is under way
│   └── IdempotencyKeyReused  the key was sent with another request
└── EngineError
    ├── EngineUnavailable    no engine can be had
    ├── EngineBusy           too many requests wait for it
    ├── EnginesKilled        engines died of the client's requests
    ├── StatementKills       engines died of the statement
    ├── TooLargeForEngine    the trace alone would take more memory than engines may
    ├── EngineFailed         the engine died or could not load the trace
    │   ├── EngineOutgrew    it was ended for the memory it took
    │   └── EngineStuck      it was ended because its load stood still
    ├── RequestRefused       a request that would change the shared trace
    ├── SqlRefused           SQL that no engine is asked: it works on files, or changes the shared engine
    ├── SqlError             the engine refused the statement
    ├── QueryTimeout         the statement was stopped at its deadline
    └── ResultTooLarge       the result outgrew its bound
"""

import signal
from typing import Any, ClassVar


def fate(status: int) -> str:
    """How a process ended that has this exit status, or was killed by the signal of minus so much."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


class TracedockError(Exception):
    """An error that a caller can act on.

    Args:
        detail: one sentence saying what happened and where.
        extra: facts that help, as JSON values (an ``offset`` in bytes, a ``limit``).
    """

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON values: ``code``, ``title``, ``detail`` and what else it carries."""
        return {"code": self.code, "title": self.title, "detail": self.detail, **self.extra}


class UploadError(TracedockError):
    """The bytes did not arrive as promised."""


class BadName(UploadError):
    """The file name is not a plain name."""

    code, title = "bad_name", "That is not a plain file name"


class EmptyBody(UploadError):
    """The upload had no bytes."""

    code, title = "empty_body", "The body is empty"


class TooLarge(UploadError):
    """The body is larger than the service takes."""

    code, title = "too_large", "The body is too large"


class IncompleteBody(UploadError):
    """The body ended before its announced length."""

    code, title = "incomplete_body", "The body ended early"


class BadDigest(UploadError):
    """A digest header could not be understood."""

    code, title = "bad_digest", "The digest header can't be read"


class DigestMismatch(UploadError):
    """The bytes that came differ from those the digest was made of."""

    code, title = "digest_mismatch", "The bytes do not match their digest"


class UnmetExpectation(UploadError):
    """The client waits for something before it sends the body that nobody here does."""

    code, title = "unmet_expectation", "That can't be expected here"


class ResumableError(UploadError):
    """A resumable upload can't go on so."""


class BadUpload(ResumableError):
    """The request lacks something, or has what can't be understood."""

    code, title = "bad_upload", "That is no way to upload"


class UnknownUpload(ResumableError):
    """No upload has that id."""

    code, title = "unknown_upload", "There is no such upload"


class UploadGone(ResumableError):
    """The upload expired, or was ended."""

    code, title = "upload_gone", "The upload is gone"


class TooManyUploads(ResumableError):
    """As many uploads are under way as may be."""

    code, title = "too_many_uploads", "Too many uploads are under way"


class UploadLocked(ResumableError):
    """Another chunk of the upload is on its way."""

    code, title = "upload_locked", "Somebody else sends the same"


class WrongOffset(ResumableError):
    """The chunk belongs elsewhere."""

    code, title = "wrong_offset", "The chunk belongs elsewhere"


class WrongType(ResumableError):
    """A chunk comes with another content type."""

    code, title = "wrong_type", "That is no chunk"


class ChecksumMismatch(ResumableError):
    """The chunk that came differs from the one the checksum was made of."""

    code, title = "checksum_mismatch", "The chunk does not match its checksum"


class WrongVersion(ResumableError):
    """The client speaks another version of tus."""

    code, title = "wrong_version", "That version of tus is not spoken here"


class ImportRefused(UploadError):
    """Nothing may be imported from there."""

    code, title = "import_refused", "That may not be imported"


class NothingToImport(UploadError):
    """There is no file to import."""

    code, title = "nothing_to_import", "There is nothing to import"


class DiskFull(UploadError):
    """The disk has no room for the bytes."""

    code, title = "disk_full", "The disk is full"


class NoRoom(DiskFull):
    """The bytes would go beyond the quota, or into the free space that is to stay."""

    code, title = "no_room", "There is no room"


class IngestError(TracedockError):
    """The file can't be read as a trace."""

    code, title = "unreadable", "The trace can't be read"


class BadCompression(IngestError):
    """The compressed stream is damaged."""

    code, title = "bad_compression", "The compressed stream is damaged"


class Truncated(IngestError):
    """The file ends in the middle."""

    code, title = "truncated", "The file is cut off"


class NotJson(IngestError):
    """The bytes are not a JSON document."""

    code, title = "not_json", "The file is not valid JSON"


class NotATrace(IngestError):
    """The document is JSON, but holds no trace events."""

    code, title = "not_a_trace", "The file is no trace"


class OriginalChanged(IngestError):
    """The file that a trace was made of lies outside the data folder, and is not as it was."""

    code, title = "original_changed", "The file was changed"


class WorkerDied(IngestError):
    """The worker process ended before it had an answer."""

    code, title = "worker_died", "The worker that read the trace died"


class CatalogError(TracedockError):
    """The catalog can't give what was asked for."""


class UnknownTrace(CatalogError):
    """No trace has that id."""

    code, title = "unknown_trace", "There is no such trace"


class UnknownImport(CatalogError):
    """No import has that id."""

    code, title = "unknown_import", "There is no such import"


class UnknownGroup(CatalogError):
    """No group has that id."""

    code, title = "unknown_group", "There is no such group"


class BadGroupName(CatalogError):
    """The name can't be shown on a line, or is too long."""

    code, title = "bad_group_name", "That is no name of a group"


class GroupExists(CatalogError):
    """Another group has that name."""

    code, title = "group_exists", "There is a group of that name"


class UnknownJob(CatalogError):
    """No job has that id."""

    code, title = "unknown_job", "There is no such job"


class NotReady(CatalogError):
    """The trace is not ready to be asked."""

    code, title = "not_ready", "The trace is not ready"


class BadCursor(CatalogError):
    """The cursor is not one that a page gave out."""

    code, title = "bad_cursor", "The cursor can't be read"


class CatalogInUse(CatalogError):
    """Another server works on the same data folder."""

    code, title = "catalog_in_use", "The data folder is in use"


class CatalogUnwritable(CatalogError):
    """Nothing can be noted in the catalog."""

    code, title = "catalog_unwritable", "The catalog can't be written"


class SelectionError(TracedockError):
    """What was selected can't be had."""


class BadSelection(SelectionError):
    """The selection can't be understood, or contradicts itself."""

    code, title = "bad_selection", "That is no selection"


class UnknownChoice(SelectionError):
    """The selection names a stream, a step or the like that the trace does not have."""

    code, title = "unknown_choice", "The trace has nothing of that name"


class NothingSelected(SelectionError):
    """No event of the trace matches the selection."""

    code, title = "nothing_selected", "No event matches the selection"


class BadSlice(SelectionError):
    """The text can't be read as a reference to a slice."""

    code, title = "bad_slice", "That does not name a slice"


class UnknownSlice(SelectionError):
    """The trace, or the selection of it, does not have that slice."""

    code, title = "unknown_slice", "There is no such slice"


class AmbiguousSlice(SelectionError):
    """Several slices have that name and begin at that time."""

    code, title = "ambiguous_slice", "Several slices match"


class CannotMerge(SelectionError):
    """The traces can't become one."""

    code, title = "cannot_merge", "The traces can't be merged"


class ExportError(TracedockError):
    """The trace can't be given in that form."""


class NoSuchForm(ExportError):
    """The trace, or the selection of it, can't be had in that form."""

    code, title = "no_such_form", "The trace can't be had in that form"


class NotRedactable(ExportError):
    """Secrets can't be hidden in that form."""

    code, title = "not_redactable", "Secrets can't be hidden in that form"


class ExportFailed(ExportError):
    """The document could not be written from the trace's columns."""

    code, title = "export_failed", "The trace can't be written back"


class AnalysisError(TracedockError):
    """What was asked of a trace can't be answered."""


class UnknownQuestion(AnalysisError):
    """There is no analysis of that name."""

    code, title = "unknown_analysis", "There is no such analysis"


class BadQuestion(AnalysisError):
    """An analysis has no such parameter or table, or a parameter no such value."""

    code, title = "bad_analysis", "The analysis can't be asked so"


class NotApplicable(AnalysisError):
    """The trace has nothing of what an analysis is about."""

    code, title = "not_applicable", "The analysis does not apply to this trace"


class AccessError(TracedockError):
    """The door stays shut."""

    code, title = "forbidden", "That may not be done"


class Unauthorized(AccessError):
    """The request has no token, or none that is known."""

    code, title = "unauthorized", "A token is needed"


class ForbiddenScope(AccessError):
    """The token may read, and this would change something."""

    code, title = "forbidden_scope", "The token may only read"


class WrongHost(AccessError):
    """The request names a host that this server is not."""

    code, title = "wrong_host", "This server has another name"


class WrongOrigin(AccessError):
    """Another site's page has made the request."""

    code, title = "wrong_origin", "Another site's page may not do this"


class UnknownToken(AccessError):
    """No token has that name."""

    code, title = "unknown_token", "There is no such token"


class TokenExists(AccessError):
    """Another token has that name."""

    code, title = "token_exists", "There is a token of that name"


class BadTokenName(AccessError):
    """No token can have that name."""

    code, title = "bad_token_name", "That is no name for a token"


class TokenNeeded(AccessError):
    """The server could be reached from other machines, and nothing would keep them out."""

    code, title = "token_needed", "The server needs a token"


class BadOrigin(AccessError):
    """An allowed origin in the settings is none."""

    code, title = "bad_origin", "That is no origin"


class RequestError(TracedockError):
    """The request breaks the contract of its route."""


class UnknownParameter(RequestError):
    """The query has a parameter that the route does not have."""

    code, title = "unknown_parameter", "There is no such parameter"


class RepeatedParameter(RequestError):
    """The query has several values of a parameter that takes one."""

    code, title = "repeated_parameter", "The parameter takes one value"


class BodyNotJson(RequestError):
    """The body is called something else than JSON."""

    code, title = "body_not_json", "The body is not JSON"


class JobDied(TracedockError):
    """The process that made traces of others ended before it had an answer."""

    code, title = "job_died", "The process that did the job died"


class Cancelled(TracedockError):
    """Somebody cancelled the job before it was over."""

    code, title = "cancelled", "It was cancelled"


class IdempotencyError(TracedockError):
    """The request can't be told from those that it may repeat."""


class BadIdempotencyKey(IdempotencyError):
    """The key can't be one."""

    code, title = "bad_idempotency_key", "That is no idempotency key"


class IdempotencyKeyBusy(IdempotencyError):
    """The first request with the key is still under way."""

    code, title = "idempotency_key_busy", "The same request is under way"


class IdempotencyKeyReused(IdempotencyError):
    """The key was sent with another request before."""

    code, title = "idempotency_key_reused", "The key belongs to another request"


class EngineError(TracedockError):
    """The trace_processor engine can't do what was asked."""


class EngineUnavailable(EngineError):
    """No engine can be started, or none may be started now."""

    code, title = "engine_unavailable", "No engine is available"


class EngineFailed(EngineError):
    """The engine died, or could not load the trace."""

    code, title = "engine_failed", "The engine failed"


class EngineOutgrew(EngineFailed):
    """The engine took more memory than it may, and was ended."""

    code, title = "engine_outgrew", "The engine outgrew its memory"


class EngineStuck(EngineFailed):
    """The engine burnt time on the trace and came no further, and was ended."""

    code, title = "engine_stuck", "The engine is stuck on this trace"


class EngineBusy(EngineError):
    """Too many requests wait for the engine."""

    code, title = "engine_busy", "Too many requests wait for the engine"


class EnginesKilled(EngineError):
    """Engines died of several requests of the client, which has to pause."""

    code, title = "engines_killed", "Your requests end engines"


class StatementKills(EngineError):
    """Engines died of the statement, which is not run again for a while."""

    code, title = "sql_kills_engine", "The statement ends engines"


class TooLargeForEngine(EngineError):
    """The trace would take more memory than all engines together may."""

    code, title = "too_large_for_engine", "The trace is too large for an engine"


class RequestRefused(EngineError):
    """The request would have changed the trace that all clients share."""

    code, title = "request_refused", "The shared trace can't be changed"


class SqlRefused(EngineError):
    """The SQL works on files of the server, or changes the engine that all clients share."""

    code, title = "sql_refused", "That SQL is not run here"


class SqlError(EngineError):
    """The engine refused the statement."""

    code, title = "sql_error", "The engine refused the statement"


class QueryTimeout(EngineError):
    """The statement ran into its deadline and was stopped."""

    code, title = "query_timeout", "The query took too long"


class DeadlineExceeded(TracedockError):
    """An analysis, a dry run, a cut or a download took longer than the server lets one take."""

    code, title = "deadline_exceeded", "The work took too long"


class ResultTooLarge(EngineError):
    """The result outgrew its bound."""

    code, title = "result_too_large", "The result is too large"


def again(told: dict[str, Any]) -> TracedockError:
    """The error that another process told of, as `TracedockError.as_dict` gives it."""
    facts = dict(told)
    code, _, detail = facts.pop("code"), facts.pop("title"), facts.pop("detail")
    kinds = [TracedockError]
    for kind in kinds:
        if kind.code == code:
            return kind(detail, **facts)
        kinds += kind.__subclasses__()
    return TracedockError(detail, **facts)

"""Errors of the domain.

TracedockError
├── UploadError
│   ├── BadName                  a file name with separators or control characters
│   ├── EmptyBody                an upload without bytes
│   ├── TooLarge                 a body beyond the configured size
│   ├── IncompleteBody           a body that ended before its announced length
│   ├── BadDigest                a malformed digest header
│   ├── DigestMismatch           bytes that do not match their digest
│   ├── BadAttachment            a file that can't be attached to a trace or a run
│   ├── ExpectationFailed        an `Expect` header that the server does not support
│   ├── ResumableError           a resumable upload that can't continue
│   │   ├── BadUpload            a malformed request
│   │   ├── UnknownUpload        no upload has that id
│   │   ├── UploadGone           the upload expired or was terminated
│   │   ├── UploadLocked         another request writes to it
│   │   ├── WrongOffset          a chunk that does not start at the upload's offset
│   │   ├── WrongType            a chunk of another content type
│   │   ├── ChecksumMismatch     a chunk that does not match its checksum
│   │   ├── TooManyUploads       the maximum of unfinished uploads is reached
│   │   └── WrongVersion         a version of tus that the server does not support
│   ├── DirectUploadsOff         a direct upload to a server without a bucket
│   ├── ObjectMissing            a direct upload whose object has not arrived
│   ├── WrongSize                a direct upload of another size than announced
│   ├── ImportRefused            a path outside of the import roots
│   ├── NothingToImport          a path without files
│   └── DiskFull                 no space left on the disk
│       └── InsufficientStorage  the quota or the minimum of free space would be violated
├── IngestError                  a file that can't be read as a trace; `offset` is the position in bytes
│   ├── BadCompression           a corrupt compressed stream
│   ├── Truncated                a file that ends early
│   ├── NotJson                  a file that is not JSON
│   ├── NotATrace                JSON without trace events
│   ├── BadExecutionTrace        an execution trace that is damaged, or of an unknown version
│   ├── OriginalChanged          an imported file that was modified later
│   └── WorkerDied               the worker process died before it returned a result
├── CatalogError
│   ├── UnknownImport            no import has that id
│   ├── UnknownTrace             no trace has that id
│   ├── UnknownGroup             no group has that id
│   ├── BadGroupName             a name that groups can't have
│   ├── GroupExists              another group has that name
│   ├── UnknownAttachment        no attachment has that id
│   ├── UnknownTable             an attachment has no such table
│   ├── UnknownBaseline          no baseline has that name
│   ├── BadBaselineName          a name that baselines can't have
│   ├── UnknownJob               no job has that id
│   ├── NotReady                 a trace that is not ingested yet, or failed
│   ├── BadCursor                a cursor that no page returned
│   ├── CatalogInUse             another server uses the data folder
│   └── CatalogUnwritable        the catalog is read-only
├── SelectionError               a selection that can't be served
│   ├── BadSelection             a malformed or contradictory selection
│   ├── UnknownChoice            a value that the trace does not have
│   ├── NothingSelected          no event matches
│   ├── BadSlice                 a malformed reference to a slice
│   ├── UnknownSlice             a slice that the trace or the selection does not have
│   ├── AmbiguousSlice           several slices of that name and start
│   ├── UnknownCycle             a cycle that the traces of a run do not have
│   └── CannotMerge              traces that can't be merged
├── ExportError
│   ├── FormatUnavailable        a format that the trace or the selection is not available in
│   ├── NotRedactable            a format that does not support redaction
│   ├── SourceUnavailable        a source that engines can't load for a trace or a selection
│   └── ExportFailed             the document can't be written from the columns
├── AnalysisError                an analysis that can't run
│   ├── UnknownAnalysis          no analysis has that name
│   ├── BadAnalysisRequest       an unknown parameter, table or value
│   └── NotApplicable            a trace without the data that the analysis needs
├── AccessError                  access denied
│   ├── Unauthorized             no token, or an unknown one
│   ├── InsufficientScope        a token without write scope
│   ├── WrongHost                a foreign `Host` header, as after DNS rebinding
│   ├── WrongOrigin              a request from another site's page
│   ├── UnknownToken             no token has that name
│   ├── TokenExists              another token has that name
│   ├── BadTokenName             a name that tokens can't have
│   ├── TokenRequired            a server on a public address without a token
│   └── BadOrigin                a setting that is not an origin
├── RequestError                 a request that violates the contract of its route
│   ├── UnknownParameter         an unknown query parameter
│   ├── RepeatedParameter        several values of a query parameter that takes one
│   ├── BodyNotJson              a body of another content type than JSON
│   ├── BadRange                 a range without a byte of the file
│   └── PreconditionFailed       a file that is not the one that the request names
├── DeadlineExceeded             work that took longer than its timeout
├── JobDied                      the job process died before it returned a result
├── Cancelled                    a job that a client cancelled
├── IdempotencyError
│   ├── BadIdempotencyKey        a malformed key
│   ├── IdempotencyKeyBusy       the first request with the key is in progress
│   └── IdempotencyKeyReused     a key that was sent with another request
├── LocationError                a folder or a bucket that can't be used
│   ├── BadLocation              a URL that is malformed or of an unknown kind
│   ├── UnknownLocation          a folder, bucket or file that does not exist
│   ├── LocationDenied           missing or refused credentials or permissions
│   ├── LocationUnavailable      a store that can't be reached, or fails
│   └── SourceChanged            a file that was changed while it was read
├── FleetError                   work on many traces that can't run
│   ├── FleetUnavailable         packages that are not installed
│   ├── BadFleetRequest          options that contradict each other, or that are not safe
│   │   ├── UnknownFleetRun      no run of the dataset has that name
│   │   └── UnknownQuestion      no question about a fleet has that name
│   ├── UnknownDataset           the server shows no dataset of that name
│   ├── DatasetUnavailable       a dataset that can't be read now
│   ├── ClusterUnavailable       a scheduler that can't be reached, or a cluster without workers
│   ├── ClusterLost              a scheduler that died, and with it what it knew of a task
│   ├── DataFolderMissing        a worker that does not see the data folder
│   ├── OtherVersion             a worker or a scheduler with other code
│   ├── TaskFailed               work that failed for a reason that is not known
│   └── BadDataset               a location without a dataset, or with one of another version
└── EngineError
    ├── EngineUnavailable        no engine can be started
    ├── EngineBusy               the queue of the engine is full
    ├── ClientBlocked            a client whose requests crashed engines
    ├── StatementBlocked         a statement that crashed engines
    ├── TooLargeForEngine        a trace that needs more memory than all engines may use
    ├── EngineFailed             the engine died or failed to load the trace
    │   ├── EngineOutOfMemory    the engine exceeded its memory limit and was killed
    │   └── EngineStalled        the engine was killed because its load made no progress
    ├── RequestRefused           a request that would change the shared trace
    ├── SqlRefused               SQL that uses files or changes the shared engine
    ├── SqlError                 the engine rejected the statement
    ├── QueryTimeout             the statement exceeded its timeout
    └── ResultTooLarge           the result exceeded its size limit
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


def describe_exit(status: int) -> str:
    """Describe how a process ended.

    Args:
        status: its exit status; minus the number of the signal that killed it.
    """
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


@dataclass(frozen=True)
class ErrorDocument:
    """An error as the catalog keeps it and processes exchange it.

    It keeps the code and the title of an error that another version of the service has recorded.

    Attributes:
        code: stable name of the kind of error.
        title: the kind of error, for people.
        detail: a sentence that says what happened and where.
        facts: further facts as JSON values, like an ``offset`` in bytes or a ``limit``.
    """

    code: str
    title: str
    detail: str
    facts: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ErrorDocument":
        """Restore an error from the JSON values of `as_dict`."""
        facts = dict(values)
        return cls(facts.pop("code", ""), facts.pop("title", ""), facts.pop("detail", ""), facts)

    def as_dict(self) -> dict[str, object]:
        """Return the error as JSON values, with its facts next to ``code``, ``title`` and ``detail``."""
        return {"code": self.code, "title": self.title, "detail": self.detail, **self.facts}


class TracedockError(Exception):
    """Error that a caller can act on.

    Args:
        detail: a sentence that says what happened and where.
        extra: further facts as JSON values, like an ``offset`` in bytes or a ``limit``.
    """

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def as_document(self) -> ErrorDocument:
        """Return the error as the catalog keeps it."""
        return ErrorDocument(self.code, self.title, self.detail, self.extra)

    def as_dict(self) -> dict[str, object]:
        """Return the error as JSON values; see `ErrorDocument.as_dict`."""
        return self.as_document().as_dict()


class UploadError(TracedockError):
    """The upload failed."""


class BadName(UploadError):
    """The file name is not a plain name."""

    code, title = "bad_name", "The file name is not allowed"


class EmptyBody(UploadError):
    """The upload has no bytes."""

    code, title = "empty_body", "The body is empty"


class TooLarge(UploadError):
    """The body is larger than the configured maximum."""

    code, title = "too_large", "The body is too large"


class IncompleteBody(UploadError):
    """The body ended before its announced length."""

    code, title = "incomplete_body", "The body ended early"


class BadDigest(UploadError):
    """The digest header is malformed."""

    code, title = "bad_digest", "The digest header is malformed"


class DigestMismatch(UploadError):
    """The received bytes do not match the digest."""

    code, title = "digest_mismatch", "The bytes do not match their digest"


class BadAttachment(UploadError):
    """The file is a trace, or neither a known report nor text."""

    code, title = "bad_attachment", "The file can't be attached"


class ExpectationFailed(UploadError):
    """The server does not support the `Expect` header of the request."""

    code, title = "unmet_expectation", "The expectation is not supported"


class ResumableError(UploadError):
    """A resumable upload can't continue."""


class BadUpload(ResumableError):
    """A request of a resumable upload is malformed."""

    code, title = "bad_upload", "The upload request is malformed"


class UnknownUpload(ResumableError):
    """No upload has that id."""

    code, title = "unknown_upload", "There is no such upload"


class UploadGone(ResumableError):
    """The upload expired or was terminated."""

    code, title = "upload_gone", "The upload is gone"


class TooManyUploads(ResumableError):
    """The maximum of unfinished uploads is reached."""

    code, title = "too_many_uploads", "Too many uploads are unfinished"


class UploadLocked(ResumableError):
    """Another request writes to the upload."""

    code, title = "upload_locked", "Another request writes to this upload"


class WrongOffset(ResumableError):
    """The chunk does not start at the upload's offset."""

    code, title = "wrong_offset", "The chunk starts at the wrong offset"


class WrongType(ResumableError):
    """The chunk has the wrong content type."""

    code, title = "wrong_type", "The chunk has the wrong content type"


class ChecksumMismatch(ResumableError):
    """The chunk does not match its checksum."""

    code, title = "checksum_mismatch", "The chunk does not match its checksum"


class WrongVersion(ResumableError):
    """The server does not support this version of tus."""

    code, title = "wrong_version", "That version of tus is not supported"


class DirectUploadsOff(UploadError):
    """The server has no bucket for direct uploads."""

    code, title = "direct_uploads_off", "Direct uploads are off"


class ObjectMissing(UploadError):
    """The object of a direct upload has not arrived."""

    code, title = "object_missing", "The object has not arrived"


class WrongSize(UploadError):
    """The object of a direct upload has another size than announced."""

    code, title = "wrong_size", "The object has another size"


class ImportRefused(UploadError):
    """The path is not inside an import root."""

    code, title = "import_refused", "The import is not allowed"


class NothingToImport(UploadError):
    """The path has no file to import."""

    code, title = "nothing_to_import", "There is nothing to import"


class DiskFull(UploadError):
    """The disk has no space left for the bytes."""

    code, title = "disk_full", "The disk is full"


class InsufficientStorage(DiskFull):
    """The bytes would exceed the quota or the minimum of free space."""

    code, title = "no_room", "Not enough storage is left"


class IngestError(TracedockError):
    """The file can't be read as a trace."""

    code, title = "unreadable", "The trace can't be read"


class BadCompression(IngestError):
    """The compressed stream is corrupt."""

    code, title = "bad_compression", "The compressed stream is damaged"


class Truncated(IngestError):
    """The file ends before its document does."""

    code, title = "truncated", "The file is truncated"


class NotJson(IngestError):
    """The file is not a JSON document."""

    code, title = "not_json", "The file is not valid JSON"


class NotATrace(IngestError):
    """The document is JSON, but has no trace events."""

    code, title = "not_a_trace", "The file is not a trace"


class BadExecutionTrace(IngestError):
    """The execution trace is damaged, too large or of an unknown version."""

    code, title = "bad_execution_trace", "The execution trace can't be read"


class OriginalChanged(IngestError):
    """The imported file outside of the data folder was modified."""

    code, title = "original_changed", "The imported file was modified"


class WorkerDied(IngestError):
    """The worker process died before it returned a result."""

    code, title = "worker_died", "The worker that read the trace died"


class CatalogError(TracedockError):
    """The catalog can't serve the request."""


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
    """The name has control characters or is too long."""

    code, title = "bad_group_name", "The group name is not allowed"


class GroupExists(CatalogError):
    """Another group has that name."""

    code, title = "group_exists", "A group of that name exists"


class UnknownAttachment(CatalogError):
    """No attachment has that id."""

    code, title = "unknown_attachment", "There is no such attachment"


class UnknownTable(CatalogError):
    """The attachment has no such table."""

    code, title = "unknown_table", "There is no such table"


class UnknownBaseline(CatalogError):
    """No baseline has that name."""

    code, title = "unknown_baseline", "There is no such baseline"


class BadBaselineName(CatalogError):
    """The name has characters that names of baselines can't have, or is too long."""

    code, title = "bad_baseline_name", "The baseline name is not allowed"


class UnknownJob(CatalogError):
    """No job has that id."""

    code, title = "unknown_job", "There is no such job"


class NotReady(CatalogError):
    """The trace is not ingested yet, or failed, or has no engine that runs."""

    code, title = "not_ready", "The trace or its engine is not ready"


class BadCursor(CatalogError):
    """No page returned the cursor."""

    code, title = "bad_cursor", "The cursor is invalid"


class CatalogInUse(CatalogError):
    """Another server uses the data folder."""

    code, title = "catalog_in_use", "The data folder is in use"


class CatalogUnwritable(CatalogError):
    """The catalog is read-only."""

    code, title = "catalog_unwritable", "The catalog can't be written"


class SelectionError(TracedockError):
    """The selection can't be served."""


class BadSelection(SelectionError):
    """The selection is malformed or contradicts itself."""

    code, title = "bad_selection", "The selection is invalid"


class UnknownChoice(SelectionError):
    """The trace does not have a stream, step or other value that the selection names."""

    code, title = "unknown_choice", "The trace has nothing of that name"


class NothingSelected(SelectionError):
    """No event of the trace matches the selection."""

    code, title = "nothing_selected", "No event matches the selection"


class BadSlice(SelectionError):
    """The reference to a slice is malformed."""

    code, title = "bad_slice", "The slice reference is malformed"


class UnknownSlice(SelectionError):
    """The trace or the selection does not have that slice."""

    code, title = "unknown_slice", "There is no such slice"


class AmbiguousSlice(SelectionError):
    """Several slices have that name and start."""

    code, title = "ambiguous_slice", "Several slices match"


class UnknownCycle(SelectionError):
    """The traces do not have that cycle of the profiler's schedule."""

    code, title = "unknown_cycle", "There is no such cycle"


class CannotMerge(SelectionError):
    """The traces can't be merged."""

    code, title = "cannot_merge", "The traces can't be merged"


class ExportError(TracedockError):
    """The trace can't be exported."""


class FormatUnavailable(ExportError):
    """The trace or the selection is not available in that format."""

    code, title = "no_such_form", "The format is not available"


class SourceUnavailable(ExportError):
    """Engines can't load the trace, or the selection, from that source."""

    code, title = "source_unavailable", "The engine can't load that source"


class NotRedactable(ExportError):
    """Secrets can't be redacted in that format."""

    code, title = "not_redactable", "The format does not support redaction"


class ExportFailed(ExportError):
    """The document or the answer can't be made from the trace's columns."""

    code, title = "export_failed", "The document or the answer can't be made"


class AnalysisError(TracedockError):
    """The analysis can't run."""


class UnknownAnalysis(AnalysisError):
    """No analysis has that name."""

    code, title = "unknown_analysis", "There is no such analysis"


class BadAnalysisRequest(AnalysisError):
    """The analysis does not have that parameter, table or value."""

    code, title = "bad_analysis", "The analysis request is invalid"


class NotApplicable(AnalysisError):
    """The trace does not have the data that the analysis needs."""

    code, title = "not_applicable", "The analysis does not apply to this trace"


class AccessError(TracedockError):
    """Access is denied."""

    code, title = "forbidden", "Access is denied"


class Unauthorized(AccessError):
    """The request has no token, or an unknown one."""

    code, title = "unauthorized", "A valid token is required"


class InsufficientScope(AccessError):
    """The token does not have write scope."""

    code, title = "forbidden_scope", "The token is read-only"


class WrongHost(AccessError):
    """The `Host` header does not name this server."""

    code, title = "wrong_host", "The host name is not allowed"


class WrongOrigin(AccessError):
    """The request comes from a page of another origin."""

    code, title = "wrong_origin", "The origin is not allowed"


class UnknownToken(AccessError):
    """No token has that name."""

    code, title = "unknown_token", "There is no such token"


class TokenExists(AccessError):
    """Another token has that name."""

    code, title = "token_exists", "A token of that name exists"


class BadTokenName(AccessError):
    """Tokens can't have that name."""

    code, title = "bad_token_name", "The token name is not allowed"


class TokenRequired(AccessError):
    """The server listens on a public address without a token."""

    code, title = "token_needed", "The server needs a token"


class BadOrigin(AccessError):
    """A setting of allowed origins has a value that is not an origin."""

    code, title = "bad_origin", "The origin is malformed"


class RequestError(TracedockError):
    """The request violates the contract of its route."""


class UnknownParameter(RequestError):
    """The route does not have that query parameter."""

    code, title = "unknown_parameter", "There is no such parameter"


class RepeatedParameter(RequestError):
    """The query has several values of a parameter that takes one."""

    code, title = "repeated_parameter", "The parameter takes one value"


class BodyNotJson(RequestError):
    """The content type of the body is not JSON."""

    code, title = "body_not_json", "The body is not JSON"


class BadRange(RequestError):
    """The file has no byte of a range that the request asks for."""

    code, title = "bad_range", "The file has no such range"


class PreconditionFailed(RequestError):
    """A condition of the request does not hold for the file."""

    code, title = "precondition_failed", "A condition of the request does not hold"


class JobDied(TracedockError):
    """The process of a split, merge or overlay died before it returned a result."""

    code, title = "job_died", "The process that did the job died"


class Cancelled(TracedockError):
    """A client cancelled the job."""

    code, title = "cancelled", "The job was cancelled"


class IdempotencyError(TracedockError):
    """The idempotency key can't be honoured."""


class BadIdempotencyKey(IdempotencyError):
    """The key is malformed."""

    code, title = "bad_idempotency_key", "The idempotency key is malformed"


class IdempotencyKeyBusy(IdempotencyError):
    """The first request with the key is still in progress."""

    code, title = "idempotency_key_busy", "The same request is in progress"


class IdempotencyKeyReused(IdempotencyError):
    """The key was sent with another request before."""

    code, title = "idempotency_key_reused", "The key belongs to another request"


class EngineError(TracedockError):
    """The trace_processor engine can't serve the request."""


class EngineUnavailable(EngineError):
    """No engine can be started now."""

    code, title = "engine_unavailable", "No engine is available"


class EngineFailed(EngineError):
    """The engine died or failed to load the trace."""

    code, title = "engine_failed", "The engine failed"


class EngineOutOfMemory(EngineFailed):
    """The engine exceeded its memory limit and was killed."""

    code, title = "engine_outgrew", "The engine ran out of memory"


class EngineStalled(EngineFailed):
    """The engine was killed because its load made no progress."""

    code, title = "engine_stuck", "The engine is stuck on this trace"


class EngineBusy(EngineError):
    """The queue of the engine is full."""

    code, title = "engine_busy", "Too many requests wait for the engine"


class ClientBlocked(EngineError):
    """Several requests of the client crashed engines; it has to pause."""

    code, title = "engines_killed", "Your requests crash engines"


class StatementBlocked(EngineError):
    """The statement crashed engines and is blocked for a while."""

    code, title = "sql_kills_engine", "The statement crashes engines"


class TooLargeForEngine(EngineError):
    """The trace needs more memory than all engines together may use."""

    code, title = "too_large_for_engine", "The trace is too large for an engine"


class RequestRefused(EngineError):
    """The request would change the trace that all clients share."""

    code, title = "request_refused", "The shared trace can't be changed"


class SqlRefused(EngineError):
    """The SQL uses files of the server or changes the engine that all clients share."""

    code, title = "sql_refused", "The SQL is not allowed"


class SqlError(EngineError):
    """The engine rejected the statement."""

    code, title = "sql_error", "The engine refused the statement"


class QueryTimeout(EngineError):
    """The statement exceeded its timeout."""

    code, title = "query_timeout", "The query took too long"


class DeadlineExceeded(TracedockError):
    """An analysis, dry run, cut or download took longer than its timeout."""

    code, title = "deadline_exceeded", "The work took too long"


class ResultTooLarge(EngineError):
    """The result exceeded its size limit."""

    code, title = "result_too_large", "The result is too large"


class LocationError(TracedockError):
    """A folder or a bucket can't be used."""


class BadLocation(LocationError):
    """The URL is malformed or of an unknown kind."""

    code, title = "bad_location", "The location is not valid"


class UnknownLocation(LocationError):
    """The folder, bucket or file does not exist."""

    code, title = "unknown_location", "There is no such location"


class LocationDenied(LocationError):
    """Credentials or permissions are missing or refused."""

    code, title = "location_denied", "The location refuses access"


class LocationUnavailable(LocationError):
    """The store can't be reached, or fails."""

    code, title = "location_unavailable", "The location can't be used"


class SourceChanged(LocationError):
    """The file was changed while it was read."""

    code, title = "source_changed", "The file was changed"


class FleetError(TracedockError):
    """Work on many traces can't run."""


class FleetUnavailable(FleetError):
    """The packages for work on many traces are not installed."""

    code, title = "fleet_unavailable", "Packages are missing"


class BadFleetRequest(FleetError):
    """Options contradict each other, or are not safe."""

    code, title = "bad_fleet_request", "The request is not valid"


class UnknownFleetRun(BadFleetRequest):
    """No run of the dataset has that name."""

    code, title = "unknown_run", "The dataset has no such run"


class UnknownQuestion(BadFleetRequest):
    """No question about a fleet has that name."""

    code, title = "unknown_question", "There is no such question"


class UnknownDataset(FleetError):
    """The server shows no dataset of that name."""

    code, title = "unknown_dataset", "There is no such dataset"


class DatasetUnavailable(FleetError):
    """The dataset can't be read now."""

    code, title = "dataset_unavailable", "The dataset can't be read"


class ClusterUnavailable(FleetError):
    """The scheduler can't be reached, or the cluster has no worker."""

    code, title = "cluster_unavailable", "The cluster can't be used"


class ClusterLost(FleetError):
    """The scheduler was lost, and with it all that it knew of the task."""

    code, title = "cluster_lost", "The cluster was lost"


class DataFolderMissing(FleetError):
    """A worker of the cluster does not see the server's data folder."""

    code, title = "data_folder_missing", "A worker does not see the data folder"


class OtherVersion(FleetError):
    """A worker or the scheduler has other code."""

    code, title = "other_version", "The cluster has another version"


class TaskFailed(FleetError):
    """Work failed for a reason that is not known."""

    code, title = "task_failed", "The work failed"


class BadDataset(FleetError):
    """The location has no dataset, or one of another version."""

    code, title = "bad_dataset", "There is no dataset of this version"


def error_from_document(document: ErrorDocument) -> TracedockError:
    """Restore an error from its document; an unknown code yields a `TracedockError`."""
    kinds = [TracedockError]
    for kind in kinds:
        if kind.code == document.code:
            return kind(document.detail, **document.facts)
        kinds += kind.__subclasses__()
    return TracedockError(document.detail, **document.facts)

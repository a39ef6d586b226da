"""The JSON objects of the API: responses are built of these models, and the documentation shows them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from typing_extensions import TypeAliasType

from service.engine.session import SessionState
from service.formats.attachments import AttachmentKind
from service.formats.names import FILE_FORMATS
from service.jobs.children.tasks.datasets import DatasetStatus, IngestStatus
from service.store.catalog import State
from service.store.jobs import JobState
from service.store.tokens import Scope
from service.trace.selection import Selection
from service.trace.selection_fields import Args, ViewSource
from service.trace.summary import ExternalIdKind, InputKind

SelectionValues = Annotated[Selection, PlainSerializer(Selection.as_dict, return_type=dict[str, Any])]
"""A selection, which responses show without defaults."""

Cell = TypeAliasType("Cell", int | float | str | None)
"""A value in a table."""

TraceFormat = Annotated[str, WithJsonSchema({"type": "string", "enum": [*FILE_FORMATS]})]
"""The format of a file."""

BaselineKind = Literal["trace", "group"]
"""What a baseline has as its target."""

JobPriority = Literal["interactive", "bulk"]
"""The place of a job in the queue."""

Timestamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time in RFC 3339, in UTC."""

ErrorCode = TypeAliasType("ErrorCode", str)
"""The stable name of a kind of error; `problem_kinds` lists them."""

ParameterValue = TypeAliasType("ParameterValue", bool | int | float | str | None)
"""The value of a parameter of an analysis."""


class Shape(BaseModel):
    """An object of the API."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class Error(BaseModel):
    """An error, with fields of its own, such as an ``offset``, a ``limit`` or a ``line``."""

    model_config = ConfigDict(extra="allow")

    code: ErrorCode = Field(description="stable: scripts may rely on it")
    title: str = Field(description="the kind of error, for people")
    detail: str = Field(description="a sentence that says what happened and where")


class Fault(Shape):
    """A fault of a request."""

    where: str = Field(description="the place, like `body.sql` or `query.limit`")
    what: str = Field(description="what is wrong there")


class Problem(Error):
    """An error response (RFC 9457), with fields of its own, such as an ``offset``, a ``limit`` or a ``line``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:tracedock:unknown_trace",
                    "title": "There is no such trace",
                    "status": 404,
                    "detail": "No trace has the id '14d77f0f19d4'.",
                    "code": "unknown_trace",
                }
            ]
        }
    )

    type: str = Field(description="`urn:tracedock:` and the code")
    status: int = Field(description="the HTTP status")
    retry_after_s: int | None = Field(None, description="seconds to wait before the request is repeated, if it may be")
    faults: list[Fault] | None = Field(None, description="of `bad_request`: all faults of the request")
    parameter: str | None = Field(None, description="of `unknown_parameter` and `repeated_parameter`: its name")
    nearest: str | None = Field(None, description="of `unknown_parameter`: the known one that it resembles")
    known: list[str] | None = Field(None, description="of `unknown_parameter`: all known ones")


class Bounds(Shape):
    """A span of time in integer ns, in the trace's own clock."""

    start_ns: int = Field(description="start of the first event")
    end_ns: int = Field(description="end of the last event")


class EventCounts(Shape):
    """Numbers of events; ``in`` is the sum of the others."""

    in_: int = Field(alias="in", description="elements that the file has")
    kept: int = Field(description="events that were kept")
    refused: int = Field(description="elements that were left out")


class Process(Shape):
    """A process that the trace names, or that has events."""

    pid: int | str = Field(description="its id; text if the trace writes it so")
    name: str | None = Field(description="its name, if the trace has it")
    labels: str | None = Field(description="its labels, if the trace has them")
    events: int = Field(description="number of its events")


class Thread(Shape):
    """A thread of the host, or a stream of a device, that has events."""

    pid: int | str = Field(description="the id of its process; text if the trace writes it so")
    tid: int | str = Field(description="its id; text if the trace writes it so")
    name: str | None = Field(description="its name, if the trace has it")
    events: int = Field(description="number of its events")
    device: int | None = Field(description="the device whose work it shows")
    host: bool = Field(description="whether it shows work of a host")


class Device(Shape):
    """A device that the trace describes, or that has work; its events and bounds are those of its work."""

    id: int | str = Field(description="its number; text if the trace writes it so")
    name: str | None = Field(description="the model, if the trace has it")
    memory_bytes: int | None = Field(description="its memory, if the trace has it")
    events: int = Field(description="number of kernels, copies and memsets")
    bounds: Bounds | None = Field(description="the span of its work; null without any")


class Step(Shape):
    """One ``ProfilerStep#N`` of the host."""

    number: int = Field(description="the N of `ProfilerStep#N`")
    name: str = Field(description="`ProfilerStep#N`")
    start_ns: int = Field(description="its start in ns, in the trace's own clock")
    end_ns: int = Field(description="its end in ns, in the trace's own clock")
    pid: int | str | None = Field(None, description="of the process that annotated it")
    tid: int | str | None = Field(None, description="of the thread that annotated it")


class Progress(Shape):
    """Bytes of the file and events that have been read so far."""

    bytes: int = Field(description="bytes of the file that have been read")
    bytes_total: int = Field(description="bytes of the file")
    events: int = Field(description="events that have been read")


class HealthExample(Shape):
    """A place in the document, and the text there, of at most a line and without secrets."""

    offset: int | None = Field(description="byte of the document, once unpacked; of the file for `bad_compression`")
    text: str | None = Field(description="the text there; null if there is none to show")


class HealthNote(Shape):
    """A fault in the document: its elements were refused or repaired, or are only odd."""

    code: str = Field(description="stable: scripts may rely on it")
    kind: Literal["refused", "repaired", "oddity"] = Field(
        description="what happened to the elements: they were left out, repaired, or kept although they are odd"
    )
    detail: str = Field(description="the fault, in a sentence")
    count: int = Field(description="number of elements with this fault")
    examples: list[HealthExample] = Field(description="the first ones")


class HealthReport(Shape):
    """The faults of the document: what was refused, repaired or is odd, in that order."""

    repaired: int = Field(0, description="repairs")
    refused: int = Field(0, description="elements left out")
    notes: list[HealthNote] = Field([], description="the faults, in the order: refused, repaired, odd")


class Residual(Shape):
    """Distances between the ends of collectives on a rank and the median of their ends on all ranks."""

    median: int = Field(description="the median distance in ns")
    p95: int = Field(description="the 95th percentile in ns")
    max: int = Field(description="the largest distance in ns")


class MergedInput(Shape):
    """An input beside the trace of its rank in a merged trace; its events have no rank."""

    kind: InputKind = Field(description="what recorded it")
    name: str = Field(description="the name of its trace")
    base_ns: int | None = Field(description="the zero of its own clock in ns since the epoch, if known")
    shift_ns: int = Field(description="the number that was added to its times")
    pids: list[list[int | str]] = Field(description="pairs of pids: in this trace, and in its own")


class MergedRank(Shape):
    """A rank of a merged trace, and its alignment to the common clock."""

    rank: int = Field(description="the rank")
    name: str = Field(description="the name of its trace")
    base_ns: int | None = Field(description="the zero of its own clock in ns since the epoch, if known")
    shift_ns: int = Field(description="the number that was added to its times")
    collectives: int = Field(description="the number of its collectives that other ranks have, too")
    residual_ns: Residual | None = Field(description="null without any")
    pids: list[list[int | str]] = Field(description="pairs of pids: in this trace, and in the trace of the rank")
    beside: list[MergedInput] = Field([], description="other inputs of the rank, such as a memory snapshot")


class GroupReference(Shape):
    """The group of a trace."""

    id: str = Field(description="the id of the group")
    name: str = Field(description="the name of the group")


class Attribution(Shape):
    """The assignment of device work to operators."""

    external_ids: ExternalIdKind | None = Field(
        None, description="the meaning of the External ids of work, as seen in the trace; only `operators` are used"
    )
    rules: dict[str, int] = Field(
        {},
        description="numbers of kernels, copies and memsets by the rule that assigned their operator: `launch`, `graph`"
        " or `external_id`; or by the reason why they have none: `launch_outside_operators`,"
        " `graph_outside_operators` or `no_launch`",
    )


class TraceInBrief(Shape):
    """A trace as lists show it."""

    id: str = Field(description="its id")
    name: str = Field(description="the file name")
    state: State = Field(description="`ready` and `failed` are final")
    error: Error | None = Field(description="the reason why it is `failed`")
    created_at: Timestamp = Field(description="when it was uploaded, imported or made")
    size: int = Field(description="bytes of the file; of the columns if the trace was made here")
    sha256: str | None = Field(description="of the file; null if the trace was made here")
    has_original: bool = Field(
        description="whether the file is kept; false if the trace was made here, and for exports of Nsight Systems"
    )
    sources: list[ViewSource] = Field(
        description="what engines can load: the events in `columns`, and the `original` of a Perfetto trace, which is"
        " the only one if the trace has no events; the first is the default"
    )
    format: TraceFormat | None = Field(
        description="the format of the file; null until it is read, and if the trace was made here"
    )
    rank: int | None = Field(description="the rank that wrote it, if the trace has it")
    world_size: int | None = Field(description="number of ranks of the run, if the trace has it")
    backend: str | None = Field(description="the communication library, like `nccl`, if the trace has it")
    host: str | None = Field(description="the name of the machine that wrote it, if the trace has it")
    group: GroupReference | None = Field(description="the group that it belongs to")
    pinned: bool = Field(description="whether retention keeps it")
    path: str | None = Field(description="the path of its file on the server, if that is not in the data folder")
    parent: str | None = Field(description="the trace that it was made of")
    selection: SelectionValues | None = Field(description="the part of that trace that it keeps")
    bounds: Bounds | None = Field(
        description="the span of its events, except for Kineto's mark `Record Window End` behind them; null until it is"
        " read, or without events"
    )
    base_ns: int | None = Field(description="the zero of the trace's clock in ns since the epoch, if known")
    events: EventCounts = Field(description="numbers of its events")
    devices: list[Device] = Field(description="devices that it describes, or that have work")
    streams: list[str] = Field(description="device/stream")
    steps_count: int = Field(description="number of its steps")
    attribution: Attribution = Field(description="the assignment of device work to operators")
    health: HealthReport = Field(description="the faults of the document")
    job: str | None = Field(description="the job that reads it, or has read it")
    progress: Progress = Field(description="the progress of reading it")


class Trace(TraceInBrief):
    """A trace with all lists."""

    counts: dict[str, int] = Field(description="events by phase|category")
    processes: list[Process] = Field(description="its processes")
    threads: list[Thread] = Field(description="its threads and streams")
    steps: list[Step] = Field(description="its steps")
    ranks: list[MergedRank] = Field(description="of a merged trace: the ranks that it was made of")
    totals: dict[str, int] = Field(
        description="the full lengths of lists that are cut here because they are very long; SQL (`process`, `thread`),"
        " the analysis `steps` and the columns of a download have all entries"
    )


class Traces(Shape):
    """A page of traces."""

    traces: list[TraceInBrief] = Field(description="the traces of this page")
    next: str | None = Field(description="cursor of the following page")


class Upload(Shape):
    """A resumable upload."""

    id: str = Field(description="its id")
    name: str = Field(description="the file name of the trace to be")
    length: int | None = Field(description="bytes; null until the client sends it")
    offset: int = Field(description="bytes on disk")
    expires_at: Timestamp | None = Field(
        description="when it is removed if no byte arrives before; null if it is complete"
    )
    trace: str | None = Field(description="the trace that it became")


class DirectUpload(Shape):
    """An upload into the server's bucket."""

    id: str = Field(description="its id, which is also that of the trace to be")
    name: str = Field(description="the file name of the trace to be")
    size: int = Field(description="bytes that were announced")
    state: Literal["open", "complete"] = Field(description="`complete` once it is a trace")
    expires_at: Timestamp = Field(description="when an open one is removed, with its object")
    trace: str | None = Field(description="the trace that it became")


class DirectUploadRequest(Shape):
    """A request with which anyone who knows it can write the object of a direct upload, once."""

    id: str = Field(description="the id of the upload")
    method: Literal["PUT"] = Field(description="the method")
    url: str = Field(description="the address, in the bucket; it is secret")
    headers: dict[str, str] = Field(description="the header fields to send, with these values")
    url_expires_at: Timestamp = Field(description="when the bucket begins to refuse the request")
    expires_at: Timestamp = Field(description="when the upload is removed if it is not complete")


class JobProgress(Shape):
    """Bytes read, and events read or written, so far and in total; a total of 0 is unknown."""

    bytes: int = Field(description="bytes that have been read")
    bytes_total: int = Field(description="bytes to read")
    events: int = Field(description="events that have been read or written")
    events_total: int = Field(description="events to read or write")


class JobResult(BaseModel):
    """The traces that a job has made, and further results of its kind of job."""

    model_config = ConfigDict(extra="allow")

    traces: list[str] = Field(description="ids of the traces")


class ImportedFile(Shape):
    """The outcome of a file of an import."""

    path: str = Field(description="the path on the server")
    trace: str | None = Field(description="the id of the trace that it became")
    why: str | None = Field(description="the reason why it became no trace")


class ImportResult(Shape):
    """The outcome of an import."""

    import_: str = Field(alias="import", description="the id of the import")
    traces: list[str] = Field(description="ids of the traces")
    skipped: int = Field(description="files that became no trace")
    files: list[ImportedFile] = Field(description="the first ones; `/imports/{id}` has all")


class Job(Shape):
    """Work in the background: reading, importing or making traces."""

    id: str = Field(description="its id: a number, as text")
    kind: Literal["ingest", "split", "merge", "overlay", "import"] = Field(description="what it does")
    state: JobState = Field(description="`done`, `failed` and `cancelled` are final")
    priority: JobPriority = Field(description="`interactive` jobs go first")
    trace: str | None = Field(description="the trace that it reads, if it reads a single one")
    trace_name: str | None = Field(description="the name of that trace, unless it was deleted")
    request: Mapping[str, object] = Field(description="what it was asked to do; the keys depend on the kind")
    attempts: int = Field(
        description="number of times that it was started; starts that the end of the server cut off do not count"
    )
    created_at: Timestamp | None = Field(description="when it was queued")
    started_at: Timestamp | None = Field(description="when it was started last")
    ended_at: Timestamp | None = Field(description="when it ended")
    progress: JobProgress = Field(description="how far it is")
    eta_s: float | None = Field(description="estimated seconds until it ends; null: unknown")
    result: ImportResult | JobResult | None = Field(description="what it has made; null until it is done")
    error: Error | None = Field(description="the reason why it has failed or was cancelled")


class Jobs(Shape):
    """A page of jobs."""

    jobs: list[Job] = Field(description="the jobs of this page")
    next: str | None = Field(description="cursor of the following page")


class SplitPiece(Shape):
    """A trace that a split would make."""

    name: str = Field(description="the file name of the trace to be")
    selection: SelectionValues = Field(description="the part of the trace that it has")
    events: int = Field(description="number of its events")
    counts: dict[str, int] = Field(description="events by phase|category")
    size: int = Field(description="estimated bytes, by the number of its events")


class SplitPlan(Shape):
    """The traces that a split would make."""

    pieces: list[SplitPiece] = Field(description="the traces to be")
    events: int = Field(description="sum of their events")


class Envelope(BaseModel):
    """The keys of a trace's document without its events; they depend on the program that wrote it."""

    model_config = ConfigDict(extra="allow")


class Column(Shape):
    """A column of a table.

    A column of a query that mixes integers and doubles is ``double`` if that is exact for all cells. Other mixtures are
    ``string``. The description then states the conversion.
    """

    name: str = Field(description="its name, which a query may use twice")
    type: Literal["int", "double", "string", "blob", "null", "mixed"] = Field(
        description="the type of its values, all of which may also be null; `blob` is base64"
    )
    unit: str | None = Field(description="`ns`, `bytes`, `%`, …; null without a unit")
    description: str | None = Field(description="what its values are; null if there is nothing to say")


class QueryResult(Shape):
    """Rows in column order; integers are exact at any size, blobs base64."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "columns": [
                        {"name": "name", "type": "string", "unit": None, "description": None},
                        {"name": "n", "type": "int", "unit": None, "description": None},
                    ],
                    "rows": [["aten::mm", 9007199254740993]],
                    "truncated": False,
                    "elapsed_ms": 1.5,
                }
            ]
        }
    )

    columns: list[Column] = Field(description="its columns")
    rows: list[list[Cell]] = Field(description="its rows")
    truncated: bool = Field(description="whether rows beyond the limit were left out")
    elapsed_ms: float = Field(description="time that the query took")


class SliceArgument(Shape):
    """An argument of a slice, as in the table `args` of an engine that has all arguments."""

    key: str = Field(description="its key, such as `args.External id`")
    value: bool | int | float | str = Field(
        description="its value; the JSON text of a list or an object, and of a number that 64 bits do not hold"
    )


class Slice(Shape):
    """The event of a slice."""

    position: int = Field(description="its place in the trace's file, from 0")
    name: str | None = Field(description="its name; null without one")
    ts_ns: int = Field(description="its start in ns of the trace's own clock")
    dur_ns: int | None = Field(description="its duration in ns; null for an instant")
    args: list[SliceArgument] = Field(description="its arguments in the order of the file, without nulls")


class AnswerTable(Shape):
    """A table of an analysis, with the unit and the description of each column."""

    columns: list[Column] = Field(description="its columns")
    rows: list[list[Cell]] = Field(description="its rows")
    truncated: bool = Field(description="whether more rows follow: `offset` skips those that are known")
    total: int = Field(description="number of rows of the whole table")


class AnswerColumns(Shape):
    """A table of an analysis as ``format=columns`` has it."""

    columns: list[Column] = Field(description="its columns")
    values: list[list[Cell]] = Field(description="of each column, in the order of the columns")
    total: int = Field(description="number of rows of the whole table")


class Skipped(Shape):
    """A rank without a result."""

    rank: int | None = Field(description="the rank, if its trace has it")
    name: str = Field(description="of its trace")
    reason: str = Field(description="the reason, in a sentence")
    cycle: int | None = Field(None, description="of its trace, if the analysis is of several cycles")


class AnswerFacts(Shape):
    """The result of an analysis, except its tables."""

    analysis: str = Field(description="the name of the analysis")
    parameters: dict[str, ParameterValue] = Field(description="all of them, with defaults")
    definition: str = Field(description="what it computes, exactly")
    source: str = Field(description="the origin of the definition")
    skipped: list[Skipped] = Field(description="the ranks without a result")
    notes: list[str] = Field(description="remarks on the whole result")
    cycles: int = Field(description="number of cycles; if several, each table has a column `cycle`")
    elapsed_ms: float = Field(description="time that the analysis took")


class Answer(AnswerFacts):
    """The result of an analysis."""

    tables: dict[str, AnswerTable] = Field(description="the tables by name")


class AnswerInColumns(AnswerFacts):
    """The result of an analysis as ``format=columns`` has it."""

    tables: dict[str, AnswerColumns] = Field(description="the tables by name")


class Analysis(Shape):
    """A built-in analysis."""

    name: str = Field(description="its name in paths")
    answers: str = Field(description="the question that it answers")
    definition: str = Field(description="what it computes, exactly")
    source: str = Field(description="the origin of the definition")
    parameters: dict[str, Any] = Field(description="as JSON Schema")
    tables: dict[str, list[Column]] = Field(description="the columns of its tables; the first table is the main one")
    applies: bool = Field(description="whether it applies to this trace")
    reason: str | None = Field(description="the reason why it does not apply to this trace")


class FleetQuestion(Shape):
    """A question about the ranks of a run of a dataset."""

    name: str = Field(description="its name in paths")
    answers: str = Field(description="the question in words")
    definition: str = Field(description="what it computes, exactly")
    source: str | None = Field(description="the origin of the definition; null if it is our own")
    parameters: dict[str, Any] = Field(description="as JSON Schema")
    tables: dict[str, list[Column]] = Field(description="the columns of its tables; the first table is the main one")


class FleetQuestions(Shape):
    """The questions about a run."""

    run: str = Field(description="the name of the run")
    questions: list[FleetQuestion] = Field(description="all questions")


class FleetAnswerFacts(Shape):
    """The answer to a question about a run of a dataset, except its tables."""

    question: str = Field(description="the name of the question")
    run: str = Field(description="the name of the run")
    parameters: dict[str, ParameterValue] = Field(description="all of them, with defaults")
    definition: str = Field(description="what it computes, exactly")
    source: str | None = Field(description="the origin of the definition; null if it is our own")
    skipped: list[Skipped] = Field(description="always empty: ranks without facts are not in the tables")


class FleetAnswer(FleetAnswerFacts):
    """The answer to a question about a run of a dataset."""

    tables: dict[str, AnswerTable] = Field(description="the tables by name")


class FleetAnswerInColumns(FleetAnswerFacts):
    """The answer to a question about a run as ``format=columns`` has it."""

    tables: dict[str, AnswerColumns] = Field(description="the tables by name")


class IngestProgress(Shape):
    """Progress of the ingests of a dataset that run or, if none does, of the last one."""

    sources: int | None = Field(description="number of their sources; null if the dataset does not tell it")
    done: int = Field(description="number of sources that are done")
    failed: int = Field(description="number of sources that have failed")
    bytes_done: int = Field(description="size of the sources that are done or have failed")
    bytes_total: int | None = Field(description="size of all sources; null if the dataset does not tell it")
    bytes_per_s: float | None = Field(description="rate of reading; null if nothing is read now")
    left_s: float | None = Field(description="estimated seconds until the end; null if they are unknown")
    reason: str | None = Field(description="why a value is null")
    last_record_at: Timestamp | None = Field(description="when the last source was done or has failed; null before")


class DatasetInBrief(Shape):
    """A dataset as lists show it."""

    name: str = Field(description="its name in paths")
    location: str = Field(description="its path or URL")
    state: DatasetStatus = Field(
        description="`reading` until its records were read once; `unavailable` if it can't be read; `ingesting` while"
        " an ingest runs; `stopped` if the last ingest ended early; otherwise `idle`"
    )
    reason: str | None = Field(description="why it is unavailable or being read, or why its total is unknown")
    read_at: Timestamp | None = Field(description="when it was looked at; null if it never was")
    unread: int = Field(description="number of records that are not read yet")
    runs_count: int = Field(description="number of its runs")
    ranks: int = Field(description="number of the ranks of all runs")
    progress: IngestProgress = Field(description="how far its ingests are")


class DatasetRun(Shape):
    """A run of a dataset."""

    name: str = Field(description="its name")
    done: int = Field(description="number of its sources that are done")
    failed: int = Field(description="number of its sources that have failed")
    ranks: int = Field(description="number of its ranks")
    world_size: int | None = Field(description="number of ranks of the job, if it is known")
    size: int = Field(description="bytes of the sources that are done")
    events: int = Field(description="number of their events")
    last_record_at: Timestamp = Field(description="when its last source was done or has failed")


class DatasetIngest(Shape):
    """An ingest into a dataset."""

    id: str = Field(description="its id; an ingest of the same folders and runs goes on with it")
    state: IngestStatus = Field(description="`stopped` if it said so, or if it is silent for long")
    host: str = Field(description="name of the host that runs it")
    process: int = Field(description="its process id there")
    started_at: Timestamp = Field(description="its start, by the clock of its host")
    beat_at: Timestamp = Field(description="when it has last said how far it is, by the clock of its host")
    sources: int = Field(description="number of its sources")
    done: int = Field(description="number of its sources that are done")
    failed: int = Field(description="number of its sources that have failed")
    bytes_done: int = Field(description="size of its sources that are done or have failed")
    bytes_total: int = Field(description="size of its sources")
    bytes_per_s: float | None = Field(description="rate of reading; null as long as nothing is read")
    left_s: float | None = Field(description="estimated seconds until its end; null if they are unknown")
    reason: str | None = Field(description="why `left_s` is null")


class DatasetFailure(Shape):
    """A source that could not be read."""

    run: str = Field(description="the name of its run")
    source: str = Field(description="the path or URL of the file")
    attempts: int = Field(description="number of attempts so far")
    worker: str = Field(description="host and process of the last attempt")
    failed_at: Timestamp = Field(description="the end of the last attempt")
    error: Error = Field(description="the reason")


class Dataset(DatasetInBrief):
    """A dataset with its runs, its ingests and its failures."""

    runs: list[DatasetRun] = Field(description="its runs, by name")
    ingests: list[DatasetIngest] = Field(description="its ingests, newest first")
    failures: list[DatasetFailure] = Field(description="a page of the sources that failed, by run and path")
    next: str | None = Field(description="`after` of the following page of failures")


class Datasets(Shape):
    """The datasets that the server shows."""

    datasets: list[DatasetInBrief] = Field(description="the datasets, in the order of the setting")


class GroupInBrief(Shape):
    """A group as lists show it."""

    id: str = Field(description="its id")
    name: str = Field(description="its name, a line of text")
    run_id: str | None = Field(description="the id of the run in another system")
    created_at: Timestamp = Field(description="when it was made")
    traces: int = Field(description="the number of its traces")
    size: int = Field(description="bytes of their files")


class RunReference(Shape):
    """The run of an entry of the library."""

    id: str = Field(description="the id of its group")
    name: str = Field(description="the name of its group")
    run_id: str | None = Field(description="the id of the run in another system")


class SingleTrace(Shape):
    """The single trace of an entry of the library."""

    id: str = Field(description="its id")
    parent: str | None = Field(description="the trace that it was made of")
    rank: int | None = Field(description="the rank that wrote it, if the trace has it")
    world_size: int | None = Field(description="number of ranks of the run, if the trace has it")
    merged: int = Field(description="number of the ranks that it was merged from; 0 if it was not merged")
    error: Error | None = Field(description="the reason why it failed")


class LibraryEntry(Shape):
    """A run with all of its traces, or a single trace."""

    run: RunReference | None = Field(description="the run; null for a single trace")
    trace: SingleTrace | None = Field(description="the single trace; null for a run")
    name: str = Field(description="the name of the run, or of the file")
    uploaded_at: Timestamp = Field(description="of its newest trace")
    size: int = Field(description="bytes of all its files")
    span_ns: int | None = Field(description="of its longest trace, if one is ready")
    events: int | None = Field(description="of its traces that are ready; null if none is")
    steps: int | None = Field(description="the largest number of steps of a trace that is ready")
    traces: int = Field(description="number of its traces")
    matching: int = Field(description="number of its traces that match the query")
    ranks: int = Field(description="number of its ranks; traces of unknown ranks are left out")
    world_size: int | None = Field(description="null if it is unknown, or its traces disagree")
    backend: str | None = Field(description="the communication library; null if it is unknown, or its traces disagree")
    gpus: list[str] = Field(description="names of the devices that have work")
    has_gpu_work: bool = Field(description="whether one of its traces has work on a GPU")
    states: dict[str, int] = Field(description="numbers of its traces by state")
    pinned: int = Field(description="number of its pinned traces")
    damaged: int = Field(description="number of its traces with refused or repaired elements, or that are incomplete")
    incomplete: int = Field(description="number of its traces of which a part, but no element, was refused")
    repaired: int = Field(description="sum of the repairs of its traces")
    refused: int = Field(description="sum of the elements that were left out of its traces")
    progress: Progress = Field(description="of reading its traces")


class LibraryList(Shape):
    """A page of the library."""

    entries: list[LibraryEntry] = Field(description="the entries of this page")
    total: int = Field(description="number of entries that match the query")
    traces: int = Field(description="number of traces that match the query")
    stored: int = Field(description="number of all traces, and of runs without traces")


class GroupRank(Shape):
    """A trace of a group."""

    rank: int | None = Field(description="the rank, if the trace has it")
    cycle: int | None = Field(description="turn of the profiler's schedule, from 0; null until the trace is read")
    kind: InputKind | None = Field(description="what recorded it; null until the trace is read")
    world_size: int | None = Field(description="number of ranks of the run, if the trace has it")
    host: str | None = Field(description="the name of the machine that wrote it, if the trace has it")
    trace: str = Field(description="the id of the trace")
    name: str = Field(description="the file name")
    state: State = Field(description="`ready` and `failed` are final")
    size: int = Field(description="bytes of the file; of the columns if the trace was made here")
    pinned: bool = Field(description="whether retention keeps it")
    events: int = Field(description="number of its events")


class GroupCycle(Shape):
    """The traces that the ranks of a group wrote in one turn of the profiler's schedule."""

    cycle: int = Field(description="its number, from 0")
    traces: int = Field(description="the number of its traces")
    ranks: list[int] = Field(description="of these traces")
    missing: list[int] = Field(description="ranks of the world without a trace")
    first_step: int | None = Field(description="the smallest number of a step; null without steps")
    last_step: int | None = Field(description="the largest number of a step; null without steps")
    start_ns: int | None = Field(description="start of the first trace; since the epoch if the traces record that")
    end_ns: int | None = Field(description="end of the last trace, in the same clock")


class Group(GroupInBrief):
    """A group: the traces of one run."""

    world_size: int | None = Field(description="if all traces that have one agree")
    missing: list[int] = Field(description="ranks of that world without a trace in some cycle")
    cycles: list[GroupCycle] = Field(description="its cycles, in order")
    cycles_by: Literal["rank", "steps", "time", "order"] = Field(
        description="the rule that separates cycles; `rank`: no rank has two traces, so there is one cycle"
    )
    ranks: list[GroupRank] = Field(description="its traces, by cycle and rank")


class Groups(Shape):
    """A page of groups."""

    groups: list[GroupInBrief] = Field(description="the groups of this page")
    next: str | None = Field(description="cursor of the following page")


class Attachment(Shape):
    """A file that is kept beside a trace or a run."""

    id: str = Field(description="its id")
    name: str = Field(description="its file name")
    kind: AttachmentKind = Field(description="what it is, by its content")
    trace: str | None = Field(description="the id of the trace that it belongs to; null if it belongs to a group")
    group: str | None = Field(description="the id of the group that it belongs to; null if it belongs to a trace")
    rank: int | None = Field(description="the rank in its name")
    size: int = Field(description="bytes of the file")
    sha256: str = Field(description="digest of the file")
    created_at: Timestamp = Field(description="when it was attached")


class Attachments(Shape):
    """A page of attachments."""

    attachments: list[Attachment] = Field(description="the attachments of this page")
    next: str | None = Field(description="cursor of the following page")


class AttachmentMatch(Shape):
    """The comparison of an execution trace with a trace."""

    trace: str = Field(description="the id of the trace")
    execution_trace: str = Field(description="the name of the execution trace")
    used: bool = Field(description="whether both are of the same capture, so that the trace gains its shapes")
    nodes: int | None = Field(description="number of its nodes; null if it can't be read")
    joined: int | None = Field(description="operators whose id is that of a node")
    same_name: int | None = Field(description="of these, those whose name is that of the node")
    gained: int | None = Field(description="of these, those that have shapes only through the execution trace")
    reason: str | None = Field(description="why it is not used")


class AttachmentMatches(Shape):
    """The comparisons of an execution trace with the traces that it may describe."""

    matches: list[AttachmentMatch] = Field(description="one for each ready trace")
    reason: str | None = Field(description="why there are none")


class ReportColumn(Shape):
    """A column of a table of a report."""

    name: str = Field(description="its heading, without the unit")
    unit: str | None = Field(description="the unit in its heading; cells may have units of their own")
    is_number: bool = Field(description="whether each cell is a number, with or without a unit, or empty")


class ReportTable(Shape):
    """A table of a report."""

    name: str = Field(description="what it is")
    columns: list[ReportColumn] = Field(description="its columns")
    rows: list[list[str]] = Field(description="its cells: the text of the file, with its rounding and its units")


class AttachmentTables(Shape):
    """The content of an attachment."""

    tables: list[ReportTable] = Field(description="its tables; none for text and execution traces")
    text: str = Field(description="its text, at most 4 MiB; bytes that are not UTF-8 are U+FFFD")
    truncated: bool = Field(description="whether the text ends early")
    reason: str | None = Field(description="why the text ends early, or why some of it is in no table")


class BaselineEntry(Shape):
    """A trace or a group that a baseline has, or once had, as its target."""

    kind: BaselineKind = Field(description="what the target is")
    target: str | None = Field(description="the id of the trace or the group; null once it is deleted")
    target_name: str = Field(description="the name of the target when the baseline was set to it")
    set_at: Timestamp = Field(description="when the baseline was set to it")


class BaselineInBrief(BaselineEntry):
    """A baseline with its present target."""

    name: str = Field(description="its name")


class Baseline(BaselineInBrief):
    """A baseline with its history."""

    history: list[BaselineEntry] = Field(description="all its targets, the present one first; at most 1000")


class Baselines(Shape):
    """A page of baselines."""

    baselines: list[BaselineInBrief] = Field(description="by name")
    next: str | None = Field(description="`after` of the following page")


class ImportInBrief(Shape):
    """An import."""

    id: str = Field(description="its id")
    path: str = Field(description="the file, folder or pattern to import")
    mode: Literal["auto", "link", "copy", "reference"] = Field(description="how the files get into the data folder")
    group: str | None = Field(description="the name of the group of its traces")
    name: str | None = Field(description="the name of its trace, instead of the file's")
    watch: bool = Field(description="whether watching was requested")
    watching: bool = Field(description="whether new files are still imported")
    created_at: Timestamp = Field(description="when it was requested")
    ended_at: Timestamp | None = Field(description="when it ended")
    job: str | None = Field(description="its latest job")
    taken: int = Field(description="files that became traces")
    skipped: int = Field(description="files that became no trace")


class Import(ImportInBrief):
    """An import with its files."""

    files: list[ImportedFile] = Field(description="a page of its files")
    next: str | None = Field(description="`after` of the following page")


class Imports(Shape):
    """The imports that watch for new files."""

    imports: list[ImportInBrief] = Field(description="the imports")
    roots: list[str] = Field(description="the folders from which files may be imported")


class Analyses(Shape):
    """The analyses of a trace."""

    analyses: list[Analysis] = Field(description="all analyses, including those that do not apply")


class Engine(Shape):
    """The process behind a session."""

    version: str | None = Field(description="its version, once it has started")
    pid: int | None = Field(description="its process id; null unless it runs")
    rss_bytes: int | None = Field(description="current memory")
    peak_bytes: int | None = Field(description="peak memory")
    predicted_bytes: int = Field(description="expected memory of the load")
    restarts: int = Field(description="engines with the same content that died within the last ten minutes")


class LoadProgress(Shape):
    """Bytes of the document that the engine has loaded, and the events of the whole document."""

    bytes: int = Field(description="bytes that the engine has loaded")
    events_total: int | None = Field(description="events of the whole document; null for an original")


class AccountCount(Shape):
    """A number in the trace, and in the engine."""

    expected: int = Field(description="the number in the trace")
    engine: int = Field(description="the number in the engine")


class AccountNote(Shape):
    """Events that the engine shows differently, or not at all."""

    code: str = Field(description="stable: scripts may rely on it")
    count: int = Field(description="number of events")
    detail: str = Field(description="what is different, in a sentence")


class ImporterIssue(Shape):
    """A problem that the engine's importer reports: a row of its table ``stats``."""

    name: str = Field(description="its name")
    value: int = Field(description="its value")
    severity: str = Field(description="`info`, `data_loss` or `error`")
    detail: str | None = Field(description="what it means, in the words of the engine")


class Account(Shape):
    """A comparison of the trace with what the engine shows."""

    complete: bool = Field(description="whether the engine shows all events")
    events: int = Field(description="all events, except ends of arrows without a beginning")
    shown: int = Field(description="events that the engine shows")
    slices: AccountCount = Field(description="slices")
    flows: AccountCount = Field(description="arrows")
    counters: AccountCount = Field(description="values of counters")
    base_ns: int = Field(description="the time of the trace, in ns, at the engine's 0")
    lanes: int = Field(description="additional lanes of tracks, for slices that overlap")
    notes: list[AccountNote] = Field(description="events that are shown differently, or not at all")
    stats: list[ImporterIssue] = Field(description="problems that the engine's importer reports")


class Session(Shape):
    """An engine on a trace."""

    trace: str = Field(description="the id of the trace")
    selection: SelectionValues | None = Field(description="the part of the trace that it has loaded; null for all")
    args: Args = Field(description="which arguments of events it has loaded")
    source: ViewSource = Field(description="what it has loaded: the events in `columns`, or the `original` as it is")
    state: SessionState = Field(description="`waiting`: until engines that are closed for it have ended")
    error: Error | None = Field(description="the reason why it is `failed`")
    engine: Engine = Field(description="its process")
    progress: LoadProgress = Field(description="how much of the document is loaded")
    clients: int = Field(description="Perfetto UIs attached")
    queries: int = Field(description="queries so far")
    waiting: int = Field(description="requests in its queue")
    idle_s: float = Field(description="seconds since the last request")
    load_s: float | None = Field(description="seconds that the load took; null until it is loaded")
    account: Account | None = Field(description="null until the engine has loaded, and for an original")
    account_reason: str | None = Field(description="the reason why there will be no `account`")
    stats: list[ImporterIssue] | None = Field(
        description="problems that the engine's importer reports; null until the engine has loaded"
    )


class EngineMemory(Shape):
    """Memory of all engines, and its maximum."""

    held_bytes: int = Field(description="memory of all engines")
    budget_bytes: int = Field(description="its maximum")


class Sessions(Shape):
    """The engines."""

    sessions: list[Session] = Field(description="the engines")
    memory: EngineMemory = Field(description="the memory of all engines")
    next: str | None = Field(description="always null: there is one page")


class Access(Shape):
    """The caller, and its scope."""

    needed: bool = Field(description="whether the server requires a token at all")
    name: str = Field(description="of the token; `local` if none is required")
    scope: Scope = Field(description="`write` includes reading")


class Listener(Shape):
    """The state of the localhost listener."""

    enabled: bool = Field(description="whether it listens")
    host: str = Field(description="its address")
    port: int = Field(description="its port")
    trace: str | None = Field(description="the id of the trace that it serves")
    error: str | None = Field(description="the reason why it is not enabled, unless it is switched off")


class ServerHealth(Shape):
    """The state of a server that responds."""

    status: Literal["ok"] = Field(description="always `ok`")


class UnreadyReason(Shape):
    """A reason why a server is not ready."""

    what: Literal["catalog", "disk", "engine"] = Field(description="the part that is not ready")
    code: ErrorCode = Field(description="stable: scripts may rely on it")
    detail: str = Field(description="what is wrong, in a sentence")


class Readiness(Shape):
    """Whether a server can receive and show traces."""

    status: Literal["ready", "unready"] = Field(description="`unready` if there is a reason")
    reasons: list[UnreadyReason] = Field(description="why it is not ready")

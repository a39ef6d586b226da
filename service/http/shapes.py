"""The JSON objects of the API: responses are built of these models, and the documentation shows them."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """An object of the API."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class Error(BaseModel):
    """An error, with fields of its own, such as an ``offset``, a ``limit`` or a ``line``."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="stable: scripts may rely on it")
    title: str
    detail: str


class Problem(Error):
    """An error response (RFC 9457)."""

    type: str
    status: int


class Bounds(Shape):
    """A span of time in integer ns, in the trace's own clock."""

    start_ns: int
    end_ns: int


class Events(Shape):
    """Numbers of events; ``in`` is the sum of the others."""

    in_: int = Field(alias="in")
    kept: int
    refused: int


class Process(Shape):
    """A process that the trace names, or that has events."""

    pid: int | str
    name: str | None
    labels: str | None
    events: int


class Thread(Shape):
    """A thread of the host, or a stream of a device, that has events."""

    pid: int | str
    tid: int | str
    name: str | None
    events: int
    device: int | None = Field(description="the device whose work it shows")
    host: bool = Field(description="whether it shows work of a host")


class Device(Shape):
    """A device that the trace describes, or that has work; its events and bounds are those of its work."""

    id: int | str
    name: str | None
    memory_bytes: int | None
    events: int
    bounds: Bounds | None


class Step(Shape):
    """One ``ProfilerStep#N`` of the host."""

    number: int
    name: str
    start_ns: int
    end_ns: int
    pid: int | str | None = Field(None, description="of the process that annotated it")
    tid: int | str | None = Field(None, description="of the thread that annotated it")


class Progress(Shape):
    """Bytes of the file and events that have been read so far."""

    bytes: int
    bytes_total: int
    events: int


class Example(Shape):
    """A place in the document, and the text there, of at most a line and without secrets."""

    offset: int | None = Field(description="byte of the document, once unpacked; of the file for `bad_compression`")
    text: str | None


class Note(Shape):
    """A fault in the document: its elements were refused or repaired, or are only odd."""

    code: str = Field(description="stable: scripts may rely on it")
    kind: Literal["refused", "repaired", "oddity"]
    detail: str
    count: int
    examples: list[Example] = Field(description="the first ones")


class Health(Shape):
    """The faults of the document: what was refused, repaired or is odd, in that order."""

    repaired: int = Field(0, description="repairs")
    refused: int = Field(0, description="elements left out")
    notes: list[Note] = []


class Residual(Shape):
    """Distances between the ends of collectives on a rank and the median of their ends on all ranks."""

    median: int
    p95: int
    max: int


class MergedRank(Shape):
    """A rank of a merged trace, and its alignment to the common clock."""

    rank: int
    name: str
    base_ns: int | None
    shift_ns: int = Field(description="the number that was added to its times")
    collectives: int = Field(description="the number of its collectives that other ranks have, too")
    residual_ns: Residual | None = Field(description="null without any")
    pids: list[list[int | str]] = Field(description="pairs of pids: in this trace, and in the trace of the rank")


class GroupOf(Shape):
    """The group of a trace."""

    id: str
    name: str


class Attribution(Shape):
    """The assignment of device work to operators."""

    external_ids: Literal["operators", "other", "unknown"] | None = Field(
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

    id: str
    name: str
    state: Literal["queued", "ingesting", "ready", "failed"]
    error: Error | None
    created_at: str
    size: int = Field(description="bytes of the file; of the columns if the trace was made here")
    sha256: str | None = Field(description="of the file; null if the trace was made here")
    format: Literal["json", "json.gz", "json.zst"] | None
    rank: int | None
    world_size: int | None
    backend: str | None
    host: str | None
    group: GroupOf | None
    pinned: bool = Field(description="whether retention keeps it")
    path: str | None = Field(description="the path of its file on the server, if that is not in the data folder")
    parent: str | None = Field(description="the trace that it was made of")
    selection: Mapping[str, object] | None = Field(description="the part of that trace that it keeps")
    bounds: Bounds | None
    base_ns: int | None = Field(description="the zero of the trace's clock in ns since the epoch, if known")
    events: Events
    devices: list[Device]
    streams: list[str] = Field(description="device/stream")
    steps_count: int
    attribution: Attribution
    health: Health
    job: str | None = Field(description="the job that reads it, or has read it")
    progress: Progress


class Trace(TraceInBrief):
    """A trace with all lists."""

    counts: dict[str, int] = Field(description="events by phase|category")
    processes: list[Process]
    threads: list[Thread]
    steps: list[Step]
    ranks: list[MergedRank] = Field(description="of a merged trace: the ranks that it was made of")
    totals: dict[str, int] = Field(
        description="the full lengths of lists that are cut here because they are very long; SQL (`process`, `thread`),"
        " the analysis `steps` and the columns of a download have all entries"
    )


class Traces(Shape):
    """A page of traces."""

    traces: list[TraceInBrief]
    next: str | None = Field(description="cursor of the following page")


class Upload(Shape):
    """A resumable upload."""

    id: str
    name: str
    length: int | None = Field(description="bytes; null until the client sends it")
    offset: int = Field(description="bytes on disk")
    expires_at: str | None
    trace: str | None = Field(description="the trace that it became")


class JobProgress(Shape):
    """Bytes read, and events read or written, so far and in total; a total of 0 is unknown."""

    bytes: int
    bytes_total: int
    events: int
    events_total: int


class JobResult(BaseModel):
    """The traces that a job has made, and further results of its kind of job."""

    model_config = ConfigDict(extra="allow")

    traces: list[str]


class ImportedFile(Shape):
    """The outcome of a file of an import."""

    path: str
    trace: str | None
    why: str | None = Field(description="the reason why it became no trace")


class ImportResult(Shape):
    """The outcome of an import."""

    import_: str = Field(alias="import", description="the id of the import")
    traces: list[str]
    skipped: int = Field(description="files that became no trace")
    files: list[ImportedFile] = Field(description="the first ones; `/imports/{id}` has all")


class Job(Shape):
    """Work in the background: reading, importing or making traces."""

    id: str
    kind: Literal["ingest", "split", "merge", "overlay", "import"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    priority: Literal["interactive", "bulk"] = Field(description="`interactive` jobs go first")
    trace: str | None = Field(description="the trace that it reads, if it reads a single one")
    trace_name: str | None = Field(description="the name of that trace, unless it was deleted")
    request: Mapping[str, object]
    attempts: int = Field(
        description="number of times that it was started; starts that the end of the server cut off do not count"
    )
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    progress: JobProgress
    eta_s: float | None = Field(description="estimated seconds until it ends; null: unknown")
    result: ImportResult | JobResult | None
    error: Error | None


class Jobs(Shape):
    """A page of jobs."""

    jobs: list[Job]
    next: str | None = Field(description="cursor of the following page")


class Piece(Shape):
    """A trace that a split would make."""

    name: str
    selection: Mapping[str, object]
    events: int
    counts: dict[str, int] = Field(description="events by phase|category")
    size: int = Field(description="estimated bytes, by the number of its events")


class Plan(Shape):
    """The traces that a split would make."""

    pieces: list[Piece]
    events: int


class Envelope(BaseModel):
    """The keys of a trace's document without its events; they depend on the program that wrote it."""

    model_config = ConfigDict(extra="allow")


class Column(Shape):
    """A column of a table.

    A column of a query that mixes integers and doubles is ``double`` if that is exact for all cells. Other mixtures are
    ``string``. The description then states the conversion.
    """

    name: str
    type: Literal["int", "double", "string", "blob", "null", "mixed"]
    unit: str | None
    description: str | None


class Table(Shape):
    """Rows in column order; integers are exact at any size, blobs base64."""

    columns: list[Column]
    rows: list[list[Any]]
    truncated: bool
    elapsed_ms: float


class AnswerTable(Shape):
    """A table of an analysis, with the unit and the description of each column."""

    columns: list[Column]
    rows: list[list[Any]]
    truncated: bool = Field(description="whether more rows follow: `offset` skips those that are known")
    total: int = Field(description="number of rows of the whole table")


class AnswerColumns(Shape):
    """A table of an analysis as ``format=columns`` has it."""

    columns: list[Column]
    values: list[list[Any]] = Field(description="of each column, in the order of the columns")
    total: int = Field(description="number of rows of the whole table")


class Skipped(Shape):
    """A rank without a result."""

    rank: int | None
    name: str = Field(description="of its trace")
    reason: str
    cycle: int | None = Field(None, description="of its trace, if the analysis is of several cycles")


class AnswerFacts(Shape):
    """The result of an analysis, except its tables."""

    analysis: str
    parameters: dict[str, Any] = Field(description="all of them, with defaults")
    definition: str
    source: str = Field(description="the origin of the definition")
    skipped: list[Skipped]
    notes: list[str] = Field(description="remarks on the whole result")
    cycles: int = Field(description="number of cycles; if several, each table has a column `cycle`")
    elapsed_ms: float


class Answer(AnswerFacts):
    """The result of an analysis."""

    tables: dict[str, AnswerTable]


class AnswerInColumns(AnswerFacts):
    """The result of an analysis as ``format=columns`` has it."""

    tables: dict[str, AnswerColumns]


class Analysis(Shape):
    """A built-in analysis."""

    name: str
    answers: str = Field(description="the question that it answers")
    definition: str
    source: str = Field(description="the origin of the definition")
    parameters: dict[str, Any] = Field(description="as JSON Schema")
    tables: dict[str, list[Column]] = Field(description="the columns of its tables; the first table is the main one")
    applies: bool
    reason: str | None = Field(description="the reason why it does not apply to this trace")


class GroupInBrief(Shape):
    """A group as lists show it."""

    id: str
    name: str
    run_id: str | None
    created_at: str
    traces: int = Field(description="the number of its traces")
    size: int = Field(description="bytes of their files")


class RunOf(Shape):
    """The run of an entry of the library."""

    id: str
    name: str
    run_id: str | None


class SingleTrace(Shape):
    """The single trace of an entry of the library."""

    id: str
    parent: str | None = Field(description="the trace that it was made of")
    rank: int | None
    world_size: int | None
    merged: int = Field(description="number of the ranks that it was merged from; 0 if it was not merged")
    error: Error | None


class LibraryEntry(Shape):
    """A run with all of its traces, or a single trace."""

    run: RunOf | None = Field(description="the run; null for a single trace")
    trace: SingleTrace | None = Field(description="the single trace; null for a run")
    name: str
    uploaded_at: str = Field(description="of its newest trace")
    size: int = Field(description="bytes of all its files")
    span_ns: int | None = Field(description="of its longest trace, if one is ready")
    events: int | None = Field(description="of its traces that are ready; null if none is")
    steps: int | None = Field(description="the largest number of steps of a trace that is ready")
    traces: int = Field(description="number of its traces")
    matching: int = Field(description="number of its traces that match the query")
    ranks: int = Field(description="number of its ranks; traces of unknown ranks are left out")
    world_size: int | None = Field(description="null if it is unknown, or its traces disagree")
    backend: str | None
    gpus: list[str] = Field(description="names of the devices that have work")
    has_gpu_work: bool
    states: dict[str, int] = Field(description="numbers of its traces by state")
    pinned: int = Field(description="number of its pinned traces")
    damaged: int = Field(description="number of its traces with refused or repaired elements, or that are incomplete")
    incomplete: int = Field(description="number of its traces of which a part, but no element, was refused")
    repaired: int
    refused: int
    progress: Progress = Field(description="of reading its traces")


class LibraryList(Shape):
    """A page of the library."""

    entries: list[LibraryEntry]
    total: int = Field(description="number of entries that match the query")
    traces: int = Field(description="number of traces that match the query")
    stored: int = Field(description="number of all traces, and of runs without traces")


class GroupRank(Shape):
    """A trace of a group."""

    rank: int | None
    cycle: int | None = Field(description="turn of the profiler's schedule, from 0; null until the trace is read")
    world_size: int | None
    host: str | None
    trace: str
    name: str
    state: Literal["queued", "ingesting", "ready", "failed"]
    size: int
    pinned: bool
    events: int


class GroupCycle(Shape):
    """The traces that the ranks of a group wrote in one turn of the profiler's schedule."""

    cycle: int
    traces: int = Field(description="the number of its traces")
    ranks: list[int] = Field(description="of these traces")
    missing: list[int] = Field(description="ranks of the world without a trace")
    first_step: int | None
    last_step: int | None
    start_ns: int | None = Field(description="start of the first trace; since the epoch if the traces record that")
    end_ns: int | None


class Group(GroupInBrief):
    """A group: the traces of one run."""

    world_size: int | None = Field(description="if all traces that have one agree")
    missing: list[int] = Field(description="ranks of that world without a trace in some cycle")
    cycles: list[GroupCycle]
    cycles_by: Literal["rank", "steps", "time", "order"] = Field(
        description="the rule that separates cycles; `rank`: no rank has two traces, so there is one cycle"
    )
    ranks: list[GroupRank]


class Groups(Shape):
    """A page of groups."""

    groups: list[GroupInBrief]
    next: str | None


class ImportInBrief(Shape):
    """An import."""

    id: str
    path: str
    mode: Literal["auto", "link", "copy", "reference"]
    group: str | None
    name: str | None
    watch: bool = Field(description="whether watching was requested")
    watching: bool = Field(description="whether new files are still imported")
    created_at: str
    ended_at: str | None
    job: str | None = Field(description="its latest job")
    taken: int = Field(description="files that became traces")
    skipped: int


class Import(ImportInBrief):
    """An import with its files."""

    files: list[ImportedFile]
    next: str | None = Field(description="`after` of the following page")


class Imports(Shape):
    """The imports that watch for new files."""

    imports: list[ImportInBrief]
    roots: list[str] = Field(description="the folders from which files may be imported")


class Analyses(Shape):
    """The analyses of a trace."""

    analyses: list[Analysis]


class Engine(Shape):
    """The process behind a session."""

    version: str | None
    pid: int | None
    rss_bytes: int | None = Field(description="current memory")
    peak_bytes: int | None = Field(description="peak memory")
    predicted_bytes: int = Field(description="expected memory of the load")
    restarts: int = Field(description="engines with the same content that died within the last ten minutes")


class Loaded(Shape):
    """Bytes of the document that the engine has loaded, and the events of the whole document."""

    bytes: int
    events_total: int


class Count(Shape):
    """A number in the trace, and in the engine."""

    expected: int
    engine: int


class AccountNote(Shape):
    """Events that the engine shows differently, or not at all."""

    code: str = Field(description="stable: scripts may rely on it")
    count: int
    detail: str


class Complaint(Shape):
    """A problem that the engine's importer reports: a row of its table ``stats``."""

    name: str
    value: int
    severity: str
    detail: str | None


class Account(Shape):
    """A comparison of the trace with what the engine shows."""

    complete: bool = Field(description="whether the engine shows all events")
    events: int = Field(description="all events, except ends of arrows without a beginning")
    shown: int
    slices: Count
    flows: Count
    counters: Count
    base_ns: int = Field(description="the time of the trace, in ns, at the engine's 0")
    lanes: int = Field(description="additional lanes of tracks, for slices that overlap")
    notes: list[AccountNote]
    stats: list[Complaint]


class Session(Shape):
    """An engine on a trace."""

    trace: str
    selection: Mapping[str, object] | None = Field(description="the part of the trace that it has loaded; null for all")
    args: Literal["all", "essential", "none"] = Field(description="which arguments of events it has loaded")
    state: Literal["waiting", "loading", "ready", "failed", "closed"] = Field(
        description="`waiting`: until engines that are closed for it have ended"
    )
    error: Error | None
    engine: Engine
    progress: Loaded
    clients: int = Field(description="Perfetto UIs attached")
    queries: int = Field(description="queries so far")
    waiting: int = Field(description="requests in its queue")
    idle_s: float
    load_s: float | None
    account: Account | None = Field(description="null until the engine has loaded")


class Memory(Shape):
    """Memory of all engines, and its maximum."""

    held_bytes: int
    budget_bytes: int


class Sessions(Shape):
    """The engines."""

    sessions: list[Session]
    memory: Memory
    next: str | None


class Access(Shape):
    """The caller, and its scope."""

    needed: bool = Field(description="whether the server requires a token at all")
    name: str = Field(description="of the token; `local` if none is required")
    scope: str = Field(description="`read` or `write`")


class Listener(Shape):
    """The state of the localhost listener."""

    enabled: bool
    host: str
    port: int
    trace: str | None
    error: str | None = Field(description="the reason why it is not enabled, unless it is switched off")

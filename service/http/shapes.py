"""The JSON objects of the API: responses are built of these models, and the documentation shows them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """An object of the API."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class Problem(BaseModel):
    """An error (RFC 9457), with what else helps to understand it: an ``offset``, a ``limit``, a ``line``."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="stable: scripts may rely on it")


class Bounds(Shape):
    """A span of time in integer ns, in the trace's own clock."""

    start_ns: int
    end_ns: int


class Events(Shape):
    """How many events came in, and what became of them: ``in`` is the sum of the others."""

    in_: int = Field(alias="in")
    kept: int
    refused: int


class Process(Shape):
    """A process that the trace names or that has events."""

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
    host: bool = Field(description="whether it shows what a host did")


class Device(Shape):
    """A device that the trace describes or that has work; its events and bounds are those of its work."""

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
    """Where something was found, and the text there: no longer than a line, and without its secrets."""

    offset: int | None = Field(description="byte of the document, once unpacked; of the file for `bad_compression`")
    text: str | None


class Note(Shape):
    """Something that ingest found: it refused it, repaired it, or finds it only odd."""

    code: str = Field(description="stable: scripts may rely on it")
    kind: Literal["refused", "repaired", "oddity"]
    detail: str
    count: int
    examples: list[Example] = Field(description="the first few")


class Health(Shape):
    """What was refused, repaired or found odd, in that order; all else came through as it is."""

    repaired: int = Field(0, description="repairs")
    refused: int = Field(0, description="elements left out")
    notes: list[Note] = []


class Residual(Shape):
    """How far the collectives of a rank end from the middle of when they end on all ranks."""

    median: int
    p95: int
    max: int


class MergedRank(Shape):
    """One of the ranks that a trace was merged of, and how it was put onto the common clock."""

    rank: int
    name: str
    base_ns: int | None
    shift_ns: int = Field(description="what was added to its times")
    collectives: int = Field(description="how many of its collectives other ranks have too")
    residual_ns: Residual | None = Field(description="null without any")
    pids: list[list[int | str]] = Field(description="pairs of its pids, the one here and the one that it had")


class GroupOf(Shape):
    """The group of a trace."""

    id: str
    name: str


class Attribution(Shape):
    """How the work of a trace was given its operators."""

    external_ids: Literal["operators", "other", "unknown"] | None = Field(
        None, description="what the External ids of work are, as the trace's own events show; only `operators` are used"
    )
    rules: dict[str, int] = Field(
        {},
        description="kernels, copies and memsets by the rule that gave them their operator: `launch`, `graph` or"
        " `external_id`; or by the reason why they have none: `launch_outside_operators`, `graph_outside_operators` or"
        " `no_launch`",
    )


class TraceInBrief(Shape):
    """A trace as lists show it."""

    id: str
    name: str
    state: Literal["queued", "ingesting", "ready", "failed"]
    error: dict[str, Any] | None
    created_at: str
    size: int = Field(description="bytes of the file; of its columns, where the trace was made here")
    sha256: str | None = Field(description="of the file; null where the trace was made here")
    format: Literal["json", "json.gz", "json.zst"] | None
    rank: int | None
    world_size: int | None
    backend: str | None
    host: str | None
    group: GroupOf | None
    pinned: bool = Field(description="whether retention leaves it alone")
    path: str | None = Field(description="where its file lies on the server, if not in the data folder")
    parent: str | None = Field(description="the trace that it was cut out of")
    selection: dict[str, Any] | None = Field(description="what it keeps of that one")
    bounds: Bounds | None
    base_ns: int | None = Field(description="the zero of the trace's clock in ns since the epoch, where it is told")
    events: Events
    devices: list[Device]
    streams: list[str] = Field(description="device/stream")
    steps_count: int
    attribution: Attribution
    health: Health
    job: str | None = Field(description="that reads it, or has read it")
    progress: Progress


class Trace(TraceInBrief):
    """All that is known of a trace."""

    counts: dict[str, int] = Field(description="events by phase|category")
    processes: list[Process]
    threads: list[Thread]
    steps: list[Step]
    ranks: list[MergedRank] = Field(description="of a merged trace: what it was made of")
    totals: dict[str, int] = Field(
        description="of each list here that is not whole, as it is very long, how many entries there are: SQL"
        " (`process`, `thread`), the analysis `steps` and the columns of a download have all of them"
    )


class Traces(Shape):
    """A page of traces."""

    traces: list[TraceInBrief]
    next: str | None = Field(description="cursor of the following page")


class Upload(Shape):
    """A resumable upload: how many bytes are on disk, and the trace it became."""

    id: str
    name: str
    length: int | None = Field(description="null until it is told")
    offset: int
    expires_at: str | None
    trace: str | None


class JobProgress(Shape):
    """Bytes that have been read and events that were read or written so far, and how many there will be; 0: unknown."""

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
    """A piece of work that outlives the request: to read a trace, or to make some."""

    id: str
    kind: Literal["ingest", "split", "merge", "overlay", "import"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    priority: Literal["interactive", "bulk"] = Field(description="`interactive` ones go first")
    trace: str | None = Field(description="on which it works, if it is one")
    request: dict[str, Any]
    attempts: int = Field(description="how often it was begun; that the server ended does not count")
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    progress: JobProgress
    eta_s: float | None = Field(description="seconds that it still takes, as fast as it was of late; null: not known")
    result: ImportResult | JobResult | None
    error: dict[str, Any] | None


class Jobs(Shape):
    """A page of jobs."""

    jobs: list[Job]
    next: str | None = Field(description="cursor of the following page")


class Piece(Shape):
    """A trace that a split would make."""

    name: str
    selection: dict[str, Any]
    events: int
    counts: dict[str, int] = Field(description="events by phase|category")
    size: int = Field(description="bytes that it would have, as many for each event as the trace has")


class Plan(Shape):
    """What a split would make."""

    pieces: list[Piece]
    events: int


class Envelope(BaseModel):
    """The keys of a trace's document, but its events; which there are is up to who wrote it."""

    model_config = ConfigDict(extra="allow")


class Column(Shape):
    """A column of a table.

    Cells of a query that are integers and doubles are ``double`` if all are exact so; other mixtures are ``string``.
    The description says so.
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
    """One table of an answer; each column says its unit and what it holds."""

    columns: list[Column]
    rows: list[list[Any]]
    truncated: bool


class Skipped(Shape):
    """A rank without an answer."""

    rank: int | None
    name: str = Field(description="of its trace")
    reason: str
    cycle: int | None = Field(None, description="of its trace; only told where the answer is of several cycles")


class Answer(Shape):
    """What an analysis answers."""

    analysis: str
    parameters: dict[str, Any] = Field(description="all of them, as they were taken")
    definition: str
    source: str = Field(description="where the definition comes from")
    skipped: list[Skipped]
    notes: list[str] = Field(description="what a reader has to know of the answer as a whole")
    cycles: int = Field(description="of several, each table has a column `cycle`")
    elapsed_ms: float
    tables: dict[str, AnswerTable]


class Analysis(Shape):
    """A question that can be asked of traces."""

    name: str
    answers: str = Field(description="the question itself")
    definition: str
    source: str = Field(description="where the definition comes from")
    parameters: dict[str, Any] = Field(description="what may be chosen, as JSON Schema")
    tables: dict[str, list[Column]] = Field(description="of the answer; the first is the main one")
    applies: bool
    reason: str | None = Field(description="why it does not apply to this trace")


class GroupInBrief(Shape):
    """A group as lists show it."""

    id: str
    name: str
    run_id: str | None
    created_at: str
    traces: int = Field(description="how many it has")
    size: int = Field(description="bytes of their files")


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
    """The traces of a group that the ranks wrote in one turn of the profiler's schedule."""

    cycle: int
    traces: int = Field(description="how many are of it")
    ranks: list[int] = Field(description="of these traces")
    missing: list[int] = Field(description="ranks of the world of which it has no trace")
    first_step: int | None
    last_step: int | None
    start_ns: int | None = Field(description="of the first trace, since the epoch where traces tell that")
    end_ns: int | None


class Group(GroupInBrief):
    """A group: the traces of one run."""

    world_size: int | None = Field(description="where all that tell one tell the same")
    missing: list[int] = Field(description="ranks of that world of which some cycle has no trace")
    cycles: list[GroupCycle]
    cycles_by: Literal["rank", "steps", "time", "order"] = Field(
        description="what tells cycles apart; `rank`: no rank has two traces, so there is one cycle"
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
    watch: bool = Field(description="whether it was told to watch")
    watching: bool = Field(description="whether new files are still taken")
    created_at: str
    ended_at: str | None
    job: str | None = Field(description="the last that worked on it")
    taken: int = Field(description="files that became traces")
    skipped: int


class Import(ImportInBrief):
    """An import, and what became of each file."""

    files: list[ImportedFile]
    next: str | None = Field(description="`after` of the following page")


class Imports(Shape):
    """The imports that watch."""

    imports: list[ImportInBrief]


class Analyses(Shape):
    """What can be asked of a trace."""

    analyses: list[Analysis]


class Engine(Shape):
    """The process behind a session."""

    version: str | None
    pid: int | None
    rss_bytes: int | None = Field(description="memory that it takes now")
    peak_bytes: int | None = Field(description="the most that it has taken")
    predicted_bytes: int = Field(description="what the load was expected to take")
    restarts: int = Field(description="engines on the same that died within the last ten minutes")


class Loaded(Shape):
    """Bytes of the document that the engine has taken, and the events that all of it has."""

    bytes: int
    events_total: int


class Count(Shape):
    """How many of something the trace has, and how many the engine."""

    expected: int
    engine: int


class AccountNote(Shape):
    """Events that are shown otherwise than they came, or not at all."""

    code: str = Field(description="stable: scripts may rely on it")
    count: int
    detail: str


class Complaint(Shape):
    """What the engine's importer found: a row of its table ``stats``."""

    name: str
    value: int
    severity: str
    detail: str | None


class Account(Shape):
    """What the trace has, held against what the engine shows."""

    complete: bool = Field(description="whether nothing is missing")
    events: int = Field(description="all but ends of arrows that no event begins")
    shown: int
    slices: Count
    flows: Count
    counters: Count
    base_ns: int = Field(description="the trace's time, in ns, at the engine's 0")
    lanes: int = Field(description="beyond the first of their tracks: slices that overlap lie there")
    notes: list[AccountNote]
    stats: list[Complaint]


class Session(Shape):
    """An engine on a trace."""

    trace: str
    selection: dict[str, Any] | None = Field(description="what of the trace it is on; null for all")
    args: Literal["all", "essential", "none"] = Field(description="which arguments of events it has")
    state: Literal["waiting", "loading", "ready", "failed", "closed"] = Field(
        description="`waiting`: for engines that make room for it to end"
    )
    error: dict[str, Any] | None
    engine: Engine
    progress: Loaded
    clients: int = Field(description="Perfetto UIs attached")
    queries: int = Field(description="queries asked so far")
    waiting: int = Field(description="requests that wait for their turn")
    idle_s: float
    load_s: float | None
    account: Account | None = Field(description="null until it has loaded")


class Memory(Shape):
    """Memory that all engines take, and may take."""

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
    """What the localhost listener serves."""

    enabled: bool
    host: str
    port: int
    trace: str | None
    error: str | None = Field(description="why it is not enabled, where that was not asked for")

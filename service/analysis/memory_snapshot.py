"""Analysis of a memory snapshot: what holds memory at the peak and at any moment, and what is never freed."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from service.analysis.facts.scope import Scope
from service.analysis.facts.snapshot_document import NO_SNAPSHOT, is_snapshot
from service.analysis.facts.snapshot_step_sources import STEP_SOURCES, notes_of
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import DEVICE, RANK, count, ns, number, pct, size, table_of_rows, word

if TYPE_CHECKING:
    from service.analysis.facts.snapshot_rows import DeviceRows  # loads numba

_STACK = count("stack", "number of the stack in the trace's document; empty if unknown")
_SITE = word("site", "innermost Python frame of the stack, else its innermost operator or frame, as in a backward pass")
_FRAMES = word("frames", "innermost frames of the stack, a line for each")
_BY_STACK = (
    RANK,
    DEVICE,
    ns("at", "time; empty if it is the start"),
    _STACK,
    _SITE,
    count("blocks", "number of the stack's blocks that are alive"),
    size("held", "sum of these blocks"),
    pct("held", "of all that is active"),
    _FRAMES,
)
DEVICES = (
    RANK,
    DEVICE,
    count("allocations", "number of allocations"),
    count("frees", "number of frees"),
    size("start", "active before the first entry"),
    size("peak", "the most that was active at once"),
    ns("peak_at", "first time of the peak; empty if it is the start"),
    size("peak_reserved_then", "reserved at that time; empty if it is the start"),
    size("peak_reserved", "the most that was reserved at once; empty without entries"),
    size("end", "active at the end"),
    count("segments", "number of segments at the end"),
    size("segments", "sum of the segments at the end"),
    size("unused", "part of the segments in no active block"),
    pct("unused", "of the segments"),
    size("largest_unused", "largest unused block; an allocation beyond it needs a new segment"),
    count("ooms", "number of allocations that failed because memory ran out"),
)
CURVE = (
    RANK,
    DEVICE,
    ns("at", "time of the change; the first row is the start, at the time of the first change"),
    size("active", "active from then on; in the first row, before"),
    size("reserved", "reserved from then on"),
)
STREAMS = (
    RANK,
    DEVICE,
    count("stream", "stream that the blocks were allocated on"),
    size("peak", "the most that was active at once"),
    ns("peak_at", "first time of the peak; empty if it is the start"),
    size("end", "active at the end"),
)
BLOCKS = (
    RANK,
    DEVICE,
    count("stream", "stream that the block was allocated on"),
    size("size", "requested size of the block"),
    ns("allocated_at", "time of the allocation; empty if before the snapshot's first entry"),
    ns("freed_at", "time of the free; empty if alive at the end"),
    count("address", "address of the block"),
    _STACK,
    _SITE,
)
FRAMES = (
    RANK,
    DEVICE,
    word("moment", "`peak`: the peak of the device; `live`: the moment of `live_stacks`"),
    ns("at", "its time; empty if it is the start"),
    count("id", "number of the row, from 0 for each device and moment; callers are before what they call"),
    count("parent", "row of the caller; empty for the outermost"),
    word("name", "file, line and function; only Python frames, if the stack has any"),
    count("blocks", "number of blocks that are alive and were allocated in the frame or in what it calls"),
    size("held", "sum of these blocks"),
)
STEPS = (
    RANK,
    DEVICE,
    count("step", "index of the step, from 0"),
    word("name", "annotation that begins the step"),
    ns("start", "start of that annotation"),
    ns("end", "start of the next step; of the last, the end of its annotation"),
    size("start", "active at its start"),
    size("peak", "the most that was active in it"),
    ns("peak_at", "first time of the peak; empty if it is the start"),
    size("end", "active at its end"),
    size("allocated", "sum of its allocations"),
    size("kept", "sum of those that are alive at the end of the snapshot"),
    pct("recorded", "of the step, from the device's first to its last allocation or free; memory before is not known"),
)
LEAKS = (
    RANK,
    DEVICE,
    _STACK,
    _SITE,
    count("steps", "number of steps before the last with blocks of this stack that are alive at the end"),
    count("of_steps", "number of all steps but the last, whose blocks may still be in use"),
    count("blocks", "number of these blocks"),
    size("left", "sum of these blocks"),
    number("left_per_step_bytes", "`left_bytes` divided by `steps`", "bytes"),
    _FRAMES,
)
SEGMENTS = (
    RANK,
    DEVICE,
    word("address", "address, in hexadecimal"),
    count("stream", "stream of the segment"),
    word("type", "small or large"),
    count("expandable", "1 for an expandable segment, else 0"),
    size("total", "size of the segment"),
    size("active", "sum of its active blocks, rounded as the allocator does"),
    size("requested", "requested sizes of these blocks"),
    size("unused", "part of the segment in no active block"),
    size("largest_unused", "its largest unused block"),
    count("blocks", "number of blocks"),
    count("unused_blocks", "number of unused blocks"),
    _SITE,
)
SEGMENT_BLOCKS = (
    RANK,
    DEVICE,
    word("segment", "address of the segment, as in `segments`"),
    size("offset", "bytes of the segment before the block"),
    size("size", "requested size of the block"),
    _STACK,
    _SITE,
)
OOMS = (
    RANK,
    DEVICE,
    ns("at", "time of the failed allocation"),
    size("failed", "size of the failed allocation"),
    size("device_free", "free memory of the device at that time"),
    size("active", "active bytes at that time"),
    size("reserved", "reserved bytes at that time"),
    _SITE,
)
TABLES = {
    "devices": DEVICES,
    "curve": CURVE,
    "streams": STREAMS,
    "peak_stacks": _BY_STACK,
    "live_stacks": _BY_STACK,
    "frames": FRAMES,
    "blocks": BLOCKS,
    "steps": STEPS,
    "step_sources": STEP_SOURCES,
    "leaks": LEAKS,
    "segments": SEGMENTS,
    "segment_blocks": SEGMENT_BLOCKS,
    "ooms": OOMS,
    "oom_stacks": _BY_STACK,
}
_OOM_COLUMNS = ("ts_ns", "bytes", "free", "active", "reserved", "site")
_OOM_STACKS_OF = 20  # failures whose stacks are listed
_OOMS = """
SELECT device, ts_ns, bytes, try_cast(args->>'Device Free' AS BIGINT) AS free,
    try_cast(args->>'Total Allocated' AS BIGINT) AS active, try_cast(args->>'Total Reserved' AS BIGINT) AS reserved,
    args->>'Site' AS site
FROM events WHERE name = '[OutOfMemory]' AND ts_ns NOTNULL AND device NOTNULL ORDER BY ts_ns, position
"""


class MemorySnapshotParameters(Parameters):
    """Parameters of `memory_snapshot`."""

    at_ns: int | None = Field(
        None, description="the moment of `live_stacks` in ns of the trace's own clock; by default the end"
    )
    step_name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="name of the annotations that begin steps, in which `*` stands for any text; by default"
        " `ProfilerStep#*` or, if neither the snapshot nor a trace has these, `Optimizer.step#*`",
    )
    steps_from: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="the trace that has the steps: its id, or its name, in which `*` stands for any text; by default"
        " the only trace of the same rank in the run whose steps overlap the snapshot, if the snapshot has no"
        " annotation `ProfilerStep#*`",
    )
    top: int = Field(
        100, ge=1, le=100_000, description="maximum number of stacks, blocks and segments to list of each device"
    )
    points: int = Field(
        1000, ge=2, le=1_000_000, description="approximate number of points of the curve of each device"
    )
    rows: int = Field(
        2000, ge=1, le=1_000_000, description="maximum number of rows of `frames` of each device and moment, and of"
        " `segment_blocks` of each device: those with the most bytes"
    )  # fmt: skip

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.step_name is not None and self.steps_from is not None:
            raise ValueError("`step_name` chooses the snapshot's own annotations, and `steps_from` a trace: name one")
        return self


def answer(scope: Scope, parameters: MemorySnapshotParameters, wanted: Collection[str] = frozenset(TABLES)) -> Tables:
    """Return the tables of a snapshot's memory: those that are wanted, and the sources of its steps."""
    from service.analysis.facts.snapshot_memory import snapshot_memory_of  # noqa: PLC0415 - loads numba
    from service.analysis.facts.snapshot_rows import DeviceRows  # noqa: PLC0415 - likewise
    from service.analysis.facts.snapshot_step_choice import steps_of  # noqa: PLC0415 - likewise

    snapshot = snapshot_memory_of(scope)
    steps, sources = steps_of(scope, snapshot, parameters.step_name, parameters.steps_from)
    rows: dict[str, list[list[Any]]] = {name: [] for name in TABLES if name in {*wanted, "step_sources"}}
    rows["step_sources"] = [[scope.rank, *source] for source in sources] if snapshot.devices else []
    failures = scope.table(_OOMS).to_pylist()
    for gpu, device in snapshot.devices.items():
        of_device = DeviceRows(snapshot, gpu, parameters.top)
        own = [failure for failure in failures if failure["device"] == gpu]
        moment = of_device.last if parameters.at_ns is None else device.change_at(parameters.at_ns)
        tables: dict[str, Iterable[list[Any]]] = {
            "devices": _sums(of_device, len(own)),
            "curve": of_device.curve(parameters.points),
            "streams": of_device.streams(),
            "peak_stacks": of_device.stacks(device.peak),
            "live_stacks": of_device.stacks(moment, parameters.at_ns),
            "frames": chain(
                of_device.frames(device.peak, "peak", parameters.rows),
                of_device.frames(moment, "live", parameters.rows, parameters.at_ns),
            ),
            "blocks": of_device.blocks(),
            "steps": of_device.steps(steps),
            "leaks": of_device.leaks(steps),
            "segments": of_device.segments(),
            "segment_blocks": of_device.segment_blocks(parameters.rows),
            "ooms": ([failure[name] for name in _OOM_COLUMNS] for failure in own[: parameters.top]),
            "oom_stacks": chain.from_iterable(
                of_device.stacks(device.change_at(failure["ts_ns"]), failure["ts_ns"])
                for failure in own[:_OOM_STACKS_OF]
            ),
        }
        for name in rows.keys() & tables.keys():
            rows[name] += [[scope.rank, gpu, *row] for row in tables[name]]
    return {name: table_of_rows(TABLES[name], content) for name, content in rows.items()}


def _sums(of_device: "DeviceRows", ooms: int) -> Iterator[list[Any]]:
    """Yield the row of a device in `devices`, without the rank and the device."""
    totals = {**of_device.totals(), "ooms": ooms}
    yield [totals[column.name] for column in DEVICES[2:]]


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace is not a memory snapshot."""
    return None if is_snapshot(scope) else NO_SNAPSHOT


QUESTION = Question(
    name="memory_snapshot",
    short_question="What holds memory in a snapshot?",
    definition="The entries of a memory snapshot are replayed. Blocks that are freed within it without an allocation"
    " were alive at its start, as were those at its end that no entry allocates; their stack is that of the free or of"
    " the end. A block is active from its allocation until its free is complete. Sizes are requested bytes, in which"
    " the replay is exact: the allocator rounds them up, so that `segments.active_bytes` is larger. If the health of"
    " the trace has `replay_contradiction`, the snapshot contradicts itself. In a part of a snapshot, the bytes of"
    " blocks outside of the part have no stack. A step lasts from the start of its annotation to the start of the next"
    " one. If the snapshot has no annotation `ProfilerStep#*`, its steps are those of the trace of the same rank in its"
    " run, if exactly one has steps that overlap the snapshot's entries, whose times are whole µs. The table"
    " `step_sources` and the notes say where the steps come from, or why there are none. A stack leaks if, in at least"
    " two steps before the last one, it allocates blocks that are still alive at the end. A curve with more changes"
    " than `points` has the extremes of equally long intervals.",
    source="https://pytorch.org/docs/stable/torch_cuda_memory.html",
    tables=TABLES,
    parameters=MemorySnapshotParameters,
    inapplicable_reason=missing,
    answer=answer,
    answer_part=answer,
    notes_of=lambda tables: [*notes_of(tables["step_sources"])],
    cost=3,
)

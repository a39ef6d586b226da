"""Analysis of a memory snapshot: the stacks that hold memory at the peak, at a moment, and when memory ran out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from service.analysis.facts.scope import Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import DEVICE, RANK, Column, count, ns, pct, table_of_rows, word

if TYPE_CHECKING:
    from service.analysis.facts.snapshot_memory import DeviceMemory, SnapshotMemory  # loads numba


def _bytes(name: str, description: str) -> Column:
    return Column(f"{name}_bytes", "int", "bytes", description)


_STACK = count("stack", "number of the stack in the trace's document; empty if unknown")
_SITE = word("site", "innermost Python frame of the stack, else its innermost frame")
_FRAMES = word("frames", "innermost frames of the stack, a line for each")
_BY_STACK = (
    RANK,
    DEVICE,
    ns("at", "time; empty for the start of a snapshot without entries"),
    _STACK,
    _SITE,
    count("blocks", "number of the stack's blocks that are alive"),
    _bytes("held", "sum of these blocks"),
    pct("held", "of all that is active"),
    _FRAMES,
)
DEVICES = (
    RANK,
    DEVICE,
    count("allocations", "number of allocations"),
    count("frees", "number of frees"),
    _bytes("start", "active before the first entry"),
    _bytes("peak", "the most that was active at once"),
    ns("peak_at", "first time of the peak; empty if it is the start"),
    _bytes("peak_reserved_then", "reserved at that time; empty if it is the start"),
    _bytes("peak_reserved", "the most that was reserved at once; empty without entries"),
    _bytes("end", "active at the end"),
    count("segments", "number of segments at the end"),
    _bytes("segments", "sum of the segments at the end"),
    _bytes("unused", "part of the segments in no active block"),
    pct("unused", "of the segments"),
    _bytes("largest_unused", "largest unused block; an allocation beyond it needs a new segment"),
    count("ooms", "number of allocations that failed because memory ran out"),
)
STREAMS = (
    RANK,
    DEVICE,
    count("stream", "stream that the blocks were allocated on"),
    _bytes("peak", "the most that was active at once"),
    ns("peak_at", "first time of the peak; empty if it is the start"),
    _bytes("end", "active at the end"),
)
BLOCKS = (
    RANK,
    DEVICE,
    count("stream", "stream that the block was allocated on"),
    _bytes("size", "requested size of the block"),
    ns("allocated_at", "time of the allocation; empty if before the snapshot's first entry"),
    ns("freed_at", "time of the free; empty if alive at the end"),
    count("address", "address of the block"),
    _STACK,
    _SITE,
)
SEGMENTS = (
    RANK,
    DEVICE,
    word("address", "address, in hexadecimal"),
    count("stream", "stream of the segment"),
    word("type", "small or large"),
    count("expandable", "1 for an expandable segment, else 0"),
    _bytes("total", "size of the segment"),
    _bytes("active", "sum of its active blocks, rounded as the allocator does"),
    _bytes("requested", "requested sizes of these blocks"),
    _bytes("unused", "part of the segment in no active block"),
    _bytes("largest_unused", "its largest unused block"),
    count("blocks", "number of blocks"),
    count("unused_blocks", "number of unused blocks"),
    _SITE,
)
OOMS = (
    RANK,
    DEVICE,
    ns("at", "time of the failed allocation"),
    _bytes("failed", "size of the failed allocation"),
    _bytes("device_free", "free memory of the device at that time"),
    _bytes("active", "active bytes at that time"),
    _bytes("reserved", "reserved bytes at that time"),
    _SITE,
)
TABLES = {
    "devices": DEVICES,
    "streams": STREAMS,
    "peak_stacks": _BY_STACK,
    "live_stacks": _BY_STACK,
    "blocks": BLOCKS,
    "segments": SEGMENTS,
    "ooms": OOMS,
    "oom_stacks": _BY_STACK,
}
_OOM_STACKS_OF = 20  # failures whose stacks are listed
_OOMS = """
SELECT device, ts_ns, bytes, try_cast(args->>'Device Free' AS BIGINT) AS free,
    try_cast(args->>'Total Allocated' AS BIGINT) AS active, try_cast(args->>'Total Reserved' AS BIGINT) AS reserved,
    args->>'Site' AS site
FROM events WHERE name = '[OutOfMemory]' AND ts_ns NOTNULL AND device NOTNULL ORDER BY ts_ns, position LIMIT $top
"""

Rows = list[list[Any]]


class MemorySnapshotParameters(Parameters):
    """Parameters of `memory_snapshot`."""

    at_ns: int | None = Field(
        None, description="the moment of `live_stacks` in ns of the trace's own clock; by default the end"
    )
    top: int = Field(
        100, ge=1, le=100_000, description="maximum number of stacks, blocks and segments to list of each device"
    )


def answer(scope: Scope, parameters: MemorySnapshotParameters) -> Tables:
    """Return the tables of a snapshot's memory."""
    from service.analysis.facts.snapshot_memory import snapshot_memory_of  # noqa: PLC0415 - loads numba

    snapshot = snapshot_memory_of(scope)
    rows: dict[str, Rows] = {name: [] for name in TABLES}
    failures = scope.table(_OOMS, top=parameters.top).to_pylist()
    for number, device in snapshot.devices.items():
        key, top = [scope.rank, number], parameters.top
        own = [failure for failure in failures if failure["device"] == number]
        rows["devices"].append([*key, *_totals(device), *_segments_in(snapshot, number), len(own)])
        rows["streams"] += [[*key, *row] for row in device.stream_peaks]
        rows["peak_stacks"] += _by_stack(snapshot, device, device.peak, key, top)
        last = len(device.at) - 1
        moment = last if parameters.at_ns is None else device.change_at(parameters.at_ns)
        rows["live_stacks"] += _by_stack(snapshot, device, moment, key, top, parameters.at_ns)
        rows["blocks"] += [[*key, *row] for row in _largest(snapshot, device, top)]
        rows["segments"] += [[*key, *row] for row in _segments(snapshot, number, top)]
        for failure in own:
            values = [failure[name] for name in ("ts_ns", "bytes", "free", "active", "reserved", "site")]
            rows["ooms"].append([*key, *values])
        for failure in own[:_OOM_STACKS_OF]:
            change = device.change_at(failure["ts_ns"])
            rows["oom_stacks"] += _by_stack(snapshot, device, change, key, top, failure["ts_ns"])
    return {name: table_of_rows(columns, rows[name]) for name, columns in TABLES.items()}


def _totals(device: "DeviceMemory") -> list[int | None]:
    peak, last = device.peak, len(device.at) - 1
    return [
        int((device.bytes > 0).sum()),
        int((device.bytes < 0).sum()),
        device.at_start,
        device.active_after(peak),
        int(device.at[peak]) if peak >= 0 else None,
        int(device.reserved[peak]) if peak >= 0 else None,
        int(device.reserved.max()) if last >= 0 else None,
        device.active_after(last),
    ]


def _segments_in(snapshot: "SnapshotMemory", device: int) -> list[int | float | None]:
    """Return number, bytes and unused bytes of a device's segments, the unused share, and the largest unused block."""
    columns = snapshot.segments
    chosen = [place for place, of in enumerate(columns["device"]) if of == device]
    total, active = (int(sum(columns[name][place] for place in chosen)) for name in ("total", "active"))
    largest = int(max((columns["largest_free"][place] for place in chosen), default=0))
    return [len(chosen), total, total - active, 100 * (total - active) / total if total else None, largest]


def _by_stack(
    snapshot: "SnapshotMemory",
    device: "DeviceMemory",
    change: int,
    key: list[Any],
    top: int,
    at: int | None = None,
) -> Rows:
    """Return the largest stacks of the blocks that are alive after a change."""
    active = device.active_after(change)
    if at is None and len(device.at):
        at = int(device.at[max(change, 0)])
    return [
        [
            *key,
            at,
            stack if stack >= 0 else None,
            snapshot.site(stack),
            blocks,
            size,
            100 * size / active if active else None,
            snapshot.text(stack),
        ]
        for stack, blocks, size in zip(*(part[:top].tolist() for part in device.by_stack(change)), strict=True)
    ]


def _largest(snapshot: "SnapshotMemory", device: "DeviceMemory", top: int) -> Iterator[list[Any]]:
    """Yield the largest blocks."""
    for block in device.by_size[:top].tolist():
        begin, end, stack = int(device.begins[block]), int(device.ends[block]), int(device.stacks[block])
        yield [
            int(device.streams[block]),
            int(device.sizes[block]),
            int(device.at[begin]) if begin >= 0 else None,
            int(device.at[end]) if end >= 0 else None,
            int(device.addresses[block]),
            stack if stack >= 0 else None,
            snapshot.site(stack),
        ]


def _segments(snapshot: "SnapshotMemory", device: int, top: int) -> Iterator[list[Any]]:
    """Yield the largest segments of a device."""
    columns = snapshot.segments
    places = [place for place, of in enumerate(columns["device"]) if of == device]
    for place in sorted(places, key=lambda place: -columns["total"][place])[:top]:
        total, active, requested, largest, blocks, free, stream, stack = (
            int(columns[name][place])
            for name in ("total", "active", "requested", "largest_free", "blocks", "free_blocks", "stream", "stack")
        )
        yield [
            *(columns["address"][place], stream, columns["type"][place], int(columns["expandable"][place])),
            *(total, active, requested, total - active, largest, blocks, free, snapshot.site(stack)),
        ]


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace is not a memory snapshot."""
    from service.analysis.facts.snapshot_memory import NO_SNAPSHOT, snapshot_member  # noqa: PLC0415 - loads numba

    return NO_SNAPSHOT if snapshot_member(scope) is None else None


QUESTION = Question(
    name="memory_snapshot",
    short_question="What holds memory in a snapshot?",
    definition="The entries of a memory snapshot are replayed. Blocks that are freed within it without an allocation"
    " were alive at its start, as were those at its end that no entry allocates; their stack is that of the free or of"
    " the end. A block is active from its allocation until its free is complete. Sizes are requested bytes, in which"
    " the replay is exact: the allocator rounds them up, so that `segments.active_bytes` is larger. If the health of"
    " the trace has `replay_contradiction`, the snapshot contradicts itself. In a part of a snapshot, the bytes of"
    " blocks outside of the part have no stack.",
    source="https://pytorch.org/docs/stable/torch_cuda_memory.html",
    tables=TABLES,
    parameters=MemorySnapshotParameters,
    inapplicable_reason=missing,
    answer=answer,
    cost=3,
)

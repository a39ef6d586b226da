"""What runs when, on each stream and thread?"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.activity import steps_of
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.facts.timeline import BUSY, COMM, COMPUTE, LAUNCHES, MEM, MEMORY, STREAM, THREAD, Timeline
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, Column, count, ns, table_of, table_of_rows, word
from service.analysis.timeline_file import timeline_of
from service.trace.errors import BadAnalysisRequest

_TRACK = count("track", "number of the track, in the order in which a picture shows the tracks")
_BIN = count("bin", "number of the bin, from 0")
WINDOW = (
    RANK,
    ns("start", "of the window, in the trace's own time"),
    ns("end", "of the window"),
    count("steps", "that overlap the window"),
    count("tracks", "streams and threads of the trace"),
    count("bins", "of the window; bin i starts at `start_ns` + floor(i * (`end_ns` - `start_ns`) / `bins`)"),
)
TRACKS = (
    RANK,
    _TRACK,
    word("kind", "`stream` of a device, or `thread` of the host"),
    DEVICE,
    count("stream", "number of the stream; null for threads"),
    word("process", "id of the process; null for streams"),
    word("thread", "id of the thread; null for streams"),
    ns("busy", "of the window, in which at least one slice runs"),
)
BINS = (
    RANK,
    _TRACK,
    _BIN,
    ns("busy", "of the bin, in which at least one slice runs"),
    ns("compute", "in which work computes; null for threads"),
    ns("comm", "in which work communicates; null for threads"),
    ns("mem", "with copies and memsets; null for threads"),
)
STEPS = (
    RANK,
    count("step", "number of the step"),
    ns("start", "of the step's annotation"),
    ns("end", "of the step's annotation"),
)
CALLS = (RANK, _BIN, count("launches", "calls that launch work and start in the bin"))
ALLOCATED = (
    RANK,
    word("device_type", "as torch names it: CPU, CUDA, …"),
    count("device", "number of the device of that type; -1 for the CPU"),
    _BIN,
    Column("allocated_bytes", "int", "bytes", "the most that is allocated in the bin"),
)

_CELLS = 1 << 20
BINS_MAX = 20_000
"""Maximum number of bins, more than any screen has columns."""


class OverviewParameters(WorkParameters):
    """Parameters of `overview`."""

    from_ns: int | None = Field(
        None,
        description="start of the window; by default that of the trace or, of a selection, that of the first slice,"
        " step or change of memory",
    )
    to_ns: int | None = Field(
        None,
        description="end of the window; by default that of the trace or, of a selection, that of the last slice,"
        " step or change of memory",
    )
    bins: int = Field(1000, ge=1, le=BINS_MAX, description="number of bins of the window")
    steps_max: int = Field(10_000, ge=0, le=1_000_000, description="maximum number of listed steps: the first ones")
    tracks: int = Field(100, ge=1, le=100_000, description="maximum number of tracks: the busiest")
    busiest: Literal["window", "trace"] = Field(
        "window", description="where the busiest tracks are the busiest; with `trace`, all windows have the same tracks"
    )


def answer(scope: Scope, parameters: OverviewParameters) -> Tables:
    """Return what runs in each bin of the window."""
    timeline = timeline_of(scope, parameters)
    steps = scope.cached("overview steps", lambda: _step_times(scope))
    start, end = _window(scope, timeline, steps, parameters)
    overlapping = np.flatnonzero((steps[1] < end) & (steps[2] > start))
    edges = np.array([start + (end - start) * edge // parameters.bins for edge in range(parameters.bins + 1)], np.int64)
    tracks = np.array(timeline.of_kind(STREAM, THREAD), np.int64)
    totals = timeline.lengths(tracks, edges[[0, -1]])[:, BUSY, 0]
    ever = np.array(timeline.bounds(len(tracks)) or (0, 0), np.int64)
    compared = timeline.lengths(tracks, ever)[:, BUSY, 0] if parameters.busiest == "trace" else totals
    busiest = np.sort(np.argsort(-compared, kind="stable")[: parameters.tracks])
    rows = [
        [scope.rank, number, *timeline.tracks[track], int(totals[track])]
        for number, track in enumerate(busiest.tolist())
    ]
    return {
        "tracks": table_of_rows(TRACKS, rows),
        "bins": table_of(BINS, _bins(scope.rank, timeline, busiest, edges)),
        "window": table_of_rows(WINDOW, [[scope.rank, start, end, len(overlapping), len(tracks), parameters.bins]]),
        "steps": table_of(STEPS, _steps(scope.rank, steps[:, overlapping[: parameters.steps_max]])),
        "launches": table_of(CALLS, _calls(scope.rank, timeline, edges)),
        "memory": table_of_rows(ALLOCATED, _allocated(scope.rank, timeline, edges)),
    }


def _step_times(scope: Scope) -> Ints:
    """Return the numbers, the starts and the ends of steps."""
    numbers, annotations = steps_of(scope)
    return np.array([numbers, annotations.starts, annotations.ends], np.int64)


def _steps(rank: int | None, steps: Ints) -> Mapping[str, Any]:
    """Return the columns of `STEPS`."""
    ranks = pa.array([rank] * steps.shape[1], pa.int64())
    return {"rank": ranks, "step": steps[0], "start_ns": steps[1], "end_ns": steps[2]}


def _window(scope: Scope, timeline: Timeline, steps: Ints, parameters: OverviewParameters) -> tuple[int, int]:
    """Return the start and end of the window; raises `BadAnalysisRequest` if it is empty."""
    of_trace = [] if scope.is_selection or scope.summary.bounds is None else [scope.summary.bounds]
    bounds = timeline.bounds(len(timeline.of_kind(STREAM, THREAD))) or ()
    changes = [timeline.points(number)[0][[0, -1]].tolist() for number in timeline.of_kind(MEMORY)]
    starts = [*bounds[:1], *(trace["start_ns"] for trace in of_trace)]
    ends = [*bounds[1:], *(trace["end_ns"] for trace in of_trace)]
    first = min([*starts, *steps[1].tolist(), *(at for at, _ in changes)])
    last = max([*ends, *steps[2].tolist(), *(at + 1 for _, at in changes)])
    start = first if parameters.from_ns is None else parameters.from_ns
    end = max(last, first + 1) if parameters.to_ns is None else parameters.to_ns
    if end <= start:
        raise BadAnalysisRequest(
            f"The window ends at {end} ns, which is not after its start at {start} ns.", start_ns=first, end_ns=last
        )
    return start, end


def _bins(rank: int | None, timeline: Timeline, tracks: Ints, edges: Ints) -> Mapping[str, Any]:
    """Return the columns of `BINS`; bins in which nothing runs are left out."""
    at_once = max(1, _CELLS // len(edges))
    chunks = [
        _bins_of(timeline, tracks[first : first + at_once], first, edges)
        for first in range(0, max(1, len(tracks)), at_once)
    ]
    numbers, bins, lengths = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    on_threads = np.array([timeline.tracks[track].kind == THREAD for track in tracks.tolist()], bool)[numbers]
    columns = {"busy_ns": pa.array(lengths[:, BUSY])}
    for name, content in (("compute_ns", COMPUTE), ("comm_ns", COMM), ("mem_ns", MEM)):
        columns[name] = pa.array(lengths[:, content], mask=on_threads)
    return {"rank": pa.array([rank] * len(bins), pa.int64()), "track": numbers, "bin": bins, **columns}


def _bins_of(timeline: Timeline, tracks: Ints, first: int, edges: Ints) -> tuple[Any, Any, Any]:
    """Return the numbers of tracks from `first` on, the bins in which they are busy, and the lengths in them."""
    lengths = timeline.lengths(tracks, edges)
    numbers, bins = np.nonzero(lengths[:, BUSY])
    return numbers + first, bins, lengths[numbers, :, bins]


def _calls(rank: int | None, timeline: Timeline, edges: Ints) -> Mapping[str, Any]:
    """Return the columns of `CALLS`; bins without calls are left out."""
    counts = np.zeros(len(edges) - 1, np.int64)
    for track in timeline.of_kind(LAUNCHES):
        counts += np.diff(np.searchsorted(timeline.points(track)[0], edges))
    bins = np.flatnonzero(counts)
    return {"rank": [rank] * len(bins), "bin": bins, "launches": counts[bins]}


def _allocated(rank: int | None, timeline: Timeline, edges: Ints) -> list[list[Any]]:
    """Return the rows of `ALLOCATED`: each bin of a device that ends after the first known total."""
    rows = []
    for number in timeline.of_kind(MEMORY):
        _, device, _, device_type, _ = timeline.tracks[number]
        at, allocated = timeline.points(number)
        first, last = np.searchsorted(at, edges[:-1]), np.searchsorted(at, edges[1:])
        at_start = np.searchsorted(at, edges[:-1], side="right") - 1
        most = np.where(at_start >= 0, allocated[at_start], np.iinfo(np.int64).min)
        changed = np.flatnonzero(last > first)
        if len(changed):
            peaks = np.maximum.reduceat(allocated[: last[-1]], first[changed])
            most[changed] = np.maximum(most[changed], peaks)
        known = np.flatnonzero((last > 0) & (edges[1:] > edges[:-1]))
        bins, bytes_ = known.tolist(), most[known].tolist()
        rows += [[rank, device_type, device, *point] for point in zip(bins, bytes_, strict=True)]
    return rows


def _missing(scope: Scope) -> str | None:
    """Return the reason why the analysis does not apply: there is nothing to show."""
    if timeline_of(scope, WorkParameters()).of_kind(STREAM, THREAD, MEMORY):
        return None
    return "The trace has no timed slices on devices or threads, and no changes of memory."


QUESTION = Question(
    name="overview",
    short_question="What runs when, on each stream and thread?",
    definition="The window is split into `bins`, whose lengths differ by at most 1 ns. Of each stream of a device and"
    " each thread of the host: the time of each bin that at least one slice covers, without Python functions, and, for"
    " streams, the time that computing, communication, and copies or memsets cover, which may overlap. Bins in which"
    " nothing runs are left out. The memory of a device is what its `[memory]` events record as allocated: the most in"
    " each bin.",
    source="https://perfetto.dev/docs/visualization/perfetto-ui",
    tables={"tracks": TRACKS, "bins": BINS, "window": WINDOW, "steps": STEPS, "launches": CALLS, "memory": ALLOCATED},
    parameters=OverviewParameters,
    inapplicable_reason=_missing,
    answer=answer,
)

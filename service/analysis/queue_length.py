"""Is the host ahead of the device, and how far?"""

from typing import Any

import numpy as np
from pydantic import Field

from service.analysis.facts.intervals import (
    Ints,
    clamp_int64,
    concat_groups,
    durations_of,
    group_rows,
    outline_indices,
    percentage,
    quartiles,
)
from service.analysis.facts.launches import launched_work, no_launches_reason, with_known_call
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, count, ns, number, pct, table_of, table_of_rows

_STREAM = count("stream", "number of the stream")
SUMMARY = (
    RANK,
    DEVICE,
    _STREAM,
    count("points", "changes of the length"),
    number("mean", "length over all points"),
    number("stddev", "of a sample; 0 of a single point"),
    count("min", "the shortest"),
    number("p25", "at a quarter of the points it is at most as long"),
    number("p50", "at half of the points it is at most as long"),
    number("p75", "at three quarters of the points it is at most as long"),
    count("max", "the longest"),
    number("mean_over_time", "length over the time from the first point to the last"),
    ns("full", "time in which the queue is at least `full` long"),
    pct("full", "of the time from the first point to the last"),
)
SERIES = (
    RANK,
    DEVICE,
    _STREAM,
    ns("at", "in the trace's own time"),
    count("length", "of the queue from then on"),
)

HTA_CALLS = frozenset(
    {
        *("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync"),
        *("cudaMemsetAsync", "runFunction - job_prep_and_submit_for_execution", "hipLaunchKernel"),
        *("hipExtModuleLaunchKernel", "hipMemcpyAsync", "hipMemsetAsync", "hipMemcpyWithStream"),
    }
)
"""The calls that HTA counts in this analysis."""


class QueueParameters(WorkParameters):
    """Parameters of `queue_length`."""

    full: int = Field(
        1024, ge=1, le=2**62, description="length of a stream's queue at which further launches have to wait"
    )
    points: int = Field(
        1000,
        ge=3,
        le=10_000_000,
        description="maximum number of points of each stream; if there are more, the longest, the shortest and the last"
        " of each run of points",
    )


def answer(scope: Scope, parameters: QueueParameters) -> Tables:
    """Return statistics of the queue of each stream, and its length over time."""
    calls = HTA_CALLS if parameters.types == "hta" else None
    launches = with_known_call(launched_work(scope, parameters, calls=calls))
    enqueued, dequeued = launches["call_start_ns"].to_numpy(), launches["start_ns"].to_numpy()
    summary: list[list[Any]] = []
    point_times: list[Ints] = []
    point_lengths: list[Ints] = []
    for (device, stream), members in group_rows(launches["device"], launches["stream"]):
        times, lengths = _lengths(enqueued[members], dequeued[members])
        held = durations_of(times, np.append(times[1:], times[-1:]))
        full, whole = int(held[lengths >= parameters.full].sum()), int(held.sum())
        summary.append(
            [
                *(scope.rank, device, stream, len(times), lengths.mean(), lengths.std(ddof=1), int(lengths.min())),
                *(*quartiles(lengths), int(lengths.max())),
                *(float(lengths @ (held / whole)) if whole else None, clamp_int64(full), percentage(full, whole)),
            ]
        )
        chosen = outline_indices(lengths, parameters.points)
        point_times.append(times[chosen])
        point_lengths.append(lengths[chosen])
    keys = {name: [row[place] for row in summary] for place, name in enumerate(("rank", "device", "stream"))}
    points = concat_groups(keys, {"at_ns": point_times, "length": point_lengths})
    return {"summary": table_of_rows(SUMMARY, summary), "series": table_of(SERIES, points)}


def _lengths(enqueued: Ints, dequeued: Ints) -> tuple[Ints, Ints]:
    """Return the times at which a queue changes, and its length from then on; launches come first at equal times."""
    times = np.concatenate([enqueued, dequeued])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(np.where(order < len(enqueued), 1, -1))


QUESTION = Question(
    name="queue_length",
    short_question="Is the host ahead of the GPU, and how far?",
    definition="Of each rank, device and stream: how much work has been launched and has not begun. The length grows by"
    " one when a call that launches work starts, for each work, and shrinks by one when the work does. With `types=hta`"
    " only the calls count that HTA knows.",
    source="https://hta.readthedocs.io/en/latest/source/features/augmented_counters.html",
    tables={"summary": SUMMARY, "series": SERIES},
    parameters=QueueParameters,
    inapplicable_reason=no_launches_reason,
    answer=answer,
)

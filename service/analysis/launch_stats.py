"""What does launching cost the host, and how long does work wait?"""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.intervals import quartiles, saturating_sum
from service.analysis.facts.launches import launched_work, no_launches_reason, with_known_call
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, SPREAD, Columns, count, ns, number, pct, table_of, table_of_rows, word
from service.streaming.integers import distinct

_STATISTICS = (
    ns("sum", "of all launches"),
    number("mean_ns", "of all launches", "ns"),
    *SPREAD,
)
SUMMARY = (
    RANK,
    word(
        "time", "cpu_duration: of the call; gpu_duration: of its work; launch_delay: from one to the other, at least 0"
    ),
    count("count", "of launches"),
    *_STATISTICS,
)
COUNTS = (
    RANK,
    count("launches", "calls that launched work"),
    count("work", "pieces of work that they launched"),
    count("short_work", "launches whose work is shorter than the call"),
    pct("short_work", "of the launches"),
    count("slow_calls", "calls longer than `slow_call_ns`"),
    count("long_delays", "delays longer than `long_delay_ns`"),
)
CALLS = (
    RANK,
    word("call", "name of the call"),
    count("count", "of launches"),
    count("work", "pieces of work that they launched"),
    ns("cpu_duration", "of all its calls"),
    number("mean_cpu_duration_ns", "of a call", "ns"),
    ns("launch_delay", "of all its launches"),
    number("mean_launch_delay_ns", "of its launches", "ns"),
)
LAUNCHES = (
    RANK,
    DEVICE,
    count("stream", "of the first work"),
    count("correlation", "of call and work"),
    word("call", "name of the call"),
    word("name", "of the first work"),
    count("work", "pieces of work: many if the call launches a graph"),
    ns("call_start", "in the trace's own time"),
    ns("start", "of the first work, likewise"),
    ns("cpu_duration", "of the call"),
    ns("gpu_duration", "of all its work, added up"),
    ns("launch_delay", "from the end of the call to the start of the first work, at least 0"),
)

HTA_CALLS = frozenset(
    {
        *("cudaLaunchKernel", "cudaLaunchKernelExC", "runFunction - job_prep_and_submit_for_execution"),
        *("cudaMemcpyAsync", "cudaMemsetAsync"),
    }
)
"""The calls that HTA counts in this analysis."""

_LAUNCHED = """
CREATE OR REPLACE TEMP {kind} launched AS
SELECT
    device, stream, correlation, position, call, call_start_ns, start_ns, work,
    call_end_ns - call_start_ns AS cpu_duration_ns, gpu_duration_ns,
    CASE WHEN start_ns > call_end_ns THEN coalesce(try(start_ns - call_end_ns), 9223372036854775807) ELSE 0
         END AS launch_delay_ns
FROM {launches}
"""
_SINGLE = "(SELECT *, 1 AS work, dur_ns AS gpu_duration_ns FROM pieces)"
_GROUPED = """first_pieces JOIN (
    SELECT call_number, count(*) AS work, least(sum(dur_ns), 9223372036854775807)::BIGINT AS gpu_duration_ns
    FROM pieces GROUP BY call_number
) USING (call_number)"""
_TIMES = ("cpu_duration", "gpu_duration", "launch_delay")
_COUNTS = """
SELECT
    count(*) AS launches, sum(work)::BIGINT AS work, count(*) FILTER (gpu_duration_ns < cpu_duration_ns) AS short_work,
    100 * short_work / nullif(launches, 0) AS short_work_pct,
    count(*) FILTER (cpu_duration_ns > $slow) AS slow_calls, count(*) FILTER (launch_delay_ns > $long) AS long_delays
FROM launched
"""
_CALLS = """
SELECT
    call, count(*) AS count, sum(work)::BIGINT AS work,
    least(sum(cpu_duration_ns), 9223372036854775807)::BIGINT AS cpu_duration_ns,
    avg(cpu_duration_ns) AS mean_cpu_duration_ns,
    least(sum(launch_delay_ns), 9223372036854775807)::BIGINT AS launch_delay_ns,
    avg(launch_delay_ns) AS mean_launch_delay_ns
FROM launched GROUP BY launched.call ORDER BY 4 DESC, 1
"""
_TOP = """
SELECT listed.*, names.name
FROM (SELECT * FROM launched ORDER BY {order}, position LIMIT $top) AS listed
JOIN work AS names USING (position)
ORDER BY {order}, position
"""
_ORDERS = {
    "launch_delay": "launch_delay_ns DESC",
    "cpu_duration": "cpu_duration_ns DESC",
    "gpu_duration": "gpu_duration_ns DESC",
    "time": "call_start_ns",
}


class LaunchParameters(WorkParameters):
    """Parameters of `launch_stats`."""

    slow_call_ns: int = Field(50_000, ge=0, le=2**62, description="a longer call is an outlier (ns)")
    long_delay_ns: int = Field(100_000, ge=0, le=2**62, description="a longer launch delay is an outlier (ns)")
    memory: bool = Field(True, description="whether launches of copies and memsets count")
    order: Literal["launch_delay", "cpu_duration", "gpu_duration", "time"] = Field(
        "launch_delay", description="order of the listed launches: the longest of these first, or by time"
    )
    top: int = Field(100, ge=1, le=10_000_000, description="maximum number of listed launches")


def answer(scope: Scope, parameters: LaunchParameters) -> Tables:
    """Return statistics of the launches of a rank, and the first launches in the chosen order."""
    calls = HTA_CALLS if parameters.types == "hta" else None
    counted = "true" if parameters.memory else "kind NOT IN ('memcpy', 'memset')"
    scope.define_work(parameters, typed=False)
    work = with_known_call(launched_work(scope, parameters, calls=calls, where=counted))
    _define_launches(scope, work, by_call=parameters.types != "hta")
    counts = scope.table(_COUNTS, slow=parameters.slow_call_ns, long=parameters.long_delay_ns)
    listed = scope.table(_TOP.format(order=_ORDERS[parameters.order]), top=parameters.top)
    return {
        "summary": table_of_rows(SUMMARY, _summary(scope)),
        "counts": _ranked(COUNTS, scope, counts if len(work) else counts.slice(0, 0)),
        "calls": _ranked(CALLS, scope, scope.table(_CALLS)),
        "launches": _ranked(LAUNCHES, scope, listed),
    }


def _define_launches(scope: Scope, work: pa.Table, *, by_call: bool) -> None:
    """Define ``launched``, with a row for each call, or for each piece of work.

    Launches of single pieces are a view of the work: a table would be a copy of it.
    """
    numbers = work["call_number"].to_numpy()
    is_grouped = by_call and len(distinct(numbers)) < len(numbers)
    scope.db.register("pieces", work)
    if not is_grouped:
        scope.db.execute(_LAUNCHED.format(kind="VIEW", launches=_SINGLE))
        return
    scope.db.register("first_pieces", work.take(np.unique(numbers, return_index=True)[1]))
    scope.db.execute(_LAUNCHED.format(kind="TABLE", launches=_GROUPED))


def _summary(scope: Scope) -> list[list[Any]]:
    """Return statistics of the durations of calls and work, and of the delays between them."""
    launches = scope.table(f"SELECT {', '.join(f'{time}_ns' for time in _TIMES)} FROM launched")
    return [
        [
            *(scope.rank, time, len(values), saturating_sum(values), float(values.mean())),
            *(float(values.std(ddof=1)) if len(values) > 1 else 0.0, int(values.min()), *quartiles(values)),
            int(values.max()),
        ]
        for time, values in ((time, launches[f"{time}_ns"].to_numpy()) for time in _TIMES)
        if len(values)
    ]


def _ranked(columns: Columns, scope: Scope, table: pa.Table) -> pa.Table:
    return table_of(columns, table.append_column("rank", pa.array([scope.rank] * len(table), pa.int64())))


QUESTION = Question(
    name="launch_stats",
    short_question="What does launching cost the host, and how long does work wait after it?",
    definition="Of each rank: the calls of a runtime or driver that launched work; how long a call takes, how long its"
    " work takes, and how long after the end of the call its first work starts. Work belongs to the call with its"
    " correlation. A call that launches a graph counts once, with all work of the graph. With `types=hta` only the"
    " calls of CUDA count that HTA knows, once for each piece of work.",
    source="https://hta.readthedocs.io/en/latest/source/features/cuda_kernel_launch_stats.html",
    tables={"summary": SUMMARY, "counts": COUNTS, "calls": CALLS, "launches": LAUNCHES},
    parameters=LaunchParameters,
    inapplicable_reason=no_launches_reason,
    answer=answer,
)

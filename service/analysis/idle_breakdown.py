"""Why does a stream idle: because of the host, the cost of a launch, or another reason?"""

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.deviations import deviation
from service.analysis.facts.intervals import Ints, durations_of, group_rows
from service.analysis.facts.launches import launched_work
from service.analysis.facts.scope import Scope
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import DEVICE, RANK, SPREAD, count, ns, number, pct, table_of, word

COLUMNS = (
    RANK,
    DEVICE,
    count("stream", "number of the stream"),
    word("category", "host_wait, kernel_wait or other"),
    count("count", "of intervals"),
    ns("idle", "how long they are together"),
    pct("idle", "of the time that the stream idles"),
    number("mean_ns", "of an interval", "ns"),
    *SPREAD,
)
_LONGEST = np.uint64((1 << 63) - 1)
CATEGORIES = ("host_wait", "kernel_wait", "other")

_STATISTICS = f"""
SELECT
    device, stream, category, count(*) AS count, least(sum(gap), 9223372036854775807)::BIGINT AS idle_ns,
    100 * sum(gap) / nullif(sum(sum(gap)) OVER (PARTITION BY device, stream), 0) AS idle_pct,
    avg(gap) AS mean_ns, {deviation("gap")} AS stddev_ns, min(gap) AS min_ns,
    quantile_cont(gap, 0.25) AS p25_ns, quantile_cont(gap, 0.5) AS p50_ns, quantile_cont(gap, 0.75) AS p75_ns,
    max(gap) AS max_ns
FROM gaps GROUP BY device, stream, category ORDER BY device NULLS FIRST, stream NULLS FIRST, category
"""


class IdleParameters(WorkParameters):
    """Parameters of `idle_breakdown`."""

    kernel_wait_ns: int = Field(
        30_000,
        ge=0,
        le=2**62,
        description="a shorter gap before work that was launched in time is the cost of the launch (ns): 30 µs as in"
        " HTA's code; its documentation says 30 ns",
    )


def answer(scope: Scope, parameters: IdleParameters) -> Tables:
    """Return statistics of the idle gaps of each stream, by category."""
    hta = parameters.types == "hta"
    work = launched_work(scope, parameters, where="kind <> 'other'" if hta else "true")
    starts, ends = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    calls = work["call_start_ns"].fill_null(np.iinfo(np.int64).min).to_numpy()
    rows, before = _before(work, starts, ends, running=not hta)
    with_gap = starts[rows] > before
    gaps = np.where(
        with_gap, np.minimum(durations_of(before, starts[rows]), _LONGEST).astype(np.int64), starts[rows] - before
    )
    category = np.where(calls[rows] > before, 0, np.where(gaps < parameters.kernel_wait_ns, 1, 2))
    counted = slice(None) if hta else gaps > 0
    rows, category, gaps = rows[counted], category[counted], gaps[counted]
    idle = {
        "device": work["device"].take(rows),
        "stream": work["stream"].take(rows),
        "category": category,
        "gap": gaps,
    }
    scope.db.register("gaps", pa.table(idle))
    statistics = scope.table(_STATISTICS)
    scope.db.unregister("gaps")
    names = pa.array(CATEGORIES).take(statistics["category"])
    statistics = statistics.set_column(statistics.column_names.index("category"), "category", names)
    ranks = pa.array([scope.rank] * len(statistics), pa.int64())
    return {"breakdown": table_of(COLUMNS, statistics.append_column("rank", ranks))}


def _before(work: pa.Table, starts: Ints, ends: Ints, *, running: bool) -> tuple[Ints, Ints]:
    """Return the rows that have a predecessor on their stream, and the end of the work before each of them.

    With `running`, this end is the latest end of all earlier work of the stream; else it is the end of the previous
    row.
    """
    followers, before = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    rows = np.arange(len(starts))
    for _, members in group_rows(work["device"], work["stream"]):
        over = np.maximum.accumulate(ends[members]) if running else ends[members]
        followers.append(rows[members][1:])
        before.append(over[:-1])
    return np.concatenate(followers), np.concatenate(before)


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no work on a GPU."""
    return scope.no_work_reason


QUESTION = Question(
    name="idle_breakdown",
    short_question="Why does a stream of a GPU idle?",
    definition="Of each rank, device and stream: the gaps in which the stream is empty, before the work that ends them."
    " A gap is the host's (host_wait) if that work was launched after the gap began; else it is the cost of the launch"
    " (kernel_wait) if it is short; else other. With `types=hta` a gap follows the work that started before, even if"
    " other work of the stream lasts longer, and gaps of no time count.",
    source="https://hta.readthedocs.io/en/latest/source/features/idle_time_breakdown.html",
    tables={"breakdown": COLUMNS},
    parameters=IdleParameters,
    inapplicable_reason=missing,
    answer=answer,
)

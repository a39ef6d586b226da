"""Which kernels are slow on which hosts?"""

from typing import Literal

import pyarrow as pa
from pydantic import Field

from service.analysis.parameters import Parameters
from service.analysis.table import RANK, count, ns, number, pct, word
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetQuestion
from service.fleet.questions.slow_ranks import HOST

_KERNELS = (
    HOST,
    RANK,
    word("type", "COMP, COMM or MEM"),
    word("name", "of the kernel or copy"),
    count("count", "pieces of work here"),
    ns("sum", "of their durations"),
    number("mean_ns", "mean duration", "ns"),
    number("median_ns", "median of the means of all places", "ns"),
    pct("over", "how much the mean is over the median"),
    number("excess_ns", "time that the work would take less with the median's duration", "ns"),
    count("places", "hosts or ranks that have this work"),
)


class KernelParameters(Parameters):
    """Parameters of `kernel_outliers`."""

    by: Literal["host", "rank"] = Field("host", description="the places that are compared")
    over_pct: float = Field(5.0, ge=0, description="least difference from the median, in %")
    communication: bool = Field(
        False, description="also kernels that communicate, whose durations are mostly waiting for other ranks"
    )


_SQL = """
WITH places AS (
    SELECT host, {rank} AS rank, type, kernels.name, sum(count)::BIGINT AS count,
        least(sum(sum_ns), 9223372036854775807)::BIGINT AS sum_ns
    FROM kernels JOIN traces USING (trace) WHERE run = $run AND ($communication OR type <> 'COMM') GROUP BY ALL
), means AS (
    SELECT *, sum_ns / count AS mean_ns, median(sum_ns / count) OVER work AS median_ns, count(*) OVER work AS places
    FROM places WINDOW work AS (PARTITION BY type, name)
)
SELECT *, 100 * (mean_ns / nullif(median_ns, 0) - 1) AS over_pct, (mean_ns - median_ns) * count AS excess_ns
FROM means WHERE coalesce(100 * (mean_ns / nullif(median_ns, 0) - 1), 0) > $over
ORDER BY excess_ns DESC, name, type, host, rank
"""


def _answer(facts: FactsDatabase, run: str, parameters: KernelParameters) -> dict[str, pa.Table]:
    sql = _SQL.format(rank="kernels.rank" if parameters.by == "rank" else "NULL")
    values = {"run": run, "communication": parameters.communication, "over": parameters.over_pct}
    return {"kernels": facts.table(sql, values)}


QUESTION = FleetQuestion(
    name="kernel_outliers",
    short_question="Which kernels are slow on which hosts?",
    definition="The mean duration of each kernel on a host, or on a rank, beside the median of these means. Kernels of"
    " one name may differ in their shapes: compare hosts whose ranks do the same work.",
    source=None,
    tables={"kernels": _KERNELS},
    answer=_answer,
    parameters=KernelParameters,
)

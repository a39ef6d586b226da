"""How long does each step take on each rank?"""

from typing import Literal

import pyarrow as pa
from pydantic import Field

from service.analysis.parameters import Parameters
from service.analysis.table import CYCLE, RANK, Column, count, ns, number, pct
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetQuestion
from service.fleet.questions.slow_ranks import HOST, OWN

STEP = count("step", "number of the step; empty if the trace has none, and the row is the whole trace")
_VALUE = "the chosen time of the step"
_MATRIX = (
    CYCLE,
    STEP,
    RANK,
    HOST,
    ns("value", _VALUE),
    pct("over_median", "how much that is over the median of the ranks in this step"),
)
_STEPS = (
    CYCLE,
    STEP,
    count("ranks", "ranks whose traces have the step"),
    ns("min", f"{_VALUE}: of the fastest rank"),
    number("median_ns", f"{_VALUE}: of the median rank", "ns"),
    ns("max", f"{_VALUE}: of the slowest rank"),
    count("slowest_rank", "the slowest rank"),
    Column("slowest_host", "string", None, "its host"),
)


Time = Literal["own", "total", "kernel", "memcpy", "communication", "runtime", "dataloader", "cpu_exec", "other"]
"""A time of a step."""


class MatrixParameters(Parameters):
    """Parameters of `step_matrix`."""

    value: Time = Field(
        "own", description="time of the step: `own` is all but communication; the others are those of `steps`"
    )


_SQL = """
CREATE OR REPLACE TEMP TABLE step_values AS
SELECT cycle, step, steps.rank, host, {value} AS value_ns FROM steps JOIN traces USING (trace) WHERE run = $run
"""
_MATRIX_SQL = """
SELECT *, 100 * (value_ns / nullif(median(value_ns) OVER (PARTITION BY cycle, step), 0) - 1) AS over_median_pct
FROM step_values ORDER BY cycle, step, rank
"""
_STEPS_SQL = """
SELECT cycle, step, count(*) AS ranks, min(value_ns) AS min_ns, median(value_ns) AS median_ns, max(value_ns) AS max_ns,
    arg_max(rank, value_ns) AS slowest_rank, arg_max(host, value_ns) AS slowest_host
FROM step_values GROUP BY cycle, step ORDER BY cycle, step
"""


def _answer(facts: FactsDatabase, run: str, parameters: MatrixParameters) -> dict[str, pa.Table]:
    value = OWN if parameters.value == "own" else f"{parameters.value}_ns"
    facts.define(_SQL.format(value=value), {"run": run})
    return {"matrix": facts.table(_MATRIX_SQL), "steps": facts.table(_STEPS_SQL)}


QUESTION = FleetQuestion(
    name="step_matrix",
    short_question="How long does each step take on each rank?",
    definition="A time of each step and rank, as in `steps`, and its distribution over the ranks of each step.",
    source=None,
    tables={"matrix": _MATRIX, "steps": _STEPS},
    answer=_answer,
    parameters=MatrixParameters,
)

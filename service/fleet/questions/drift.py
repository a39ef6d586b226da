"""What has changed between runs?"""

import pyarrow as pa
from pydantic import Field

from service.analysis.parameters import Parameters
from service.analysis.table import count, number, pct, word
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetQuestion
from service.fleet.questions.slow_ranks import OWN
from service.fleet.record import chosen_run
from service.trace.errors import BadFleetRequest

_RUNS = (
    word("run", "name of the run"),
    count("start_ns", "start of its first trace, in ns since 1970"),
    count("ranks", "its ranks"),
    count("steps", "steps of all ranks"),
    number("total_ns", "median time of a step, over steps and ranks", "ns"),
    number("own_ns", "the same without communication", "ns"),
    pct("change", "change of the time of a step from the run before"),
)
_KERNELS = (
    word("type", "COMP, COMM or MEM"),
    word("name", "of the kernel or copy"),
    number("base_mean_ns", "mean duration in the base", "ns"),
    number("mean_ns", "mean duration in the run", "ns"),
    pct("change", "change of the mean duration"),
    number("base_per_step", "pieces of work in a step of a rank, in the base"),
    number("per_step", "the same in the run"),
    number("change_per_step_ns", "change of the time in a step of a rank", "ns"),
)


class DriftParameters(Parameters):
    """Parameters of `drift`."""

    base: str | None = Field(None, description="run to compare with; by default the one that started before")


_RUNS_SQL = f"""
WITH values AS (
    SELECT run, count(DISTINCT steps.rank) AS ranks, count(*) AS steps, median(total_ns) AS total_ns,
        median({OWN}) AS own_ns
    FROM steps JOIN traces USING (trace) GROUP BY run
), starts AS (
    SELECT run, min(coalesce(base_ns, 0) + coalesce(start_ns, 0)) AS start_ns FROM traces GROUP BY run
)
SELECT *, 100 * (total_ns / nullif(lag(total_ns) OVER (ORDER BY start_ns, run), 0) - 1) AS change_pct
FROM starts LEFT JOIN values USING (run) ORDER BY start_ns, run
"""
_KERNELS_SQL = """
WITH rank_steps AS (
    SELECT run, count(*) AS steps FROM steps JOIN traces USING (trace) GROUP BY run
), work AS (
    SELECT run, type, kernels.name, sum(count) AS count, sum(sum_ns) AS sum_ns FROM kernels JOIN traces USING (trace)
    WHERE run IN ($run, $base) GROUP BY ALL
), figures AS (
    SELECT run, type, name, sum_ns / count AS mean_ns, count / steps AS per_step, sum_ns / steps AS in_step
    FROM work JOIN rank_steps USING (run)
), base AS (FROM figures WHERE run = $base), other AS (FROM figures WHERE run = $run)
SELECT type, name, base.mean_ns AS base_mean_ns, other.mean_ns, base.per_step AS base_per_step, other.per_step,
    100 * (other.mean_ns / nullif(base.mean_ns, 0) - 1) AS change_pct,
    coalesce(other.in_step, 0) - coalesce(base.in_step, 0) AS change_per_step_ns
FROM base FULL JOIN other USING (type, name) ORDER BY abs(change_per_step_ns) DESC, name, type
"""


def _answer(facts: FactsDatabase, run: str, parameters: DriftParameters) -> dict[str, pa.Table]:
    place = facts.runs.index(run)
    if parameters.base is None and place == 0:
        raise BadFleetRequest(f"No run has started before {run}. Name another run, or one to compare with as `base`.")
    base = facts.runs[place - 1] if parameters.base is None else chosen_run(facts.runs, parameters.base)
    return {"kernels": facts.table(_KERNELS_SQL, {"run": run, "base": base}), "runs": facts.table(_RUNS_SQL)}


QUESTION = FleetQuestion(
    name="drift",
    short_question="What has changed between runs?",
    definition="The time of a step of all runs, in the order in which they started. Of two runs, the mean duration and"
    " the number of each kernel in a step of a rank.",
    source=None,
    tables={"kernels": _KERNELS, "runs": _RUNS},
    answer=_answer,
    parameters=DriftParameters,
)

"""Which step went wrong, and where?"""

import pyarrow as pa
from pydantic import Field

from service.analysis.parameters import Parameters
from service.analysis.table import CYCLE, RANK, count, ns, number, pct, word
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetQuestion
from service.fleet.questions.slow_ranks import HOST, OWN
from service.fleet.questions.step_matrix import STEP

_OUTLIERS = (
    CYCLE,
    STEP,
    RANK,
    HOST,
    ns("own", "time of the step without its communication"),
    number("median_ns", "the same on the median rank in this step", "ns"),
    number("over_ns", "the difference", "ns"),
    pct("over", "the difference, as a share of the median"),
    number("score", "modified z-score; empty if more than half of the ranks take the same time"),
)
_STEPS = (
    CYCLE,
    STEP,
    count("ranks", "ranks whose traces have the step"),
    number("total_ns", "time of the step on the median rank", "ns"),
    pct("over", "how much that is over the median step of the run"),
    count("outliers", "ranks that are outliers in this step"),
    word("hosts", "their hosts"),
)


class OutlierParameters(Parameters):
    """Parameters of `step_outliers`."""

    score: float = Field(3.5, gt=0, description="smallest modified z-score of an outlier")
    over_pct: float = Field(5.0, ge=0, description="least difference from the median, in %")


_SQL = f"""
CREATE OR REPLACE TEMP TABLE scored AS
WITH owns AS (
    SELECT cycle, step, steps.rank, host, {OWN} AS own_ns, total_ns
    FROM steps JOIN traces USING (trace) WHERE run = $run
), medians AS (
    SELECT *, median(own_ns) OVER (PARTITION BY cycle, step) AS median_ns FROM owns
), deviations AS (
    SELECT *, median(abs(own_ns - median_ns)) OVER (PARTITION BY cycle, step) AS deviation FROM medians
)
SELECT *, own_ns - median_ns AS over_ns, 100 * (own_ns / nullif(median_ns, 0) - 1) AS over_pct,
    0.6745 * (own_ns - median_ns) / nullif(deviation, 0) AS score,
    coalesce(over_pct, 0) > $over AND coalesce(score, 'inf'::DOUBLE) >= $score AS is_outlier
FROM deviations
"""
_OUTLIERS_SQL = "SELECT * FROM scored WHERE is_outlier ORDER BY over_ns DESC, cycle, step, rank"
_STEPS_SQL = """
WITH by_step AS (
    SELECT cycle, step, count(*) AS ranks, median(total_ns) AS total_ns,
        count(*) FILTER (WHERE is_outlier) AS outliers,
        string_agg(DISTINCT host, ', ' ORDER BY host) FILTER (WHERE is_outlier) AS hosts
    FROM scored GROUP BY cycle, step
)
SELECT *, 100 * (total_ns / nullif((SELECT median(total_ns) FROM by_step), 0) - 1) AS over_pct
FROM by_step ORDER BY cycle, step
"""


def _answer(facts: FactsDatabase, run: str, parameters: OutlierParameters) -> dict[str, pa.Table]:
    facts.define(_SQL, {"run": run, "over": parameters.over_pct, "score": parameters.score})
    return {"outliers": facts.table(_OUTLIERS_SQL), "steps": facts.table(_STEPS_SQL)}


QUESTION = FleetQuestion(
    name="step_outliers",
    short_question="Which step went wrong, and where?",
    definition="An outlier is a rank whose time of a step without communication exceeds the median of the ranks in that"
    " step by a share of it, and whose modified z-score is large: 0.6745 times the difference, divided by the median"
    " absolute deviation.",
    source="B. Iglewicz and D. C. Hoaglin, How to Detect and Handle Outliers, 1993",
    tables={"outliers": _OUTLIERS, "steps": _STEPS},
    answer=_answer,
    parameters=OutlierParameters,
)

"""Which ranks and which hosts are slow?"""

import pyarrow as pa

from service.analysis.parameters import Parameters
from service.analysis.table import RANK, count, number, pct, word
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetQuestion

OWN = "total_ns - communication_ns"
"""Time of a step in which a rank does not communicate. In a collective, a fast rank waits for the slow ones."""

HOST = word("host", "host of the rank; empty if the trace does not tell it")
_RANKS = (
    RANK,
    HOST,
    count("steps", "steps in its traces"),
    number("own_ns", "mean time of a step without its communication", "ns"),
    pct("over_median", "how much that is over the median of all ranks"),
    number("total_ns", "mean time of a step", "ns"),
    number("communication_ns", "mean time of a step with communication and no computing or copying", "ns"),
)
_HOSTS = (
    HOST,
    count("ranks", "ranks on the host"),
    number("own_ns", "mean over its ranks", "ns"),
    pct("over_median", "how much that is over the median of all hosts"),
    count("slowest_rank", "its slowest rank"),
    number("slowest_own_ns", "mean time of a step of that rank, without its communication", "ns"),
)

_SQL = f"""
CREATE OR REPLACE TEMP TABLE rank_steps AS
SELECT steps.rank, any_value(host) AS host, count(*) AS steps, avg({OWN}) AS own_ns, avg(total_ns) AS total_ns,
    avg(communication_ns) AS communication_ns
FROM steps JOIN traces USING (trace) WHERE run = $run GROUP BY steps.rank
"""
_RANKS_SQL = """
SELECT *, 100 * (own_ns / nullif((SELECT median(own_ns) FROM rank_steps), 0) - 1) AS over_median_pct
FROM rank_steps ORDER BY own_ns DESC, rank
"""
_HOSTS_SQL = """
WITH hosts AS (
    SELECT host, count(*) AS ranks, avg(own_ns) AS own_ns, arg_max(rank, own_ns) AS slowest_rank,
        max(own_ns) AS slowest_own_ns
    FROM rank_steps GROUP BY host
)
SELECT *, 100 * (own_ns / nullif((SELECT median(own_ns) FROM hosts), 0) - 1) AS over_median_pct
FROM hosts ORDER BY own_ns DESC, host
"""


def _answer(facts: FactsDatabase, run: str, _: Parameters) -> dict[str, pa.Table]:
    facts.define(_SQL, {"run": run})
    return {"ranks": facts.table(_RANKS_SQL), "hosts": facts.table(_HOSTS_SQL)}


QUESTION = FleetQuestion(
    name="slow_ranks",
    short_question="Which ranks and which hosts are slow?",
    definition="The own time of a step is its time as in `steps` without `communication_ns`. All ranks of a synchronous"
    " job take the same time for a step, because fast ranks wait in collectives. So a rank is slow if its own time is"
    " long.",
    source=None,
    tables={"ranks": _RANKS, "hosts": _HOSTS},
    answer=_answer,
)

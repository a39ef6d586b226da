"""In which collectives is the last rank always the same?"""

import pyarrow as pa
from pydantic import Field

from service.analysis.parameters import Parameters
from service.analysis.table import RANK, count, ns, pct, word
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import FleetQuestion
from service.fleet.questions.slow_ranks import HOST

_RANKS = (
    word("process_group", "name of the process group; empty if it is not recorded"),
    word("group_ranks", "its ranks, as recorded"),
    word("collective", "name of the operation"),
    RANK,
    HOST,
    count("times_last", "collectives in which it is the last"),
    count("collectives", "collectives of this kind for which the traces of all ranks are present"),
    pct("last", "share of these in which it is the last"),
    ns("waited_for", "waiting of all other ranks together for it"),
)


class LastRankParameters(Parameters):
    """Parameters of `last_ranks`."""

    last_pct: float = Field(50.0, ge=0, le=100, description="least share of collectives in which a rank is the last")
    collectives: int = Field(2, ge=1, le=1 << 62, description="least number of collectives of a kind")


_SQL = """
WITH recorded AS (
    SELECT cycle, process_group, by_seq, number, occurrence, group_ranks, collective, group_size, host,
        regexp_extract(group_ranks, '[0-9]+') AS first_rank,
        collectives.rank, collectives.end_ns - collectives.start_ns AS dur_ns
    FROM collectives JOIN traces USING (trace) WHERE run = $run
), single AS (
    SELECT cycle, process_group, max(first_rank) AS only_first FROM recorded WHERE first_rank <> ''
    GROUP BY ALL HAVING count(DISTINCT first_rank) = 1
), seen AS (
    SELECT recorded.*, coalesce(nullif(first_rank, ''), only_first) AS first
    FROM recorded LEFT JOIN single
    ON recorded.cycle = single.cycle AND recorded.process_group IS NOT DISTINCT FROM single.process_group
), matched AS (
    SELECT process_group, first, any_value(group_ranks) AS group_ranks, any_value(collective) AS collective,
        arg_min(rank, (dur_ns, rank)) AS rank, arg_min(host, (dur_ns, rank)) AS host,
        sum(dur_ns - shortest_ns) AS waited_for_ns
    FROM (SELECT *, min(dur_ns) OVER same AS shortest_ns FROM seen
          WINDOW same AS (PARTITION BY cycle, process_group, first, by_seq, number, occurrence))
    GROUP BY cycle, process_group, first, by_seq, number, occurrence
    HAVING count(*) >= greatest(coalesce(max(group_size), 2), 2)
), counted AS (
    SELECT process_group, first, any_value(group_ranks) AS group_ranks, collective, rank, any_value(host) AS host,
        count(*) AS times_last, least(sum(waited_for_ns), 9223372036854775807)::BIGINT AS waited_for_ns
    FROM matched GROUP BY process_group, first, collective, rank
), shares AS (
    SELECT *, sum(times_last) OVER (PARTITION BY process_group, first, collective)::BIGINT AS collectives FROM counted
)
SELECT *, 100 * times_last / collectives AS last_pct FROM shares
WHERE 100 * times_last / collectives >= $share AND collectives >= $count
ORDER BY waited_for_ns DESC, process_group, collective, rank
"""


def _answer(facts: FactsDatabase, run: str, parameters: LastRankParameters) -> dict[str, pa.Table]:
    values = {"run": run, "share": parameters.last_pct, "count": parameters.collectives}
    return {"ranks": facts.table(_SQL, values)}


QUESTION = FleetQuestion(
    name="last_ranks",
    short_question="In which collectives is the last rank always the same?",
    definition="Communications are matched into collectives as in the analysis `collectives`. The last rank of a"
    " collective is the one whose communication is shortest: the others wait for it, and it waits for none. No clocks"
    " of different hosts are compared. Only collectives that the traces of all ranks show count.",
    source=None,
    tables={"ranks": _RANKS},
    answer=_answer,
    parameters=LastRankParameters,
)

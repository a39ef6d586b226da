"""The table of attribution rules: how much work each gives an operator."""

import pyarrow as pa

from service.analysis.facts.intervals import share
from service.analysis.facts.scope import Scope
from service.analysis.table import RANK, Columns, count, ns, pct, table_of, word

ATTRIBUTION: Columns = (
    RANK,
    word(
        "rule",
        "launch: the operator around the call that launched the work; graph: likewise, of a graph; external_id: the"
        " operator of its External id, which is used only where a trace shows that these are operators';"
        " launch_outside_operators, graph_outside_operators: the call is known and no operator is around it; no_launch:"
        " no call in the trace has its correlation",
    ),
    count("work", "kernels, copies and memsets"),
    ns("time", "of these"),
    pct("time", "of all work"),
    count("in_steps", "those that a step launched, or, without a launch, that began in a step"),
)

_RULES = """
SELECT rule::VARCHAR AS rule, count(*) AS work, least(sum(dur_ns), 9223372036854775807)::BIGINT AS time_ns,
    count(step) AS in_steps
FROM device_events GROUP BY rule ORDER BY time_ns DESC, rule
"""


def attribution_of(scope: Scope) -> pa.Table:
    """Count the work of a rank by attribution rule."""
    scope.slices()
    found = scope.table(_RULES).to_pydict()
    whole = sum(found["time_ns"])
    shares = [share(time, whole) for time in found["time_ns"]]
    return table_of(ATTRIBUTION, {**found, "rank": [scope.rank] * len(shares), "time_pct": shares})

"""The table of attribution rules, with the work that each rule attributes."""

import pyarrow as pa

from service.analysis.facts.intervals import percentage
from service.analysis.facts.scope import Scope
from service.analysis.table import RANK, Columns, count, ns, pct, table_of, word

ATTRIBUTION: Columns = (
    RANK,
    word(
        "rule",
        "launch: the operator around the call that launched the work; graph: the same for the launch of a graph;"
        " external_id: the operator with its External id, used only if the trace shows that External ids are those of"
        " operators; launch_outside_operators, graph_outside_operators: the call is known, but no operator is around"
        " it; no_launch: no call in the trace has its correlation id",
    ),
    count("work", "kernels, copies and memsets"),
    ns("time", "time of these"),
    pct("time", "share of all work"),
    count("in_steps", "work launched in a step, or, without a launch, begun in a step"),
)

_RULES = """
SELECT rule, count(*) AS work, least(sum(dur_ns), 9223372036854775807)::BIGINT AS time_ns,
    count(step) AS in_steps
FROM device_events GROUP BY rule ORDER BY time_ns DESC, rule
"""


def attribution_of(scope: Scope) -> pa.Table:
    """Return the work of a rank by attribution rule."""
    scope.define_device_events()
    columns = scope.table(_RULES).to_pydict()
    total = sum(columns["time_ns"])
    shares = [percentage(time, total) for time in columns["time_ns"]]
    return table_of(ATTRIBUTION, {**columns, "rank": [scope.rank] * len(shares), "time_pct": shares})

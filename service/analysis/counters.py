"""What did CUPTI's range profiler count, and for which operator?"""

import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.host import CALLS, OP, Host, host_of
from service.analysis.facts.scope import RANGE_CATEGORY, Scope
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import DEVICE, RANK, count, ns, number, table_of, word
from service.trace.errors import NotApplicable

_OP = word("op", "innermost operator around the launch of the kernel; empty if unknown")
_TOP_OP = word("top_op", "outermost operator around the launch; empty likewise")
_KERNEL = word("kernel", "name of the range: of its kernel, or as the program names it")
COUNTERS = (
    RANK,
    DEVICE,
    _OP,
    _TOP_OP,
    _KERNEL,
    word("counter", "name of the metric, as CUPTI has it"),
    count("ranges", "in which the metric was counted"),
    number("sum", "over these ranges"),
    number("mean", "of a range"),
    number("min", "of a range"),
    number("max", "of a range"),
)
RANGES = (
    RANK,
    DEVICE,
    count("number", "of the range, from 0, in order of time"),
    _KERNEL,
    ns("start", "as the trace has it; a range runs once for each pass, so it is not the time of a kernel"),
    _OP,
    _TOP_OP,
    word("op_stack", "all operators around the launch, the outermost first, with ` > ` between them"),
    word("call", "that launched the kernel"),
    ns("call_start", "of that call"),
    word("counters", "name and value of each metric, as JSON"),
)
TOTALS = (
    RANK,
    count("ranges", "of the profiler"),
    count("launches", "of kernels, on the host"),
    count("linked_ranges", "of which the launch is known: the first range is of the first launch, and so on"),
    word("reason", "why no range is linked; empty if ranges are linked"),
)

_LAUNCH = re.compile(r"(?:cuda|cu)Launch(?:Cooperative)?Kernel")
_NON_METRIC_ARGS = frozenset({"device", "stream", "context", "correlation", "External id"})
_RANGES = f"""
SELECT
    coalesce(device, pid) AS device, name AS kernel, ts_ns AS start_ns,
    coalesce(try(json(args)), args)::VARCHAR AS counters
FROM events WHERE ph = 'X' AND cat = '{RANGE_CATEGORY}' AND ts_ns NOTNULL ORDER BY ts_ns, position
"""
_METRICS = """
SELECT number, metric.key AS counter, try_cast(metric.value AS DOUBLE) AS value
FROM (
    SELECT number, unnest(map_entries(try(json_transform(counters, '"MAP(VARCHAR, VARCHAR)"')))) AS metric FROM ranges
) WHERE isfinite(value)
"""
_COUNTED = f"""
SELECT
    device, op, top_op, kernel, counter, count(*) AS ranges, sum(value ORDER BY number) AS sum,
    sum(value ORDER BY number) / count(*) AS mean, min(value) AS min, max(value) AS max
FROM ({_METRICS}) JOIN ranges USING (number) WHERE counter NOT IN {tuple(sorted(_NON_METRIC_ARGS))}
GROUP BY device, op, top_op, kernel, counter
ORDER BY device, min(number), counter
"""


class CounterParameters(Parameters):
    """Parameters of `counters`."""

    ranges: int = Field(1000, ge=1, le=1_000_000, description="maximum number of listed ranges: the first ones")


class _Launches(NamedTuple):
    """Kernel launches in order of time: their indices in `host`, and the operators around each, innermost first."""

    host: Host
    calls: Any
    stacks: list[list[str]]


def answer(scope: Scope, parameters: CounterParameters) -> Tables:
    """Return the counters of a rank by operator and by range."""
    ranges = scope.table(_RANGES)
    launches = _launches(scope)
    reason = _not_linked(scope, len(ranges), len(launches.calls))
    ranges = ranges.append_column("number", pa.array(np.arange(len(ranges))))
    for name, values in _linked(launches, len(ranges), known=reason is None).items():
        ranges = ranges.append_column(name, values)
    scope.db.register("ranges", ranges)
    counters = scope.table(_COUNTED)
    scope.db.unregister("ranges")
    if not len(counters):
        raise NotApplicable("The ranges of CUPTI's profiler in this trace have no counters.")
    totals = {"ranges": [len(ranges)], "launches": [len(launches.calls)], "reason": [reason]}
    totals["linked_ranges"] = [0 if reason else len(ranges)]
    tables = {"counters": counters, "ranges": ranges.slice(0, parameters.ranges), "totals": pa.table(totals)}
    columns = QUESTION.tables
    ranked = {
        name: table.append_column("rank", pa.array([scope.rank] * len(table), pa.int64()))
        for name, table in tables.items()
    }
    return {name: table_of(columns[name], table) for name, table in ranked.items()}


def _not_linked(scope: Scope, ranges: int, launches: int) -> str | None:
    """Return the reason why ranges can't be linked to launches, or None if they can."""
    if scope.is_selection:
        return "Ranges are linked to launches by their order in the whole trace, and this is a part of it."
    if ranges != launches:
        return f"There are {ranges} ranges and {launches} launches of kernels: which is of which is not known."
    return None


def _launches(scope: Scope) -> _Launches:
    """Return the calls that launch kernels, without those inside another such call."""
    from service.attribution.nesting import NONE, nearest_marked, parents_of  # noqa: PLC0415 - loads numba

    host = host_of(scope)
    parents = parents_of(host.threads, host.starts, host.ends)
    launching = np.array([_LAUNCH.match(word) is not None for word in host.words], bool)
    calls = (host.kinds == CALLS) & launching[host.names]
    above = np.append(nearest_marked(parents, calls), NONE)[parents]
    ops = np.append(nearest_marked(parents, host.kinds == OP), NONE)
    outermost = np.flatnonzero(calls & (above == NONE))
    stacks = []
    for at in outermost.tolist():
        stack, op = [], ops[at]
        while op != NONE:
            stack.append(host.words[host.names[op]])
            op = ops[parents[op]]
        stacks.append(stack)
    return _Launches(host, outermost, stacks)


def _linked(launches: _Launches, ranges: int, *, known: bool) -> dict[str, pa.Array]:
    """Return the columns that describe the launch of each range; null if the launches are not known."""
    if not known:
        kinds = defaultdict(pa.string, call_start_ns=pa.int64())
        return {name: pa.nulls(ranges, kinds[name]) for name in ("op", "top_op", "op_stack", "call", "call_start_ns")}
    host, calls = launches.host, launches.calls
    texts = {
        "op": [stack[0] if stack else None for stack in launches.stacks],
        "top_op": [stack[-1] if stack else None for stack in launches.stacks],
        "op_stack": [" > ".join(stack[::-1]) or None for stack in launches.stacks],
        "call": [host.words[name] for name in host.names[calls].tolist()],
    }
    return {name: pa.array(values, pa.string()) for name, values in texts.items()} | {
        "call_start_ns": pa.array(host.starts[calls])
    }


def missing(scope: Scope) -> str | None:
    """Return the reason why the analysis does not apply to a trace without ranges; None if the trace has ranges."""
    return None if scope.has_categories([RANGE_CATEGORY]) else "CUPTI's range profiler counted nothing in this trace."


QUESTION = Question(
    name="counters",
    short_question="What did CUPTI's range profiler count, and for which operator?",
    definition="Of each metric: its sum, mean, least and greatest value over the ranges of a kernel, by the operators"
    " around its launch. The profiler makes a range of each kernel that is launched. As in HTA, the first range in"
    " order of time belongs to the first launch, and so on, provided that there are as many ranges as launches. A call"
    " that launches a kernel on behalf of another call does not count as a second launch.",
    source="https://hta.readthedocs.io/en/latest/source/features/cupti_counter_analysis.html",
    tables={"counters": COUNTERS, "ranges": RANGES, "totals": TOTALS},
    parameters=CounterParameters,
    inapplicable_reason=missing,
    answer=answer,
)

"""The tool `describe`: the facts of a trace or a run, what to try first, and what can be asked."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tracedock.errors import ApiError

from service.agents.api import Api, Json, Target
from service.agents.reply import Budgets, Reply, Table
from service.agents.tools.tool import Subject, Tool
from service.analysis.names import COMPARISONS

_WAIT_S = 30
"""Seconds to wait for traces that are still being read."""
_ADVICE_MAX = 8
_LISTED_MAX = 30
_RANKS = ("rank", "trace", "name", "state", "host", "events", "cycle")
_FACTS = ("rank", "world_size", "backend", "host", "size", "parent", "selection", "base_ns")


class DescribeArguments(Budgets):
    """Arguments of `describe`."""

    target: Subject


async def run(api: Api, arguments: DescribeArguments) -> str:
    """Return the facts of a trace or a run, its recommendations, and the analyses that apply."""
    target = await api.target(arguments.target)
    target = Target(target.kind, await api.get(target.path, wait=_WAIT_S if target.kind == "trace" else None))
    reply = Reply(arguments)
    for line in _trace(target.facts) if target.kind == "trace" else _run(target.facts):
        reply.line(line)
    for line in [*await _advice(api, target), *await _analyses(api, target)]:
        reply.line(line)
    if target.kind == "run":
        rows = [[rank[name] for name in _RANKS] for rank in target.facts["ranks"]]
        reply.table(Table("ranks", _RANKS, rows, len(rows), rest=f"`list` with run={target.id} has all"))
    return reply.text()


def _trace(trace: Json) -> Iterator[str]:
    yield f"trace {trace['id']}: {trace['name']}"
    yield f"state: {trace['state']}" + (f" ({trace['error']['detail']})" if trace["error"] else "")
    facts = {"size_bytes" if name == "size" else name: trace[name] for name in _FACTS if trace[name] is not None}
    facts |= {"run": trace["group"]["name"]} if trace["group"] else {}
    yield "; ".join(f"{name}: {value}" for name, value in facts.items())
    yield f"events: {trace['events']['kept']} kept, {trace['events']['refused']} refused"
    if bounds := trace["bounds"]:
        span = bounds["end_ns"] - bounds["start_ns"]
        yield f"start_ns: {bounds['start_ns']}; end_ns: {bounds['end_ns']}; span_ns: {span}"
    numbers = sorted({step["number"] for step in trace["steps"]})
    all_are_listed = numbers and trace["steps_count"] == len(trace["steps"])
    yield f"steps: {trace['steps_count']}" + (f", from {numbers[0]} to {numbers[-1]}" if all_are_listed else "")
    devices = [f"{device['id']} {device['name'] or '(name unknown)'}" for device in trace["devices"]]
    yield f"devices: {_named(devices)}; streams: {_named(trace['streams'])}"
    if trace["ranks"]:
        yield f"merged from ranks: {_named([rank['rank'] for rank in trace['ranks']])}"
    for note in trace["health"].get("notes", ())[:_ADVICE_MAX]:
        yield f"health: {note['kind']}, {note['count']} times: {note['detail']}"


def _run(group: Json) -> Iterator[str]:
    yield f"run {group['id']}: {group['name']}"
    states = Counter(rank["state"] for rank in group["ranks"])
    yield f"traces: {group['traces']} ({', '.join(f'{count} {state}' for state, count in states.items()) or 'none'})"
    yield f"world_size: {group['world_size']}; missing ranks: {_named(group['missing'])}"
    if len(group["cycles"]) > 1:
        cycles = [f"{cycle['cycle']} (steps {cycle['first_step']}-{cycle['last_step']})" for cycle in group["cycles"]]
        yield f"cycles of the profiler: {_named(cycles)}"


def _named(items: Sequence[object]) -> str:
    """List items, up to `_LISTED_MAX`."""
    listed = ", ".join(map(str, items[:_LISTED_MAX])) or "none"
    return listed if len(items) <= _LISTED_MAX else f"{listed} and {len(items) - _LISTED_MAX} more"


async def _advice(api: Api, target: Target) -> list[str]:
    """Return the recommendations, or the reason why there are none."""
    try:
        answer = await api.get(
            f"{target.path}/analysis/recommendations", table="recommendations", limit=_ADVICE_MAX, wait=_WAIT_S
        )
    except ApiError as error:
        return [f"recommendations: none. {error.detail}"]
    table = answer["tables"]["recommendations"]
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    lines = [f"recommendations: {table['total'] or 'no rule finds a problem'}"]
    return lines + [_advised(number, row) for number, row in enumerate(rows, 1)]


def _advised(number: int, row: Json) -> str:
    places = [f"{name} {row[name]}" for name in ("rank", "cycle") if row.get(name) is not None]
    rank = f" [{', '.join(places)}]" if places else ""
    place = (
        "" if row["start_ns"] is None else f" See {row['name']}, start_ns {row['start_ns']}, end_ns {row['end_ns']}."
    )
    return f"{number}. {row['rule']}{rank}: {row['advice']} {row['reason']}{place}"


async def _analyses(api: Api, target: Target) -> list[str]:
    try:
        listed = (await api.get(f"{target.path}/analysis"))["analyses"]
    except ApiError as error:
        return [f"analyses: {error.detail}"]
    analyses = [analysis for analysis in listed if analysis["name"] not in COMPARISONS]
    usable = [analysis["name"] for analysis in analyses if analysis["applies"]]
    others = [f"{analysis['name']} ({analysis['reason']})" for analysis in analyses if not analysis["applies"]]
    return [f"analyses: {', '.join(usable)}"] + ([f"not applicable: {' '.join(others)}"] if others else [])


TOOL = Tool(
    "describe",
    "Describe a trace or a run",
    "Start here. Returns the facts of a trace or a run, what to do first with the evidence for it (recommendations:"
    " late ranks, data loading, idle GPUs, exposed communication, …), the names of the analyses that apply, and the"
    " ranks of a run with the ids of their traces.",
    DescribeArguments,
    run,
)

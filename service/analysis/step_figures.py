"""What does each step cost, in all and by kernel, operator and collective?"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from service.analysis.collectives import missing as no_collectives_reason
from service.analysis.facts.activity import activity_of
from service.analysis.facts.communications import communications_of
from service.analysis.facts.host import KINDS, Host, host_of
from service.analysis.facts.intervals import Ints, group_rows
from service.analysis.facts.memory_changes import memory_changes_of
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, Windows, windows_of
from service.analysis.memory import missing as no_memory_reason
from service.analysis.parameters import Parameters, WorkParameters
from service.analysis.question import Question, Tables
from service.analysis.steps import hidden_communication
from service.analysis.table import RANK, Column, Columns, count, ns, table_of, word
from service.streaming.integers import distinct
from service.trace.summary import NOT_OPERATORS

if TYPE_CHECKING:
    from service.attribution.nesting import Indices  # loads numba, which describing questions does without

_STEP = count("step", "number of the step")
_STEPS = (
    RANK,
    _STEP,
    ns("start", "of the step"),
    ns("end", "of the step"),
    ns("total", "from start to end, as in `steps`"),
    ns("busy", "with work on a device; empty if nothing runs on a device"),
    ns("idle", "with no work on any device, likewise"),
    ns("exposed", "with communication and no computing, as `communication_ns` of the table `communication` of `steps`"),
    Column(
        "peak_bytes",
        "int",
        "bytes",
        "the most memory that is allocated at once on a device, or on the host if no device has memory events; empty if"
        " the trace does not record it",
    ),
)
_WORK = (
    RANK,
    count("step", "step in which the work was launched"),
    word("kind", "kernel, memcpy or memset"),
    word("type", "COMP, COMM or MEM"),
    word("name", "of the work"),
    count("count", "pieces of work"),
    ns("sum", "of their durations"),
    ns("max", "the longest"),
)
_OPERATORS = (
    RANK,
    count("step", "step in which the calls begin"),
    word("kind", "op, annotation or call (of a runtime or driver)"),
    word("name", "of the operator"),
    count("calls", "number of calls; an only child of the same name does not count"),
    ns("host_total", "on the host, with what it called"),
    ns("device_total", "on devices, of work that was launched by it and by what it called"),
)
_COLLECTIVES = (
    RANK,
    count("step", "step in which the collectives were launched"),
    word("collective", "operation, as in `collectives`; empty if it is not known"),
    count("count", "number of the rank's communications"),
    ns("sum", "of their durations on this rank, with its waiting"),
    ns("max", "the longest"),
)
TABLES: dict[str, Columns] = {
    "steps": _STEPS,
    "work": _WORK,
    "operators": _OPERATORS,
    "collectives": _COLLECTIVES,
}
_AT_ONCE = 1 << 20
"""Number of slices whose steps are looked up at once."""
_NAMES_SQL = """
CREATE OR REPLACE TEMP TYPE work_names AS ENUM (
    SELECT DISTINCT name FROM device_events WHERE name NOTNULL ORDER BY name
)
"""
_WORK_SQL = f"""
SELECT step, kind::VARCHAR AS kind, type::VARCHAR AS type, name::work_names AS name, count(*) AS count,
    least(sum(dur_ns), {2**63 - 1})::BIGINT AS sum_ns, max(dur_ns) AS max_ns
FROM work WHERE step NOTNULL GROUP BY ALL ORDER BY step, sum_ns DESC, kind, name, type
"""


class FigureParameters(Parameters):
    """Parameters of `step_figures`."""

    only: Literal["all", "steps", "work", "operators", "collectives"] = Field(
        "all", description="which table to fill besides `steps`; the others stay empty, which is faster"
    )


def answer(scope: Scope, parameters: FigureParameters) -> Tables:
    """Return the figures of each step of a rank."""
    compute = {"steps": _steps, "work": _work, "operators": _operators, "collectives": _collectives}

    def table(name: str, scope: Scope) -> pa.Table:
        is_wanted = name == "steps" or parameters.only in {"all", name}
        return compute[name](scope) if is_wanted else table_of(TABLES[name], _empty(TABLES[name]))

    with scope.beside(partial(table, "operators")) as operators:  # takes as long as all others together
        tables = {name: table(name, scope) for name in TABLES if name != "operators"}
    return {name: operators.result() if name == "operators" else tables[name] for name in TABLES}


def _empty(columns: Columns) -> dict[str, list[Any]]:
    return {column.name: [] for column in columns}


def _ranked(columns: Columns, scope: Scope, values: pa.Table) -> pa.Table:
    return table_of(columns, values.append_column("rank", pa.array([scope.rank] * len(values), pa.int64())))


def _steps(scope: Scope) -> pa.Table:
    activity = activity_of(scope, "exact")
    windows = windows_of(scope, activity, StepParameters())
    totals = windows.ends - windows.starts
    busy = activity.work.coverage().between(windows.starts, windows.ends)
    no_work = np.full(len(windows), not len(activity.work.starts))
    exposed = hidden_communication(windows, activity.covers)["communication_ns"]
    return table_of(
        _STEPS,
        {
            "rank": [scope.rank] * len(windows),
            "step": windows.labels(),
            "start_ns": windows.starts,
            "end_ns": windows.ends,
            "total_ns": totals,
            "busy_ns": pa.array(busy, mask=no_work),
            "idle_ns": pa.array(totals - busy, mask=no_work),
            "exposed_ns": exposed,
            "peak_bytes": _peaks(scope, windows),
        },
    )


def _peaks(scope: Scope, windows: Windows) -> list[int | None]:
    """Return the most memory that a device holds in each step; None if it is not recorded.

    A step's annotation on the host bounds it here, because the host allocates. What is held when the step begins
    counts, too.
    """
    if no_memory_reason(scope):
        return [None] * len(windows)
    changes = memory_changes_of(scope, ("at", "allocated", "device_type", "device_id", "on_host"))
    changes = changes.filter(pc.is_valid(changes["allocated"]))
    on_devices = changes.filter(pc.invert(changes["on_host"]))
    changes = on_devices if len(on_devices) else changes
    times, levels = changes["at"].to_numpy(), changes["allocated"].to_numpy()
    by_device = [
        _peaks_of(times[members], levels[members], windows)
        for _, members in group_rows(changes["device_type"], changes["device_id"])
    ]
    return [
        max((peak for peak in peaks if peak is not None), default=None) for peaks in zip(*by_device, strict=True)
    ] or [None] * len(windows)


def _peaks_of(times: Ints, levels: Ints, windows: Windows) -> list[int | None]:
    """Return the highest level of a device in each step; None before its first recorded change."""
    firsts = np.searchsorted(times, windows.host_starts, side="left")
    lasts = np.searchsorted(times, windows.host_ends, side="left")
    return [
        int(levels[max(first - 1, 0) : last].max()) if last else None
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
    ]


def _work(scope: Scope) -> pa.Table:
    if not scope.has_work:
        return table_of(_WORK, _empty(_WORK))
    scope.define_work(WorkParameters())
    scope.db.execute(_NAMES_SQL)
    return _ranked(_WORK, scope, scope.table(_WORK_SQL))


def _operators(scope: Scope) -> pa.Table:
    """Return the operators of each step: those of `operators`, with the step as a part of the key."""
    from service.analysis.facts.device_work import device_work  # noqa: PLC0415 - loads numba, which the server does without
    from service.analysis.facts.operator_rows import OperatorRows  # noqa: PLC0415 - likewise
    from service.attribution.steps import NO_STEP  # noqa: PLC0415 - likewise

    host = host_of(scope, named=lambda name: name not in NOT_OPERATORS)
    if not len(host):
        return table_of(_OPERATORS, _empty(_OPERATORS))
    numbers = distinct(np.array([NO_STEP, *(step["number"] for step in scope.steps)], np.int64))
    codes = _steps_of_host(scope, host, numbers)
    rows = OperatorRows(replace(host, extras=codes, extra_words=[*map(str, numbers.tolist())]), plugin=False)
    del codes
    rows.add_time(device_work(scope), cores=False)
    keys = rows.called()
    steps = numbers[rows.extras[keys]]
    chosen = np.flatnonzero(steps >= 0)
    chosen = chosen[np.argsort(steps[chosen], kind="stable")]
    keys, steps = keys[chosen], steps[chosen]
    firsts = rows.firsts[keys]
    values = {
        "rank": [scope.rank] * len(keys),
        "step": steps,
        "kind": pa.array(KINDS).take(pa.array(rows.host.kinds[firsts])),
        "name": pa.array(rows.words, pa.string()).take(pa.array(rows.codes[rows.host.names[firsts]])),
    }
    return table_of(_OPERATORS, values | {column.name: rows.columns[column.name][keys] for column in _OPERATORS[4:]})


def _steps_of_host(scope: Scope, host: Host, numbers: Ints) -> "Indices":
    """Return the step in which each slice of the host begins, as an index of its number, which ascend."""
    from service.analysis.facts.autograd_threads import threads_of  # noqa: PLC0415 - loads numba, which the server does without
    from service.attribution.nesting import ascending_indices  # noqa: PLC0415 - likewise
    from service.attribution.steps import StepClock  # noqa: PLC0415 - likewise

    clock, threads = StepClock(replace(scope.summary, steps=[*scope.steps])), threads_of(scope, host)
    indices = np.empty(len(host), np.int32)
    for first in range(0, len(host), _AT_ONCE):  # the numbers of all slices would take much memory
        some = slice(first, first + _AT_ONCE)
        indices[some] = ascending_indices(numbers, clock.at(host.starts[some], host.threads[some], threads))
    return indices


def _collectives(scope: Scope) -> pa.Table:
    if no_collectives_reason(scope):
        return table_of(_COLLECTIVES, _empty(_COLLECTIVES))
    communications = communications_of(scope, "exact", sizes=False)
    communications = communications.filter(pc.is_valid(communications["step"]))
    durations = pc.subtract(communications["end_ns"], communications["start_ns"])
    grouped = (
        communications.append_column("duration", durations)
        .group_by(["step", "collective"], use_threads=False)
        .aggregate([("calls", "sum"), ("duration", "sum"), ("duration", "max")])
        .sort_by([("step", "ascending"), ("duration_sum", "descending"), ("collective", "ascending")])
    )
    names = {"calls_sum": "count", "duration_sum": "sum_ns", "duration_max": "max_ns"}
    return _ranked(_COLLECTIVES, scope, grouped.rename_columns([names.get(old, old) for old in grouped.column_names]))


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no steps."""
    return None if scope.steps else "No ProfilerStep#… is in this trace: call `step()` of the profiler after each step."


QUESTION = Question(
    name="step_figures",
    short_question="What does each step cost, in all and by kernel, operator and collective?",
    definition="Of each rank and step: its time as in `steps`; the time with and without work on a device; the most"
    " memory that is allocated at once; and by name, the work that was launched in it, the operators that begin in it,"
    " nested as in `operators` but without Python functions, and the communications that were launched in it, as in"
    " `collectives`. Figures of one step equal those that the other analyses have for a selection of that step.",
    source="https://github.com/pytorch/kineto/blob/041e7ce99f1562dd81232ee58b7c454ef16bfae2/tb_plugin/"
    "torch_tb_profiler/profiler/overall_parser.py",
    tables=TABLES,
    parameters=FigureParameters,
    inapplicable_reason=missing,
    answer=answer,
    cost=5,
    is_large=True,
)

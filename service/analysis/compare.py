"""What changed between two traces?"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from service.analysis import steps
from service.analysis.facts.activity import CATEGORIES, OPS, STEP_PREFIX
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import Columns, count, ns, number, pct, rows_made, word
from service.store.census import END
from service.trace.errors import BadQuestion

_VERDICT = word("verdict", "`slower`, `faster` or `same`, by the threshold; `new` or `gone` of what only one does")


def _columns(*first: Any, unit: str) -> Columns:
    """What is compared of anything that is done several times."""
    return (
        *first,
        count("base_count", f"of {unit} in the base"),
        count("count", f"of {unit}"),
        count("count_difference", "to the base"),
        ns("base_duration", f"of all {unit} in the base"),
        ns("duration", f"of all {unit}"),
        ns("duration_difference", "to the base"),
        number("base_per_step_ns", "duration in the base, of a step", "ns"),
        number("per_step_ns", "duration, of a step", "ns"),
        number("base_mean_ns", f"of one of the {unit} in the base", "ns"),
        number("mean_ns", f"of one of the {unit}", "ns"),
        pct("difference", "to the base, of what the verdict compares"),
        _VERDICT,
    )


_KERNELS = _columns(word("name", "of the work"), word("kind", "`kernel`, `memcpy` or `memset`"), unit="pieces of work")
_OPS = _columns(word("name", "of the operator or annotation"), word("kind", "`op` or `annotation`"), unit="calls")
_STEPS = (
    word("category", "`total`, or what a step's time goes to, as `steps` has it"),
    number("base_mean_ns", "over the steps of the base", "ns"),
    number("mean_ns", "over the steps", "ns"),
    number("difference_ns", "to the base", "ns"),
    pct("difference", "to the base"),
    _VERDICT,
)
_EACH = (
    count("place", "of the step among those of its trace, from 0"),
    count("base_step", "number of the step in the base"),
    count("step", "number of the step"),
    ns("base_duration", "of the step in the base"),
    ns("duration", "of the step"),
    ns("duration_difference", "to the base"),
    pct("difference", "to the base"),
    _VERDICT,
)
_LONGEST = 1 << 62
_TOTAL = f"count(*) AS count, least(sum(lasting), {_LONGEST})::BIGINT AS duration_ns"
_WORK = f"SELECT name, kind, {_TOTAL} FROM (SELECT *, dur_ns::HUGEINT AS lasting FROM work) GROUP BY name, kind"
_CALLED = f"""
SELECT name, if(cat IN ('cpu_op', 'Operator'), 'op', 'annotation') AS kind, {_TOTAL}
FROM (SELECT *, {END}::HUGEINT - ts_ns AS lasting FROM events WHERE ph = 'X' AND cat IN {OPS} AND ts_ns NOTNULL)
WHERE NOT coalesce(starts_with(name, '{STEP_PREFIX}'), false) GROUP BY ALL
"""


class CompareParameters(StepParameters):
    """When a difference counts."""

    by: Literal["step", "total", "mean"] = Field(
        "step", description="what the verdict compares: durations of a step, of all the trace, or of one call"
    )
    threshold_pct: float = Field(5, ge=0, description="differences up to this are none, in % of the base")
    least_ns: int = Field(1000, ge=0, description="differences up to this are none, in ns")


def answer(scope: Scope, parameters: CompareParameters) -> Tables:
    """What is done in a trace, by name, and its steps."""
    found = steps.answer(scope, parameters)
    scope.work(WorkParameters())
    return {"kernels": scope.table(_WORK), "ops": scope.table(_CALLED), "steps": found["steps"]}


def joined(answers: Sequence[Tables], parameters: CompareParameters) -> Tables:
    """How the second half of the traces differs from the first: of two traces, the second from the first.

    Raises:
        BadQuestion: there are not as many traces, or ranks of them, in the second half as in the first.
    """
    if len(answers) % 2:
        raise BadQuestion(
            f"compare takes two traces, or the ranks of a base and as many of another; of these {len(answers)} do"
            " anything."
        )
    sides = answers[: len(answers) // 2], answers[len(answers) // 2 :]
    found = [pa.concat_tables([one["steps"] for one in side]) for side in sides]
    numbers = [max(len(one), 1) for one in found]
    return {
        "kernels": _compared(_KERNELS, [[one["kernels"] for one in side] for side in sides], numbers, parameters),
        "ops": _compared(_OPS, [[one["ops"] for one in side] for side in sides], numbers, parameters),
        "steps": _mean_steps(found, parameters),
        "each_step": _each_step([side[0]["steps"] for side in sides], parameters),
    }


def verdict(base: float | None, other: float | None, parameters: CompareParameters) -> str:
    """What a difference means; None stands for what is not done at all."""
    if base is None or other is None:
        return "new" if base is None else "gone"
    difference = other - base
    if abs(difference) <= max(parameters.least_ns, abs(base) * parameters.threshold_pct / 100):
        return "same"
    return "slower" if difference > 0 else "faster"


def _compared(
    columns: Columns, sides: list[list[pa.Table]], numbers: list[int], parameters: CompareParameters
) -> pa.Table:
    """The rows of all that either side does, what differs most first."""
    base, other = (_totals(side) for side in sides)
    rows: list[list[Any]] = []
    for key in {**base, **other}:
        told = [_told(one.get(key), steps) for one, steps in zip((base, other), numbers, strict=True)]
        (count_0, whole_0, step_0, mean_0), (count_1, whole_1, step_1, mean_1) = told
        chosen = {"step": (step_0, step_1), "total": (whole_0, whole_1), "mean": (mean_0, mean_1)}[parameters.by]
        one, two = (value if there else None for value, there in zip(chosen, (count_0, count_1), strict=True))
        difference = _percentage(one, two)
        rows.append(
            [
                *(*key, count_0, count_1, count_1 - count_0, whole_0, whole_1, whole_1 - whole_0),
                *(step_0, step_1, mean_0, mean_1, difference, verdict(one, two, parameters)),
            ]
        )
    rows.sort(key=lambda row: (-abs(row[9] - row[8]), row[0] or "", row[1]))
    return rows_made(columns, rows)


def _told(found: tuple[int, int] | None, steps: int) -> tuple[int, int, float, float | None]:
    """How often, how long in all, in a step and on the mean something is done."""
    calls, whole = found or (0, 0)
    return calls, whole, whole / steps, whole / calls if calls else None


def _totals(tables: list[pa.Table]) -> dict[tuple[str | None, str], tuple[int, int]]:
    totals: dict[tuple[str | None, str], tuple[int, int]] = {}
    for table in tables:
        for row in table.to_pylist():
            key = row["name"], row["kind"]
            calls, whole = totals.get(key, (0, 0))
            totals[key] = calls + row["count"], min(whole + row["duration_ns"], _LONGEST)
    return totals


def _mean_steps(found: list[pa.Table], parameters: CompareParameters) -> pa.Table:
    rows = []
    for category in ("total", *CATEGORIES):
        base, other = (sum(one[f"{category}_ns"].to_pylist()) / max(len(one), 1) for one in found)
        told = _percentage(base, other), verdict(base, other, parameters)
        rows.append([category, base, other, other - base, *told])
    return rows_made(_STEPS, rows)


def _each_step(found: list[pa.Table], parameters: CompareParameters) -> pa.Table:
    """The steps of the first rank of either side, by place: their numbers depend on when profiling began."""
    numbers, durations = ([one[name].to_pylist() for one in found] for name in ("step", "total_ns"))
    places = range(max(map(len, durations)))
    rows = []
    for place in places:
        (step_0, base), (step_1, other) = (
            (side_numbers[place], side[place]) if place < len(side) else (None, None)
            for side_numbers, side in zip(numbers, durations, strict=True)
        )
        difference = None if base is None or other is None else other - base
        told = _percentage(base, other), verdict(base, other, parameters)
        rows.append([place, step_0, step_1, base, other, difference, *told])
    return rows_made(_EACH, rows)


def _percentage(base: float | None, other: float | None) -> float | None:
    return None if base is None or other is None or not base else 100 * (other - base) / base


TABLES: Mapping[str, Columns] = {"kernels": _KERNELS, "ops": _OPS, "steps": _STEPS, "each_step": _EACH}

QUESTION = Question(
    name="compare",
    answers="What changed between two traces?",
    definition="The first trace is the base. Of each kernel, copy, memset, operator and annotation, by name: how often"
    " and how long, and the difference; and of a mean step, what its time goes to. A difference counts beyond both a"
    " share of the base and a time. Durations of operators include what they call.",
    source="https://hta.readthedocs.io/en/latest/source/features/trace_diff.html",
    tables=TABLES,
    parameters=CompareParameters,
    missing=steps.missing,
    answer=answer,
    joined=joined,
    traces=2,
)

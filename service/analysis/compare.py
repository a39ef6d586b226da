"""What changed between two traces, or two runs?"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from service.analysis import steps
from service.analysis.facts.activity import CATEGORIES
from service.analysis.facts.host_totals import LONGEST, host_totals
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters
from service.analysis.kernel_renames import KernelRename, match_renamed_kernels
from service.analysis.question import Comparison, Question, RankAnswer, Tables, WorkParameters
from service.analysis.rank_pairs import Pair, pair_ranks
from service.analysis.table import CYCLE, RANK, Columns, count, ns, number, pct, table_of_rows, word

_Key = tuple[str | None, str]
_Totals = dict[_Key, tuple[int, int]]
"""Number of calls and sum of their durations in ns, by name and kind."""

_VERDICT = word("verdict", "`slower`, `faster` or `same`, by the threshold; `new` or `gone` if only one side has it")
_RATIO = number("ratio", "that value over the base's; empty if only one side has it, or the base's is 0")


def _columns(*first: Any, unit: str) -> Columns:
    """Return the columns that compare calls or pieces of work."""
    return (
        *first,
        count("base_count", f"number of {unit} in the base"),
        count("count", f"number of {unit}"),
        count("count_difference", "difference from the base"),
        ns("base_duration", f"duration of all {unit} in the base"),
        ns("duration", f"duration of all {unit}"),
        ns("duration_difference", "difference from the base"),
        number("base_per_step_ns", "duration in the base per step", "ns"),
        number("per_step_ns", "duration per step", "ns"),
        number("per_step_difference_ns", "difference from the base", "ns"),
        number("base_mean_ns", f"mean duration of {unit} in the base", "ns"),
        number("mean_ns", f"mean duration of {unit}", "ns"),
        pct("difference", "difference from the base, of the value that the verdict compares"),
        _RATIO,
        _VERDICT,
    )


_KERNELS = (
    *_columns(word("name", "name of the work"), word("kind", "`kernel`, `memcpy` or `memset`"), unit="pieces of work"),
    word("base_name", "name of the work in the base; empty if it is new"),
    word("matched_by", "`name`; or `op` of renamed kernels: by op, input shapes and place in the call tree"),
)
_OPS = _columns(word("name", "name of the operator or annotation"), word("kind", "`op` or `annotation`"), unit="calls")
_CALLS = _columns(word("name", "name of the call"), word("kind", "`runtime` or `driver`"), unit="calls")
_STEPS = (
    word("category", "`total`, or a category of time as in the analysis `steps`"),
    number("base_mean_ns", "mean over the steps of the base", "ns"),
    number("mean_ns", "mean over the steps", "ns"),
    number("difference_ns", "difference from the base", "ns"),
    pct("difference", "difference from the base"),
    number("ratio", "mean over the base's; empty if the base's is 0"),
    _VERDICT,
    count("base_steps", "number of steps of the base; 0 if it has none, and each trace counts as one step"),
    count("steps", "number of steps; 0 if there are none, and each trace counts as one step"),
)
_EACH_STEP = (
    RANK,
    CYCLE,
    count("place", "index of the step among those of its trace, from 0"),
    count("base_step", "number of the step in the base"),
    count("step", "number of the step"),
    ns("base_duration", "duration of the step in the base"),
    ns("duration", "duration of the step"),
    ns("duration_difference", "difference from the base"),
    pct("difference", "difference from the base"),
    number("ratio", "duration over the base's; empty if only one side has the step"),
    _VERDICT,
)
_TOTAL = f"count(*) AS count, least(sum(duration_ns), {LONGEST})::BIGINT AS duration_ns"
_WORK = f"SELECT name, kind, {_TOTAL} FROM (SELECT *, dur_ns::HUGEINT AS duration_ns FROM work) GROUP BY name, kind"
_CALL_KINDS = ("runtime", "driver")
_BY_NAME, _BY_OP = "name", "op"


class CompareParameters(StepParameters):
    """Parameters of `compare`."""

    by: Literal["step", "total", "mean"] = Field(
        "step", description="what the verdict compares: durations per step, of the whole trace, or per call"
    )
    threshold_pct: float = Field(5, ge=0, description="differences of at most this many % of the base count as `same`")
    least_ns: int = Field(1000, ge=0, description="differences of at most this many ns count as `same`")


def answer(scope: Scope, parameters: CompareParameters) -> Tables:
    """Return the work, operators and calls of a trace by name, and its steps."""
    step_tables = steps.answer(scope, parameters)
    scope.define_work(WorkParameters())
    on_host = host_totals(scope)
    is_call = pc.is_in(on_host["kind"], pa.array(_CALL_KINDS))
    return {
        "kernels": scope.table(_WORK),
        "ops": on_host.filter(pc.invert(is_call)),
        "calls": on_host.filter(is_call),
        "steps": step_tables["steps"],
    }


def compare_sides(base: Sequence[RankAnswer], other: Sequence[RankAnswer], parameters: CompareParameters) -> Comparison:
    """Compare the other side with the base.

    Raises:
        BadAnalysisRequest: no rank is on both sides.
    """
    pairs, notes, skipped = pair_ranks(base, other)
    sides = [[pair[side].tables for pair in pairs] for side in (0, 1)]
    step_counts = [max(sum(len(tables["steps"]) for tables in side), 1) for side in sides]
    totals = {
        name: [_totals([tables[name] for tables in side]) for side in sides] for name in ("kernels", "ops", "calls")
    }
    if note := _cpu_only_note(totals["kernels"]):
        notes.append(note)
    step_tables = [pa.concat_tables([tables["steps"] for tables in side]) for side in sides]
    notes += _stepless_notes(step_tables)
    renames = _match_renames(pairs, totals["kernels"])
    if renames:
        notes.append(
            "Kernels whose names only one side has are matched by op, input shapes and place in the call tree"
            f" ({len(renames)} rows): `matched_by` is `{_BY_OP}`."
        )
    tables = {
        "kernels": _kernels(totals["kernels"], renames, step_counts, parameters),
        "ops": _by_name(_OPS, totals["ops"], step_counts, parameters),
        "steps": _mean_steps(step_tables, parameters),
        "each_step": _each_step(pairs, parameters),
        "calls": _by_name(_CALLS, totals["calls"], step_counts, parameters),
    }
    return Comparison(tables, notes, skipped)


def _cpu_only_note(kernels: list[_Totals]) -> str | None:
    """Return a remark if only one side has work on a GPU."""
    if bool(kernels[0]) == bool(kernels[1]):
        return None
    if kernels[0]:
        return "Only the base runs work on a GPU; the other side runs on the CPU alone, so all kernels are `gone`."
    return "Only the other side runs work on a GPU; the base runs on the CPU alone, so all kernels are `new`."


def _stepless_notes(sides: list[pa.Table]) -> list[str]:
    """Return a remark if a side has no steps."""
    without = [name for name, steps_ in zip(("the base", "the other side"), sides, strict=True) if not _counted(steps_)]
    if len(without) == 2:
        return ["Neither side has steps: each trace counts as one step."]
    return [f"{name.capitalize()} has no steps: each of its traces counts as one step." for name in without]


def _counted(steps_: pa.Table) -> int:
    """Return the number of steps in the rows of `steps`, where a row without a number stands for a whole trace."""
    return len(steps_) - int(steps_["step"].null_count)


def _match_renames(pairs: Sequence[Pair], kernels: list[_Totals]) -> list[KernelRename]:
    """Match kernels whose names only one side has, by their launch sites."""
    unmatched = [kernels[side].keys() - kernels[1 - side].keys() for side in (0, 1)]
    names = [{name for name, kind in keys if name is not None and kind == "kernel"} for keys in unmatched]
    if not all(names):
        return []
    from service.analysis.facts.launch_sites import launch_sites  # noqa: PLC0415 - loads numba

    sites = [
        tuple(answer.ask(partial(launch_sites, names=names[side])) for side, answer in enumerate(pair))
        for pair in pairs
    ]
    return match_renamed_kernels([(base, other) for base, other in sites])


def verdict(base: float | None, other: float | None, parameters: CompareParameters) -> str:
    """Return the verdict on a difference; None stands for a side without such a row."""
    if base is None or other is None:
        return "new" if base is None else "gone"
    difference = other - base
    if abs(difference) <= max(parameters.least_ns, abs(base) * parameters.threshold_pct / 100):
        return "same"
    return "slower" if difference > 0 else "faster"


def _by_name(
    columns: Columns, totals: list[_Totals], step_counts: list[int], parameters: CompareParameters
) -> pa.Table:
    """Return a row per name and kind, sorted by the difference per step, largest first."""
    base, other = totals
    rows = [[*key, *_differences(base.get(key), other.get(key), step_counts, parameters)] for key in {**base, **other}]
    return _ordered(columns, rows)


def _kernels(
    totals: list[_Totals], renames: list[KernelRename], step_counts: list[int], parameters: CompareParameters
) -> pa.Table:
    """Return the rows of work: matched by name, matched by op, or of one side only.

    The rows are sorted by the difference per step, largest first.
    """
    remaining = [dict(side) for side in totals]
    rows: list[list[Any]] = []
    for rename in renames:
        row = [rename.name, rename.kind, *_differences(rename.base, rename.other, step_counts, parameters)]
        rows.append([*row, rename.base_name, _BY_OP])
        for side, name, part in ((0, rename.base_name, rename.base), (1, rename.name, rename.other)):
            _subtract(remaining[side], (name, rename.kind), part)
    base, other = remaining
    for key in {**base, **other}:
        row = [*key, *_differences(base.get(key), other.get(key), step_counts, parameters)]
        both = key in base and key in other
        rows.append([*row, key[0] if key in base else None, _BY_NAME if both else None])
    return _ordered(_KERNELS, rows)


def _subtract(totals: _Totals, key: _Key, part: tuple[int, int]) -> None:
    calls, whole = totals[key]
    if calls == part[0]:
        del totals[key]
    else:
        totals[key] = calls - part[0], whole - part[1]


def _ordered(columns: Columns, rows: list[list[Any]]) -> pa.Table:
    names = [column.name for column in columns]
    base, other = names.index("base_per_step_ns"), names.index("per_step_ns")
    rows.sort(key=lambda row: (-abs(row[other] - row[base]), row[0] or "", row[1]))
    return table_of_rows(columns, rows)


def _differences(
    base: tuple[int, int] | None, other: tuple[int, int] | None, step_counts: list[int], parameters: CompareParameters
) -> list[Any]:
    """Return the columns of a row from `base_count` to `verdict`."""
    figures = [
        _count_and_durations(total, step_count) for total, step_count in zip((base, other), step_counts, strict=True)
    ]
    (count_0, whole_0, step_0, mean_0), (count_1, whole_1, step_1, mean_1) = figures
    chosen = {"step": (step_0, step_1), "total": (whole_0, whole_1), "mean": (mean_0, mean_1)}[parameters.by]
    base_value, value = (number if calls else None for number, calls in zip(chosen, (count_0, count_1), strict=True))
    return [
        *(count_0, count_1, count_1 - count_0, whole_0, whole_1, whole_1 - whole_0),
        *(step_0, step_1, step_1 - step_0, mean_0, mean_1),
        *(_percentage(base_value, value), _ratio(base_value, value), verdict(base_value, value, parameters)),
    ]


def _count_and_durations(total: tuple[int, int] | None, step_count: int) -> tuple[int, int, float, float | None]:
    """Return the number of calls and three durations in ns: their sum, the sum per step, and the mean per call."""
    calls, whole = total or (0, 0)
    return calls, whole, whole / step_count, whole / calls if calls else None


def _totals(tables: list[pa.Table]) -> _Totals:
    totals: _Totals = {}
    for table in tables:
        for row in table.to_pylist():
            key = row["name"], row["kind"]
            calls, whole = totals.get(key, (0, 0))
            totals[key] = calls + row["count"], min(whole + row["duration_ns"], LONGEST)
    return totals


def _mean_steps(sides: list[pa.Table], parameters: CompareParameters) -> pa.Table:
    rows = []
    counts = [_counted(side) for side in sides]
    for category in ("total", *CATEGORIES):
        base, other = (sum(side[f"{category}_ns"].to_pylist()) / max(len(side), 1) for side in sides)
        outcome = _percentage(base, other), _ratio(base, other), verdict(base, other, parameters)
        rows.append([category, base, other, other - base, *outcome, *counts])
    return table_of_rows(_STEPS, rows)


def _each_step(pairs: Sequence[Pair], parameters: CompareParameters) -> pa.Table:
    """Compare the steps of paired ranks by index, because step numbers depend on when profiling began."""
    rows = []
    for base, other in pairs:
        for index, steps_ in enumerate(
            zip_longest(*(_steps_of(answer) for answer in (base, other)), fillvalue=(None, None))
        ):
            (step_0, duration_0), (step_1, duration_1) = steps_
            difference = None if duration_0 is None or duration_1 is None else duration_1 - duration_0
            ends = duration_0, duration_1
            outcome = _percentage(*ends), _ratio(*ends), verdict(*ends, parameters)
            about = other.rank, other.cycle, index, step_0, step_1
            rows.append([*about, duration_0, duration_1, difference, *outcome])
    return table_of_rows(_EACH_STEP, rows)


def _steps_of(answer: RankAnswer) -> Iterator[tuple[int | None, int]]:
    """Iterate over the number and the duration of each step."""
    return zip(*(answer.tables["steps"][name].to_pylist() for name in ("step", "total_ns")), strict=True)


def _percentage(base: float | None, other: float | None) -> float | None:
    return None if base is None or other is None or not base else 100 * (other - base) / base


def _ratio(base: float | None, other: float | None) -> float | None:
    return None if base is None or other is None or not base else other / base


TABLES: Mapping[str, Columns] = {
    "kernels": _KERNELS,
    "ops": _OPS,
    "steps": _STEPS,
    "each_step": _EACH_STEP,
    "calls": _CALLS,
}

QUESTION = Question(
    name="compare",
    short_question="What changed between two traces, or two runs?",
    definition="Exactly two sides: `base` names the traces or the group of one side, and `base_selection` a selection"
    " of them, if it differs from that of the other side: so two steps of one trace are compared. Without `base`, the"
    " first of two traces is the base. Two single traces are compared with each other; more traces are matched by rank"
    " and cycle, and those without a counterpart are in `skipped`."
    " Of each kernel, copy, memset, operator, annotation and call of a runtime or driver, by name: how often"
    " and how long, and the difference; and of a mean step, what its time goes to. Kernels whose names only"
    " one side has are matched where they are launched by the same op, with inputs of the same shapes, from"
    " the same place in the call tree: the names of the modules, annotations and ops around it, and then the"
    " order among siblings. A difference counts if it exceeds both `threshold_pct` and `least_ns`. Durations"
    " of operators include what they call.",
    source="https://hta.readthedocs.io/en/latest/source/features/trace_diff.html",
    tables=TABLES,
    parameters=CompareParameters,
    inapplicable_reason=steps.missing,
    answer=answer,
    compare_sides=compare_sides,
)

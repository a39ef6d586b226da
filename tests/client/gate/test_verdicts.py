"""Verdicts: of runs whose steps are given, what passes, what fails, what can't be decided, and what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest
from tracedock.gate.rules import RuleError, parse_rule
from tracedock.gate.runs import Run, samples_of
from tracedock.gate.verdicts import Outcome, RuleVerdict, judge

Rows = list[dict[str, Any]]


def step_row(step: int, total_ns: int, rank: int | None = 0, **changed: Any) -> dict[str, Any]:
    known = {"busy_ns": total_ns // 2, "idle_ns": total_ns - total_ns // 2, "exposed_ns": 0, "peak_bytes": 100}
    return {"rank": rank, "step": step, "start_ns": step * 10**6, "end_ns": 0, "total_ns": total_ns} | known | changed


def work_row(step: int, name: str, sum_ns: int, count: int = 1, **changed: Any) -> dict[str, Any]:
    row = {"rank": 0, "step": step, "kind": "kernel", "type": "COMP", "name": name}
    return row | {"count": count, "sum_ns": sum_ns, "max_ns": sum_ns} | changed


def run(name: str, steps: Rows, work: Rows = [], operators: Rows = [], collectives: Rows = []) -> Run:  # noqa: B006 - not changed
    return Run(name, {"steps": steps, "work": work, "operators": operators, "collectives": collectives})


def lasting(name: str, *times: int) -> Run:
    """Return a run of steps with these times, after a first step that lasts long."""
    return run(name, [step_row(0, 10**9), *(step_row(number, time) for number, time in enumerate(times, 1))])


def verdict_of(rule: str, baseline: Run, candidate: Run, **options: Any) -> RuleVerdict:
    [verdict] = judge([parse_rule(rule)], baseline, candidate, **options).rules
    return verdict


FAST, SLOW = lasting("fast", 100, 101, 102, 103, 104), lasting("slow", 110, 111, 112, 113, 114)


def test_growth_beyond_the_tolerance_is_a_regression() -> None:
    verdict = verdict_of("step.median<+3%", FAST, SLOW)
    assert (verdict.outcome, verdict.baseline, verdict.candidate) == (Outcome.REGRESSION, 102, 112)
    assert verdict.p_value == pytest.approx(1 / 252)
    assert verdict.change_pct == pytest.approx(100 * 10 / 102)


@pytest.mark.parametrize("rule", ["step.median<+15%", "step.median<+1us", "step.mean<+15%"])
def test_growth_within_the_tolerance_passes(rule: str) -> None:
    assert verdict_of(rule, FAST, SLOW).outcome is Outcome.PASS


def test_less_than_the_demanded_improvement_is_a_regression() -> None:
    assert verdict_of("step.median<-0.5%", FAST, FAST).outcome is Outcome.PASS, "noise may hide so little"
    assert verdict_of("step.median<-3%", FAST, FAST).outcome is Outcome.REGRESSION
    assert verdict_of("step.median<-3%", SLOW, FAST).outcome is Outcome.PASS


def test_significant_growth_of_other_steps_does_not_fail_a_median_within_the_limit() -> None:
    baseline = lasting("baseline", *range(100, 120))
    candidate = lasting("candidate", *range(101, 121))
    assert verdict_of("step.median<+3%", baseline, candidate).outcome is Outcome.PASS


def test_growth_that_noise_explains_passes() -> None:
    verdict = verdict_of("step.median<+3%", lasting("a", 100, 90, 140, 95, 130), lasting("b", 92, 128, 110, 120, 96))
    assert verdict.outcome is Outcome.PASS
    assert verdict.p_value is not None
    assert verdict.p_value > 0.05


def test_too_few_steps_are_undecided_and_say_how_many_are_needed() -> None:
    verdict = verdict_of("step.median<+3%", lasting("a", 100, 101), lasting("b", 900, 901))
    assert (verdict.outcome, verdict.needed_steps) == (Outcome.UNDECIDED, 3)
    faster = verdict_of("step.median<+3%", lasting("a", 900, 901), lasting("b", 100, 101))
    assert faster.outcome is Outcome.UNDECIDED, "too few steps never pass silently"
    none = verdict_of("step.median<+3%", lasting("a"), lasting("b", 1, 2, 3))
    assert (none.outcome, none.baseline, none.p_value) == (Outcome.UNDECIDED, None, None)


def test_level_holds_for_all_rules_together() -> None:
    four = lasting("a", 1, 2, 3, 4), lasting("b", 11, 12, 13, 14)
    rules = [parse_rule(f"step.median<+{number}%") for number in range(4)]
    alone = judge(rules[:1], *four)
    assert alone.outcome is Outcome.REGRESSION
    together = judge(rules, *four)
    assert together.outcome is Outcome.UNDECIDED, "1 / 70 is more than 0.05 / 4"
    assert {rule.needed_steps for rule in together.rules} == {5}


def test_regression_outweighs_undecided_rules() -> None:
    baseline = run("a", FAST.tables["steps"], [work_row(step, "k", 5) for step in (1, 2)] + [work_row(3, "other", 1)])  # type: ignore[arg-type] # rows
    candidate = run("b", SLOW.tables["steps"], [work_row(step, "k", 5) for step in (1, 2)] + [work_row(3, "other", 1)])  # type: ignore[arg-type] # rows
    verdict = judge([parse_rule("step.median<+3%"), parse_rule("kernel:k.mean<+3%")], baseline, candidate)
    assert [rule.outcome for rule in verdict.rules] == [Outcome.REGRESSION, Outcome.UNDECIDED]
    assert verdict.outcome is Outcome.REGRESSION


def test_first_step_is_left_out_unless_kept() -> None:
    figure = parse_rule("step.median<+3%").figure
    assert samples_of(FAST, figure).values == [100, 101, 102, 103, 104]
    assert samples_of(FAST, figure, warmup=0).values[0] == 10**9
    assert samples_of(FAST, figure, warmup=9).values == []


def test_first_step_of_each_cycle_is_left_out() -> None:
    cycles = [step_row(number, 100 + number, cycle=number // 3) for number in range(6)]
    assert samples_of(run("a", cycles), parse_rule("step.median<+3%").figure).values == [101, 102, 104, 105]


def test_step_of_several_ranks_is_as_long_as_on_the_slowest() -> None:
    rows = [step_row(step, 100 * step + rank * (-1) ** step, rank) for rank in (0, 1) for step in range(4)]
    assert samples_of(run("a", rows), parse_rule("step.median<+3%").figure).values == [100, 201, 300]


def test_step_that_a_rank_lacks_is_left_out_with_a_note() -> None:
    rows = [step_row(step, 100, rank) for rank in (0, 1) for step in range(4) if (rank, step) != (1, 2)]
    samples = samples_of(run("a", rows), parse_rule("step.median<+3%").figure)
    assert (len(samples.values), samples.notes) == (2, ["Left out steps that not all ranks have: 2."])


def test_step_number_that_occurs_twice_is_left_out_with_a_note() -> None:
    rows = [step_row(step, 100) for step in (0, 1, 2, 2, 3)]
    samples = samples_of(run("a", rows), parse_rule("step.median<+3%").figure)
    assert (len(samples.values), samples.notes) == (2, ["a: left out steps that a rank has more than once: 2."])


def test_each_rank_is_judged_by_itself() -> None:
    def ranks(name: str, *times: int) -> Run:
        return run(name, [step_row(step, time + step, rank) for rank, time in enumerate(times) for step in range(8)])

    verdict = judge([parse_rule("step.median<+3%")], ranks("a", 100, 500), ranks("b", 150, 500), each_rank=True)
    assert [(rule.rank, rule.outcome) for rule in verdict.rules] == [(0, Outcome.REGRESSION), (1, Outcome.PASS)]
    slowest = judge([parse_rule("step.median<+3%")], ranks("a", 100, 500), ranks("b", 150, 500))
    assert slowest.outcome is Outcome.PASS
    with pytest.raises(RuleError, match="a has the ranks 0, 1, and c has 0"):
        judge([parse_rule("step.median<+3%")], ranks("a", 1, 2), ranks("c", 1), each_rank=True)


def kernels(name: str, *sums: int, kernel: str = "nccl_a") -> Run:
    """Return a run in whose steps a kernel takes these times, and another one no time worth noting."""
    steps = [step_row(step, 1000) for step in range(len(sums) + 1)]
    work = [work_row(step, kernel, time, 2) for step, time in enumerate(sums, 1) if time]
    return run(name, steps, [*work, *(work_row(step, "gemm", 1) for step in range(len(sums) + 1))])


@pytest.mark.parametrize(
    ("figure", "values"),
    [
        ("kernel:nccl*.sum", [10, 21, 0]),
        ("kernel:nccl*.count", [2, 2, 0]),
        ("kernel:nccl*.mean", [5, 10.5]),
        ("kernel:nccl*.max", [10, 21]),
        ("kernel.sum", [11, 22, 1]),
        ("kernel:*.count", [3, 3, 1]),
    ],
)
def test_named_figure_has_a_value_for_each_step(figure: str, values: Sequence[float]) -> None:
    samples = samples_of(kernels("a", 10, 21, 0), parse_rule(f"{figure}<+1%").figure)
    assert samples.values == values, "without a call, a sum is 0, and a mean is not known"


def test_kernel_that_is_new_is_a_regression() -> None:
    verdict = judge([parse_rule("kernel:nccl*.sum<+10%")], kernels("a", *[0] * 5), kernels("b", *[7] * 5))
    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.rules[0].change_pct is None
    assert verdict.notes == ["kernel:nccl*.sum matches nothing in a; there are 'gemm'."]


def test_kernel_that_was_renamed_passes_with_a_note() -> None:
    verdict = judge(
        [parse_rule("kernel:nccl_a.sum<+10%")], kernels("a", *[7] * 5), kernels("b", *[9] * 5, kernel="nccl_b")
    )
    assert verdict.outcome is Outcome.PASS
    assert verdict.notes == ["kernel:nccl_a.sum matches nothing in b; there are 'nccl_b', 'gemm'."]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("kernel:none*.sum<+1%", "matches nothing in a and b; there are 'nccl_a', 'gemm'"),
        ("copy.sum<+1%", "there is no copy at all"),
        ("op:aten*.sum<+1%", "is not known of a: it has no operators"),
    ],
)
def test_figure_of_nothing_is_refused_with_what_exists(rule: str, reason: str) -> None:
    with pytest.raises(RuleError) as refused:
        judge([parse_rule(rule)], kernels("a", 1, 2, 3), kernels("b", 1, 2, 3))
    assert reason in str(refused.value) or "matches nothing" in str(refused.value)


@pytest.mark.parametrize("rule", ["idle.median<+1%", "busy.mean<+1%", "memory.median<+1%"])
def test_unknown_number_of_a_step_is_refused(rule: str) -> None:
    unknown = {"busy_ns": None, "idle_ns": None, "peak_bytes": None}
    cpu = run("cpu", [step_row(step, 100, **unknown) for step in range(5)])
    with pytest.raises(RuleError, match=r"is not known of cpu: (nothing runs on a GPU|it was recorded without)"):
        judge([parse_rule(rule)], FAST, cpu)


def test_kernels_of_a_run_without_a_gpu_are_refused() -> None:
    cpu = run("cpu", [step_row(step, 100, busy_ns=None) for step in range(5)])
    with pytest.raises(RuleError, match="is not known of cpu: nothing runs on a GPU"):
        judge([parse_rule("kernel:nccl*.sum<+1%")], kernels("a", 1, 2, 3), cpu)


def test_integers_stay_exact() -> None:
    huge = 2**61 + 1
    verdict = verdict_of("step.median<+0%", lasting("a", huge, huge, huge), lasting("b", huge, huge, huge))
    assert (verdict.baseline, verdict.candidate) == (huge, huge)
    assert verdict.outcome is Outcome.PASS

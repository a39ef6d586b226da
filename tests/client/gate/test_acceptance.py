"""The gate passes runs of the same program and fails a slower forward pass; its false alarms stay below its level."""

import random
from itertools import count

import pytest
from tracedock.gate.defaults import LEVEL
from tracedock.gate.rules import parse_rule
from tracedock.gate.runs import Run, samples_of
from tracedock.gate.verdicts import Outcome, judge

from tests.client.gate.conftest import RunOf
from tests.client.gate.noisy import run_events
from tests.client.gate.test_verdicts import lasting

RULES = [
    parse_rule("step.median<+3%"),
    parse_rule("kernel:gemm_forward.sum<+3%"),
    parse_rule("kernel:nccl*.sum<+10%"),
]
SLOWER = 1.2
"""Factor on the forward pass, which is a quarter of a step."""


def outcomes(run_of: RunOf, pairs: int, forward: float) -> list[Outcome]:
    """Return the outcome of each pair of runs, all of different noise, the second with a slower forward pass."""
    seeds = count(int(1000 * forward))
    found = []
    for _ in range(pairs):
        baseline, candidate = run_events(next(seeds)), run_events(next(seeds), forward=forward)
        found.append(judge(RULES, run_of(baseline), run_of(candidate)).outcome)
    return found


@pytest.mark.parametrize("pairs", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_two_runs_of_the_same_program_pass(run_of: RunOf, pairs: int) -> None:
    assert outcomes(run_of, pairs, 1.0) == [Outcome.PASS] * pairs


@pytest.mark.parametrize("pairs", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_slower_forward_pass_fails(run_of: RunOf, pairs: int) -> None:
    assert outcomes(run_of, pairs, SLOWER) == [Outcome.REGRESSION] * pairs


def test_slower_forward_pass_fails_by_the_rules_of_the_step_and_of_its_kernels_only(run_of: RunOf) -> None:
    verdict = judge(RULES, run_of(run_events(1)), run_of(run_events(2, forward=SLOWER)))
    assert [rule.outcome for rule in verdict.rules] == [Outcome.REGRESSION, Outcome.REGRESSION, Outcome.PASS]


def false_alarms(times: list[int], shuffles: int, *rules: str) -> int:
    """Return how often a gate fails of the steps of one program, split at random into baseline and candidate."""
    shuffled, half, failed = random.Random(7), len(times) // 2, 0
    for _ in range(shuffles):
        shuffled.shuffle(times)
        verdict = judge([*map(parse_rule, rules)], lasting("a", *times[:half]), lasting("b", *times[half:]))
        failed += verdict.outcome is Outcome.REGRESSION
    return failed


@pytest.fixture
def pooled(run_of: RunOf) -> list[int]:
    """Times of the steps of two runs of one program."""
    figure = parse_rule("step.median<+3%").figure
    runs: list[Run] = [run_of(run_events(seed)) for seed in (11, 12)]
    return [int(value) for run in runs for value in samples_of(run, figure).values]


MEAN = pytest.param("step.mean<+0%", marks=pytest.mark.slow)  # the permutation test takes a tenth of a second


@pytest.mark.parametrize("rule", ["step.median<+0%", "step.median<+3%", MEAN])
def test_false_alarms_over_shuffles_stay_below_the_level(pooled: list[int], rule: str) -> None:
    assert false_alarms(pooled, 200, rule) <= LEVEL * 200


@pytest.mark.slow
def test_false_alarms_without_tolerance_come_near_the_level_but_not_above(pooled: list[int]) -> None:
    """A test that never fails would be of no use: at no tolerance, a rule uses up most of the level."""
    share = false_alarms(pooled, 4000, "step.median<+0%") / 4000
    assert 0.4 * LEVEL < share < LEVEL + 3 * (LEVEL * (1 - LEVEL) / 4000) ** 0.5

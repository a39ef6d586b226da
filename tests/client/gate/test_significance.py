"""Tests of significance against definitions computed by brute force, and their promise about false alarms."""

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracedock.gate import significance
from tracedock.gate.significance import fisher_pitman, holm, least_p, mann_whitney, steps_needed

Test = Callable[[list[int], list[int]], float]

TESTS = pytest.mark.parametrize("test", [mann_whitney, fisher_pitman], ids=lambda test: test.__name__)
VALUES = st.lists(st.integers(-3, 6), min_size=1, max_size=5)  # few values, so that ties are common
WIDE = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5)


def u_of(baseline: list[int], candidate: list[int]) -> Fraction:
    """Return Mann and Whitney's U by its definition: pairs in which the candidate is larger, ties count a half."""
    return sum(
        (Fraction(other > base) + Fraction(other == base) / 2 for base in baseline for other in candidate), Fraction(0)
    )


def p_by_enumeration(
    baseline: list[int], candidate: list[int], statistic: Callable[[list[int], list[int]], Fraction]
) -> float:
    """Return the share of all splits whose statistic is at least the observed one."""
    pooled, observed = baseline + candidate, statistic(baseline, candidate)
    splits = [
        statistic([pooled[i] for i in range(len(pooled)) if i not in chosen], [pooled[i] for i in chosen])
        for chosen in combinations(range(len(pooled)), len(candidate))
    ]
    return sum(value >= observed for value in splits) / len(splits)


def mean_difference(baseline: list[int], candidate: list[int]) -> Fraction:
    return Fraction(sum(candidate), len(candidate)) - Fraction(sum(baseline), len(baseline))


@given(baseline=VALUES | WIDE, candidate=VALUES | WIDE)
def test_mann_whitney_equals_the_enumeration_of_all_splits(baseline: list[int], candidate: list[int]) -> None:
    assert mann_whitney(baseline, candidate) == pytest.approx(p_by_enumeration(baseline, candidate, u_of), abs=1e-12)


@given(baseline=VALUES | WIDE, candidate=VALUES | WIDE)
def test_fisher_pitman_equals_the_enumeration_of_all_splits(baseline: list[int], candidate: list[int]) -> None:
    expected = p_by_enumeration(baseline, candidate, mean_difference)
    assert fisher_pitman(baseline, candidate) == pytest.approx(expected, abs=1e-12)


@TESTS
@given(pooled=st.lists(st.integers(0, 5), min_size=2, max_size=8), data=st.data())
def test_no_test_rejects_more_splits_of_equal_runs_than_its_level(
    test: Test, pooled: list[int], data: st.DataObject
) -> None:
    """Whatever the values are: of all ways to split them, at most the share `level` has a p-value up to `level`."""
    size = data.draw(st.integers(1, len(pooled) - 1))
    p_values = []
    for chosen in combinations(range(len(pooled)), size):
        baseline = [value for place, value in enumerate(pooled) if place not in chosen]
        p_values.append(test(baseline, [pooled[place] for place in chosen]))
    for level in {*p_values, 0.05, 0.01}:
        assert sum(p_value <= level + 1e-12 for p_value in p_values) / len(p_values) <= level + 1e-9


@TESTS
@given(baseline=VALUES, candidate=VALUES, scale=st.integers(1, 50))
def test_p_value_does_not_depend_on_the_unit(test: Test, baseline: list[int], candidate: list[int], scale: int) -> None:
    scaled = [[Fraction(value, scale) for value in values] for values in (baseline, candidate)]
    assert test(*scaled) == pytest.approx(test(baseline, candidate), abs=1e-12)  # type: ignore[arg-type] # fractions


def test_mann_whitney_has_the_published_example() -> None:
    """The exact one-sided p-value of U = 3 for samples of 5 and 5 is 0.0278 in the tables of Mann and Whitney."""
    baseline, candidate = [1, 2, 3, 4, 8], [5, 6, 7, 9, 10]
    assert 25 - u_of(baseline, candidate) == 3
    assert mann_whitney(baseline, candidate) == pytest.approx(0.0278, abs=5e-5)


def test_equal_values_are_not_significant() -> None:
    assert mann_whitney([7] * 9, [7] * 9) == fisher_pitman([7] * 9, [7] * 9) == 1.0
    many = significance.EXACT_MAX
    assert mann_whitney([7] * many, [7] * many) == 1.0


@pytest.mark.parametrize("shift", [0, 3, 8, 15])
def test_normal_distribution_continues_the_exact_one(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = [(place * 37) % 101 for place in range(60)]
    candidate = [(place * 53) % 97 + shift for place in range(60)]
    exact = mann_whitney(baseline, candidate)
    monkeypatch.setattr(significance, "EXACT_MAX", 1)
    assert mann_whitney(baseline, candidate) == pytest.approx(exact, abs=0.005)


def test_drawn_splits_estimate_the_share_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline, candidate = [10, 12, 14, 11, 13, 12, 10], [12, 13, 15, 14, 13, 16, 12]
    exact = fisher_pitman(baseline, candidate)
    monkeypatch.setattr(significance, "SPLITS_MAX", 1)
    drawn = fisher_pitman(baseline, candidate)
    assert drawn == pytest.approx(exact, abs=0.01)
    assert drawn == fisher_pitman(baseline, candidate), "a repetition decides the same"


def test_drawn_p_value_is_never_zero() -> None:
    assert fisher_pitman([*range(20)], [*range(100, 120)]) == 1 / (significance.DRAWS + 1)


@TESTS
@given(baseline=st.integers(1, 6), candidate=st.integers(1, 6))
def test_least_p_is_that_of_samples_without_overlap(test: Test, baseline: int, candidate: int) -> None:
    assert test([*range(baseline)], [*range(10, 10 + candidate)]) == pytest.approx(least_p(baseline, candidate))


@given(level=st.floats(1e-6, 0.9))
def test_steps_needed_are_the_fewest_that_can_reach_the_level(level: float) -> None:
    needed = steps_needed(level)
    assert least_p(needed, needed) <= level
    assert needed == 1 or least_p(needed - 1, needed - 1) > level
    assert steps_needed(0.05) == 3


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=6), level=st.floats(0.001, 0.5))
def test_holm_rejects_what_its_procedure_rejects_step_by_step(p_values: list[float], level: float) -> None:
    rejected = set()
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - place):
            break
        rejected.add(index)
    near = any(abs(p * (len(p_values) - place) - level) < 1e-9 for p in p_values for place in range(len(p_values)))
    assert near or {index for index, p_value in enumerate(holm(p_values)) if p_value <= level} == rejected


def test_large_samples_are_counted_exactly_and_quickly() -> None:
    half = significance.EXACT_MAX // 2
    assert mann_whitney([*range(half)], [*range(half, 2 * half)]) == pytest.approx(1 / comb(2 * half, half))

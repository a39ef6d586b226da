"""Verdicts on a candidate: of each rule whether its figure has grown beyond what the rule allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from statistics import median

from tracedock.gate.defaults import LEVEL, WARMUP
from tracedock.gate.rules import Figure, Rule, RuleError
from tracedock.gate.runs import Rank, Run, Samples, matching_rows, names_of, samples_of
from tracedock.gate.significance import Value, fisher_pitman, holm, least_p, mann_whitney, steps_needed

_NAMES_MAX = 5

TESTS = {
    "median": ("Mann-Whitney U test", mann_whitney),
    "mean": ("Fisher-Pitman permutation test", fisher_pitman),
}
"""The test of each statistic: its name, and the function that returns its p-value."""


class Outcome(Enum):
    """What a gate decides."""

    PASS = "pass"  # noqa: S105 - no password
    REGRESSION = "regression"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class RuleVerdict:
    """The verdict of one rule.

    Args:
        rule: the rule.
        rank: the rank that it is about; None for the whole run, or for a trace without a rank.
        outcome: what is decided.
        baseline: the statistic of the baseline; None without steps.
        candidate: the statistic of the candidate; None without steps.
        limit: the most that the candidate's may be; None without steps of the baseline.
        baseline_steps: number of values of the baseline.
        candidate_steps: number of values of the candidate.
        p_value: of the test, before the adjustment for the number of rules; None without values.
        adjusted_p: the same, adjusted by Holm; None without values.
        needed_steps: number of steps that both sides need for a decision; None if they are enough.
        notes: remarks about what was left out.
    """

    rule: Rule
    rank: Rank
    outcome: Outcome
    baseline: Value | None
    candidate: Value | None
    limit: Fraction | None
    baseline_steps: int
    candidate_steps: int
    p_value: float | None
    adjusted_p: float | None
    needed_steps: int | None
    notes: Sequence[str]

    @property
    def label(self) -> str:
        """The rule as written, with the rank that it is about."""
        return self.rule.text if self.rank is None else f"{self.rule.text} (rank {self.rank})"

    @property
    def test(self) -> str:
        """Name of the test of significance."""
        return TESTS[self.rule.figure.statistic][0]

    @property
    def change_pct(self) -> float | None:
        """Growth of the candidate in percent of the baseline; None if the baseline is 0 or not known."""
        if self.baseline is None or self.candidate is None or not self.baseline:
            return None
        return float(100 * (Fraction(self.candidate) / Fraction(self.baseline) - 1))


@dataclass(frozen=True)
class Verdict:
    """The verdict of a gate.

    Args:
        baseline: the run to compare with.
        candidate: the run that is judged.
        level: level of significance of all rules together.
        warmup: number of steps left out at the start of each cycle.
        rules: the verdict of each rule.
    """

    baseline: Run
    candidate: Run
    level: float
    warmup: int
    rules: Sequence[RuleVerdict]

    @property
    def outcome(self) -> Outcome:
        """A regression if a rule has one, else undecided if a rule is, else a pass."""
        outcomes = {rule.outcome for rule in self.rules}
        return next(
            (outcome for outcome in (Outcome.REGRESSION, Outcome.UNDECIDED) if outcome in outcomes), Outcome.PASS
        )

    @property
    def notes(self) -> list[str]:
        """Remarks of the runs and the rules, each once."""
        notes = [*self.baseline.notes, *self.candidate.notes]
        return list(dict.fromkeys([*notes, *(note for rule in self.rules for note in rule.notes)]))


def judge(
    rules: Sequence[Rule],
    baseline: Run,
    candidate: Run,
    *,
    level: float = LEVEL,
    warmup: int = WARMUP,
    each_rank: bool = False,
) -> Verdict:
    """Judge a candidate by rules.

    A rule fails if the candidate's statistic exceeds the limit that the tolerance allows, and if a test of significance
    rejects, at the level, that the candidate's steps are at most as large as those of the baseline with the tolerance
    applied to each: a test of non-inferiority. Holm's adjustment keeps the level for all rules together. A rule is
    undecided if the steps are so few that the test could not reject anything.

    Args:
        rules: the rules, at least one.
        baseline: the run to compare with.
        candidate: the run to judge.
        level: level of significance of all rules together.
        warmup: number of steps to leave out at the start of each cycle.
        each_rank: whether to apply each rule to each rank, instead of to the slowest rank of each step.

    Raises:
        RuleError: a figure is not known of a run, or nothing has the name that it asks for.
    """
    ranks = _common_ranks(baseline, candidate) if each_rank else [None]
    tested = [_tested(rule, baseline, candidate, warmup, rank, each_rank=each_rank) for rule in rules for rank in ranks]
    adjusted = holm([1.0 if verdict.p_value is None else verdict.p_value for verdict in tested])
    return Verdict(baseline, candidate, level, warmup, [*_decided(tested, adjusted, level)])


def _common_ranks(baseline: Run, candidate: Run) -> list[Rank]:
    if baseline.ranks != candidate.ranks:
        raise RuleError(
            f"Each rank can't be compared: {baseline.name} has the ranks {_words(baseline.ranks)}, and"
            f" {candidate.name} has {_words(candidate.ranks)}."
        )
    return baseline.ranks


def _words(ranks: Sequence[Rank]) -> str:
    return ", ".join("none" if rank is None else str(rank) for rank in ranks)


def _tested(rule: Rule, baseline: Run, candidate: Run, warmup: int, rank: Rank, *, each_rank: bool) -> RuleVerdict:
    """Return the verdict of a rule with the p-value of its test, but not yet its outcome."""
    notes = _check_names(rule.figure, baseline, candidate)
    base, other = (
        samples_of(run, rule.figure, warmup=warmup, rank=rank, each_rank=each_rank) for run in (baseline, candidate)
    )
    statistic, (_, test) = rule.figure.statistic, TESTS[rule.figure.statistic]
    base_value, other_value = (summary(samples, statistic) for samples in (base, other))
    p_value = None
    if base.values and other.values:
        p_value = test([rule.limit(value) for value in base.values], other.values)
    return RuleVerdict(
        rule=rule,
        rank=rank,
        outcome=Outcome.PASS,
        baseline=base_value,
        candidate=other_value,
        limit=None if base_value is None else rule.limit(base_value),
        baseline_steps=len(base.values),
        candidate_steps=len(other.values),
        p_value=p_value,
        adjusted_p=None,
        needed_steps=None,
        notes=[*notes, *base.notes, *other.notes],
    )


def _decided(tested: Sequence[RuleVerdict], adjusted: Sequence[float], level: float) -> Iterator[RuleVerdict]:
    """Yield the verdicts with their outcomes.

    The least p-value of a rule must reach the level divided by the number of rules, which is what Holm asks of the
    smallest one; so whether a rule is undecided does not depend on the others' values.
    """
    own_level = level / len(tested)
    for verdict, p_value in zip(tested, adjusted):
        exceeds = verdict.candidate is not None and verdict.limit is not None and verdict.candidate > verdict.limit
        outcome, needed = Outcome.PASS, None
        if verdict.p_value is not None and exceeds and p_value <= level:
            outcome = Outcome.REGRESSION
        elif least_p(verdict.baseline_steps, verdict.candidate_steps) > own_level:
            outcome, needed = Outcome.UNDECIDED, steps_needed(own_level)
        known_p = None if verdict.p_value is None else p_value
        yield replace(verdict, outcome=outcome, adjusted_p=known_p, needed_steps=needed)


def summary(samples: Samples, statistic: str) -> Value | None:
    """Return a statistic of samples, exact; None without samples."""
    if not samples.values:
        return None
    values = [Fraction(value) for value in samples.values]
    result = Fraction(median(values) if statistic == "median" else sum(values) / len(values))
    return int(result) if result.denominator == 1 else result


def _check_names(figure: Figure, baseline: Run, candidate: Run) -> list[str]:
    """Return notes about a pattern that matches nothing in one run; raise `RuleError` if it matches in neither."""
    if not figure.quantity:
        return []
    missing = [run for run in (baseline, candidate) if not matching_rows(run, figure)]
    if len(missing) == 2:
        raise RuleError(
            f"{figure.text} matches nothing in {baseline.name} and {candidate.name}; {_existing(figure, missing)}."
        )
    return [f"{figure.text} matches nothing in {run.name}; {_existing(figure, [run])}." for run in missing]


def _existing(figure: Figure, runs: Sequence[Run]) -> str:
    """Describe the names that a figure can match, those with the most time first."""
    times: dict[str, int] = {}
    for run in runs:
        for name, time in names_of(run, figure).items():
            times[name] = max(times.get(name, 0), time)
    names = sorted(times, key=lambda name: (-times[name], name))
    if not names:
        return f"there is no {figure.name} at all"
    more = len(names) - _NAMES_MAX
    return f"there are {', '.join(map(repr, names[:_NAMES_MAX]))}" + (f" and {more} more" if more > 0 else "")

"""Tests of significance for two small samples, one-sided: are the values of the second sample larger?

Both tests ask how probable a difference as large as the observed one is if the values are split between the samples at
random, with the sizes of the samples fixed.

* The Mann-Whitney U test, which is the Wilcoxon rank-sum test, compares ranks. H. B. Mann, D. R. Whitney: On a test of
  whether one of two random variables is stochastically larger than the other, Ann. Math. Statist. 18 (1947). Its exact
  distribution, also with ties, is counted by the shift algorithm of B. Streitberg and J. Röhmel, Statistical Software
  Newsletter 12 (1986).
* The Fisher-Pitman permutation test compares means. E. J. G. Pitman: Significance tests which may be applied to
  samples from any populations, J. R. Statist. Soc. Suppl. 4 (1937). If there are too many splits, it draws some of
  them; its p-value then follows B. Phipson, G. K. Smyth: Permutation p-values should never be zero, Stat. Appl. Genet.
  Mol. Biol. 9 (2010).

Several p-values are adjusted by S. Holm: A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6
(1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import comb, gcd, sqrt
from random import Random
from statistics import NormalDist
from typing import Union

Value = Union[int, Fraction]
"""A value of a sample, exact."""

EXACT_MAX = 120
"""Maximum number of values in both samples together for the exact distribution of U; more are nearly normal."""
SPLITS_MAX = 20_000
"""Maximum number of splits that the permutation test counts; of more it draws `DRAWS`."""
DRAWS = 9_999
_SEED = 20_251_124  # a gate must decide the same about the same traces


def mann_whitney(baseline: Sequence[Value], candidate: Sequence[Value]) -> float:
    """Return the p-value of the Mann-Whitney U test, against candidates that tend to be larger.

    It is exact for up to `EXACT_MAX` values, also with ties. For more it is that of the normal distribution, corrected
    for ties and continuity.
    """
    ranks = _doubled_ranks([*baseline, *candidate])
    observed = sum(ranks[len(baseline) :])
    if len(ranks) <= EXACT_MAX:
        return _share_of_subsets(ranks, len(candidate), observed)
    return _normal_tail(ranks, len(candidate), observed)


def _doubled_ranks(values: Sequence[Value]) -> list[int]:
    """Return twice the rank of each value; equal values have the mean of their ranks, so that twice it is whole."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = first + last + 2
        first = last + 1
    return ranks


def _share_of_subsets(ranks: Sequence[int], size: int, observed: int) -> float:
    """Return the share of the subsets of a size whose sum is at least `observed`.

    The shift algorithm: `counts[k]` is a polynomial whose coefficient at exponent s is the number of subsets of k ranks
    with the sum s. One integer holds all coefficients, each in a field of `width` bits, so that the multiplication by
    x^rank is a shift.
    """
    width = len(ranks) + 1  # no coefficient exceeds the 2^n subsets
    counts = [1] + [0] * size
    for rank in ranks:
        for chosen in range(size, 0, -1):
            counts[chosen] += counts[chosen - 1] << rank * width
    tail, mask = counts[size] >> observed * width, (1 << width) - 1
    above = 0
    while tail:
        above += tail & mask
        tail >>= width
    return above / comb(len(ranks), size)


def _normal_tail(ranks: Sequence[int], size: int, observed: int) -> float:
    count = len(ranks)
    mean = size * (count + 1)  # of twice the sum of ranks
    spread = sum((rank - (count + 1)) ** 2 for rank in ranks) / count
    variance = size * (count - size) * spread / (count - 1)
    if not variance:
        return 1.0
    return 1 - NormalDist().cdf((observed - 1 - mean) / sqrt(variance))  # 1 is half a rank, doubled


def fisher_pitman(baseline: Sequence[Value], candidate: Sequence[Value]) -> float:
    """Return the p-value of the Fisher-Pitman permutation test, against candidates with a larger mean.

    It is exact for up to `SPLITS_MAX` splits; of more it draws `DRAWS` at random, the same ones each time.
    """
    values = _whole([*baseline, *candidate])
    size = len(candidate)
    observed = sum(values[len(baseline) :])
    splits = comb(len(values), size)
    if splits <= SPLITS_MAX:
        return sum(sum(chosen) >= observed for chosen in combinations(values, size)) / splits
    draw = Random(_SEED)  # noqa: S311 - not for secrets
    above = sum(sum(draw.sample(values, size)) >= observed for _ in range(DRAWS))
    return (above + 1) / (DRAWS + 1)


def _whole(values: Sequence[Value]) -> list[int]:
    """Return the values times their least common denominator: sums of integers are exact and quick."""
    common = 1
    for value in values:
        denominator = Fraction(value).denominator
        common = common * denominator // gcd(common, denominator)
    return [int(value * common) for value in values]


def least_p(baseline: int, candidate: int) -> float:
    """Return the least p-value that samples of these sizes can have, in both tests; 1 if one is empty."""
    return 1 / comb(baseline + candidate, candidate) if baseline and candidate else 1.0


def steps_needed(level: float) -> int:
    """Return the number of values that both samples need for a p-value of at most `level` to be possible."""
    count = 1
    while least_p(count, count) > level:
        count += 1
    return count


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number: at most `level` where Holm's procedure rejects at that level."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = highest
    return adjusted

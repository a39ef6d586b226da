"""Pairing of the ranks of two sides of a comparison."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from service.analysis.question import RankAnswer
from service.trace.errors import BadAnalysisRequest

Pair = tuple[RankAnswer, RankAnswer]
_NAMED_MAX = 16


class RankPairs(NamedTuple):
    """Paired ranks of two sides, remarks for readers, and the ranks without a counterpart, each with the reason."""

    pairs: list[Pair]
    notes: list[str]
    skipped: list[tuple[RankAnswer, str]]


def pair_ranks(base: Sequence[RankAnswer], other: Sequence[RankAnswer]) -> RankPairs:
    """Pair the ranks of two sides: two single traces with each other, more traces by rank and cycle.

    Raises:
        BadAnalysisRequest: no rank is on both sides.
    """
    if len(base) == len(other) == 1:
        return RankPairs([(base[0], other[0])], _differing(base[0], other[0]), [])
    ranks = {answer.rank for answer in (*base, *other)}
    if ranks == {None} and len(base) == len(other):
        notes = ["No trace has a rank: they are matched in their order."]
        return RankPairs([*zip(base, other, strict=True)], notes, [])
    counterparts = {(answer.rank, answer.cycle): answer for answer in other}
    pairs = [
        (answer, counterparts[answer.rank, answer.cycle])
        for answer in base
        if answer.rank is not None and (answer.rank, answer.cycle) in counterparts
    ]
    if not pairs:
        raise BadAnalysisRequest(
            f"No rank is on both sides: the base has {_ranks(base)}, the other side {_ranks(other)}."
        )
    paired = {id(answer) for pair in pairs for answer in pair}
    ranks_of_base, ranks_of_other = ({answer.rank for answer in side} for side in (base, other))
    skipped = [
        (answer, _reason(answer, side, opposite))
        for answers, opposite, side in ((base, ranks_of_other, "The other side"), (other, ranks_of_base, "The base"))
        for answer in answers
        if id(answer) not in paired
    ]
    notes = [f"The sides are matched by rank: {_ranks([answer for answer, _ in pairs])}."]
    if skipped:
        some = "1 trace has" if len(skipped) == 1 else f"{len(skipped)} traces have"
        notes.append(f"{some} no counterpart: see `skipped`.")
    return RankPairs(pairs, notes, skipped)


def _differing(base: RankAnswer, other: RankAnswer) -> list[str]:
    if base.rank == other.rank:
        return []
    ranks = ("no rank" if answer.rank is None else f"rank {answer.rank}" for answer in (base, other))
    return ["The base has {}, the other trace {}.".format(*ranks)]


def _reason(answer: RankAnswer, side: str, opposite: Collection[int | None]) -> str:
    """Explain why a rank has no counterpart; `side` names the opposite side, and `opposite` has its ranks."""
    if answer.rank is None:
        return "It has no rank, so no trace of the other side is its counterpart."
    if answer.rank in opposite:
        return f"{side} has no cycle {answer.cycle} of rank {answer.rank}."
    return f"{side} has no rank {answer.rank}."


def _ranks(side: Sequence[RankAnswer]) -> str:
    numbers = sorted({answer.rank for answer in side if answer.rank is not None})
    if not numbers:
        return "no known ranks"
    listed = ", ".join(map(str, numbers[:_NAMED_MAX])) + (", …" if len(numbers) > _NAMED_MAX else "")
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listed}"

"""Two sides that are compared: which rank of one belongs to which of the other."""

from collections.abc import Sequence
from typing import NamedTuple

from service.analysis.question import RankAnswer
from service.trace.errors import BadAnalysisRequest

Pair = tuple[RankAnswer, RankAnswer]
_NAMED_MAX = 16


class Pairs(NamedTuple):
    """The matched ranks of two sides, what a reader has to know of that, and what has no counterpart, and why."""

    pairs: list[Pair]
    notes: list[str]
    skipped: list[tuple[RankAnswer, str]]


def matched(base: Sequence[RankAnswer], other: Sequence[RankAnswer]) -> Pairs:
    """Match the ranks of two sides: two traces with each other, and those of more by rank and cycle.

    Raises:
        BadAnalysisRequest: no rank is on both sides.
    """
    if len(base) == len(other) == 1:
        return Pairs([(base[0], other[0])], _differing(base[0], other[0]), [])
    ranks = {one.rank for one in (*base, *other)}
    if ranks == {None} and len(base) == len(other):
        return Pairs(
            [*zip(base, other, strict=True)], ["No trace tells its rank: they are matched in their order."], []
        )
    places = {(one.rank, one.cycle): one for one in other}
    pairs = [
        (one, places[one.rank, one.cycle]) for one in base if one.rank is not None and (one.rank, one.cycle) in places
    ]
    if not pairs:
        raise BadAnalysisRequest(
            f"No rank is on both sides: the base has {_ranks(base)}, the other side {_ranks(other)}."
        )
    found = {id(one) for pair in pairs for one in pair}
    skipped = [
        (one, _reason(one, side, opposite))
        for ours, opposite, side in ((base, other, "The other side"), (other, base, "The base"))
        for one in ours
        if id(one) not in found
    ]
    notes = [f"The sides are matched by rank: {_ranks([one for one, _ in pairs])}."]
    if skipped:
        notes.append(f"{len(skipped)} traces have no counterpart, and are left out.")
    return Pairs(pairs, notes, skipped)


def _differing(base: RankAnswer, other: RankAnswer) -> list[str]:
    if base.rank == other.rank:
        return []
    ranks = ("no rank" if one.rank is None else f"rank {one.rank}" for one in (base, other))
    return ["The base is of {}, the other trace of {}.".format(*ranks)]


def _reason(one: RankAnswer, side: str, opposite: Sequence[RankAnswer]) -> str:
    if one.rank is None:
        return "It tells no rank, so no trace of the other side is its counterpart."
    if any(each.rank == one.rank for each in opposite):
        return f"{side} has no cycle {one.cycle} of rank {one.rank}."
    return f"{side} has no rank {one.rank}."


def _ranks(side: Sequence[RankAnswer]) -> str:
    numbers = sorted({one.rank for one in side if one.rank is not None})
    if not numbers:
        return "no known ranks"
    some = ", ".join(map(str, numbers[:_NAMED_MAX])) + (", …" if len(numbers) > _NAMED_MAX else "")
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {some}"

"""What rules find in a trace, the advice that follows, and the figures that it rests on, as tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from service.analysis.table import RANK, Columns, Tables, count, ns, number, rows_made, word

_FOUND = (
    word("rule", "that was checked"),
    count("device", "number of the GPU that it is about; empty where it is about all"),
    number("value", "what was found"),
    number("limit", "that the rule sets"),
    word("unit", "of both: `%` or `devices`"),
)
_PLACE = (
    word("name", "of what to look at in the timeline"),
    ns("start", "of that"),
    ns("end", "of that"),
)
RECOMMENDATIONS = (
    count("rank", "rank in the job; of advice about a run, the one in whose timeline to look"),
    word("ranks", "that the advice is about"),
    *_FOUND,
    word("advice", "what could be done"),
    word("reason", "why"),
    *_PLACE,
)
CHECKS = (
    count("rank", "rank in the job; empty where the trace does not tell it, or where the check is of a whole run"),
    word("ranks", "that were checked"),
    *_FOUND,
    word("found", "`yes` if the rule applies, `no` if not, and `unknown` if the trace can't tell"),
)
EVIDENCE = (
    RANK,
    word("rule", "whose advice rests on this"),
    count("device", "number of the GPU on which it was measured; empty where it is about all"),
    word("measure", "what was measured"),
    number("value", "of that"),
    word("unit", "of the value: `ns`, `bytes`, `%`, or what is counted"),
    *_PLACE,
)
TABLES: Mapping[str, Columns] = {"recommendations": RECOMMENDATIONS, "checks": CHECKS, "evidence": EVIDENCE}

ADVICE = {
    "dataloader": "Load data in other processes: set num_workers of the DataLoader.",
    "communication": "Compress gradients, accumulate them over several steps, or use larger batches.",
    "late_rank": "Find out why some ranks are late.",
    "utilization": "Use larger batches, if the model converges with them.",
    "tensor_cores": "Use automatic mixed precision, so that these operators run on tensor cores.",
    "memory": "Checkpoint activations, or use automatic mixed precision.",
    "data_parallel": "Use DistributedDataParallel instead of DataParallel.",
    "nccl": "Use the backend nccl for DistributedDataParallel: it is the fastest on these GPUs.",
}
"""What each rule advises, in the order in which they are checked."""

UNTOLD = (
    "Ask this of all ranks of the run together, which tells whether a rank is late. If none is: compress gradients,"
    " accumulate them over several steps, or use larger batches."
)
"""Advice on communication where transfer and waiting can't be told apart."""


class Place(NamedTuple):
    """What to look at in the timeline."""

    name: str | None
    start_ns: int
    end_ns: int


class Evidence(NamedTuple):
    """A figure that advice rests on."""

    measure: str
    value: float
    unit: str
    place: Place | None = None
    rank: int | None = None
    device: int | None = None


@dataclass(frozen=True)
class Check:
    """What a rule found.

    Args:
        rule: its name.
        applies: None where the trace can't tell.
        value: what was found.
        limit: that the rule sets.
        reason: in a sentence.
        unit: of both.
        device: that it is about.
        place: what to look at.
        advice: what could be done, if it is not that of `ADVICE`.
        evidence: figures that the advice rests on.
        ranks: that were checked, of a run.
        rank: in whose timeline to look, of a run.
    """

    rule: str
    applies: bool | None
    value: float | None
    limit: float
    reason: str = ""
    unit: str = "%"
    device: int | None = None
    place: Place | None = None
    advice: str | None = None
    evidence: tuple[Evidence, ...] = ()
    ranks: str | None = None
    rank: int | None = None


def found_of(applies: bool | None) -> str:
    """Whether a rule applies, in a word."""
    return "unknown" if applies is None else "yes" if applies else "no"


def tables_of(rank: int | None, checks: Iterable[Check]) -> Tables:
    """The tables of the checks of a rank, or of a whole run.

    Args:
        rank: the rank; None for a run.
        checks: in any order.
    """
    order = [*ADVICE]
    advised: list[list[Any]] = []
    checked: list[list[Any]] = []
    figures: list[list[Any]] = []
    for one in sorted(checks, key=lambda one: order.index(one.rule)):
        ranks = one.ranks or (None if rank is None else str(rank))
        about = [one.rule, one.device, one.value, one.limit, one.unit]
        checked.append([rank, ranks, *about, found_of(one.applies)])
        if one.applies:
            place = one.place or (None, None, None)
            advice = one.advice or ADVICE[one.rule]
            advised.append([rank if one.rank is None else one.rank, ranks, *about, advice, one.reason, *place])
            for figure in one.evidence:
                own = rank if figure.rank is None else figure.rank
                device = one.device if figure.device is None else figure.device
                place = figure.place or (None, None, None)
                figures.append([own, one.rule, device, figure.measure, figure.value, figure.unit, *place])
    return {
        "recommendations": rows_made(RECOMMENDATIONS, advised),
        "checks": rows_made(CHECKS, checked),
        "evidence": rows_made(EVIDENCE, figures),
    }

"""Tables of checks: the results of checking rules on a trace, the resulting advice, and its evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from service.analysis.table import RANK, Columns, Tables, count, ns, number, table_of_rows, word

_MEASUREMENT = (
    word("rule", "rule that was checked"),
    count("device", "number of the GPU that it concerns; empty if it concerns all"),
    number("value", "measured value"),
    number("limit", "limit that the rule sets"),
    word("unit", "unit of value and limit: `%` or `devices`"),
)
_SPAN = (
    word("name", "name of the slice to look at in the timeline"),
    ns("start", "start of that slice"),
    ns("end", "end of that slice"),
)
RECOMMENDATIONS = (
    count("rank", "rank in the job; for advice about a run, the rank in whose timeline to look"),
    word("ranks", "ranks that the advice concerns"),
    *_MEASUREMENT,
    word("advice", "advised change"),
    word("reason", "reason for the advice"),
    *_SPAN,
)
CHECKS = (
    count("rank", "rank in the job; empty if the trace does not record it, or if the check is of a whole run"),
    word("ranks", "ranks that were checked; of a run, those to which the rule applies, if there are any"),
    *_MEASUREMENT,
    word("found", "`yes` if the rule applies, `no` if not, and `unknown` if the trace does not show it"),
)
EVIDENCE = (
    RANK,
    word("rule", "rule whose advice rests on this figure"),
    count("device", "number of the GPU on which it was measured; empty if it concerns all"),
    word("measure", "measured quantity"),
    number("value", "measured value"),
    word("unit", "unit of the value: `ns`, `bytes`, `%`, or the things counted"),
    *_SPAN,
)
TABLES: Mapping[str, Columns] = {"recommendations": RECOMMENDATIONS, "checks": CHECKS, "evidence": EVIDENCE}

ADVICE = {
    "dataloader": "Load data in other processes: set num_workers of the DataLoader.",
    "communication": "Compress gradients, accumulate them over several steps, or use larger batches.",
    "late_rank": "Find out why some ranks are late.",
    "utilization": "Use larger batches, if the model still converges.",
    "tensor_cores": "Use automatic mixed precision, so that these operators run on tensor cores.",
    "memory": "Checkpoint activations, or use automatic mixed precision.",
    "data_parallel": "Use DistributedDataParallel instead of DataParallel.",
    "nccl": "Use the nccl backend for DistributedDataParallel: it is the fastest on these GPUs.",
}
"""Advice of each rule, in the order of the checks."""

TIMELESS = frozenset({"memory", "data_parallel", "nccl"})
"""The rules that are about no time."""

UNSPLIT_COMMUNICATION_ADVICE = (
    "Ask this of all ranks of the run together, which shows whether a rank is late. If none is: compress gradients,"
    " accumulate them over several steps, or use larger batches."
)
"""Advice on communication of a rank, which cannot be split into transfer and waiting."""

INCOMPLETE_COMMUNICATION_ADVICE = (
    "Add the traces that are missing: collectives lack those of other ranks, so that it is unknown whether a rank is"
    " late. If none is: compress gradients, accumulate them over several steps, or use larger batches."
)
"""Advice on communication of a run, if collectives lack the traces of ranks."""


class IdleAdvice(NamedTuple):
    """Advice on GPUs without kernels, and its reason, which follows a share of the time."""

    text: str
    reason: str


IDLE_ADVICE = {
    "copies": IdleAdvice(
        "Copy less, or while kernels run: keep data on the GPU, and copy from pinned memory with non_blocking=True.",
        "copies run, and no kernel",
    ),
    "communication": IdleAdvice(
        "Communicate less, or while kernels run: compress gradients, accumulate them over several steps, or use the"
        " backend nccl.",
        "the host communicates, and no kernel runs",
    ),
    "data": IdleAdvice(
        "Load data faster, since GPUs wait for it: more workers, or less work for each item.",
        "the host waits for a DataLoader, and no kernel runs",
    ),
    "host": IdleAdvice(
        "Launch fewer and longer kernels, since GPUs wait for the host: {remedies}.",
        "the host runs operators and calls, and no kernel runs",
    ),
    "nothing": IdleAdvice(
        "Find out what the program does between its operators: Python code, locks, reading of files, or waiting for"
        " others. A trace with stacks (with_stack=True) shows Python code.",
        "neither an operator nor a call nor work on a GPU is recorded",
    ),
}
"""Advice on GPUs without kernels, by what happens meanwhile; the first that fits counts."""

COMPILE, REPLAY = "compile the model with torch.compile", "replay the model's kernels as CUDA graphs"
DO_LESS = "let the host do less between the graphs that it launches"
LARGER_BATCHES = "use larger batches, if the model still converges"
"""Remedies against a host that launches kernels too slowly."""

IDLE_MEASURES = {
    "copies": "copies while no kernel runs",
    "communication": "communication of the host while no kernel runs",
    "data": "waiting for a DataLoader while no kernel runs",
    "host": "operators and calls of the host while no kernel runs",
    "nothing": "neither operators, calls nor GPU work",
}
"""The measure of the time of each cause."""


class TimelineSpan(NamedTuple):
    """A span of the timeline to look at."""

    name: str | None
    start_ns: int
    end_ns: int


_NOWHERE: tuple[None, None, None] = (None, None, None)


class Evidence(NamedTuple):
    """A figure that supports advice."""

    measure: str
    value: float
    unit: str
    place: TimelineSpan | None = None
    rank: int | None = None
    device: int | None = None


@dataclass(frozen=True)
class Check:
    """The result of checking a rule.

    Args:
        rule: name of the rule.
        applies: whether the rule applies; None if the trace does not show it.
        value: measured value.
        limit: limit that the rule sets.
        reason: reason for the advice, as a sentence.
        unit: unit of value and limit.
        device: GPU that the check concerns; None for all.
        place: span of the timeline to look at.
        advice: advice to give instead of the rule's entry in `ADVICE`.
        evidence: figures that support the advice.
        ranks: ranks that were checked in a run.
        rank: rank of a run in whose timeline to look.
    """

    rule: str
    applies: bool | None
    value: float | None
    limit: float
    reason: str = ""
    unit: str = "%"
    device: int | None = None
    place: TimelineSpan | None = None
    advice: str | None = None
    evidence: tuple[Evidence, ...] = ()
    ranks: str | None = None
    rank: int | None = None


def _outcome(applies: bool | None) -> str:
    """Return the word for whether a rule applies."""
    return "unknown" if applies is None else "yes" if applies else "no"


def check_tables(rank: int | None, checks: Iterable[Check], *, by_time: bool = True) -> Tables:
    """Return the tables of checks of a rank, or of a whole run.

    Args:
        rank: the rank; None for a run.
        checks: checks in any order.
        by_time: whether the advice that is about the largest share of the time comes first; otherwise, advice comes in
            the order of the rules, as checks do.
    """
    order = [*ADVICE]
    ordered = sorted(checks, key=lambda check: order.index(check.rule))
    advised = [check for check in ordered if check.applies]
    return {
        "recommendations": table_of_rows(
            RECOMMENDATIONS,
            [
                [rank if check.rank is None else check.rank, *_measurement(check, rank), *_advice(check)]
                for check in (sorted(advised, key=_share, reverse=True) if by_time else advised)
            ],
        ),
        "checks": table_of_rows(
            CHECKS, [[rank, *_measurement(check, rank), _outcome(check.applies)] for check in ordered]
        ),
        "evidence": table_of_rows(
            EVIDENCE, [_evidence(check, figure, rank) for check in advised for figure in check.evidence]
        ),
    }


def _share(check: Check) -> float:
    """Return the share of the time, in %, that a rule is about; 0 if it is about no time."""
    if check.rule in TIMELESS or check.value is None:
        return 0
    return 100 - check.value if check.rule == "utilization" else check.value


def _measurement(check: Check, rank: int | None) -> list[Any]:
    ranks = check.ranks or (None if rank is None else str(rank))
    value = None if check.value is None else float(check.value)
    return [ranks, check.rule, check.device, value, check.limit, check.unit]


def _advice(check: Check) -> list[Any]:
    return [check.advice or ADVICE[check.rule], check.reason, *(check.place or _NOWHERE)]


def _evidence(check: Check, figure: Evidence, rank: int | None) -> list[Any]:
    figure_rank = rank if figure.rank is None else figure.rank
    device = check.device if figure.device is None else figure.device
    place = figure.place or _NOWHERE
    return [figure_rank, check.rule, device, figure.measure, float(figure.value), figure.unit, *place]

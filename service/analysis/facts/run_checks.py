"""Checks of a run of several ranks: the combined checks of its ranks, and checks of waiting between ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.checks import ADVICE, INCOMPLETE_COMMUNICATION_ADVICE, Check, Evidence, TimelineSpan
from service.analysis.table import Tables

Row = dict[str, Any]

_LATE_ADVICE = {
    "before the trace": "Find out why rank {rank} is late when its trace begins: profile earlier steps.",
    "data loading": "Speed up the data loading of rank {rank}, or give it less data: loading makes it late.",
    "synchronizing": "Balance the work: the host of rank {rank} launches late because it waits for its device.",
    "host": "Look at the host of rank {rank} before its collectives: it launches them late.",
    "compute": "Balance the work: the device of rank {rank} computes longer before its collectives than others.",
    "communication": "Look at the earlier communication of rank {rank}: it delays collectives with the other ranks.",
    "launch delay": "Find out what delays kernels of rank {rank} that are launched in time.",
}
_LATE_UNKNOWN = "Find out why rank {rank} is late: its trace does not record when it launches its collectives."


class RunWaits(NamedTuple):
    """How the ranks wait for each other, from the tables of the analysis of collectives.

    Args:
        ranks: rows of the table of ranks.
        lateness: rows of the table of causes of delay.
        steps: the table of transfer and waiting by step, which has many rows.
        place: longest delay of the rank that the others wait for most, in the time of its own trace.
    """

    ranks: list[Row]
    lateness: list[Row]
    steps: pa.Table
    place: TimelineSpan | None

    @property
    def most_waited_for(self) -> Row | None:
        """The row of the rank that the others wait for most; None if it is unknown."""
        waited_for = [row for row in self.ranks if row["waited_for_ns"]]
        return max(waited_for, key=lambda row: row["waited_for_ns"], default=None)

    def transfers_and_waits(self) -> dict[int | None, tuple[int, int]]:
        """Sum each rank's transfer and waiting over all steps, in ns; ranks with an unknown time are left out."""
        null_if_any = pc.ScalarAggregateOptions(skip_nulls=False)
        names = ("transfer_ns", "synchronizing_ns")
        sums = self.steps.group_by("rank").aggregate([(name, "sum", null_if_any) for name in names])
        columns = (sums[name].to_pylist() for name in ("rank", *(f"{name}_sum" for name in names)))
        return {rank: (transfer, wait) for rank, transfer, wait in zip(*columns, strict=True) if transfer is not None}


def run_checks(answers: Sequence[Tables], waits: RunWaits | None) -> list[Check]:
    """Return the checks of a run.

    Args:
        answers: tables of each rank's checks.
        waits: waiting of the ranks for each other; None if they do not communicate.
    """
    checks: dict[str, list[Row]] = {rule: [] for rule in ADVICE}
    advised: dict[str, list[Row]] = {rule: [] for rule in ADVICE}
    figures: dict[str, list[Row]] = {rule: [] for rule in ADVICE}
    for trace, answer in enumerate(answers):
        for table, rows_of_rule in (("checks", checks), ("recommendations", advised), ("evidence", figures)):
            for row in answer[table].to_pylist():
                rows_of_rule[row["rule"]].append(row | {"trace": trace})  # its rank may be unknown
    combined_checks = [
        _combined_check(rows, advised[rule], figures[rule])
        for rule, rows in checks.items()
        if rows and rule != "communication"
    ]
    communication = checks["communication"]
    times = waits.transfers_and_waits() if waits else {}
    if waits and communication and all(row["rank"] in times and row["value"] is not None for row in communication):
        return [*combined_checks, *_split_communication(communication, waits, times, advised["communication"])]
    if communication:
        check = _combined_check(communication, advised["communication"], figures["communication"])
        advice = INCOMPLETE_COMMUNICATION_ADVICE if waits else ADVICE["communication"]
        combined_checks.append(replace(check, advice=advice if check.applies else None))
    return combined_checks


def _combined_check(checks: list[Row], advised: list[Row], figures: list[Row]) -> Check:
    """Combine a rule's checks of several ranks: the mean of the values, with the advice for the worst rank.

    If the rule applies to some ranks, the values are theirs.
    """
    values = [row["value"] for row in advised or checks if row["value"] is not None]
    worst = _worst(advised)
    reason = ""
    if worst:
        advised_values = sorted(row["value"] for row in advised)
        lowest, highest = advised_values[0], advised_values[-1]
        spread = f", from {lowest:.1f} to {highest:.1f} {worst['unit']}" if lowest != highest else ""
        advised_count, checked_count = (len({row["trace"] for row in rows}) for rows in (advised, checks))
        reason = f"On {advised_count} of {checked_count} ranks{spread}. "
        reason += f"On rank {_rank_text(worst['rank'])}: {worst['reason']}"
    is_known = bool(advised) or any(row["found"] == "no" for row in checks)
    applies = bool(advised) if is_known else None
    return Check(
        checks[0]["rule"], applies, fsum(values) / len(values) if values else None, checks[0]["limit"], reason,
        checks[0]["unit"], place=_place(worst), advice=worst["advice"] if worst else None,
        evidence=tuple(map(_evidence, figures)), rank=worst["rank"] if worst else None,
        ranks=_rank_list(advised or checks),
    )  # fmt: skip


def _worst(advised: list[Row]) -> Row | None:
    """Return the advice whose value is farthest from its limit; the first rank wins a tie."""
    ordered = sorted(advised, key=lambda row: (_rank_order(row["rank"]), row["device"] or 0))
    return max(ordered, key=lambda row: abs(row["value"] - row["limit"]), default=None)


def _split_communication(
    checks: list[Row],
    waits: RunWaits,
    times: Mapping[int | None, tuple[int, int]],
    advised: list[Row],
) -> Iterator[Check]:
    """Split exposed communication into transfer and waiting, and check each.

    Args:
        checks: rows of the ranks' checks of exposed communication.
        waits: how the ranks wait for each other.
        times: each rank's transfer and waiting in ns.
        advised: rows of the ranks' advice about communication.
    """
    transfer_shares, wait_shares = [], []
    for row in checks:
        transfer, wait = times[row["rank"]]
        total = transfer + wait
        transfer_shares.append(row["value"] * transfer / total if total else 0)
        wait_shares.append(row["value"] * wait / total if total else 0)
    transfer_share, wait_share = fsum(transfer_shares) / len(checks), fsum(wait_shares) / len(checks)
    limit, ranks = checks[0]["limit"], _rank_list(checks)
    figures = tuple(_time_figures(times))
    worst = _worst(advised)
    yield Check(
        "communication", transfer_share > limit, transfer_share, limit,
        f"Exposed data transfer takes {transfer_share:.1f} % of the steps, and exposed waiting for other ranks"
        f" {wait_share:.1f} %.",
        ranks=ranks, evidence=figures, advice=ADVICE["communication"], place=_place(worst),
        rank=worst["rank"] if worst else None,
    )  # fmt: skip
    late = waits.most_waited_for
    applies = wait_share > limit and late is not None
    yield Check(
        "late_rank", applies, wait_share, limit,
        _late_reason(late, transfer_share, wait_share, times) if late else "",
        ranks=ranks, rank=late["rank"] if late else None, place=waits.place if applies else None,
        advice=_late_advice(late) if late else None,
        evidence=(*figures, *_late_figures(late, waits)) if late else figures,
    )  # fmt: skip


def _late_advice(late: Row) -> str:
    return _LATE_ADVICE.get(late["late_cause"] or "", _LATE_UNKNOWN).format(rank=_rank_text(late["rank"]))


def _late_reason(
    late: Row, transfer_share: float, wait_share: float, times: Mapping[int | None, tuple[int, int]]
) -> str:
    """Return sentences that tell how late a rank is, with figures."""
    other_ranks = sorted((rank for rank in times if rank != late["rank"]), key=_rank_order)
    example_rank = other_ranks[0] if other_ranks else late["rank"]
    transfer, wait = times[example_rank]
    at_launch_pct = 100 * late["late_at_launch_ns"] / late["late_ns"] if late["late_ns"] else 0
    return (
        f"Exposed waiting for other ranks takes {wait_share:.1f} % of the steps, and exposed data transfer"
        f" {transfer_share:.1f} %. Rank {_rank_text(late['rank'])} starts {late['times_last']} of"
        f" {late['complete']} collectives last; the others wait {late['waited_for_ns'] / 1000:,.0f} µs for it in all."
        f" Rank {_rank_text(example_rank)}, for example, transfers for {transfer / 1000:,.0f} µs and waits for"
        f" {wait / 1000:,.0f} µs. {at_launch_pct:.0f} % of the delay of rank {_rank_text(late['rank'])} existed before"
        f" it launched its collectives."
    )


def _time_figures(times: Mapping[int | None, tuple[int, int]]) -> Iterator[Evidence]:
    for rank, (transfer, wait) in sorted(times.items(), key=lambda item: _rank_order(item[0])):
        yield Evidence("transfer in collectives", transfer, "ns", rank=rank)
        yield Evidence("waiting for other ranks in collectives", wait, "ns", rank=rank)


def _late_figures(late: Row, waits: RunWaits) -> Iterator[Evidence]:
    """Return the figures of the late rank."""
    rank = late["rank"]
    yield Evidence("collectives that the rank starts last", late["times_last"], "collectives", waits.place, rank)
    yield Evidence("waiting of the other ranks for this rank", late["waited_for_ns"], "ns", None, rank)
    yield Evidence("delay after the first rank", late["late_ns"], "ns", None, rank)
    yield Evidence("delay before the rank launches", late["late_at_launch_ns"], "ns", None, rank)
    for row in waits.lateness:
        if row["rank"] == rank:
            yield Evidence(f"delay by cause: {row['cause']}", row["late_ns"], "ns", None, rank)


def _evidence(row: Row) -> Evidence:
    return Evidence(row["measure"], row["value"], row["unit"], _place(row), row["rank"], row["device"])


def _place(row: Row | None) -> TimelineSpan | None:
    if row is None or row["start_ns"] is None:
        return None
    return TimelineSpan(row["name"], row["start_ns"], row["end_ns"])


def _rank_order(rank: int | None) -> tuple[bool, int]:
    """Return a sort key that puts an unknown rank last."""
    return rank is None, rank or 0


def _rank_text(rank: int | None) -> str:
    return "unknown" if rank is None else str(rank)


def _rank_list(rows: list[Row]) -> str:
    """Return the distinct ranks of rows, separated by commas."""
    ranks = sorted({row["rank"] for row in rows if row["rank"] is not None})
    unknown = ["unknown"] if any(row["rank"] is None for row in rows) else []
    return ", ".join([*map(str, ranks), *unknown])

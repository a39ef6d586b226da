"""What rules find in a run of several ranks: what each found of its own, and how ranks wait for each other."""

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from service.analysis.facts.checks import ADVICE, Check, Evidence, Place
from service.analysis.table import Tables

Row = dict[str, Any]

_LATE_ADVICE = {
    "before the trace": "Find out why rank {rank} is late: it already was when its trace began. Profile steps before.",
    "data loading": "Speed up the data loading of rank {rank}, or give it less data: it is late for that.",
    "synchronizing": "Balance the work: the host of rank {rank} launches late because it waits for its device.",
    "host": "Look at what the host of rank {rank} does before its collectives: it launches them late.",
    "compute": "Balance the work: the device of rank {rank} computes longer before its collectives than others.",
    "communication": "Look at what rank {rank} communicates before: other collectives delay those of the others.",
    "launch delay": "Look at what delays kernels of rank {rank} that are launched in time.",
}
_LATE_UNKNOWN = "Find out why rank {rank} is late: its trace does not tell what it launches when."


class Waiting(NamedTuple):
    """How ranks wait for each other.

    Args:
        ranks: the table of ranks of the analysis of collectives.
        lateness: likewise of causes.
        steps: likewise of transfer and waiting.
        place: of the rank that is waited for most, its latest start, by its own clock.
    """

    ranks: list[Row]
    lateness: list[Row]
    steps: list[Row]
    place: Place | None

    @property
    def late(self) -> Row | None:
        """The rank that the others wait for most; None where that is not known."""
        known = [row for row in self.ranks if row["waited_for_ns"]]
        return max(known, key=lambda row: row["waited_for_ns"], default=None)

    def shares(self) -> dict[int | None, tuple[int, int]]:
        """Transfer and waiting of each rank in all steps, where both are known."""
        found: dict[int | None, tuple[int, int]] = {}
        unknown = {row["rank"] for row in self.steps if row["transfer_ns"] is None}
        for row in self.steps:
            if row["rank"] not in unknown:
                transfer, waiting = found.get(row["rank"], (0, 0))
                found[row["rank"]] = transfer + row["transfer_ns"], waiting + row["synchronizing_ns"]
        return found


def run_checks(answers: Sequence[Tables], waiting: Waiting | None) -> list[Check]:
    """The checks of a run.

    Args:
        answers: the tables of each rank.
        waiting: how ranks wait for each other, if they communicate.
    """
    checks: dict[str, list[Row]] = {rule: [] for rule in ADVICE}
    advised: dict[str, list[Row]] = {rule: [] for rule in ADVICE}
    figures: dict[str, list[Row]] = {rule: [] for rule in ADVICE}
    for answer in answers:
        for table, rows in (("checks", checks), ("recommendations", advised), ("evidence", figures)):
            for row in answer[table].to_pylist():
                rows[row["rule"]].append(row)
    found = [
        _together(rows, advised[rule], figures[rule])
        for rule, rows in checks.items()
        if rows and rule != "communication"
    ]
    exposed = checks["communication"]
    shares = waiting.shares() if waiting else {}
    if waiting and exposed and all(row["rank"] in shares and row["value"] is not None for row in exposed):
        return [*found, *_apart(exposed, waiting, shares, advised["communication"])]
    if exposed:
        found.append(_together(exposed, advised["communication"], figures["communication"]))
    return found


def _together(checks: list[Row], advised: list[Row], figures: list[Row]) -> Check:
    """What a rule found of several ranks: the mean, and what the rank with the worst of it is advised."""
    known = [row["value"] for row in checks if row["value"] is not None]
    worst = _worst(advised)
    about, reason = {_number(row["rank"]) for row in advised}, ""
    if worst:
        values = sorted(row["value"] for row in advised)
        spread = f", from {values[0]:.1f} to {values[-1]:.1f} {worst['unit']}" if values[0] != values[-1] else ""
        reason = f"On {len(about)} of {len({row['rank'] for row in checks})} ranks{spread}. Of rank "
        reason += f"{_number(worst['rank'])}: {worst['reason']}"
    applies = True if advised else False if any(row["found"] == "no" for row in checks) else None
    return Check(
        checks[0]["rule"], applies, fsum(known) / len(known) if known else None, checks[0]["limit"], reason,
        checks[0]["unit"], place=_place(worst), advice=worst["advice"] if worst else None,
        evidence=tuple(map(_evidence, figures)), rank=worst["rank"] if worst else None,
        ranks=_listed(advised or checks),
    )  # fmt: skip


def _worst(advised: list[Row]) -> Row | None:
    """The advice to the rank that is farthest from the limit; of several, the first rank."""
    ordered = sorted(advised, key=lambda row: (row["rank"] is None, row["rank"] or 0, row["device"] or 0))
    return max(ordered, key=lambda row: abs(row["value"] - row["limit"]), default=None)


def _apart(
    exposed: list[Row],
    waiting: Waiting,
    shares: Mapping[int | None, tuple[int, int]],
    advised: list[Row],
) -> Iterator[Check]:
    """Transfer and waiting apart: both as parts of the exposed communication of steps."""
    transfers, waits = [], []
    for row in exposed:
        transfer, wait = shares[row["rank"]]
        both = transfer + wait
        transfers.append(row["value"] * transfer / both if both else 0)
        waits.append(row["value"] * wait / both if both else 0)
    transferring, waiting_share = fsum(transfers) / len(exposed), fsum(waits) / len(exposed)
    limit, ranks = exposed[0]["limit"], _listed(exposed)
    figures = tuple(_shares(shares))
    worst = _worst(advised)
    yield Check(
        "communication", transferring > limit, transferring, limit,
        f"{transferring:.1f} % of the steps are in transferring data, which nothing hides, and"
        f" {waiting_share:.1f} % in waiting for other ranks.",
        ranks=ranks, evidence=figures, advice=ADVICE["communication"], place=_place(worst),
        rank=worst["rank"] if worst else None,
    )  # fmt: skip
    late = waiting.late
    applies = waiting_share > limit and late is not None
    yield Check(
        "late_rank", applies, waiting_share, limit,
        _reason(late, transferring, waiting_share, shares) if late else "",
        ranks=ranks, rank=late["rank"] if late else None, place=waiting.place if applies else None,
        advice=_late_advice(late) if late else None,
        evidence=(*figures, *_lateness(late, waiting)) if late else figures,
    )  # fmt: skip


def _late_advice(late: Row) -> str:
    return _LATE_ADVICE.get(late["late_cause"] or "", _LATE_UNKNOWN).format(rank=_number(late["rank"]))


def _reason(late: Row, transferring: float, waiting_share: float, shares: Mapping[int | None, tuple[int, int]]) -> str:
    """What shows that a rank is late."""
    others = sorted((rank for rank in shares if rank != late["rank"]), key=lambda rank: (rank is None, rank or 0))
    rank = others[0] if others else late["rank"]
    transfer, wait = shares[rank]
    at_launch = 100 * late["late_at_launch_ns"] / late["late_ns"] if late["late_ns"] else 0
    return (
        f"{waiting_share:.1f} % of the steps are in waiting for other ranks, which nothing hides, and"
        f" {transferring:.1f} % in transferring data. Rank {_number(late['rank'])} starts {late['times_last']} of"
        f" {late['complete']} collectives last; together, others wait {late['waited_for_ns'] / 1000:,.0f} µs for it."
        f" Rank {_number(rank)}, as one of them, transfers for {transfer / 1000:,.0f} µs and waits for"
        f" {wait / 1000:,.0f} µs. {at_launch:.0f} % of the delay of rank {_number(late['rank'])} was there before it"
        f" launched its collectives."
    )


def _shares(shares: Mapping[int | None, tuple[int, int]]) -> Iterator[Evidence]:
    for rank, (transfer, wait) in sorted(shares.items(), key=lambda one: (one[0] is None, one[0] or 0)):
        yield Evidence("transfer in collectives", transfer, "ns", rank=rank)
        yield Evidence("waiting for other ranks in collectives", wait, "ns", rank=rank)


def _lateness(late: Row, waiting: Waiting) -> Iterator[Evidence]:
    """The figures of the rank that is late."""
    rank = late["rank"]
    yield Evidence("collectives that it starts last", late["times_last"], "collectives", waiting.place, rank)
    yield Evidence("waiting of others for it", late["waited_for_ns"], "ns", None, rank)
    yield Evidence("delay after the first rank", late["late_ns"], "ns", None, rank)
    yield Evidence("delay before it launches", late["late_at_launch_ns"], "ns", None, rank)
    for row in waiting.lateness:
        if row["rank"] == rank:
            yield Evidence(f"delay by cause: {row['cause']}", row["late_ns"], "ns", None, rank)


def _evidence(row: Row) -> Evidence:
    return Evidence(row["measure"], row["value"], row["unit"], _place(row), row["rank"], row["device"])


def _place(row: Row | None) -> Place | None:
    if row is None or row["start_ns"] is None:
        return None
    return Place(row["name"], row["start_ns"], row["end_ns"])


def _number(rank: int | None) -> str:
    return "unknown" if rank is None else str(rank)


def _listed(rows: list[Row]) -> str:
    """The ranks of some rows."""
    known = sorted({row["rank"] for row in rows if row["rank"] is not None})
    unknown = ["unknown"] if any(row["rank"] is None for row in rows) else []
    return ", ".join([*map(str, known), *unknown])

"""Tables of simulated ingests, in Markdown."""

from collections.abc import Sequence
from math import ceil

from tests.bench.scale.parameters import GB, Assumptions, Costs, Work
from tests.bench.scale.simulation import Outcome, simulate

_COLUMNS = (
    "workers", "wall", "speed-up", "workers busy", "head busy", "lost", "attempts", "read TB", "written TB",
    "requests", "node hours", "$ nodes", "$ requests",
)  # fmt: skip


def growth(ranks: int, workers: Sequence[int], gigabytes: float, costs: Costs, assumptions: Assumptions) -> str:
    """Return the table of an ingest by different numbers of workers."""
    alone = ranks * costs.seconds(gigabytes)
    lines = [
        f"\n{ranks:,} ranks of {gigabytes} GB\n", f"| {' | '.join(_COLUMNS)} |", f"|{'---:|' * len(_COLUMNS)}"
    ]  # fmt: skip
    for count in workers:
        outcome = simulate(Work(ranks, gigabytes, count), costs, assumptions)
        lines.append(f"| {' | '.join(_row(outcome, count, alone, gigabytes, costs, assumptions))} |")
    return "\n".join(lines)


def _row(
    outcome: Outcome, workers: int, alone: float, gigabytes: float, costs: Costs, assumptions: Assumptions
) -> list[str]:
    reads, writes = requests(outcome, gigabytes, costs)
    node_hours = ceil(workers / assumptions.workers_per_node) * outcome.wall_s / 3600
    packed, written = costs.packed_ratio, costs.columns_ratio
    return [
        f"{workers:,}", duration(outcome.wall_s), f"{alone / outcome.wall_s:,.0f}",
        f"{outcome.busy_s / outcome.wall_s / workers:.0%}", f"{outcome.head_s / outcome.wall_s:.1%}",
        f"{outcome.lost_s / outcome.busy_s:.1%}", f"{outcome.attempts:,}",
        f"{outcome.attempts * gigabytes * packed * GB / 1e12:.2f}",
        f"{outcome.ranks * gigabytes * written * GB / 1e12:.2f}", f"{(reads + writes) / 1e6:.2f} M",
        f"{node_hours:,.1f}", f"{node_hours * assumptions.node_hour_usd:,.2f}",
        f"{(reads * assumptions.get_usd + writes * assumptions.put_usd) / 1000:,.2f}",
    ]  # fmt: skip


def requests(outcome: Outcome, gigabytes: float, costs: Costs) -> tuple[float, float]:
    """Return the number of requests that read, and of those that write or list."""
    of = costs.requests
    reads = of.rank_get + gigabytes * costs.packed_ratio * of.get_per_gb
    writes = of.rank_put + gigabytes * costs.columns_ratio * of.put_per_gb
    return (
        outcome.attempts * reads + outcome.parts * of.part_get,
        outcome.ranks * writes + outcome.parts * (of.part_put + of.part_list),
    )


def shares(gigabytes: float, costs: Costs) -> str:
    """Return what the time of a task goes to."""
    parts = {"reading": costs.reading, "facts": costs.facts, "answers": costs.answers}
    listed = ", ".join(f"{name} {line.at(gigabytes):.1f} s" for name, line in parts.items())
    return (
        f"\nA task of {gigabytes} GB: {costs.seconds(gigabytes):.0f} s by one processor ({listed}); reads"
        f" {gigabytes * costs.packed_ratio:.2f} GB, writes {gigabytes * costs.columns_ratio:.2f} GB."
    )


def duration(seconds: float) -> str:
    """Return hours, minutes and seconds."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60:02} min" if hours else f"{rest // 60} min {rest % 60:02} s"

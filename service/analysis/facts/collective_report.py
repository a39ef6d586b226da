"""The tables of collectives over several ranks."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.bandwidths import bandwidths
from service.analysis.facts.collective_tables import (
    COLLECTIVES,
    GROUP,
    KERNELS,
    KIND,
    LATENESS,
    OPERATIONS,
    RANKS,
    SIZES,
    STEPS,
    WAITS,
)
from service.analysis.facts.intervals import Ints, clamp_int64, percentage
from service.analysis.facts.lateness import CAUSES
from service.analysis.facts.matched_collectives import MatchedCollectives, delay_at_launch, main_causes
from service.analysis.table import Columns, Tables, table_of, table_of_rows

_BYTES_MAX = 1 << 62


class CollectiveReport:
    """The tables of the collectives of several ranks.

    Args:
        matched: the collectives of all ranks.
        ranks: rank of each trace.
        causes: delay of each communication by cause, in ns.
    """

    def __init__(self, matched: MatchedCollectives, ranks: list[int | None], causes: dict[str, Ints]) -> None:
        self._matched, self._ranks, self._causes = matched, ranks, causes
        self._in_complete = matched.in_complete
        self._main_causes = main_causes(causes, self._in_complete)
        self._delay_at_launch = np.where(self._in_complete, delay_at_launch(causes), 0)

    def tables(self, all_ns: list[int], late: list[int]) -> Tables:
        """Return all tables by name.

        Args:
            all_ns: sum of the durations of each rank's communications.
            late: indices of the ranks that are stragglers.
        """
        collectives, waits = self.collectives(), self.waits()
        return {
            "collectives": collectives,
            "ranks": self.ranks(all_ns, {*late}),
            "waits": waits,
            "lateness": self.lateness(),
            "operations": self.operations(),
            "steps": self.steps(),
            "sizes": _sizes(collectives),
            "kernels": _kernels(waits),
        }

    def collectives(self) -> pa.Table:
        """Return the table of collectives, sorted by the start of the first rank."""
        matched = self._matched
        starts, ends = matched.min_by_collective(matched.starts), matched.max_by_collective(matched.ends)
        order = np.argsort(starts, kind="stable")
        complete = matched.complete[order]
        first, last = matched.order[matched.firsts][order], matched.order[matched.lasts][order]
        copied = [*_names(KIND), "process_group", "group_description", "group_ranks", "index", "step"]
        values: dict[str, Any] = {name: matched.rows[name].take(pa.array(first)) for name in copied}
        sizes = matched.sizes()
        values["size_bytes"] = pa.array([sizes[collective] for collective in order.tolist()], pa.int64())
        waits = matched.sum_by_collective(matched.waits)[order]
        transfers = matched.sum_by_collective(matched.transfers())[order]
        durations = matched.shortest_durations[order]
        several = complete & (matched.rank_counts[order] > 1)
        return table_of(
            COLLECTIVES,
            {
                **values,
                **_rates(values, durations.tolist()),
                "seq": matched.seqs.take(pa.array(first)),
                "ranks": matched.rank_counts[order],
                "consistent": ["yes" if consistent else "no" for consistent in matched.consistent()[order].tolist()],
                "start_ns": starts[order],
                "end_ns": ends[order],
                "duration_ns": durations,
                "latency_ns": _where(complete, durations),
                "start_skew_ns": _where(complete, matched.starts[last] - matched.starts[first]),
                "end_skew_ns": _where(complete, (ends - matched.min_by_collective(matched.ends))[order]),
                "mean_wait_ns": _where(complete, waits / matched.rank_counts[order]),
                "first_rank": self._ranks_at(first, several),
                "last_rank": self._ranks_at(last, several),
                "late_cause": [self._main_causes[row] for row in last.tolist()],
                "spent": _where(several, np.where(waits > transfers, "waiting", "transfer")),
                "note": self._notes(order),
            },
        )

    def _ranks_at(self, rows: Ints, chosen: Any) -> list[int | None]:
        """Return the rank of each communication; None for those that are not chosen."""
        indices = self._matched.rank_indices[rows].tolist()
        return [
            self._ranks[index] if is_chosen else None for index, is_chosen in zip(indices, chosen.tolist(), strict=True)
        ]

    def _notes(self, order: Ints) -> list[str | None]:
        """Return, for each collective, the reasons why values are unknown or only assumed."""
        matched, rows = self._matched, self._matched.rows
        group_sizes, assumed, sizes = (
            rows[name].fill_null(-1).to_numpy() for name in ("group_size", "assumed_size", "size_bytes")
        )
        columns = (
            matched.complete,
            matched.rank_counts,
            *map(matched.max_by_collective, (group_sizes, assumed, sizes)),
            matched.min_by_collective(np.where(sizes < 0, np.iinfo(np.int64).max, sizes)),
        )
        return [_note(*row) for row in zip(*(column[order].tolist() for column in columns), strict=True)]

    def waits(self) -> pa.Table:
        """Return the table of the communications of each rank."""
        matched, in_complete = self._matched, self._in_complete
        present = set(matched.rows.column_names) - {"launch_ns"}
        values: dict[str, Any] = {column.name: matched.rows[column.name] for column in WAITS if column.name in present}
        shifts = pa.array(matched.starts - matched.rows["start_ns"].to_numpy())
        launched = in_complete & matched.rows["launch_ns"].is_valid().to_numpy()
        return table_of(
            WAITS,
            {
                **values,
                **_rates(values, matched.durations.tolist()),
                "rank": pa.array([self._ranks[index] for index in matched.rank_indices.tolist()], pa.int64()),
                "seq": matched.seqs,
                "launch_ns": pc.add(matched.rows["launch_ns"], shifts),
                "start_ns": matched.starts,
                "duration_ns": matched.durations,
                "wait_ns": _where(in_complete, matched.waits),
                "transfer_ns": _where(in_complete, matched.transfers()),
                "late_ns": _where(in_complete, matched.delays),
                "late_at_launch_ns": _where(launched, self._delay_at_launch),
                "late_cause": self._main_causes,
            },
        )

    def ranks(self, all_ns: list[int], late: Collection[int]) -> pa.Table:
        """Return the table of ranks, sorted by waiting: the rank that the others wait for most comes first.

        Args:
            all_ns: sum of the durations of each rank's communications.
            late: indices of the ranks that are stragglers.
        """
        matched, in_complete = self._matched, self._in_complete
        counts = np.bincount(matched.rank_indices, minlength=matched.rank_count).tolist()
        complete = matched.sum_by_rank(in_complete)
        summed = {
            "wait_ns": matched.waits, "transfer_ns": matched.transfers(), "late_ns": matched.delays,
            "late_at_launch_ns": self._delay_at_launch,
        }  # fmt: skip
        columns = {name: matched.sum_by_rank(np.where(in_complete, values, 0)) for name, values in summed.items()}
        several = matched.complete & (matched.rank_counts > 1)
        firsts, lasts = (matched.order[positions][several] for positions in (matched.firsts, matched.lasts))
        columns["times_first"], columns["times_last"] = (
            np.bincount(matched.rank_indices[rows], minlength=matched.rank_count).tolist() for rows in (firsts, lasts)
        )
        waited = np.zeros(len(matched.rank_indices))
        waited[lasts] = matched.sum_by_collective(matched.waits)[several]
        columns["waited_for_ns"] = [clamp_int64(total) for total in matched.sum_by_rank(waited)]
        rows = []
        for rank in sorted(range(matched.rank_count), key=lambda rank: (not complete[rank], columns["wait_ns"][rank])):
            cells: dict[str, Any] = {name: values[rank] if complete[rank] else None for name, values in columns.items()}
            cells |= {
                "rank": self._ranks[rank], "collectives": counts[rank], "complete": complete[rank],
                "straggler": ("yes" if rank in late else "no") if complete[rank] or rank in late else None,
                "mean_wait_ns": columns["wait_ns"][rank] / complete[rank] if complete[rank] else None,
                "last_pct": percentage(columns["times_last"][rank], int(several.sum())) if complete[rank] else None,
                "late_cause": self._main_cause_of(rank), "communication_ns": all_ns[rank],
                "note": _note_of_rank(counts[rank], complete[rank]),
            }  # fmt: skip
            rows.append([cells[column.name] for column in RANKS])
        return table_of_rows(RANKS, rows)

    def _main_cause_of(self, rank: int) -> str | None:
        """Return the cause of the largest part of a rank's delay; None without delay."""
        delays = self._delay_by_cause(self._complete_rows_of(rank))
        main = max(delays, key=lambda cause: delays[cause])
        return main if delays[main] else None

    def _complete_rows_of(self, rank: int) -> Ints:
        """Return the indices of a rank's communications in complete collectives."""
        rows = self._matched.rows_by_rank[rank]
        complete: Ints = rows[self._in_complete[rows]]
        return complete

    def _delay_by_cause(self, chosen: Ints) -> dict[str, int]:
        """Sum the delays of communications by cause."""
        return {cause: int(self._causes[cause][chosen].sum()) for cause in CAUSES}

    def lateness(self) -> pa.Table:
        """Return the table of each rank's delay by cause."""
        matched, rows = self._matched, []
        main_cause = np.array([cause or "" for cause in self._main_causes])
        is_last_of_several = matched.is_last & (matched.rank_counts[matched.collective_of] > 1)
        for index, rank in enumerate(self._ranks):
            chosen = self._complete_rows_of(index)
            as_last = chosen[is_last_of_several[chosen]]
            delays_as_last = self._delay_by_cause(as_last)
            for cause, delay in self._delay_by_cause(chosen).items():
                if delay:
                    times_last = int((main_cause[as_last] == cause).sum())
                    rows.append([rank, cause, delay, times_last, delays_as_last[cause]])
        return table_of_rows(LATENESS, rows)

    def operations(self) -> pa.Table:
        """Return the table of each rank's operations, by name."""
        matched = self._matched
        names = matched.rows["collective"].to_pylist()
        calls, sizes = matched.rows["calls"].to_numpy(), matched.rows["size_bytes"].fill_null(-1).to_numpy()
        rows = []
        groups = _grouped(zip(matched.rank_indices.tolist(), names, strict=True))
        times = matched.latencies_and_transfers(groups.values())
        for ((index, name), chosen), of_group in zip(groups.items(), times, strict=True):
            sized = chosen[(sizes[chosen] >= 0) & (calls[chosen] > 0)]
            size = min(sum(sizes[sized].tolist()), _BYTES_MAX) if len(sized) else None
            rows.append([self._ranks[index], name, int(calls[chosen].sum()), size, *of_group])
        return table_of_rows(OPERATIONS, rows)

    def steps(self) -> pa.Table:
        """Return the table of each rank's transfer and waiting, by step."""
        matched, rows = self._matched, []
        steps = matched.rows["step"].to_pylist()
        groups = _grouped(zip(matched.rank_indices.tolist(), steps, strict=True))
        times = matched.latencies_and_transfers(groups.values())
        for (index, step), (latency, transfer) in zip(groups, times, strict=True):
            waiting = None if transfer is None else latency - transfer
            rows.append([self._ranks[index], step, latency, transfer, waiting])
        return table_of_rows(STEPS, rows)


def _note(complete: bool, ranks: int, group_size: int, assumed: int, largest: int, smallest: int) -> str | None:
    """Return the reasons why values of a collective are unknown or only assumed.

    Args:
        complete: whether all ranks of the group are present.
        ranks: number of ranks present.
        group_size: number of ranks of the group; -1 if unknown.
        assumed: 1 if the group size is assumed to be the size of the job.
        largest: largest size that a rank records; -1 if unknown.
        smallest: smallest size that a rank records.
    """
    notes = []
    if not complete:
        present = (
            f"{ranks} of the {group_size} ranks of its group" if group_size > 0 else "one rank of an unknown number"
        )
        notes.append(f"traces cover only {present}: waiting is unknown, and durations and bandwidths include it")
    if largest < 0:
        notes.append("neither the kernel nor its launch records the size")
    if assumed > 0:
        notes.append("the trace records no process group: the group size is that of the job")
    if 0 <= smallest < largest:
        notes.append("ranks record different sizes: the largest counts")
    return "; ".join(notes) or None


def _note_of_rank(collectives: int, complete: int) -> str | None:
    """Return the reason why waits of a rank are unknown."""
    if complete == collectives:
        return None
    incomplete = collectives - complete
    return f"{incomplete} of its {collectives} collectives lack the traces of other ranks: their waiting is unknown"


def _rates(values: dict[str, Any], durations: list[int]) -> dict[str, list[float | None]]:
    """Return the columns of bandwidths."""
    columns = (values[name].to_pylist() for name in ("collective", "group_size", "size_bytes"))
    rates = [bandwidths(*row) for row in zip(*columns, durations, strict=True)]
    return {"algorithm_gb_per_s": [algorithm for algorithm, _ in rates], "bus_gb_per_s": [bus for _, bus in rates]}


def _where(chosen: Any, values: Any) -> pa.Array:
    """Return the chosen values, with nulls in place of the others."""
    return pa.array(values, mask=~chosen)


def _sizes(collectives: pa.Table) -> pa.Table:
    """Summarise collectives by kind and size, the longest total latency first."""
    keys = _names((GROUP, *KIND))
    sample = pc.VarianceOptions(ddof=1, min_count=2)
    spread = {
        "latency": "latency_ns",
        "start_skew": "start_skew_ns",
        "end_skew": "end_skew_ns",
        "algorithm": "algorithm_gb_per_s",
        "bus": "bus_gb_per_s",
    }
    aggregates = [
        (column, kind, options) for column in spread.values() for kind, options in (("mean", None), ("stddev", sample))
    ]
    total = collectives.group_by(keys, use_threads=False).aggregate(
        [("latency_ns", "sum"), ("latency_ns", "count", pc.CountOptions("all")), *aggregates]
    )
    columns = {"count": total["latency_ns_count"], "latency_ns": total["latency_ns_sum"]}
    for kind in ("mean", "stddev"):
        for column in spread.values():
            columns[f"{kind}_{column}"] = total[f"{column}_{kind}"]
    whole = table_of(SIZES, {**columns, **{name: total[name] for name in keys}})
    return whole.sort_by([("latency_ns", "descending")])


def _kernels(waits: pa.Table) -> pa.Table:
    """Summarise each rank's communications by kind, size and stream, the longest total duration first."""
    keys = ["rank", *_names((GROUP, *KIND)), "stream"]
    sample = pc.VarianceOptions(ddof=1, min_count=2)
    kinds = [("sum", None), ("count", None), ("mean", None), ("stddev", sample), ("min", None), ("max", None)]
    durations = [("duration_ns", kind, options) for kind, options in kinds]
    rates = [(name, "mean", None) for name in ("algorithm_gb_per_s", "bus_gb_per_s")]
    total = waits.group_by(keys, use_threads=False).aggregate([*durations, *rates])
    columns = {
        "count": total["duration_ns_count"],
        "duration_ns": total["duration_ns_sum"],
        "mean_duration_ns": total["duration_ns_mean"],
        "stddev_duration_ns": total["duration_ns_stddev"],
        "min_duration_ns": total["duration_ns_min"],
        "max_duration_ns": total["duration_ns_max"],
        "mean_algorithm_gb_per_s": total["algorithm_gb_per_s_mean"],
        "mean_bus_gb_per_s": total["bus_gb_per_s_mean"],
    }
    whole = table_of(KERNELS, {**columns, **{name: total[name] for name in keys}})
    return whole.sort_by([("rank", "ascending"), ("duration_ns", "descending")])


def _names(columns: Columns) -> list[str]:
    return [column.name for column in columns]


def _grouped(keys: Any) -> dict[Any, Ints]:
    """Return the indices of each key; keys are in the order of their first appearance."""
    groups: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return {key: np.array(indices) for key, indices in groups.items()}

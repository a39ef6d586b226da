"""What several ranks communicate together, as tables."""

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
from service.analysis.facts.intervals import Ints, share
from service.analysis.facts.lateness import CAUSES
from service.analysis.facts.ranks_together import Together, late_at_launch, main_causes
from service.analysis.table import Columns, Tables, made, rows_made

_BYTES_MAX = 1 << 62


class CollectiveReport:
    """The tables of what several ranks communicate.

    Args:
        every: the communications.
        numbers: the rank of each trace.
        causes: how long each cause delays each communication.
    """

    def __init__(self, every: Together, numbers: list[int | None], causes: dict[str, Ints]) -> None:
        self._every, self._numbers, self._causes = every, numbers, causes
        self._known = every.known
        self._main_causes = main_causes(causes, self._known)
        self._late_at_launch = np.where(self._known, late_at_launch(causes), 0)

    def tables(self, all_ns: list[int], late: list[int]) -> Tables:
        """All tables.

        Args:
            all_ns: how long each rank communicates, one by one.
            late: the ranks that are late.
        """
        collectives, waits = self.collectives(), self.waits()
        return {
            "collectives": collectives,
            "ranks": self.ranks(all_ns, late),
            "waits": waits,
            "lateness": self.lateness(),
            "operations": self.operations(),
            "steps": self.steps(),
            "sizes": _sizes(collectives),
            "kernels": _kernels(waits),
        }

    def collectives(self) -> pa.Table:
        """The table of collectives, by the start of the first rank."""
        every = self._every
        starts, ends = every.least(every.starts), every.most(every.ends)
        shown = np.argsort(starts, kind="stable")
        complete = every.complete[shown]
        first, last = every.order[every.firsts][shown], every.order[every.lasts][shown]
        copied = [*_names(KIND), "process_group", "group_description", "group_ranks", "index", "step"]
        values: dict[str, Any] = {name: every.found[name].take(pa.array(first)) for name in copied}
        sizes = every.sizes()
        values["size_bytes"] = pa.array([sizes[one] for one in shown.tolist()], pa.int64())
        waits, transfers = every.summed(every.waits)[shown], every.summed(every.transfers())[shown]
        durations = every.shortest[shown]
        several = complete & (every.taking_part[shown] > 1)
        return made(
            COLLECTIVES,
            {
                **values,
                **_rates(values, durations.tolist()),
                "seq": every.seqs.take(pa.array(first)),
                "ranks": every.taking_part[shown],
                "consistent": ["yes" if one else "no" for one in every.agreeing()[shown].tolist()],
                "start_ns": starts[shown],
                "end_ns": ends[shown],
                "duration_ns": durations,
                "latency_ns": _where(complete, durations),
                "start_skew_ns": _where(complete, every.starts[last] - every.starts[first]),
                "end_skew_ns": _where(complete, (ends - every.least(every.ends))[shown]),
                "mean_wait_ns": _where(complete, waits / every.taking_part[shown]),
                "first_rank": self._ranks_at(first, several),
                "last_rank": self._ranks_at(last, several),
                "late_cause": [self._main_causes[one] for one in last.tolist()],
                "spent": _where(several, np.where(waits > transfers, "waiting", "transfer")),
                "note": self._notes(shown),
            },
        )

    def _ranks_at(self, places: Ints, chosen: Any) -> list[int | None]:
        """The ranks of some communications; None of those that are not chosen."""
        whose = self._every.who[places].tolist()
        return [self._numbers[who] if one else None for who, one in zip(whose, chosen.tolist(), strict=True)]

    def _notes(self, shown: Ints) -> list[str | None]:
        """Why something is unknown of each collective, or only assumed."""
        every, found = self._every, self._every.found
        of_ranks = (found[name].fill_null(-1).to_numpy() for name in ("group_size", "assumed_size", "size_bytes"))
        groups, assumed, sizes = of_ranks
        least = every.least(np.where(sizes < 0, np.iinfo(np.int64).max, sizes))
        columns = (
            every.complete, every.taking_part, every.most(groups), every.most(assumed), every.most(sizes), least
        )  # fmt: skip
        return [_note(*row) for row in zip(*(column[shown].tolist() for column in columns), strict=True)]

    def waits(self) -> pa.Table:
        """The table of the communications of each rank."""
        every, known = self._every, self._known
        copied = [one.name for one in WAITS if one.name in every.found.column_names and one.name != "launch_ns"]
        values: dict[str, Any] = {name: every.found[name] for name in copied}
        shifts = pa.array(every.starts - every.found["start_ns"].to_numpy())
        launched = known & every.found["launch_ns"].is_valid().to_numpy()
        return made(
            WAITS,
            {
                **values,
                **_rates(values, every.lasting.tolist()),
                "rank": pa.array([self._numbers[one] for one in every.who.tolist()], pa.int64()),
                "seq": every.seqs,
                "launch_ns": pc.add(every.found["launch_ns"], shifts),
                "start_ns": every.starts,
                "duration_ns": every.lasting,
                "wait_ns": _where(known, every.waits),
                "transfer_ns": _where(known, every.transfers()),
                "late_ns": _where(known, every.late),
                "late_at_launch_ns": _where(launched, self._late_at_launch),
                "late_cause": self._main_causes,
            },
        )

    def ranks(self, all_ns: list[int], late: list[int]) -> pa.Table:
        """The table of ranks: those that wait least, and are waited for most, first."""
        every, known = self._every, self._known
        counts = np.bincount(every.who, minlength=every.count).tolist()
        complete = every.by_rank(known)
        sums = {
            "wait_ns": every.waits, "transfer_ns": every.transfers(), "late_ns": every.late,
            "late_at_launch_ns": self._late_at_launch,
        }  # fmt: skip
        columns = {name: every.by_rank(np.where(known, values, 0)) for name, values in sums.items()}
        several = every.complete & (every.taking_part > 1)
        firsts, lasts = (every.order[each][several] for each in (every.firsts, every.lasts))
        columns["times_first"], columns["times_last"] = (
            np.bincount(every.who[each], minlength=every.count).tolist() for each in (firsts, lasts)
        )
        waited = np.zeros(len(every.who))
        waited[lasts] = every.summed(every.waits)[several]
        columns["waited_for_ns"] = every.by_rank(waited)
        rows = []
        for one in sorted(range(every.count), key=lambda one: (not complete[one], columns["wait_ns"][one])):
            told: dict[str, Any] = {name: values[one] if complete[one] else None for name, values in columns.items()}
            told |= {
                "rank": self._numbers[one], "collectives": counts[one], "complete": complete[one],
                "straggler": ("yes" if one in late else "no") if complete[one] or one in late else None,
                "mean_wait_ns": columns["wait_ns"][one] / complete[one] if complete[one] else None,
                "last_pct": share(columns["times_last"][one], int(several.sum())) if complete[one] else None,
                "late_cause": self._cause_of(one), "communication_ns": all_ns[one],
                "note": _note_of_rank(counts[one], complete[one]),
            }  # fmt: skip
            rows.append([told[column.name] for column in RANKS])
        return rows_made(RANKS, rows)

    def _cause_of(self, rank: int) -> str | None:
        """What delays a rank most."""
        lengths = self._lengths(self._known & (self._every.who == rank))
        most = max(lengths, key=lambda cause: lengths[cause])
        return most if lengths[most] else None

    def _lengths(self, chosen: Any) -> dict[str, int]:
        """How long each cause delays some communications."""
        return {cause: int(self._causes[cause][chosen].sum()) for cause in CAUSES}

    def lateness(self) -> pa.Table:
        """The table of what delays ranks."""
        every, rows = self._every, []
        main = np.array([one or "" for one in self._main_causes])
        for rank, number in enumerate(self._numbers):
            mine = self._known & (every.who == rank)
            as_last = mine & every.is_last & (every.taking_part[every.of] > 1)
            lengths = self._lengths(as_last)
            for cause, late in self._lengths(mine).items():
                if late:
                    rows.append([number, cause, late, int((main[as_last] == cause).sum()), lengths[cause]])
        return rows_made(LATENESS, rows)

    def operations(self) -> pa.Table:
        """The table of what each rank does, by name."""
        every = self._every
        names = every.found["collective"].to_pylist()
        calls, sizes = every.found["calls"].to_numpy(), every.found["size_bytes"].fill_null(-1).to_numpy()
        rows = []
        for (who, name), mine in _grouped(zip(every.who.tolist(), names, strict=True)).items():
            known = mine[(sizes[mine] >= 0) & (calls[mine] > 0)]
            size = min(sum(sizes[known].tolist()), _BYTES_MAX) if len(known) else None
            rows.append([self._numbers[who], name, int(calls[mine].sum()), size, *every.times(mine)])
        return rows_made(OPERATIONS, rows)

    def steps(self) -> pa.Table:
        """The table of how long each rank transfers and waits, by step."""
        every, rows = self._every, []
        steps = every.found["step"].to_pylist()
        for (who, step), mine in _grouped(zip(every.who.tolist(), steps, strict=True)).items():
            latency, transfer = every.times(mine)
            waiting = None if transfer is None else latency - transfer
            rows.append([self._numbers[who], step, latency, transfer, waiting])
        return rows_made(STEPS, rows)


def _note(complete: bool, seen: int, group: int, assumed: int, largest: int, least: int) -> str | None:
    """Why something is unknown of a collective; -1 is of what is not told."""
    notes = []
    if not complete:
        of = f"{seen} of the {group} ranks of its group" if group > 0 else "one rank of an unknown number"
        notes.append(f"of {of} the trace is here: who waits is unknown, and durations and bandwidths include it")
    if largest < 0:
        notes.append("neither a kernel nor its launch tells the size")
    if assumed > 0:
        notes.append("the trace tells no process group: the group size is that of the job")
    if 0 <= least < largest:
        notes.append("ranks tell different sizes: the largest counts")
    return "; ".join(notes) or None


def _note_of_rank(collectives: int, complete: int) -> str | None:
    """Why waits of a rank are unknown."""
    if complete == collectives:
        return None
    unknown = collectives - complete
    return f"other ranks of {unknown} of its {collectives} collectives are not seen: of these, who waits is unknown"


def _rates(values: dict[str, Any], durations: list[int]) -> dict[str, list[float | None]]:
    """The columns of bandwidths, by those of collectives."""
    about = (values[name].to_pylist() for name in ("collective", "group_size", "size_bytes"))
    rates = [bandwidths(*one) for one in zip(*about, durations, strict=True)]
    return {"algorithm_gb_per_s": [one for one, _ in rates], "bus_gb_per_s": [one for _, one in rates]}


def _where(chosen: Any, values: Any) -> pa.Array:
    """Values; null where they are not chosen."""
    return pa.array(values, mask=~chosen)


def _sizes(collectives: pa.Table) -> pa.Table:
    """Collectives of the same kind and size together, those that take longest first."""
    keys = [one.name for one in (GROUP, *KIND)]
    sample = pc.VarianceOptions(ddof=1, min_count=2)
    spread = {
        "latency": "latency_ns",
        "start_skew": "start_skew_ns",
        "end_skew": "end_skew_ns",
        "algorithm": "algorithm_gb_per_s",
        "bus": "bus_gb_per_s",
    }
    asked = [
        (column, kind, options) for column in spread.values() for kind, options in (("mean", None), ("stddev", sample))
    ]
    total = collectives.group_by(keys, use_threads=False).aggregate(
        [("latency_ns", "sum"), ("latency_ns", "count", pc.CountOptions("all")), *asked]
    )
    columns = {"count": total["latency_ns_count"], "latency_ns": total["latency_ns_sum"]}
    for kind in ("mean", "stddev"):
        for column in spread.values():
            columns[f"{kind}_{column}"] = total[f"{column}_{kind}"]
    whole = made(SIZES, {**columns, **{name: total[name] for name in keys}})
    return whole.sort_by([("latency_ns", "descending")])


def _kernels(waits: pa.Table) -> pa.Table:
    """The communications of a rank of the same kind and size together, those that take longest first."""
    keys = ["rank", *(one.name for one in (GROUP, *KIND)), "stream"]
    sample = pc.VarianceOptions(ddof=1, min_count=2)
    kinds = [("sum", None), ("count", None), ("mean", None), ("stddev", sample), ("min", None), ("max", None)]
    durations = [("duration_ns", kind, how) for kind, how in kinds]
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
    whole = made(KERNELS, {**columns, **{name: total[name] for name in keys}})
    return whole.sort_by([("rank", "ascending"), ("duration_ns", "descending")])


def _names(columns: Columns) -> list[str]:
    return [one.name for one in columns]


def _grouped(keys: Any) -> dict[Any, Ints]:
    """The places of each key, in the order in which they come first."""
    places: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return {key: np.array(found) for key, found in places.items()}

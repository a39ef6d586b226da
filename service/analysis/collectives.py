"""Which collectives are slow, and which ranks are late?"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from service.analysis.facts.activity import COLLECTIVE, OPS, Rules, activity_of
from service.analysis.facts.communications import communications_of
from service.analysis.facts.intervals import Ints, covered, share
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, windows_of
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, Column, Columns, count, made, ns, number, pct, word

_GROUP = word("process_group", "name of the process group; empty where it is not told")
_SEQ = count("seq", "number that the process group gave it; empty where it is not told")
_INDEX = count("index", "place among those of the process group on its rank, from 0")
_KIND = (
    word("collective", "what is done, as the program tells it or, where it does not, the kernel's name"),
    word("dtype", "of the elements"),
    count("group_size", "ranks in the process group"),
    count("in_elements", "that a rank gives"),
    count("out_elements", "that a rank gets"),
    Column("size_bytes", "int", "bytes", "of what a rank gets in a gathering, else of what it gives"),
)
_BANDWIDTH = (
    number("algorithm_gb_per_s", "size by latency, of 10^9 bytes", "GB/s"),
    number("bus_gb_per_s", "what the wires carry: of an all-reduce 2 (n - 1) / n of that, else (n - 1) / n", "GB/s"),
)
_COLLECTIVES = (
    _GROUP,
    _SEQ,
    _INDEX,
    *_KIND,
    count("step", "in which it was launched"),
    count("ranks", "that are known to take part"),
    word("consistent", "whether all of them tell the same of it: `no` if they may be different collectives"),
    ns("start", "of the first rank"),
    ns("end", "of the last rank"),
    ns("latency", "the shortest duration of a rank"),
    ns("start_skew", "from the start of the first rank to that of the last"),
    ns("end_skew", "from the end of the first rank to that of the last"),
    number("mean_wait_ns", "of the ranks, for the last one to start", "ns"),
    count("first_rank", "that started first"),
    count("last_rank", "that started last: for it the others waited"),
    *_BANDWIDTH,
)
_RANKS = (
    RANK,
    word("straggler", "`yes` of those that are late the most"),
    count("collectives", "that it takes part in"),
    ns("wait", "for the last rank to start"),
    number("mean_wait_ns", "likewise, of a collective", "ns"),
    count("times_first", "it started first"),
    count("times_last", "it started last"),
    pct("last", "of all collectives"),
    ns("communication", "in all that communicates, one by one"),
)
_WAITS = (
    RANK,
    _GROUP,
    _SEQ,
    _INDEX,
    *_KIND,
    count("stream", "on which it ran"),
    count("step", "in which it was launched"),
    ns("start", "on this rank, by the first one's clock"),
    ns("duration", "on this rank"),
    ns("wait", "until the last rank started"),
)
_OPERATIONS = (
    RANK,
    word("collective", "what is done"),
    count("calls", "of it"),
    Column("size_bytes", "int", "bytes", "of all calls of which it is known"),
    ns("latency", "with any of it"),
    ns("transfer", "of that, with the shortest duration of any rank at the end of each"),
)
_STEPS = (
    RANK,
    count("step", "in which it was launched; empty for none"),
    ns("transfer", "with the shortest duration of any rank at the end of each collective"),
    ns("synchronizing", "else, with any collective"),
)
_SPREAD = (
    count("count", "of collectives"),
    ns("latency", "of all"),
    number("mean_latency_ns", "of one", "ns"),
    number("stddev_latency_ns", "of the sample", "ns"),
    number("mean_start_skew_ns", "from the first start to the last", "ns"),
    number("stddev_start_skew_ns", "of the sample", "ns"),
    number("mean_end_skew_ns", "from the first end to the last", "ns"),
    number("stddev_end_skew_ns", "of the sample", "ns"),
    number("mean_algorithm_gb_per_s", "of one", "GB/s"),
    number("stddev_algorithm_gb_per_s", "of the sample", "GB/s"),
    number("mean_bus_gb_per_s", "of one", "GB/s"),
    number("stddev_bus_gb_per_s", "of the sample", "GB/s"),
)
_SIZES = (_GROUP, *_KIND, *_SPREAD)
_KERNELS = (
    RANK,
    _GROUP,
    *_KIND,
    count("stream", "on which they ran"),
    count("count", "of kernels"),
    ns("duration", "of all"),
    number("mean_duration_ns", "of one", "ns"),
    number("stddev_duration_ns", "of the sample", "ns"),
    ns("min_duration", "of one"),
    ns("max_duration", "of one"),
)
TABLES: dict[str, Columns] = {
    "collectives": _COLLECTIVES,
    "ranks": _RANKS,
    "waits": _WAITS,
    "operations": _OPERATIONS,
    "steps": _STEPS,
    "sizes": _SIZES,
    "kernels": _KERNELS,
}

_SCALES = {"allreduce": 2, "reducescatter": 1, "allgather": 1, "alltoall": 1}
"""How much a bus carries for each kind of collective of which all ranks wait for all others, by (n - 1) / n."""

_BYTES_MAX = 1 << 62

LONG = 0.01
"""HTA looks at collectives that last at least this share of a mean step."""


class CollectiveParameters(Parameters):
    """Which collectives, and who is late."""

    collectives: Literal["all", "synchronizing"] = Field(
        "all",
        description="`synchronizing` takes only all-reduces, reduce-scatters, all-gathers and all-to-alls, in which"
        " each rank waits for all others, and those of which nothing is told only if that holds of all, as TraceLens",
    )
    rules: Rules = Field(
        "exact",
        description="`tensorboard` takes the annotations of five operators of NCCL and of Gloo for collectives, with"
        " their kernels, as the TensorBoard plugin does",
    )
    stragglers: Literal["wait", "hta"] = Field(
        "wait",
        description="who is late: `wait` takes the ranks that wait least; `hta` those that start the last long one of a"
        " step latest, of the stream and name whose durations differ most",
    )
    candidates: int = Field(2, ge=1, description="how many ranks are called stragglers")


def answer(scope: Scope, parameters: CollectiveParameters) -> Tables:
    """What one rank communicates, with its clock and, for HTA, the time of its steps."""
    found = communications_of(scope, parameters.rules)
    base = scope.summary.get("base_ns")
    about = {"rank": scope.rank, "base_ns": base if isinstance(base, int) else None}
    if parameters.stragglers == "hta":
        windows = windows_of(activity_of(scope, "exact"), StepParameters())
        about |= {"first_ns": int(windows.host_starts[0]), "last_ns": int(windows.ends[-1]), "steps": len(windows)}
    return {"communications": found, "about": pa.Table.from_pylist([about])}


def joined(answers: Sequence[Tables], parameters: CollectiveParameters) -> Tables:
    """What the communications of ranks are together."""
    abouts = [one["about"].to_pylist()[0] for one in answers]
    found = pa.concat_tables([one["communications"] for one in answers])
    who = np.repeat(np.arange(len(answers)), [len(one["communications"]) for one in answers])
    bases = [one["base_ns"] for one in abouts]
    shifts = np.array([base - bases[0] if None not in bases else 0 for base in bases], np.int64)
    all_ns = [int(each.sum()) for each in _by_rank(_lasting(found), who, len(answers))]
    if parameters.collectives == "synchronizing":
        chosen = _synchronizing(found)
        found, who = found.filter(pa.array(chosen)), who[chosen]
    every = _Together(found, who, shifts)
    ranks = [one["rank"] for one in abouts]
    for one, shift in zip(abouts, shifts.tolist(), strict=True):
        one.update({name: one[name] + shift for name in ("first_ns", "last_ns") if name in one})
    late = (
        every.late(parameters.candidates)
        if parameters.stragglers == "wait"
        else _late_as_hta(every, abouts, parameters)
    )
    about = {name: found[name] for name in ("process_group", "index", *(one.name for one in _KIND), "stream", "step")}
    by_rank = {"rank": pa.array([ranks[one] for one in who.tolist()], pa.int64()), "seq": every.seqs}
    waits = {**about, **by_rank, "start_ns": every.starts, "duration_ns": every.lasting, "wait_ns": every.waits}
    collectives = made(_COLLECTIVES, every.collectives(ranks))
    return {
        "collectives": collectives,
        "ranks": every.ranks(ranks, all_ns, late),
        "waits": made(_WAITS, waits),
        "operations": every.operations(ranks),
        "steps": every.steps(ranks),
        "sizes": _sizes(collectives),
        "kernels": _kernels(pa.table(waits)),
    }


class _Together:
    """Communications of several ranks, and the collectives that they are.

    Args:
        found: the communications.
        who: the place of the rank of each.
        shifts: how far each rank's clock is ahead of the first one's.
    """

    def __init__(self, found: pa.Table, who: Ints, shifts: Ints) -> None:
        self.found, self.who, self.count = found, who, len(shifts)
        self.starts, self.ends = (found[name].to_numpy() + shifts[who] for name in ("start_ns", "end_ns"))
        self.lasting = self.ends - self.starts
        group = found["process_group"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        keys = [found[name].to_numpy() for name in ("by_seq", "number", "occurrence")]
        order = np.lexsort((-who, self.starts, *keys[::-1], group))
        differs = [np.diff(key[order]) != 0 for key in (group, *keys)]
        borders = np.concatenate([[True], np.logical_or.reduce(differs)]) if len(order) else np.zeros(0, bool)
        self.order, self.firsts = order, np.flatnonzero(borders)
        self.lasts = np.append(self.firsts, len(order))[1:] - 1
        self.of = np.zeros(len(order), np.int64)
        self.of[order] = np.cumsum(borders) - 1
        self.shortest = self._least(self.lasting)
        self.waits = self.starts[order[self.lasts]][self.of] - self.starts
        self.seqs = pc.if_else(pc.equal(found["by_seq"], 1), found["number"], pa.scalar(None, pa.int64()))

    def _least(self, values: Ints) -> Ints:
        return np.minimum.reduceat(values[self.order], self.firsts) if len(self.firsts) else values[:0]

    def _most(self, values: Ints) -> Ints:
        return -self._least(-values)

    def collectives(self, ranks: list[int | None]) -> dict[str, Any]:
        """The columns of the table of collectives, by the start of the first rank."""
        starts, ends, waits = self._least(self.starts), self._most(self.ends), self.waits[self.order]
        shown = np.argsort(starts, kind="stable")
        first, last = self.order[self.firsts][shown], self.order[self.lasts][shown]
        taking_part = (self.lasts - self.firsts + 1)[shown]
        whole = np.add.reduceat(waits.astype(float), self.firsts)[shown] if len(shown) else waits.astype(float)
        latencies = self.shortest[shown]
        values: dict[str, Any] = {name: self.found[name].take(pa.array(first)) for name in _names(_KIND)}
        rates = [
            _bandwidth(*one)
            for one in zip(
                *(values[name].to_pylist() for name in ("collective", "group_size", "size_bytes")),
                latencies.tolist(),
                strict=True,
            )
        ]
        return {
            **values,
            **{name: self.found[name].take(pa.array(first)) for name in ("process_group", "index", "step")},
            "seq": self.seqs.take(pa.array(first)),
            "ranks": taking_part,
            "consistent": ["yes" if one else "no" for one in self._agreeing()[shown].tolist()],
            "start_ns": starts[shown],
            "end_ns": ends[shown],
            "latency_ns": latencies,
            "start_skew_ns": self.starts[last] - self.starts[first],
            "end_skew_ns": (ends - self._least(self.ends))[shown],
            "mean_wait_ns": whole / taking_part,
            "first_rank": [ranks[one] for one in self.who[first].tolist()],
            "last_rank": [ranks[one] for one in self.who[last].tolist()],
            "algorithm_gb_per_s": [one for one, _ in rates],
            "bus_gb_per_s": [one for _, one in rates],
        }

    def _agreeing(self) -> Any:
        """Of which collectives all ranks tell the same."""
        agree = np.ones(len(self.firsts), bool)
        for name in ("collective", "dtype", "group_size"):
            codes = (
                self.found[name].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
            )
            agree &= self._least(codes) == self._most(codes)
        return agree

    def ranks(self, ranks: list[int | None], all_ns: list[int], late: list[int]) -> pa.Table:
        """The table of ranks: those that wait least, and are waited for most, first."""
        waits = [int(each.sum()) for each in _by_rank(self.waits, self.who, self.count)]
        taken = np.bincount(self.who, minlength=self.count).tolist()
        firsts, lasts = (
            np.bincount(self.who[self.order[each]], minlength=self.count).tolist() for each in (self.firsts, self.lasts)
        )
        order = sorted(range(self.count), key=lambda one: waits[one])
        return made(
            _RANKS,
            {
                "rank": [ranks[one] for one in order],
                "straggler": ["yes" if one in late else "no" for one in order],
                "collectives": [taken[one] for one in order],
                "wait_ns": [waits[one] for one in order],
                "mean_wait_ns": [waits[one] / taken[one] if taken[one] else None for one in order],
                "times_first": [firsts[one] for one in order],
                "times_last": [lasts[one] for one in order],
                "last_pct": [share(lasts[one], len(self.firsts)) for one in order],
                "communication_ns": [all_ns[one] for one in order],
            },
        )

    def late(self, candidates: int) -> list[int]:
        """The ranks that wait least, if there are others to wait."""
        waits = [int(each.sum()) for each in _by_rank(self.waits, self.who, self.count)]
        taking_part = set(self.who.tolist())
        order = sorted(taking_part, key=lambda one: waits[one])
        return order[:candidates] if len(order) > 1 and any(waits) else []

    def operations(self, ranks: list[int | None]) -> pa.Table:
        """The table of what each rank does, by name."""
        names = self.found["collective"].to_pylist()
        calls, sizes = self.found["calls"].to_numpy(), self.found["size_bytes"].fill_null(-1).to_numpy()
        rows = []
        for (who, name), mine in _grouped(zip(self.who.tolist(), names, strict=True)).items():
            known = mine[(sizes[mine] >= 0) & (calls[mine] > 0)]
            size = min(sum(sizes[known].tolist()), _BYTES_MAX) if len(known) else None
            rows.append([ranks[who], name, int(calls[mine].sum()), size, *self._times(mine)])
        return made(_OPERATIONS, _columns(_OPERATIONS, rows))

    def steps(self, ranks: list[int | None]) -> pa.Table:
        """The table of how long each rank transfers and waits, by step."""
        rows = []
        for (who, step), mine in _grouped(zip(self.who.tolist(), self.found["step"].to_pylist(), strict=True)).items():
            latency, transfer = self._times(mine)
            rows.append([ranks[who], step, transfer, latency - transfer])
        return made(_STEPS, _columns(_STEPS, rows))

    def _times(self, mine: Ints) -> tuple[int, int]:
        """How long some communications of a rank last, and how long they would if no rank waited for another."""
        ends = self.ends[mine]
        return covered(self.starts[mine], ends), covered(ends - self.shortest[self.of[mine]], ends)


def _late_as_hta(every: _Together, abouts: list[dict[str, Any]], parameters: CollectiveParameters) -> list[int]:
    """The ranks that HTA finds late: they start the last long collective of most steps among the latest."""
    steps = max(one["steps"] for one in abouts)
    mean = (max(one["last_ns"] for one in abouts) - min(one["first_ns"] for one in abouts)) / steps
    lasting, starts, who = every.lasting.tolist(), every.starts.tolist(), every.who.tolist()
    streams, numbers, names = (every.found[name].to_pylist() for name in ("stream", "step", "collective"))
    last: dict[tuple[Any, ...], dict[int, int]] = {}
    for one in np.argsort(every.starts, kind="stable").tolist():
        if lasting[one] >= mean * LONG and (numbers[one] is not None or steps == 1):
            last.setdefault((streams[one], names[one], numbers[one]), {})[who[one]] = one
    spreads: dict[tuple[Any, ...], list[float]] = {}
    for (stream, name, _), ranks in last.items():
        if len(ranks) > 1:
            spread = float(np.std([lasting[one] for one in ranks.values()], ddof=1))
            spreads.setdefault((stream, name), []).append(spread)
    if not spreads:
        return []
    widest = max(spreads, key=lambda key: sum(spreads[key]) / len(spreads[key]))
    times = dict.fromkeys(range(every.count), 0)
    for (stream, name, _), ranks in last.items():
        if (stream, name) == widest:
            latest = sorted((starts[one] for one in ranks.values()), reverse=True)[: parameters.candidates][-1]
            for rank, one in ranks.items():
                times[rank] += starts[one] >= latest
    most = sorted(times, key=lambda rank: -times[rank])[: parameters.candidates]
    return [rank for rank in most if times[rank]]


def _bandwidth(
    collective: str | None, group_size: int | None, size: int | None, latency: int
) -> tuple[float | None, float | None]:
    """Bytes in a nanosecond of an algorithm, and of the bus."""
    if size is None or not latency:
        return None, None
    scale = _SCALES.get(_kind_of(collective))
    rate = size / latency
    return rate, rate * scale * (group_size - 1) / group_size if scale and group_size else None


@lru_cache(maxsize=1024)
def _kind_of(collective: str | None) -> str:
    """The plain name of what is done: `allreduce` of `nccl:all_reduce` and of `allreduce_coalesced`."""
    plain = "".join(filter(str.isalnum, (collective or "").rpartition(":")[2].lower()))
    return next((kind for kind in _SCALES if plain.startswith(kind) and plain != "alltoallv"), plain)


def _synchronizing(found: pa.Table) -> Any:
    """Which communications make all ranks wait for all; all of them where nothing is told of any."""
    told = found["told"].to_numpy() == 1
    known = {name for name in found["collective"].unique().to_pylist() if _kind_of(name) in _SCALES}
    chosen = np.array([name in known for name in found["collective"].to_pylist()], bool)
    return chosen & told if told.any() else np.ones(len(found), bool)


def _sizes(collectives: pa.Table) -> pa.Table:
    """Collectives of the same kind and size together, those that take longest first."""
    keys = [one.name for one in (_GROUP, *_KIND)]
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
        [("latency_ns", "sum"), ("latency_ns", "count"), *asked]
    )
    columns = {"count": total["latency_ns_count"], "latency_ns": total["latency_ns_sum"]}
    for kind in ("mean", "stddev"):
        for column in spread.values():
            columns[f"{kind}_{column}"] = total[f"{column}_{kind}"]
    whole = made(_SIZES, {**columns, **{name: total[name] for name in keys}})
    return whole.sort_by([("latency_ns", "descending")])


def _kernels(waits: pa.Table) -> pa.Table:
    """The communications of a rank of the same kind and size together, those that take longest first."""
    keys = ["rank", *(one.name for one in (_GROUP, *_KIND)), "stream"]
    sample = pc.VarianceOptions(ddof=1, min_count=2)
    kinds = [("sum", None), ("count", None), ("mean", None), ("stddev", sample), ("min", None), ("max", None)]
    total = waits.group_by(keys, use_threads=False).aggregate([("duration_ns", kind, how) for kind, how in kinds])
    columns = {
        "count": total["duration_ns_count"],
        "duration_ns": total["duration_ns_sum"],
        "mean_duration_ns": total["duration_ns_mean"],
        "stddev_duration_ns": total["duration_ns_stddev"],
        "min_duration_ns": total["duration_ns_min"],
        "max_duration_ns": total["duration_ns_max"],
    }
    whole = made(_KERNELS, {**columns, **{name: total[name] for name in keys}})
    return whole.sort_by([("rank", "ascending"), ("duration_ns", "descending")])


def _names(columns: Columns) -> list[str]:
    return [one.name for one in columns]


def _columns(columns: Columns, rows: list[list[Any]]) -> dict[str, list[Any]]:
    return {one.name: [row[at] for row in rows] for at, one in enumerate(columns)}


def _lasting(found: pa.Table) -> Ints:
    lasting: Ints = found["end_ns"].to_numpy() - found["start_ns"].to_numpy()
    return lasting


def _by_rank(values: Ints, who: Ints, ranks: int) -> list[Ints]:
    return [values[who == rank] for rank in range(ranks)]


def _grouped(keys: Any) -> dict[Any, Ints]:
    """The places of each key, in the order in which they come first."""
    places: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return {key: np.array(found) for key, found in places.items()}


def missing(scope: Scope) -> str | None:
    """A reason where nothing communicates."""
    if scope.has_communication or scope.happens(f"cat IN {OPS} AND {scope.named(COLLECTIVE)}"):
        return None
    return "No NCCL kernels are in this trace, nor others that communicate, nor what a process group does on the host."


QUESTION = Question(
    name="collectives",
    answers="Which collectives are slow, and which ranks are late?",
    definition="A collective is what the kernels of several ranks do that agree in process group and Seq, or in their"
    " place among those of the group where Seq is not told. Its latency is the shortest duration of a rank; a rank's"
    " wait is from its own start to the last one's. Times are as the traces have them: clocks of hosts may differ.",
    source="https://github.com/AMD-AGI/TraceLens/blob/171dd74721ca1ec45709e5805b68ae1f65e27811/TraceLens/NcclAnalyser/nccl_analyser.py",
    tables=TABLES,
    parameters=CollectiveParameters,
    missing=missing,
    answer=answer,
    joined=joined,
)

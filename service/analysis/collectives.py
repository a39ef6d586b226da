"""Which collectives are slow, and which ranks are late?"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from service.analysis.facts.activity import COLLECTIVE, OPS, Rules, activity_of
from service.analysis.facts.bandwidths import SYNCHRONIZING, kind_of
from service.analysis.facts.collective_report import CollectiveReport
from service.analysis.facts.collective_tables import TABLES
from service.analysis.facts.communications import NAME, communications_of
from service.analysis.facts.hta_stragglers import hta_stragglers
from service.analysis.facts.intervals import Ints
from service.analysis.facts.lateness import delay_intervals
from service.analysis.facts.matched_collectives import MatchedCollectives
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, windows_of
from service.analysis.question import Parameters, Question, Tables

_ABOUT = pa.schema({name: pa.int64() for name in ("rank", "base_ns", "begins_ns", "first_ns", "last_ns", "steps")})
_BEGINS = "SELECT ts_ns FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {on_host} ORDER BY ts_ns LIMIT 1"


class CollectiveParameters(Parameters):
    """Parameters of `collectives`."""

    collectives: Literal["all", "synchronizing"] = Field(
        "all",
        description="`synchronizing` takes only all-reduces, reduce-scatters, all-gathers and all-to-alls, in which"
        " each rank waits for all others; collectives of unrecorded kind are left out unless the trace records no kind"
        " at all, as TraceLens does",
    )
    rules: Rules = Field(
        "exact",
        description="`tensorboard` takes the annotations of five operators of NCCL and of Gloo for collectives, with"
        " their kernels, as the TensorBoard plugin does",
    )
    stragglers: Literal["wait", "hta"] = Field(
        "wait",
        description="rule for late ranks: `wait` takes the ranks that wait least, and less than the mean; `hta` takes"
        " those that start the last long collective of a step latest, of the stream and name whose durations differ"
        " most",
    )
    candidates: int = Field(2, ge=1, description="maximum number of stragglers")


def answer(scope: Scope, parameters: CollectiveParameters) -> Tables:
    """Return the communications of a rank, their possible delays, its clock and, for HTA, the time of its steps."""
    with_steps = parameters.stragglers == "hta"
    return scope.cached(("collectives", parameters.rules, with_steps), lambda: _answer(scope, parameters))


def _answer(scope: Scope, parameters: CollectiveParameters) -> Tables:
    communications = communications_of(scope, parameters.rules)
    begins = scope.table(_BEGINS.format(on_host=scope.is_on_host))["ts_ns"].to_pylist()
    about = {"rank": scope.rank, "base_ns": scope.summary.base_ns, "begins_ns": begins[0] if begins else None}
    if parameters.stragglers == "hta":
        windows = windows_of(scope, activity_of(scope, "exact"), StepParameters())
        about |= {"first_ns": int(windows.host_starts[0]), "last_ns": int(windows.ends[-1]), "steps": len(windows)}
    return {
        "communications": communications,
        "covers": delay_intervals(scope, communications),
        "about": pa.Table.from_pylist([about], schema=_ABOUT),
    }


def joined(answers: Sequence[Tables], parameters: CollectiveParameters) -> Tables:
    """Combine the communications of all ranks into collectives."""
    abouts = [tables["about"].to_pylist()[0] for tables in answers]
    communications = pa.concat_tables([tables["communications"] for tables in answers])
    ranks = np.repeat(np.arange(len(answers)), [len(tables["communications"]) for tables in answers])
    bases = [about["base_ns"] for about in abouts]
    shifts = np.array([base - bases[0] if None not in bases else 0 for base in bases], np.int64)
    all_ns = [_duration_ns(tables["communications"]) for tables in answers]
    if parameters.collectives == "synchronizing":
        chosen = _synchronizing(communications)
        communications, ranks = communications.filter(pa.array(chosen)), ranks[chosen]
    together = MatchedCollectives(communications, ranks, shifts)
    causes = together.delays_by_cause(
        [tables["covers"] for tables in answers], [about["begins_ns"] for about in abouts]
    )
    report = CollectiveReport(together, [about["rank"] for about in abouts], causes)
    return report.tables(all_ns, _late(together, abouts, shifts, parameters))


def _duration_ns(communications: pa.Table) -> int:
    """Return the sum of the durations of communications."""
    return int((communications["end_ns"].to_numpy() - communications["start_ns"].to_numpy()).sum())


def _late(
    together: MatchedCollectives, abouts: Sequence[dict[str, Any]], shifts: Ints, parameters: CollectiveParameters
) -> list[int]:
    """Return the indices of the late ranks, in the order of `abouts`."""
    if parameters.stragglers == "wait":
        return together.least_waiting_ranks(parameters.candidates)
    times = ("first_ns", "last_ns")
    shifted = [
        {**about, **{name: about[name] + shift for name in times}}
        for about, shift in zip(abouts, shifts.tolist(), strict=True)
    ]
    return hta_stragglers(together, shifted, parameters.candidates)


def _synchronizing(communications: pa.Table) -> Any:
    """Return a mask of the recorded communications of synchronizing kinds, or of all if only names are known."""
    is_recorded = np.array([source != NAME for source in communications["source"].to_pylist()], bool)
    names = communications["collective"]
    synchronizing = {name for name in names.unique().to_pylist() if kind_of(name) in SYNCHRONIZING}
    mask = np.array([name in synchronizing for name in names.to_pylist()], bool)
    return mask & is_recorded if is_recorded.any() else np.ones(len(communications), bool)


def notes(tables: Tables) -> list[str]:
    """Return a remark if a rank waits longer in a collective than it is in it, which only clocks that differ explain.

    In collectives of synchronizing kinds, no rank is done before the last one has started.
    """
    waits = tables["waits"]
    kinds = [name for name in waits["collective"].unique().to_pylist() if kind_of(name) in SYNCHRONIZING]
    known = pc.and_(pc.is_valid(waits["seq"]), pc.is_in(waits["collective"], pa.array(kinds, pa.string())))
    waits = waits.filter(known)
    excess = pc.subtract(waits["wait_ns"], waits["duration_ns"])
    worst = pc.max(excess).as_py()
    if worst is None or worst <= 0:
        return []
    rank = waits["rank"][pc.index(excess, worst).as_py()].as_py()
    text = (
        f"The clocks of the ranks differ: in one of its collectives, rank {'unknown' if rank is None else rank} would"
        f" wait {worst / 1000:,.1f} µs longer than the collective lasts there. Waits, delays and late ranks are wrong"
        " by as much. Merge the traces, which aligns their clocks, and ask this of the merged trace."
    )
    return [text]


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no communication."""
    if scope.has_communication or scope.has_slice(f"cat IN {OPS} AND {scope.name_matches(COLLECTIVE)}"):
        return None
    return "No NCCL kernels are in this trace, nor others that communicate, nor what a process group does on the host."


QUESTION = Question(
    name="collectives",
    short_question="Which collectives are slow, and which ranks are late?",
    definition="A collective is the set of kernels of several ranks that agree in process group and Seq, or in their"
    " place among those of the group where Seq is not recorded. Groups with the same name differ if their ranks do;"
    " sends and receives have their own Seq. If all ranks of the group are seen, its latency is the shortest duration"
    " of a rank, a rank waits from its own start to the last start, and its lateness is attributed to the work of its"
    " host and device from the first start to its own. Sizes and bandwidths are defined as in nccl-tests. Times are as"
    " in the traces: clocks of hosts may differ.",
    source="https://github.com/AMD-AGI/TraceLens/blob/171dd74721ca1ec45709e5805b68ae1f65e27811/TraceLens/NcclAnalyser/nccl_analyser.py",
    tables=TABLES,
    parameters=CollectiveParameters,
    inapplicable_reason=missing,
    answer=answer,
    join_ranks=joined,
    notes_of=notes,
    cost=4,
)

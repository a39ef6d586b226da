"""Which collectives are slow, and which ranks are late?"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.activity import COLLECTIVE, OPS, Rules, activity_of
from service.analysis.facts.bandwidths import SYNCHRONIZING, kind_of
from service.analysis.facts.collective_report import CollectiveReport
from service.analysis.facts.collective_tables import TABLES
from service.analysis.facts.communications import NAME, communications_of
from service.analysis.facts.hta_stragglers import late_as_hta
from service.analysis.facts.intervals import Ints
from service.analysis.facts.lateness import covers_of
from service.analysis.facts.ranks_together import Together
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, windows_of
from service.analysis.question import Parameters, Question, Tables

_ABOUT = pa.schema({name: pa.int64() for name in ("rank", "base_ns", "begins_ns", "first_ns", "last_ns", "steps")})


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
        description="who is late: `wait` takes the ranks that wait least, and less than the mean; `hta` those that"
        " start the last long one of a step latest, of the stream and name whose durations differ most",
    )
    candidates: int = Field(2, ge=1, description="how many ranks are called stragglers at most")


def answer(scope: Scope, parameters: CollectiveParameters) -> Tables:
    """Communications of one rank, what may delay them, its clock and, for HTA, the time of its steps."""
    found = communications_of(scope, parameters.rules)
    base, starts = scope.summary.get("base_ns"), scope.slices().host.starts
    about = {
        "rank": scope.rank,
        "base_ns": base if isinstance(base, int) else None,
        "begins_ns": int(starts[0]) if len(starts) else None,
    }
    if parameters.stragglers == "hta":
        windows = windows_of(activity_of(scope, "exact"), StepParameters())
        about |= {"first_ns": int(windows.host_starts[0]), "last_ns": int(windows.ends[-1]), "steps": len(windows)}
    return {
        "communications": found,
        "covers": covers_of(scope, found),
        "about": pa.Table.from_pylist([about], schema=_ABOUT),
    }


def joined(answers: Sequence[Tables], parameters: CollectiveParameters) -> Tables:
    """What the communications of ranks are together."""
    abouts = [one["about"].to_pylist()[0] for one in answers]
    found = pa.concat_tables([one["communications"] for one in answers])
    who = np.repeat(np.arange(len(answers)), [len(one["communications"]) for one in answers])
    bases = [one["base_ns"] for one in abouts]
    shifts = np.array([base - bases[0] if None not in bases else 0 for base in bases], np.int64)
    lasting = found["end_ns"].to_numpy() - found["start_ns"].to_numpy()
    all_ns = [int(lasting[who == rank].sum()) for rank in range(len(answers))]
    if parameters.collectives == "synchronizing":
        chosen = _synchronizing(found)
        found, who = found.filter(pa.array(chosen)), who[chosen]
    every = Together(found, who, shifts)
    causes = every.causes([one["covers"] for one in answers], [one["begins_ns"] for one in abouts])
    report = CollectiveReport(every, [one["rank"] for one in abouts], causes)
    return report.tables(all_ns, _late(every, abouts, shifts, parameters))


def _late(
    every: Together, abouts: Sequence[dict[str, Any]], shifts: Ints, parameters: CollectiveParameters
) -> list[int]:
    """The ranks that are late."""
    if parameters.stragglers == "wait":
        return every.waiting_least(parameters.candidates)
    times = ("first_ns", "last_ns")
    shifted = [
        {**one, **{name: one[name] + shift for name in times}}
        for one, shift in zip(abouts, shifts.tolist(), strict=True)
    ]
    return late_as_hta(every, shifted, parameters.candidates)


def _synchronizing(found: pa.Table) -> Any:
    """Which communications make all ranks wait for all; all of them where nothing is told of any."""
    told = np.array([source != NAME for source in found["source"].to_pylist()], bool)
    known = {name for name in found["collective"].unique().to_pylist() if kind_of(name) in SYNCHRONIZING}
    chosen = np.array([name in known for name in found["collective"].to_pylist()], bool)
    return chosen & told if told.any() else np.ones(len(found), bool)


def missing(scope: Scope) -> str | None:
    """A reason where nothing communicates."""
    if scope.has_communication or scope.happens(f"cat IN {OPS} AND {scope.named(COLLECTIVE)}"):
        return None
    return "No NCCL kernels are in this trace, nor others that communicate, nor what a process group does on the host."


QUESTION = Question(
    name="collectives",
    answers="Which collectives are slow, and which ranks are late?",
    definition="A collective is what the kernels of several ranks do that agree in process group and Seq, or in their"
    " place among those of the group where Seq is not told. If all ranks of the group are seen, its latency is the"
    " shortest duration of a rank, a rank's wait is from its own start to the last one's, and a rank is late by what"
    " its host and device do from the first start to its own. Sizes and bandwidths are defined as nccl-tests does."
    " Times are as the traces have them: clocks of hosts may differ.",
    source="https://github.com/AMD-AGI/TraceLens/blob/171dd74721ca1ec45709e5805b68ae1f65e27811/TraceLens/NcclAnalyser/nccl_analyser.py",
    tables=TABLES,
    parameters=CollectiveParameters,
    missing=missing,
    answer=answer,
    joined=joined,
    cost=1,
)

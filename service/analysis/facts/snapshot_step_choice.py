"""The choice among the sources of the steps of a memory snapshot."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from service.analysis.facts.scope import Scope
from service.analysis.facts.snapshot_memory import SnapshotMemory
from service.analysis.facts.snapshot_step_sources import ANNOTATIONS, TRACE, StepSource
from service.analysis.facts.snapshot_steps import SnapshotSteps
from service.store.lists import whole_summary
from service.store.step_traces import StepTrace
from service.trace.errors import BadAnalysisRequest, ExportFailed
from service.trace.summary import Summary

PROFILER_STEPS, OPTIMIZER_STEPS = "ProfilerStep#*", "Optimizer.step#*"
"""Names of annotations that begin steps, as patterns: those of the profiler, and those of `torch.optim`."""

_NO_TRACE = "No trace of the same rank is in a run with the snapshot."
_OWN_STEPS = "The steps come from the snapshot's own annotations."
_NO_TIMES = "The entries of the snapshot have no times."
_NO_ENTRIES = "The snapshot has no entries."
_DELETED = "It was deleted meanwhile."
_NO_STEPS = "It has no steps."
_BEGINNING = """
SELECT name, ts_ns, ts_ns + dur_ns AS end_ns
FROM events WHERE cat = 'user_annotation' AND ts_ns NOTNULL AND dur_ns NOTNULL AND name LIKE $pattern ESCAPE '\\'
ORDER BY ts_ns, position
"""


class ChosenSteps(NamedTuple):
    """The steps of a snapshot, of which there are none if no source has them, and the sources that were considered."""

    steps: SnapshotSteps
    sources: list[StepSource]


class _Placed(NamedTuple):
    """A trace whose steps are on the snapshot's clock; `about.reason` is None if the steps can be used."""

    steps: SnapshotSteps
    about: StepSource


def steps_of(scope: Scope, snapshot: SnapshotMemory, step_name: str | None, steps_from: str | None) -> ChosenSteps:
    """Return the steps of a snapshot.

    Without parameters, they come from its annotations of the profiler, else from the only trace that fits, else from
    its annotations of the optimizer.

    Args:
        scope: scope of the rank.
        snapshot: the memory of the snapshot.
        step_name: name of the snapshot's annotations that begin steps, in which ``*`` stands for any text.
        steps_from: id of the trace that has the steps or its name, in which ``*`` stands for any text.

    Raises:
        BadAnalysisRequest: no trace of the rank has that id or name.
    """
    traces = scope.step_traces if steps_from is None else _named(scope, steps_from)
    if steps_from is None:
        own = _annotated(scope, step_name or PROFILER_STEPS)
        if step_name is not None or own.names:
            unused = [StepSource(TRACE, trace.name, trace.id, reason=_OWN_STEPS) for trace in traces]
            return ChosenSteps(own, [_annotations(own, step_name or PROFILER_STEPS), *unused])
    placed = [_placed(scope, snapshot, trace) for trace in traces]
    fitting = [trace for trace in placed if trace.about.reason is None]
    if len(fitting) == 1:
        used = ["yes" if trace is fitting[0] else "no" for trace in placed]
        sources = [trace.about._replace(used=word) for trace, word in zip(placed, used, strict=True)]
        annotations = [] if steps_from else [_annotations(_no_steps(), PROFILER_STEPS)]
        return ChosenSteps(fitting[0].steps, [*annotations, *sources])
    sources = _not_chosen(placed, fitting)
    if steps_from is not None:
        return ChosenSteps(_no_steps(), sources)
    own = _annotated(scope, OPTIMIZER_STEPS)
    return ChosenSteps(own, [_annotations(own, PROFILER_STEPS, OPTIMIZER_STEPS), *sources])


def _named(scope: Scope, steps_from: str) -> Sequence[StepTrace]:
    """Return the traces with an id or a name; if no trace is there at all, there is nothing to name."""
    pattern = steps_from.replace("[", "[[]").replace("?", "[?]")  # of the specials of fnmatch, only `*` stays
    traces = [trace for trace in scope.step_traces if steps_from == trace.id or fnmatchcase(trace.name, pattern)]
    if scope.step_traces and not traces:
        known = [trace.name for trace in scope.step_traces]
        raise BadAnalysisRequest(
            f"No trace of the snapshot's rank in its run is {steps_from!r}: there is {', '.join(known)}.", known=known
        )
    return traces


def _annotated(scope: Scope, pattern: str) -> SnapshotSteps:
    """Return the steps that the snapshot's annotations of a name begin."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    rows = scope.table(_BEGINNING, pattern=pattern.replace("*", "%"))
    starts, ends = rows["ts_ns"].to_numpy(), rows["end_ns"].to_numpy()
    return SnapshotSteps(rows["name"].to_pylist(), starts, np.append(starts[1:], ends[-1:]))


def _annotations(own: SnapshotSteps, *patterns: str) -> StepSource:
    """Describe the snapshot's annotations as the source of its steps, or the lack of them."""
    if own.names:
        return StepSource(ANNOTATIONS, used="yes", steps=len(own.names), of_steps=len(own.names))
    missing = " or ".join(f"`{pattern}`" for pattern in patterns)
    return StepSource(ANNOTATIONS, steps=0, of_steps=0, reason=f"The snapshot has no annotation {missing}.")


def _not_chosen(placed: Sequence[_Placed], fitting: Sequence[_Placed]) -> list[StepSource]:
    """Describe traces of which none is used: none fits, or several do."""
    if not placed:
        return [StepSource(TRACE, reason=_NO_TRACE)]
    names = ", ".join(trace.about.trace or "" for trace in fitting)
    ambiguous = f"Several traces fit: {names}. Name one with `steps_from`."
    return [trace.about._replace(reason=trace.about.reason or ambiguous) for trace in placed]


def _placed(scope: Scope, snapshot: SnapshotMemory, trace: StepTrace) -> _Placed:
    """Place the steps of a trace on the snapshot's clock, and keep those that overlap its entries.

    Times of the trace are since `base_ns`; in old traces, which have none, they are since 1970.
    """
    about = StepSource(TRACE, trace.name, trace.id)
    try:
        summary = whole_summary(trace.summary, trace.columns)
    except ExportFailed:
        return _Placed(_no_steps(), about._replace(reason=_DELETED))
    about = about._replace(of_steps=len(summary.steps))
    entries = _entries_of(snapshot)
    if scope.summary.base_ns is None or entries is None:
        return _Placed(_no_steps(), about._replace(reason=_NO_ENTRIES if entries is None else _NO_TIMES))
    if not summary.steps:
        return _Placed(_no_steps(), about._replace(steps=0, reason=_NO_STEPS))
    steps = _overlapping(summary, (summary.base_ns or 0) - scope.summary.base_ns, entries)
    if isinstance(steps, str):
        return _Placed(_no_steps(), about._replace(steps=0, reason=steps))
    return _Placed(steps, about._replace(steps=len(steps.names)))


def _entries_of(snapshot: SnapshotMemory) -> tuple[int, int] | None:
    """Return the times of the first and the last allocation or free of all devices; None if there is none."""
    changes = [device.at for device in snapshot.devices.values() if len(device.at)]
    return (min(int(at[0]) for at in changes), max(int(at[-1]) for at in changes)) if changes else None


def _overlapping(summary: Summary, shift: int, entries: tuple[int, int]) -> SnapshotSteps | str:
    """Return the steps that overlap a span of entries, or the reason why none does.

    Args:
        summary: a summary with steps, by start.
        shift: ns to add to the times of the steps.
        entries: first and last time of the entries.
    """
    first, last = entries
    starts = [step["start_ns"] + shift for step in summary.steps]
    ends = [*starts[1:], summary.steps[-1]["end_ns"] + shift]
    if ends[-1] <= first:
        return f"Its steps end {_seconds(first - ends[-1])} before the snapshot's first entry."
    if starts[0] > last:
        return f"Its steps begin {_seconds(starts[0] - last)} after the snapshot's last entry."
    kept = [place for place, start in enumerate(starts) if start <= last and ends[place] > first]
    names = [summary.steps[place]["name"] for place in kept]
    return SnapshotSteps(names, *(np.array([times[place] for place in kept], np.int64) for times in (starts, ends)))


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:,.6f} s"


def _no_steps() -> SnapshotSteps:
    nothing = np.zeros(0, np.int64)
    return SnapshotSteps([], nothing, nothing)

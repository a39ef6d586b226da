"""Traces that may have the steps of a memory snapshot: those of the same rank in its run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.store.catalog import Catalog, Trace
from service.store.folder import Folder
from service.trace.summary import Summary


@dataclass(frozen=True)
class StepTrace:
    """A trace that may have the steps of a memory snapshot.

    Attributes:
        id: its id; empty if it is not in a catalog.
        name: its name.
        columns: folder of its columns.
        summary: the parts of its summary that place its steps in time.
    """

    id: str
    name: str
    columns: Path
    summary: Summary


def step_trace(trace_id: str, name: str, columns: Path, summary: Summary) -> StepTrace:
    """Return a trace with only those parts of its summary that place its steps in time."""
    totals = {"steps": summary.totals["steps"]} if "steps" in summary.totals else {}
    return StepTrace(trace_id, name, columns, Summary(base_ns=summary.base_ns, steps=summary.steps, totals=totals))


def may_have_steps(summary: Summary) -> bool:
    """Return whether a trace can have the steps of a snapshot: it is of one rank, and no history of memory."""
    return not summary.ranks and not summary.is_memory_history


def step_traces(catalog: Catalog, folder: Folder, trace: Trace) -> tuple[StepTrace, ...]:
    """Return the ready traces of the same rank in the run of a memory snapshot, the oldest first.

    Another trace has none. A rank that is unknown equals another one that is unknown, as in runs of one GPU.
    """
    summary = trace.summary_or_empty
    if trace.group_id is None or not summary.is_memory_history:
        return ()
    of_rank: Sequence[Trace] = catalog.ready_of_rank(trace.group_id, summary.rank)
    return tuple(
        step_trace(other.id, other.name, folder.columns_of(other.id), other.summary_or_empty)
        for other in of_rank
        if may_have_steps(other.summary_or_empty)
    )

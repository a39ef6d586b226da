"""Derivations: the requests of jobs that derive traces from traces, as stored in the catalog, and their tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, cast

from pydantic import TypeAdapter, ValidationError

from service.cutting.source import Source
from service.jobs.children.tasks.derive import MergeTask, OverlayTask, PlanTask, SplitTask
from service.store.catalog import Catalog, State
from service.store.folder import Folder
from service.store.jobs import Job
from service.trace.errors import NotReady
from service.trace.piece import Align, By
from service.trace.selection import Selection, bad_selection

SourceOf = Callable[[str], Source]
"""Returns the source of a trace by its id."""


def ready_source(catalog: Catalog, folder: Folder, trace_id: str) -> Source:
    """Return a trace as the source of a task; raises `UnknownTrace` and `NotReady`."""
    trace = catalog.get(trace_id)
    if trace.state is not State.READY:
        raise NotReady(f"The trace {trace_id} is {trace.state}.", state=trace.state)
    return Source(folder.columns_of(trace_id), trace.name, trace.summary_or_empty, trace.identity)


@dataclass(frozen=True)
class Split:
    """Request to split a trace into pieces.

    Attributes:
        trace: the id of the trace.
        selection: the part of the trace to split.
        by: the criterion of the split; None for a single piece.
        value: size or number of the pieces, if `by` needs it.
    """

    KIND: ClassVar = "split"

    trace: str
    selection: Selection
    by: By | None = None
    value: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the request as JSON values, as stored in the catalog."""
        return vars(self) | {"selection": self.selection.as_dict()}

    def task(self, folder: Path, source_of: SourceOf) -> SplitTask:
        """Return the task that writes the pieces into a folder."""
        return SplitTask(source_of(self.trace), folder, self.selection, self.by, self.value)

    def plan(self, source_of: SourceOf) -> PlanTask:
        """Return the task that plans the split without writing it."""
        return PlanTask(source_of(self.trace), self.selection, self.by, self.value)


@dataclass(frozen=True)
class Merge:
    """Request to merge several traces into one.

    Attributes:
        traces: the ids of the traces.
        ranks: the rank of each trace; None if the traces' own ranks apply.
        align: method of aligning the clocks.
        name: file name of the new trace.
    """

    KIND: ClassVar = "merge"

    traces: list[str]
    ranks: list[int] | None
    align: Align
    name: str

    def as_dict(self) -> dict[str, object]:
        """Return the request as JSON values, as stored in the catalog."""
        return dict(vars(self))

    def task(self, folder: Path, source_of: SourceOf) -> MergeTask:
        """Return the task that writes the trace into a folder."""
        ranks: Sequence[int | None] = self.ranks or [None] * len(self.traces)
        sources = [replace(source_of(trace), rank=rank) for trace, rank in zip(self.traces, ranks, strict=True)]
        return MergeTask(sources, folder, self.name, self.align)


@dataclass(frozen=True)
class Overlay:
    """Request to derive a trace that shows the result of an analysis.

    Attributes:
        trace: the id of the trace.
        analysis: name of the analysis.
        selection: the part of the trace to keep.
    """

    KIND: ClassVar = "overlay"

    trace: str
    analysis: Literal["critical_path"]
    selection: Selection

    def as_dict(self) -> dict[str, object]:
        """Return the request as JSON values, as stored in the catalog."""
        return vars(self) | {"selection": self.selection.as_dict()}

    def task(self, folder: Path, source_of: SourceOf) -> OverlayTask:
        """Return the task that writes the trace into a folder."""
        return OverlayTask(source_of(self.trace), folder, self.selection)


Derivation = Split | Merge | Overlay

_DERIVATIONS: dict[str, TypeAdapter[Derivation]] = {kind.KIND: TypeAdapter(kind) for kind in (Split, Merge, Overlay)}

KINDS = tuple(_DERIVATIONS)
"""The kinds of jobs that derive traces."""


def derivation_of(job: Job) -> Derivation:
    """Return the derivation that a job requests.

    Raises:
        BadSelection: another version queued the job, with a selection that this version does not accept.
    """
    try:
        return _DERIVATIONS[job.kind].validate_python(job.request)
    except ValidationError as error:
        raise bad_selection(error) from error


def parent_of(derivation: Derivation) -> str | None:
    """Return the id of the single trace that a derivation reads; None if it merges several."""
    return None if isinstance(derivation, Merge) else derivation.trace


def sources_of(job: Job) -> list[str]:
    """Return the ids of the traces that a job derives others from."""
    request = job.request
    return cast(list[str], [request["trace"]] if "trace" in request else request["traces"])

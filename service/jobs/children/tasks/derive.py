"""The tasks that derive traces from traces."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads only the code of its own tasks

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cutting.source import Source
from service.jobs.children.tasks.base import OnProgress, Task, ignore
from service.streaming.source import Progress
from service.trace.piece import Align, By
from service.trace.selection import Selection
from service.trace.summary import Summary

if TYPE_CHECKING:
    from service.cutting.children import Child


@dataclass(frozen=True)
class DerivedTrace:
    """A trace that a task has written.

    Attributes:
        id: the trace's id, which is also the name of the folder of its columns.
        name: the trace's file name.
        selection: the selection of its parent that it keeps; None for a merged trace.
        size: size of its columns in bytes.
        summary: the trace's summary.
    """

    id: str
    name: str
    selection: Selection | None
    size: int
    summary: Summary


@dataclass(frozen=True)
class DerivedTraces:
    """The traces that a task has written, in the order of the pieces."""

    traces: list[DerivedTrace]

    @classmethod
    def of(cls, children: "Sequence[Child]") -> "DerivedTraces":
        """Describe the written traces."""
        return cls(
            [DerivedTrace(child.id, child.name, child.selection, child.size, child.summary) for child in children]
        )


@dataclass(frozen=True)
class SplitTask(Task[DerivedTraces]):
    """Write each piece of a trace as a trace; see `service.cutting.children.write_children`.

    Attributes:
        source: the trace.
        folder: the folder in which to create the folders of the pieces' columns.
        selection: the part of the trace to split.
        by: the criterion of the split; None for a single piece.
        value: size or number of the pieces, if `by` needs it.
    """

    source: Source
    folder: Path
    selection: Selection
    by: By | None = None
    value: int | None = None

    @classmethod
    def result_type(cls) -> type[DerivedTraces]:
        """Return the type of the traces."""
        return DerivedTraces

    def run(self, on_progress: OnProgress = ignore) -> DerivedTraces:
        """Write the pieces.

        Raises:
            SelectionError: no piece has any event, or a selection is invalid.
            DiskFull: the disk is full.
        """
        from service.cutting.children import write_children
        from service.cutting.pieces import split_into_pieces
        from service.store.catalog import new_trace_id

        parts = split_into_pieces(self.source.columns, self.source.summary, self.selection, self.by, self.value)
        children = write_children(
            self.source, self.folder, parts, new_id=new_trace_id, on_written=_events_of(on_progress)
        )
        return DerivedTraces.of(children)


@dataclass(frozen=True)
class PlannedPiece:
    """A piece that a split would make.

    Attributes:
        name: file name of the piece's trace.
        selection: selection of the events that the piece keeps.
        events: number of the piece's events.
        counts: number of its events by phase and category, as in a summary.
        size: estimated size of its columns in bytes.
    """

    name: str
    selection: Selection
    events: int
    counts: dict[str, int]
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Return the piece as JSON values."""
        return {**vars(self), "selection": self.selection.as_dict()}


@dataclass(frozen=True)
class SplitPlan:
    """The pieces that a split would make, without empty ones."""

    pieces: list[PlannedPiece]


@dataclass(frozen=True)
class PlanTask(Task[SplitPlan]):
    """Plan a split without writing its pieces; the attributes are those of `SplitTask`."""

    source: Source
    selection: Selection
    by: By | None = None
    value: int | None = None

    @classmethod
    def result_type(cls) -> type[SplitPlan]:
        """Return the type of the plan."""
        return SplitPlan

    def run(self, on_progress: OnProgress = ignore) -> SplitPlan:  # noqa: ARG002 - a plan is too quick to report
        """Count the events of the pieces.

        Raises:
            SelectionError: no piece has any event, or a selection is invalid.
        """
        from service.jobs.split_plan import plan_split

        return SplitPlan(plan_split(self.source, self.selection, self.by, self.value))


@dataclass(frozen=True)
class MergeTask(Task[DerivedTraces]):
    """Merge several traces into one; see `service.cutting.merge.merge`.

    Attributes:
        sources: the traces, each with its rank.
        folder: the folder in which to create the folder of the columns.
        name: file name of the new trace.
        align: method of aligning the clocks.
    """

    sources: list[Source]
    folder: Path
    name: str
    align: Align

    @classmethod
    def result_type(cls) -> type[DerivedTraces]:
        """Return the type of the traces."""
        return DerivedTraces

    def run(self, on_progress: OnProgress = ignore) -> DerivedTraces:
        """Write the trace.

        Raises:
            CannotMerge: two traces have the same rank, a trace has no known rank, or a trace is itself merged.
            DiskFull: the disk is full.
        """
        from service.cutting.merge import merge
        from service.store.catalog import new_trace_id

        folder = self.folder / new_trace_id()
        child = merge(self.sources, folder, name=self.name, align=self.align, on_written=_events_of(on_progress))
        return DerivedTraces.of([child])


@dataclass(frozen=True)
class OverlayTask(Task[DerivedTraces]):
    """Write a trace that shows its critical path as an additional track; see `service.jobs.overlay`.

    Attributes:
        source: the trace.
        folder: the folder in which to create the folder of the columns.
        selection: the part of the trace to keep.
    """

    source: Source
    folder: Path
    selection: Selection

    @classmethod
    def result_type(cls) -> type[DerivedTraces]:
        """Return the type of the traces."""
        return DerivedTraces

    def run(self, on_progress: OnProgress = ignore) -> DerivedTraces:
        """Write the trace.

        Raises:
            NotApplicable: the trace has no critical path.
            SelectionError: the selection is invalid or matches no event.
            DiskFull: the disk is full.
        """
        from service.jobs.overlay import write_critical_path
        from service.store.catalog import new_trace_id

        child = write_critical_path(
            self.source,
            self.folder / new_trace_id(),
            self.selection,
            spill=self.folder / "spill",
            on_written=_events_of(on_progress),
        )
        return DerivedTraces.of([child])


def _events_of(on_progress: OnProgress) -> Callable[[int, int], object]:
    """Return a function that reports written events as progress."""
    return lambda events, events_total: on_progress(Progress(events=events, events_total=events_total))

"""Tasks: picklable calls on paths with typed arguments.

The server sends tasks to its children. Any other process can run them, too: a task needs neither the server nor the
catalog, only the paths that it names. `run` imports the code of the task, which the server does without.
"""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads the code of its own tasks alone

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from service.cutting.source import Source
from service.store.export import Order
from service.streaming.source import GrowingFile, Progress
from service.trace.piece import Align, By
from service.trace.selection import Args, Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary

if TYPE_CHECKING:
    from service.analysis.readings import Asked, Readings
    from service.cutting.children import Child
    from service.rendering.account import Rendered

R = TypeVar("R")

OnProgress = Callable[[Progress], object]


def ignore(_: Progress) -> None:
    """Ignore the progress of a task."""


class Task(ABC, Generic[R]):
    """A task with one result."""

    @classmethod
    @abstractmethod
    def result_type(cls) -> type[R]:
        """Return the type of the result, to decode it."""

    @abstractmethod
    def run(self, on_progress: OnProgress = ignore) -> R:
        """Run the task.

        Args:
            on_progress: is called now and then.

        Raises:
            TracedockError: the task can't be done.
        """


# -- ingest -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IngestTask(Task[Summary]):
    """Read a trace into columns; see `service.jobs.ingest.ingest`.

    Attributes:
        received: the file while it is received.
        original: the file once it is kept.
        columns: the folder to make.
        name: file name of the trace.
        mark: mark of an original that other programs can change; see `service.store.outside`.
    """

    received: Path
    original: Path
    columns: Path
    name: str
    mark: str | None = None

    @classmethod
    def result_type(cls) -> type[Summary]:
        """Return the type of the summary."""
        return Summary

    def run(
        self, on_progress: OnProgress = ignore, on_opened: Callable[[GrowingFile], object] = GrowingFile.finish
    ) -> Summary:
        """Read the trace and return its summary.

        Args:
            on_progress: is called now and then.
            on_opened: is called with the opened file, to report how much of it is received; by default, all.

        Raises:
            IngestError: the file can't be read as a trace, or has changed.
            DiskFull: there was no room for the columns.
        """
        from service.jobs.ingest import ingest
        from service.store.outside import check_unchanged
        from service.streaming.codec import READ_SIZE

        source = self._open()
        on_opened(source)
        file: BufferedReader = BufferedReader(source, READ_SIZE)
        with file:
            summary = ingest(file, self.columns, self.name, on_progress)
            if self.mark:
                check_unchanged(source.fileno(), self.mark)
        return summary

    def _open(self) -> GrowingFile:
        """Open the file where it is received, or where it lies once it is kept; raises `OriginalChanged`."""
        from service.store.outside import opened_unchanged

        if self.mark:
            return GrowingFile(opened_unchanged(self.original, self.mark))
        try:
            return GrowingFile(self.received)
        except FileNotFoundError:
            return GrowingFile(self.original)


# -- traces of traces ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DerivedTrace:
    """A trace that a task made.

    Attributes:
        id: its id, which is also the name of the folder of its columns.
        name: its file name.
        selection: the JSON of what it keeps of its parent; None for a merged trace.
        size: bytes of its columns.
        summary: its summary, as the catalog has it.
    """

    id: str
    name: str
    selection: dict[str, Any] | None
    size: int
    summary: dict[str, Any]


@dataclass(frozen=True)
class DerivedTraces:
    """The traces that a task made, in the order of the pieces."""

    traces: list[DerivedTrace]

    @classmethod
    def of(cls, children: "Sequence[Child]") -> "DerivedTraces":
        """Describe what was written."""
        return cls(
            [DerivedTrace(child.id, child.name, child.selection, child.size, child.summary) for child in children]
        )


@dataclass(frozen=True)
class SplitTask(Task[DerivedTraces]):
    """Make a trace of each piece of a trace; see `service.cutting.children.write_children`.

    Attributes:
        source: the trace.
        folder: where to make the folders of the pieces' columns.
        selection: what of the trace to split.
        by: what makes a piece; None for a single one.
        value: size or number of the pieces, where `by` needs it.
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
            SelectionError: no piece has any event, or the trace has nothing of one.
            DiskFull: there was no room.
        """
        from service.cutting.children import write_children
        from service.cutting.pieces import pieces
        from service.store.catalog import new_trace_id

        parts = pieces(self.source.columns, self.source.summary, self.selection, self.by, self.value)
        children = write_children(
            self.source, self.folder, parts, new_id=new_trace_id, on_written=_events_of(on_progress)
        )
        return DerivedTraces.of(children)


@dataclass(frozen=True)
class PlannedPiece:
    """A piece that a split would make.

    Attributes:
        name: file name of its trace.
        selection: the JSON of what it keeps.
        events: number of its events.
        counts: number of its events by phase and category, as a summary has them.
        size: estimate of the bytes of its columns.
    """

    name: str
    selection: dict[str, Any]
    events: int
    counts: dict[str, int]
    size: int


@dataclass(frozen=True)
class SplitPlan:
    """The pieces that a split would make, without empty ones."""

    pieces: list[PlannedPiece]


@dataclass(frozen=True)
class PlanTask(Task[SplitPlan]):
    """Find out what a split would make; the attributes are those of `SplitTask`."""

    source: Source
    selection: Selection
    by: By | None = None
    value: int | None = None

    @classmethod
    def result_type(cls) -> type[SplitPlan]:
        """Return the type of the plan."""
        return SplitPlan

    def run(self, on_progress: OnProgress = ignore) -> SplitPlan:  # noqa: ARG002 - a plan takes too little time
        """Count the events of the pieces.

        Raises:
            SelectionError: no piece has any event, or the trace has nothing of one.
        """
        from service.jobs.split_plan import plan_split

        return SplitPlan(plan_split(self.source, self.selection, self.by, self.value))


@dataclass(frozen=True)
class MergeTask(Task[DerivedTraces]):
    """Make one trace of several; see `service.cutting.merge.merge`.

    Attributes:
        sources: the traces, each with its rank.
        folder: where to make the folder of the columns.
        name: file name of the trace.
        align: how to align the clocks.
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
            CannotMerge: two traces have the same rank, or one has no known rank.
            DiskFull: there was no room.
        """
        from service.cutting.merge import merge
        from service.store.catalog import new_trace_id

        folder = self.folder / new_trace_id()
        child = merge(self.sources, folder, name=self.name, align=self.align, on_written=_events_of(on_progress))
        return DerivedTraces.of([child])


@dataclass(frozen=True)
class OverlayTask(Task[DerivedTraces]):
    """Make a trace with its critical path as a track of its own; see `service.jobs.overlay`.

    Attributes:
        source: the trace.
        folder: where to make the folder of the columns.
        selection: what of the trace.
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
            SelectionError: the trace has nothing of the selection.
            DiskFull: there was no room.
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


# -- documents ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """A part of a trace to write.

    Attributes:
        selection: what to keep.
        summary: the trace's summary.
        source: the trace's identity.
    """

    selection: Selection
    summary: dict[str, Any]
    source: str


@dataclass(frozen=True)
class ExportTask:
    """Write the document of a trace; see `service.store.export.document` and `service.cutting.cut.cut_document`.

    Attributes:
        columns: the folder of the trace's columns.
        pack: whether to compress it as gzip.
        order: order of the events; a cut is always by time.
        redact: whether to hide secrets.
        cut: the part to write; None for all.
    """

    columns: Path
    pack: bool = False
    order: Order = "time"
    redact: bool = False
    cut: Cut | None = None

    def run(self) -> Generator[bytes, None, None]:
        """Yield the document in pieces.

        Raises:
            SelectionError: the trace has nothing of the cut.
            ExportFailed: the columns can't be read.
            DiskFull: there was no room to sort.
        """
        from service.cutting.cut import cut_document
        from service.store.export import document, packed

        if self.cut is None:
            pieces = document(self.columns, order=self.order, redact=self.redact)
        else:
            pieces = cut_document(
                self.columns, self.cut.selection, self.cut.summary, source=self.cut.source, redact=self.redact
            )
        yield from packed(pieces) if self.pack else pieces


@dataclass(frozen=True)
class RenderTask:
    """Write the document that an engine loads; see `service.rendering.document.rendering`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary, as the catalog has it.
        selection: what of the trace; None for all.
        args: which arguments events keep.
    """

    columns: Path
    summary: dict[str, Any]
    selection: Selection | None = None
    args: Args = "all"

    def run(self) -> "Generator[bytes, None, Rendered]":
        """Yield the document in pieces, and return the account of what it holds.

        Raises:
            SelectionError: the trace has nothing of the selection.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.account import Rendered
        from service.rendering.document import rendering

        rendered = Rendered()
        yield from rendering(self.columns, self.summary, rendered, selection=self.selection, args=self.args)
        return rendered


# -- questions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnalysedTrace:
    """A trace that a question is about.

    Attributes:
        columns: the folder of its columns.
        summary: its summary, as the catalog has it.
        selection: what of the trace; None for all.
        name: its file name.
        is_base: whether others are compared with it.
    """

    columns: Path
    summary: dict[str, Any]
    selection: Selection | None = None
    name: str = ""
    is_base: bool = False

    def asked(self) -> "Asked":
        """Return the trace as analyses take it, with whole lists in its summary."""
        from service.analysis.readings import Asked
        from service.store.lists import whole_summary

        summary = whole_summary(self.summary, self.columns)
        return Asked(self.columns, summary, self.selection, self.name, is_base=self.is_base)


@dataclass(frozen=True)
class AnswerTask:
    """Answer a question; see `service.analysis.answers.answered`.

    Attributes:
        question: its name.
        parameters: its parameters, as JSON values.
        traces: the traces that it is about.
        form: ``json``, ``csv`` or ``arrow``.
        table: the table to return as csv or arrow; None for the first.
    """

    question: str
    parameters: dict[str, Any]
    traces: list[AnalysedTrace]
    form: str = "json"
    table: str | None = None

    def run(self, readings: "Readings") -> bytes:
        """Return the answer in its form.

        Raises:
            AnalysisError: the question can't be answered, or none of the traces has the data for it.
            SelectionError: a trace has nothing of its selection.
            ExportFailed: the columns can't be read.
        """
        from service.analysis.answers import answered, parameters_of, question_of

        question = question_of(self.question)
        traces = [trace.asked() for trace in self.traces]
        return answered(question, parameters_of(question, self.parameters), traces, readings).form(
            self.form, self.table
        )


@dataclass(frozen=True)
class ApplicableTask:
    """Find out which questions apply to a trace."""

    trace: AnalysedTrace

    def run(self, readings: "Readings") -> bytes:
        """Return the JSON of all questions, each with the reason why it does not apply, or null."""
        from service.analysis.answers import applicable

        return orjson.dumps(applicable(self.trace.asked(), readings))


@dataclass(frozen=True)
class OpeningTask:
    """Find where the UI opens on a trace; see `service.rendering.opening.opening_of`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary.
        selection: what the UI shows; None for all.
        slice: the slice to select; None for none.
    """

    columns: Path
    summary: dict[str, Any]
    selection: Selection | None = None
    slice: SliceReference | None = None

    def run(self, _: "Readings") -> bytes:
        """Return the JSON of an `Opening`.

        Raises:
            SelectionError: the trace has nothing of the selection, or does not have the slice.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.opening import opening_of

        return orjson.dumps(opening_of(self.columns, self.summary, self.selection, self.slice))


Question = AnswerTask | ApplicableTask | OpeningTask
"""Tasks of the analysis child."""

TASKS: dict[str, type[Any]] = {
    task.__name__: task
    for task in (
        *(IngestTask, SplitTask, PlanTask, MergeTask, OverlayTask),
        *(ExportTask, RenderTask),
        *(AnswerTask, ApplicableTask, OpeningTask),
    )
}
"""The tasks by the names that calls give."""

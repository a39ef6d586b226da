"""The tasks that answer questions."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads only the code of its own tasks

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from service.formats.execution_trace import ExecutionTraceFile
from service.jobs.children.tasks.base import OnProgress, Task, ignore
from service.rendering.view import EngineSlice
from service.store.step_traces import StepTrace
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary

if TYPE_CHECKING:
    from service.analysis.reading_cache import AnalysisInput, ReadingCache


@dataclass(frozen=True)
class AnalysedTrace:
    """A trace that a question is about.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary, as in the catalog.
        selection: the part of the trace to analyse; None for the whole trace.
        name: the trace's file name.
        is_base: whether the other traces are compared with this one.
        execution_traces: files beside it that may have the shapes of its operators, the best first.
        step_traces: traces beside it that may have its steps, if it is a memory snapshot.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    name: str = ""
    is_base: bool = False
    execution_traces: tuple[ExecutionTraceFile, ...] = ()
    step_traces: tuple[StepTrace, ...] = ()

    @property
    def whole_summary(self) -> Summary:
        """The trace's summary with complete lists; raises `ExportFailed` if their file can't be read."""
        from service.store.lists import whole_summary

        return whole_summary(self.summary, self.columns)

    def asked(self) -> "AnalysisInput":
        """Return the trace as the input of an analysis, with the complete lists in its summary."""
        from service.analysis.reading_cache import AnalysisInput

        return AnalysisInput(
            self.columns,
            self.whole_summary,
            self.selection,
            self.name,
            is_base=self.is_base,
            execution_traces=self.execution_traces,
            step_traces=self.step_traces,
        )


@dataclass(frozen=True)
class AnswerTask:
    """Answer a question; see `service.analysis.answers.answer_question`.

    Attributes:
        question: the question's name.
        parameters: the question's parameters, as JSON values.
        traces: the traces that the question is about.
        form: format of the answer: ``json``, ``columns``, ``csv`` or ``arrow``.
        tables: the tables to return; empty for all or, as csv or arrow, for the first.
        limit: maximum number of rows of each table; None for all.
        offset: number of rows of each table to skip.
    """

    question: str
    parameters: dict[str, Any]
    traces: list[AnalysedTrace]
    form: str = "json"
    tables: list[str] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0

    def run(self, readings: "ReadingCache") -> bytes:
        """Return the answer in the given form.

        Raises:
            AnalysisError: the question can't be answered, or none of the traces has the data for it.
            SelectionError: the selection of a trace is invalid or matches no event.
            ExportFailed: the columns can't be read.
        """
        from service.analysis.answers import answer_question
        from service.analysis.catalogue import question_of
        from service.analysis.forms import chosen_tables
        from service.analysis.question import parameters_of
        from service.analysis.table import Page

        question = question_of(self.question)
        parameters = parameters_of(question, self.parameters)
        tables = chosen_tables(question, self.form, self.tables)
        traces = [trace.asked() for trace in self.traces]
        answer = answer_question(question, parameters, traces, readings, tables)
        return answer.form(self.form, tables, Page(self.limit, self.offset))


@dataclass(frozen=True)
class ApplicableTask:
    """Find out which questions apply to a trace."""

    trace: AnalysedTrace

    def run(self, readings: "ReadingCache") -> bytes:
        """Return the JSON of all questions, each with the reason why it does not apply, or null."""
        from service.analysis.answers import applicable

        return orjson.dumps(applicable(self.trace.asked(), readings))


@dataclass(frozen=True)
class MatchTask:
    """Compare an execution trace with a trace; see `service.analysis.facts.execution_traces`.

    Attributes:
        trace: the trace, with one execution trace.
    """

    trace: AnalysedTrace

    def run(self, readings: "ReadingCache") -> bytes:
        """Return the JSON of the `Match`; raises `ExportFailed` if the columns can't be read."""
        from service.analysis.facts.execution_traces import gained_shapes_of
        from service.analysis.facts.scope import scope_of

        with readings.of(self.trace.asked()) as reading, scope_of(reading) as scope:
            [match] = gained_shapes_of(scope).matches
            return orjson.dumps(match)


@dataclass(frozen=True)
class OpeningTask:
    """Find the UI's initial view of a trace; see `service.rendering.initial_view.initial_view`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary.
        selection: the part of the trace that the UI shows; None for the whole trace.
        slice: the slice to select in the UI; None for none.
        counts_events: whether to count the events that the UI shows.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    slice: SliceReference | None = None
    counts_events: bool = False

    def run(self, _: "ReadingCache") -> bytes:
        """Return the JSON of an `InitialView`.

        Raises:
            SelectionError: the selection is invalid or matches no event, or the trace does not have the slice.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.initial_view import initial_view

        view = initial_view(self.columns, self.summary, self.selection, self.slice, counts_events=self.counts_events)
        return orjson.dumps(view)


@dataclass(frozen=True)
class SliceTask:
    """Find the event of a slice; see `service.rendering.slice_details.slice_details`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary.
        selection: the part of the trace that has the slice; None for the whole trace.
        reference: the slice by its position or by its time and name; None if it is `engine_slice`.
        engine_slice: the slice by its properties in the engine; None if it is `reference`.
        alike: number of the engine's slices that share the properties of `engine_slice`.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    reference: SliceReference | None = None
    engine_slice: EngineSlice | None = None
    alike: int = 1

    def run(self, _: "ReadingCache") -> bytes:
        """Return the JSON of the `SliceDetails`.

        Raises:
            SelectionError: the selection is invalid or matches no event, or the trace does not have the slice.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.slice_details import slice_details

        if chosen := self.reference or self.engine_slice:
            return orjson.dumps(slice_details(self.columns, self.summary, self.selection, chosen, self.alike))
        raise ValueError("the task names no slice")


@dataclass(frozen=True)
class PrepareTask(Task[int]):
    """Compute and keep the answers that pages show; see `service.analysis.kept_answers.keep_answers`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary.
        spill: the folder for data that does not fit into memory; the server removes it.
    """

    columns: Path
    summary: Summary
    spill: Path

    @classmethod
    def result_type(cls) -> type[int]:
        """Return the type of the number of answers."""
        return int

    def run(self, _: OnProgress = ignore) -> int:
        """Return the number of questions that have tables."""
        from service.analysis.kept_answers import keep_answers
        from service.analysis.reading_cache import ReadingCache

        with closing(ReadingCache(self.spill)) as readings:
            return keep_answers(AnalysedTrace(self.columns, self.summary).asked(), readings)


Question = AnswerTask | ApplicableTask | MatchTask | OpeningTask | SliceTask
"""Tasks of the analysis child."""

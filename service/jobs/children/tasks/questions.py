"""The tasks that answer questions."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads the code of its own tasks alone

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary

if TYPE_CHECKING:
    from service.analysis.reading_cache import AnalysisInput, ReadingCache


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
    summary: Summary
    selection: Selection | None = None
    name: str = ""
    is_base: bool = False

    def asked(self) -> "AnalysisInput":
        """Return the trace as analyses take it, with whole lists in its summary."""
        from service.analysis.reading_cache import AnalysisInput
        from service.store.lists import whole_summary

        summary = whole_summary(self.summary, self.columns)
        return AnalysisInput(self.columns, summary, self.selection, self.name, is_base=self.is_base)


@dataclass(frozen=True)
class AnswerTask:
    """Answer a question; see `service.analysis.answers.answer_question`.

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

    def run(self, readings: "ReadingCache") -> bytes:
        """Return the answer in its form.

        Raises:
            AnalysisError: the question can't be answered, or none of the traces has the data for it.
            SelectionError: a trace has nothing of its selection.
            ExportFailed: the columns can't be read.
        """
        from service.analysis.answers import answer_question, parameters_of, question_of

        question = question_of(self.question)
        traces = [trace.asked() for trace in self.traces]
        return answer_question(question, parameters_of(question, self.parameters), traces, readings).form(
            self.form, self.table
        )


@dataclass(frozen=True)
class ApplicableTask:
    """Find out which questions apply to a trace."""

    trace: AnalysedTrace

    def run(self, readings: "ReadingCache") -> bytes:
        """Return the JSON of all questions, each with the reason why it does not apply, or null."""
        from service.analysis.answers import applicable

        return orjson.dumps(applicable(self.trace.asked(), readings))


@dataclass(frozen=True)
class OpeningTask:
    """Find where the UI opens on a trace; see `service.rendering.initial_view.initial_view`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary.
        selection: what the UI shows; None for all.
        slice: the slice to select; None for none.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    slice: SliceReference | None = None

    def run(self, _: "ReadingCache") -> bytes:
        """Return the JSON of an `InitialView`.

        Raises:
            SelectionError: the trace has nothing of the selection, or does not have the slice.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.initial_view import initial_view

        return orjson.dumps(initial_view(self.columns, self.summary, self.selection, self.slice))


Question = AnswerTask | ApplicableTask | OpeningTask
"""Tasks of the analysis child."""

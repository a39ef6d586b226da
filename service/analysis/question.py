"""The definition of an analysis: the question that it answers, its tables, and the functions that compute them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import ValidationError

from service.analysis.parameters import Parameters, WorkParameters
from service.analysis.table import Columns, Tables
from service.trace.errors import BadAnalysisRequest
from service.trace.faults import faults_of

if TYPE_CHECKING:
    from service.analysis.facts.scope import Scope  # loads DuckDB, which is not needed to describe questions

__all__ = ["Comparison", "Parameters", "Question", "RankAnswer", "Tables", "WorkParameters", "concatenated"]


@dataclass(frozen=True)
class Question:
    """A question about a trace, and the analysis that answers it.

    Args:
        name: the name of the analysis in URLs.
        short_question: the question in a few words.
        definition: exact description of the computation.
        source: URL of the origin of the definition.
        tables: the columns of each table of the answer, by the table's name; the main table comes first.
        inapplicable_reason: returns the reason why the analysis does not apply to a trace, or None if it applies.
        answer: computes the tables of one rank.
        parameters: the model of the analysis's parameters.
        join_ranks: combines the tables of several ranks; by default, they are concatenated.
        exchange: name of the question whose tables of each rank `join_ranks` needs in addition, if there are several.
        notes_of: returns remarks for readers of the joined tables; None for an analysis without remarks.
        compare_sides: compares the tables of two sides, each of one or more ranks; None for analyses of one side.
        answer_part: computes only the tables with the given names, and those that `notes_of` needs; None if all tables
            are computed together. If a table of `answer` has rows, one of these has.
        cost: relative duration on a large trace. The costliest of the waiting questions starts first, so that the
            last of them ends as early as possible.
        is_large: whether it takes much memory on a large trace, such as by the nesting of all slices. Of each client,
            one such question is answered at a time.
    """

    name: str
    short_question: str
    definition: str
    source: str
    tables: Mapping[str, Columns]
    inapplicable_reason: "Callable[[Scope], str | None]"
    answer: "Callable[[Scope, Any], Tables]"
    parameters: type[Parameters] = Parameters
    join_ranks: Callable[[Sequence[Tables], Any], Tables] | None = None
    exchange: str | None = None
    notes_of: Callable[[Tables], list[str]] | None = None
    compare_sides: "Callable[[Sequence[RankAnswer], Sequence[RankAnswer], Any], Comparison] | None" = None
    answer_part: "Callable[[Scope, Any, Collection[str]], Tables] | None" = None
    cost: int = 0
    is_large: bool = False

    @property
    def min_traces(self) -> int:
        """Minimum number of traces that the analysis takes."""
        return 2 if self.compare_sides else 1

    def reason_against(self, scope: "Scope") -> str | None:
        """Return the reason why the analysis does not apply to a trace, or None; see `inapplicable_reason`."""
        if scope.summary.events.get("kept") == 0:  # a Perfetto trace with nothing but packets of other kinds
            return "This trace has no events."
        return self.inapplicable_reason(scope)


@dataclass(frozen=True)
class RankAnswer:
    """The tables of a rank.

    Args:
        rank: the trace's rank, or None if it has none.
        cycle: the number of the trace's cycle; the cycles of each side are numbered separately.
        name: the trace's name.
        tables: the tables by name.
        ask: runs a further query on the same rank.
    """

    rank: int | None
    cycle: int
    name: str
    tables: Tables
    ask: "Callable[[Callable[[Scope], pa.Table]], pa.Table]"


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of two sides.

    Args:
        tables: the tables by name.
        notes: remarks for readers of the tables.
        skipped: ranks that were left out, each with the reason.
    """

    tables: Tables
    notes: list[str]
    skipped: list[tuple[RankAnswer, str]]


def concatenated(answers: Sequence[Tables]) -> Tables:
    """Concatenate the tables that have the same name."""
    return {name: pa.concat_tables([tables[name] for tables in answers]) for name in answers[0]}


def parameters_of(question: Question, values: Mapping[str, Any]) -> Parameters:
    """Validate the values of parameters.

    Raises:
        BadAnalysisRequest: a parameter is unknown or has an invalid value.
    """
    try:
        return question.parameters.model_validate(values, strict=False)
    except ValidationError as error:
        raise BadAnalysisRequest(
            f"{question.name} does not accept these parameters: {faults_of(error)}.",
            known=[*question.parameters.model_fields],
        ) from error

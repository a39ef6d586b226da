"""The definition of an analysis: its question, its tables, and the functions that compute them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from service.analysis.parameters import Parameters, WorkParameters
from service.analysis.table import Columns, Tables

if TYPE_CHECKING:
    from service.analysis.facts.scope import Scope  # loads DuckDB, which descriptions of questions do without

__all__ = ["Comparison", "Parameters", "Question", "RankAnswer", "Tables", "WorkParameters", "concatenated"]


@dataclass(frozen=True)
class Question:
    """An analysis of a trace.

    Args:
        name: of the analysis in addresses.
        answers: the question in a few words.
        definition: exact description of the computation.
        source: URL of the origin of the definition.
        tables: columns of each table of the answer; the first table is the main one.
        missing: returns the reason why it does not apply to a trace, or None if it applies.
        answer: computes the tables of one rank.
        parameters: model of its parameters.
        joined: combines the tables of several ranks; by default it concatenates them.
        compared: compares the tables of two sides, each with one or more ranks; None if it does not compare.
        cost: relative duration on a large trace. Of the questions that wait, the costliest begins first, so that all
            of them end soonest.
    """

    name: str
    answers: str
    definition: str
    source: str
    tables: Mapping[str, Columns]
    missing: "Callable[[Scope], str | None]"
    answer: "Callable[[Scope, Any], Tables]"
    parameters: type[Parameters] = Parameters
    joined: Callable[[Sequence[Tables], Any], Tables] | None = None
    compared: "Callable[[Sequence[RankAnswer], Sequence[RankAnswer], Any], Comparison] | None" = None
    cost: int = 0

    @property
    def traces(self) -> int:
        """Least number of traces."""
        return 2 if self.compared else 1


@dataclass(frozen=True)
class RankAnswer:
    """The tables of a rank.

    Args:
        rank: of the trace, or None if it has none.
        cycle: of the trace among the traces of its side.
        name: of the trace.
        tables: by name.
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
        tables: by name.
        notes: remarks for readers of the tables.
        skipped: ranks that were left out, each with the reason.
    """

    tables: Tables
    notes: list[str]
    skipped: list[tuple[RankAnswer, str]]


def concatenated(answers: Sequence[Tables]) -> Tables:
    """Concatenate the tables of each name."""
    return {name: pa.concat_tables([tables[name] for tables in answers]) for name in answers[0]}

"""What a question is: what it answers, by which definition, with which tables, and how."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from service.analysis.parameters import Parameters, WorkParameters
from service.analysis.table import Columns, Tables

if TYPE_CHECKING:
    from service.analysis.facts.scope import Scope  # which loads DuckDB; who only describes questions need not

__all__ = ["Comparison", "Parameters", "Question", "RankAnswer", "Tables", "WorkParameters", "concatenated"]


@dataclass(frozen=True)
class Question:
    """A question to a trace.

    Args:
        name: as it stands in addresses.
        answers: the question itself, in a few words.
        definition: what exactly is computed.
        source: where the definition comes from, an address.
        tables: the answer's tables and their columns; the first is the main one.
        missing: why it can't be asked of a trace, or None where it can.
        answer: the tables of one rank.
        parameters: what may be chosen.
        joined: the answer for several ranks from those of each; by default all rows, rank by rank.
        compared: the answer for two sides from those of the ranks of each; None where it is not about two sides.
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

    @property
    def traces(self) -> int:
        """How many traces it takes at least."""
        return 2 if self.compared else 1


@dataclass(frozen=True)
class RankAnswer:
    """The tables of a rank, and of which one.

    Args:
        rank: of the trace, None where it does not tell one.
        cycle: of the trace among those of its side.
        name: of the trace.
        tables: what the question found.
        ask: asks something further of the same rank.
    """

    rank: int | None
    cycle: int
    name: str
    tables: Tables
    ask: "Callable[[Callable[[Scope], pa.Table]], pa.Table]"


@dataclass(frozen=True)
class Comparison:
    """The tables that compare two sides, what a reader has to know of them, and the ranks that were left out."""

    tables: Tables
    notes: list[str]
    skipped: list[tuple[RankAnswer, str]]


def concatenated(answers: Sequence[Tables]) -> Tables:
    """All rows of each table."""
    return {name: pa.concat_tables([one[name] for one in answers]) for name in answers[0]}

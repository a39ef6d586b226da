"""The content of a report, which `service.report.html` and `service.report.markdown` write."""

from collections.abc import Sequence
from dataclasses import dataclass

Cell = int | float | str | None
"""A value of a table; None if it is unknown."""

CODE = "code"
"""The unit of columns of names from the trace, such as those of kernels."""


@dataclass(frozen=True)
class Fact:
    """A labelled value; `unit` is that of a number."""

    label: str
    value: Cell
    unit: str | None = None


@dataclass(frozen=True)
class Sentence:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Unknown:
    """The reason why an analysis does not apply."""

    reason: str


@dataclass(frozen=True)
class Series:
    """A part of each bar: the kind of work, which has a color, and its name."""

    kind: str
    label: str


@dataclass(frozen=True)
class Bar:
    """A bar: its label, and the length of each of its parts in ns, in the order of the series."""

    label: str
    lengths: Sequence[int]


@dataclass(frozen=True)
class Bars:
    """Stacked bars of one scale.

    Attributes:
        title: what they show.
        series: the parts of each bar.
        bars: the bars, from the top.
        left_out: the number of further bars that are not shown.
    """

    title: str
    series: Sequence[Series]
    bars: Sequence[Bar]
    left_out: int = 0


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and the unit of its numbers, or `CODE`."""

    title: str
    unit: str | None = None


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what its rows are.
        columns: its columns.
        rows: its first rows, the most important first.
        left_out: the number of further rows that are not shown.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    left_out: int = 0


@dataclass(frozen=True)
class Advice:
    """What to try, the reason, and the figures on which it rests."""

    advice: str
    reason: str
    figures: Sequence[Fact]


Block = Sentence | Unknown | Bars | Table | Advice


@dataclass(frozen=True)
class Section:
    """A part of the report that answers a question.

    Attributes:
        title: its heading.
        blocks: its content.
        definition: the definition of the analysis that it shows.
        call: how to get all figures of the analysis.
    """

    title: str
    blocks: Sequence[Block]
    definition: str
    call: str


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        title: the name of the trace or the run.
        facts: what was profiled.
        problems: defects of the files.
        sections: its parts.
        version: the version of the program that wrote it.
    """

    title: str
    facts: Sequence[Fact]
    problems: Sequence[str]
    sections: Sequence[Section]
    version: str

"""The report on a load: the events in the trace's document, compared with those in the engine."""

from dataclasses import dataclass

NO_REPORT = "The engine has the original as it is: its rows are not those of the trace's columns."
"""The reason why there is no report on the load of an original."""


@dataclass(frozen=True)
class EventCount:
    """The expected and the actual number of events of one kind in the engine."""

    expected: int
    engine: int

    @property
    def missing(self) -> int:
        """Events that the engine lacks."""
        return max(self.expected - self.engine, 0)


@dataclass(frozen=True)
class LoadNote:
    """Events that are shown differently from the trace, or not at all.

    Attributes:
        code: stable identifier for programs.
        count: number of these events.
        detail: the difference in words.
    """

    code: str
    count: int
    detail: str


@dataclass(frozen=True)
class ImporterIssue:
    """A problem that the engine's importer reports.

    Attributes:
        name: the importer's name for the problem.
        value: how often it occurred.
        severity: the importer's rating.
        detail: its meaning in words.
    """

    name: str
    value: int
    severity: str
    detail: str


@dataclass(frozen=True)
class LoadReport:
    """The report on how completely an engine shows a trace. The API serves these fields as they are.

    Attributes:
        complete: whether nothing is missing.
        events: events that can be shown.
        shown: events that the engine shows.
        slices: slices in the document and in the engine.
        flows: flow arrows in the document and in the engine.
        counters: values of counters in the document and in the engine.
        base_ns: the time on the trace's own clock at which the engine's time is 0.
        lanes: number of lanes beyond the first of each track.
        notes: events that are shown differently, or not at all.
        stats: problems that the engine's importer reports.
    """

    complete: bool
    events: int
    shown: int
    slices: EventCount
    flows: EventCount
    counters: EventCount
    base_ns: int
    lanes: int
    notes: list[LoadNote]
    stats: list[ImporterIssue]

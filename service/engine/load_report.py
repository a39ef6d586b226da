"""The report on a load: what the trace's document held, compared with what the engine has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EventCount:
    """How many events of a kind the engine should have, and how many it has."""

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
        code: stable, for programs.
        count: number of these events.
        detail: the difference in words.
    """

    code: str
    count: int
    detail: str


@dataclass(frozen=True)
class ImporterIssue:
    """A complaint of the engine's importer.

    Attributes:
        name: the importer's name for it.
        value: how often it occurred.
        severity: as the importer rates it.
        detail: its meaning in words.
    """

    name: str
    value: int
    severity: str
    detail: str


@dataclass(frozen=True)
class LoadReport:
    """What an engine shows of a trace. The API serves these fields as they are.

    Attributes:
        complete: whether nothing is missing.
        events: events that can be shown.
        shown: events that the engine shows.
        slices: slices in the document and in the engine.
        flows: flow arrows, likewise.
        counters: values of counters, likewise.
        base_ns: the time in the trace's own clock that is the engine's 0.
        lanes: lanes beyond the first of each track.
        notes: events that are shown differently, or not at all.
        stats: complaints of the engine's importer.
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

"""Sources of derived traces."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from service.cutting.envelope import whole_id
from service.store.export import envelope
from service.store.lists import whole_summary
from service.trace.summary import Summary


@dataclass(frozen=True)
class Source:
    """A trace from which others are derived.

    Attributes:
        columns: folder of the trace's columns.
        name: the trace's name.
        summary: the trace's summary, as in the catalog.
        source: identity of the trace; see `Trace.identity`.
        rank: rank to use in a merge instead of the trace's own.
    """

    columns: Path
    name: str
    summary: Summary
    source: str
    rank: int | None = None

    @cached_property
    def envelope(self) -> bytes:
        """The text of the trace's document around the events."""
        return envelope(self.columns, redact=False)

    def with_whole_lists(self) -> "Source":
        """Return the same trace with the complete lists of its summary."""
        return replace(self, summary=whole_summary(self.summary, self.columns))

    @property
    def whole_id(self) -> str | None:
        """The identity of the whole trace that this trace is a part of, else None."""
        return whole_id(self.envelope)

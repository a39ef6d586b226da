"""A trace that others are made of."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from service.cutting.envelope import whole_of
from service.store.export import envelope
from service.store.lists import whole_summary


@dataclass(frozen=True)
class Source:
    """A trace: its columns, its name and summary, what tells it from all others, and the rank to give it in a merge."""

    columns: Path
    name: str
    summary: dict[str, Any]
    source: str
    rank: int | None = None

    @cached_property
    def envelope(self) -> bytes:
        """What stands around its events."""
        return envelope(self.columns, redact=False)

    def with_whole_lists(self) -> "Source":
        """The same trace, whose summary has all entries of its lists."""
        return replace(self, summary=dict(whole_summary(self.summary, self.columns)))

    @property
    def whole(self) -> str | None:
        """What tells the trace of which it is a part, if it is one."""
        return whole_of(self.envelope)

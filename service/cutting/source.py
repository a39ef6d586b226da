"""A trace that others are made of."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from service.cutting.envelope import whole_of
from service.store.export import envelope


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

    @property
    def whole(self) -> str | None:
        """What tells the trace of which it is a part, if it is one."""
        return whole_of(self.envelope)

"""The readings of traces that are being asked, and were asked a short while ago."""

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from service.analysis.facts.rank_database import RankDatabase
from service.trace.selection import Selection

THREADS = 2
"""That work on a reading."""

EVENTS_MAX = 16 << 20
"""Of all traces whose readings are kept; what is found out about them takes about a GB."""
KEPT_MAX = 64
"""Readings that are kept: each has a database."""


@dataclass(frozen=True)
class Asked:
    """A trace that is asked.

    Args:
        columns: the folder of them.
        summary: as the catalog has it.
        selection: what of the trace.
        name: of the trace, if that matters.
        is_base: whether it is of the base that others are compared with.
    """

    columns: Path
    summary: Mapping[str, Any]
    selection: Selection | None = None
    name: str = ""
    is_base: bool = False

    @property
    def key(self) -> bytes:
        """The same for the same."""
        selection = None if self.selection is None else self.selection.as_dict()
        return orjson.dumps([str(self.columns), self.summary["rank"], selection], option=orjson.OPT_SORT_KEYS)


class Readings:
    """Readings by what is asked; those that nobody has asked for longest give way to others.

    Args:
        spill: the folder for what does not fit into memory.
        events_max: how many events the traces may have whose readings are kept.
    """

    def __init__(self, spill: Path, events_max: int = EVENTS_MAX) -> None:
        self._spill = spill
        self._events_max = events_max
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._kept: dict[bytes, RankDatabase] = {}
        self._users: dict[bytes, int] = {}

    @contextmanager
    def of(self, asked: Asked) -> Iterator[RankDatabase]:
        """The reading of a trace, which others may use at the same time."""
        key = asked.key
        with self._lock:
            reading = self._kept.pop(key, None) or RankDatabase(
                asked.columns,
                asked.summary,
                asked.selection,
                spill=self._spill / str(next(self._numbers)),  # databases name their files alike
                threads=THREADS,
            )
            self._kept[key] = reading  # the last one: it is the newest
            self._users[key] = self._users.get(key, 0) + 1
        try:
            yield reading
        finally:
            with self._lock:
                self._users[key] -= 1
                self._make_room()

    def _make_room(self) -> None:
        events = sum(one.events for one in self._kept.values())
        for key, reading in [*self._kept.items()]:
            if (events > self._events_max or len(self._kept) > KEPT_MAX) and not self._users[key]:
                events -= reading.events
                del self._kept[key], self._users[key]
                reading.close()

    def close(self) -> None:
        """Forget all of them."""
        with self._lock:
            for reading in self._kept.values():
                reading.close()
            self._kept.clear()

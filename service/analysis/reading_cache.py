"""A cache of readings, shared by concurrent questions. A reading is the `RankDatabase` of a trace or a selection."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from service.analysis.facts.rank_database import RankDatabase
from service.formats.execution_trace import ExecutionTraceFile
from service.store.step_traces import StepTrace
from service.streaming.processors import processor_count
from service.trace.selection import Selection
from service.trace.summary import Summary

THREADS = 2
"""Maximum number of threads of each reading's database."""

EVENTS_MAX = 16 << 20
"""Maximum number of events of all cached readings; the data derived from so many events takes about 1 GB."""
KEPT_MAX = 64
"""Maximum number of cached readings, each of which holds a database."""


@dataclass(frozen=True)
class AnalysisInput:
    """A trace, or a selection of it, as the input of an analysis.

    Args:
        columns: folder of the trace's columns.
        summary: summary of the trace, as in the catalog.
        selection: selection of the trace's events; None for the whole trace.
        name: name of the trace, for messages.
        is_base: True if the trace belongs to the base of a comparison.
        execution_traces: files that may have the shapes of its operators, the best first.
        step_traces: traces that may have its steps, if it is a memory snapshot.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    name: str = ""
    is_base: bool = False
    execution_traces: tuple[ExecutionTraceFile, ...] = ()
    step_traces: tuple[StepTrace, ...] = ()

    @property
    def key(self) -> bytes:
        """Key of the reading; equal inputs have equal keys."""
        selection = None if self.selection is None else self.selection.as_dict()
        beside = [[str(file.path) for file in self.execution_traces], [str(one.columns) for one in self.step_traces]]
        return orjson.dumps([str(self.columns), self.summary.rank, selection, beside], option=orjson.OPT_SORT_KEYS)


class ReadingCache:
    """Readings by input. Beyond the limits, the least recently used readings that are not in use are closed.

    Args:
        spill: folder for data that does not fit in memory.
        events_max: maximum number of events of all cached readings.
    """

    def __init__(self, spill: Path, events_max: int = EVENTS_MAX) -> None:
        self._spill = spill
        self._events_max = events_max
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._kept: dict[bytes, RankDatabase] = {}
        self._users: dict[bytes, int] = {}

    @contextmanager
    def of(self, trace: AnalysisInput) -> Iterator[RankDatabase]:
        """Lend the reading of a trace; several threads may use it at the same time."""
        key = trace.key
        with self._lock:
            reading = self._kept.pop(key, None) or RankDatabase(
                trace.columns,
                trace.summary,
                trace.selection,
                spill=self._spill / str(next(self._numbers)),  # each database gives its files the same names
                threads=min(THREADS, processor_count()),
                execution_traces=trace.execution_traces,
                step_traces=trace.step_traces,
            )
            self._kept[key] = reading  # at the end, as the most recent
            self._users[key] = self._users.get(key, 0) + 1
        try:
            yield reading
        finally:
            with self._lock:
                self._users[key] -= 1
                self._make_room()

    def _make_room(self) -> None:
        events = sum(reading.events for reading in self._kept.values())
        for key, reading in [*self._kept.items()]:
            if (events > self._events_max or len(self._kept) > KEPT_MAX) and not self._users[key]:
                events -= reading.events
                del self._kept[key], self._users[key]
                reading.close()

    def close(self) -> None:
        """Close all readings."""
        with self._lock:
            for reading in self._kept.values():
                reading.close()
            self._kept.clear()

"""The time from which an engine counts, so that its doubles hold every nanosecond."""

import numpy as np

from service.store.parts import UNTIMED, Ints, Parts
from service.trace.selection import ALWAYS

SPAN_MAX = 1 << 52
"""Nanoseconds that are exact, 52 days: measured on trace_processor v54, which reads times as doubles of µs."""


def engine_times(starts: Ints, lasts: Ints, base_ns: int) -> tuple[Ints, Ints]:
    """The engine's start and duration of events, in ns; what lies beyond its range is moved to the edge.

    Args:
        starts: of the events, in the trace's own clock.
        lasts: their durations.
        base_ns: the time in the trace's own clock that is the engine's 0.
    """
    early, late = starts < base_ns, starts > min(base_ns + SPAN_MAX, ALWAYS[1])
    begins = np.where(early, 0, np.where(late, SPAN_MAX, starts - base_ns))
    return begins, np.clip(lasts, 0, SPAN_MAX)


def base_of(parts: Parts) -> int:
    """When the first event begins; where not all fit into `SPAN_MAX`, the first of the most that do."""
    spans = [span for index in range(len(parts)) if (span := parts.span(index, "ts_ns"))]
    if not spans:
        return 0
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    if last - first <= SPAN_MAX:
        return first
    starts = np.concatenate([part.starts for part in parts.read(["ts_ns"])])
    starts = np.sort(starts[starts != UNTIMED])
    ends = np.searchsorted(starts, starts + np.minimum(SPAN_MAX, np.iinfo(np.int64).max - starts), "right")
    return int(starts[np.argmax(ends - np.arange(len(starts)))])

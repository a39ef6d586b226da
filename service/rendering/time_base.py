"""The time on a trace's own clock at which the engine's time is 0, chosen so that the engine's doubles are exact."""

import numpy as np

from service.store.parts import UNTIMED, Ints, Parts
from service.trace.selection import ALWAYS

SPAN_MAX = 1 << 52
"""Span in ns, 52 days, within which times are exact: trace_processor v54 reads times as doubles of µs."""


def engine_times(starts: Ints, durations: Ints, base_ns: int) -> tuple[Ints, Ints]:
    """Return the starts and durations of events in the engine, in ns; times beyond the engine's range move to its edge.

    Args:
        starts: the start of each event on the trace's own clock, in ns.
        durations: the duration of each event, in ns.
        base_ns: the time on the trace's own clock at which the engine's time is 0.
    """
    begins: Ints = np.clip(starts, base_ns, min(base_ns + SPAN_MAX, ALWAYS[1])) - base_ns
    return begins, np.clip(durations, 0, SPAN_MAX)


def time_base(parts: Parts) -> int:
    """Return the start of the first event, or 0 if no event has a time.

    If the events do not all fit in `SPAN_MAX`, return the start of the span of that length with the most events.
    """
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

"""Causes of a rank's late start of a collective: the activity of its host and device in that time."""

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import LOADING
from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters

BEFORE, LOADS, SYNCHRONIZES, HOST, COMPUTES, COMMUNICATES, DELAY, UNKNOWN = CAUSES = (
    "before the trace", "data loading", "synchronizing", "host", "compute", "communication", "launch delay", "unknown",
)  # fmt: skip
"""Causes of a late start.

Before the rank launches the collective: its trace has not begun; its host loads data, waits for the device, or does
something else. After the launch: its device computes or copies, communicates, or is idle. If the launch is unknown, so
is the cause.
"""

DELAY_INTERVALS = pa.schema({"cause": pa.string(), "start_ns": pa.int64(), "end_ns": pa.int64()})
"""Schema of the intervals in which each cause applies."""

_WORK = "SELECT start_ns, end_ns, type = 'COMM' AS communicates FROM work ORDER BY start_ns"


def delay_intervals(scope: Scope, communications: pa.Table) -> pa.Table:
    """Return the intervals of a rank's causes of delay.

    These are the times at which its host loads data or synchronizes, and the work of its device between the launch and
    the start of a communication.
    """
    slices = scope.slices()
    scope.define_work(WorkParameters())
    launched = communications.filter(communications["launch_ns"].is_valid())
    launches = launched["launch_ns"].to_numpy()
    queued = Coverage(launches, np.maximum(launched["start_ns"].to_numpy(), launches))
    covers = []
    for cause, pattern in ((LOADS, LOADING), (SYNCHRONIZES, "Synchronize")):
        chosen = slices.host_named(re.compile(pattern).search)
        covers.append((cause, Coverage(slices.host.starts[chosen], slices.host.ends[chosen])))
    work = scope.table(_WORK)
    starts, ends, communicates = (work[name].to_numpy() for name in work.column_names)
    is_queued = queued.between(starts, ends) > 0
    for cause, chosen in ((COMPUTES, is_queued & ~communicates), (COMMUNICATES, is_queued & communicates)):
        covers.append((cause, Coverage(starts[chosen], ends[chosen])))
    tables = [
        pa.table(
            {"cause": [cause] * len(cover.starts), "start_ns": cover.starts, "end_ns": cover.ends}, DELAY_INTERVALS
        )
        for cause, cover in covers
    ]
    return pa.concat_tables(tables)


class DelaySplitter:
    """Splits the delays of a rank by cause.

    Args:
        intervals: intervals of causes, from `delay_intervals`.
        first_ns: start of the rank's trace.
    """

    def __init__(self, intervals: pa.Table, first_ns: int) -> None:
        self._first_ns = first_ns
        causes = intervals["cause"].to_numpy(zero_copy_only=False)
        starts, ends = intervals["start_ns"].to_numpy(), intervals["end_ns"].to_numpy()
        self._covers = {cause: Coverage(starts[causes == cause], ends[causes == cause]) for cause in CAUSES}

    def split(self, expected: Ints, launches: Ints, launched: Ints, starts: Ints) -> Mapping[str, Ints]:
        """Split the delay of each communication by cause; the parts add up to the time from `expected` to its start.

        Args:
            expected: time of each communication's start without delay, by the clock of this rank.
            launches: time of each launch.
            launched: whether the launch is known.
            starts: start of each communication.
        """
        host_ends = np.clip(launches, expected, starts)
        begins = np.clip(self._first_ns, expected, host_ends)
        on_host = self._split_windows(begins, host_ends, (LOADS, SYNCHRONIZES), HOST)
        on_device = self._split_windows(host_ends, starts, (COMPUTES, COMMUNICATES), DELAY)
        parts = {BEFORE: begins - expected, **on_host, **on_device}
        launched_parts = {cause: np.where(launched, length, 0) for cause, length in parts.items()}
        return {**launched_parts, UNKNOWN: np.where(launched, 0, starts - expected)}

    def _split_windows(self, starts: Ints, ends: Ints, causes: tuple[str, ...], rest: str) -> dict[str, Ints]:
        """Split windows by cause.

        Time that several causes cover counts for the first of them, and time that none covers for `rest`.
        """
        parts, union, covered = {}, Coverage.none(), np.zeros(len(starts), np.int64)
        for cause in causes:
            union = union.with_more(self._covers[cause])
            covered_so_far = union.between(starts, ends)
            parts[cause] = covered_so_far - covered
            covered = covered_so_far
        return {**parts, rest: ends - starts - covered}

"""Causes of a rank's late start of a collective: the activity of its host and device during the delay."""

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import LOADING
from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.scope import Scope

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


def delay_intervals(scope: Scope, communications: pa.Table) -> pa.Table:
    """Return the intervals in which each cause can delay a rank, as a table with the schema `DELAY_INTERVALS`.

    On the host, these are the times at which it loads data or synchronizes. On the device, these are the times of work
    that overlaps the time between the launch and the start of a communication.

    Args:
        scope: the rank.
        communications: the rank's communications, with `start_ns` and `launch_ns`; the latter is null if unknown.
    """
    from service.analysis.facts.device_events import COMM, TIMES, TYPED, device_events  # noqa: PLC0415 - loads numba

    launched_communications = communications.filter(communications["launch_ns"].is_valid())
    launches = launched_communications["launch_ns"].to_numpy()
    communication_starts = launched_communications["start_ns"].to_numpy()
    launch_to_start = Coverage(launches, np.maximum(communication_starts, launches))
    coverages = [*_on_host(scope).items()]
    work = device_events(scope, (*TIMES, *TYPED))
    starts, ends, communicates = work.starts, work.ends, work.types() == COMM
    delays_start = launch_to_start.between(starts, ends) > 0
    for cause, chosen in ((COMPUTES, delays_start & ~communicates), (COMMUNICATES, delays_start & communicates)):
        coverages.append((cause, Coverage(starts[chosen], ends[chosen])))
    tables = [
        pa.table(
            {"cause": [cause] * len(coverage.starts), "start_ns": coverage.starts, "end_ns": coverage.ends},
            DELAY_INTERVALS,
        )
        for cause, coverage in coverages
    ]
    return pa.concat_tables(tables)


def _on_host(scope: Scope) -> dict[str, Coverage]:
    """Return when the host loads data, and when it synchronizes."""
    from service.analysis.facts.slices import BY_NAME  # noqa: PLC0415 - loads numba, which the server does without

    slices, causes = scope.slices(), (LOADS, SYNCHRONIZES)
    groups = [0 if re.search(LOADING, name) else 1 if "Synchronize" in name else -1 for name in slices.names]
    covers = slices.unions([BY_NAME] * len(slices.categories), [*groups, -1], len(causes))
    return dict(zip(causes, covers, strict=True))


class DelaySplitter:
    """Splits the delays of a rank by cause.

    Args:
        intervals: intervals of causes, from `delay_intervals`.
        first_ns: start of the rank's trace; the smallest 64-bit integer if it is unknown.
    """

    def __init__(self, intervals: pa.Table, first_ns: int) -> None:
        self._first_ns = first_ns
        causes = intervals["cause"].to_numpy(zero_copy_only=False)
        starts, ends = intervals["start_ns"].to_numpy(), intervals["end_ns"].to_numpy()
        self._coverages = {cause: Coverage(starts[causes == cause], ends[causes == cause]) for cause in CAUSES}

    def split(self, expected: Ints, launches: Ints, launch_known: Flags, starts: Ints) -> Mapping[str, Ints]:
        """Split the delay of each communication by cause.

        Args:
            expected: time of each communication's start without delay, in ns by the clock of this rank.
            launches: time of each launch, in ns; any number if it is unknown.
            launch_known: whether the time of each launch is known.
            starts: start of each communication, in ns.

        Returns:
            The length of each cause's part of each delay, in ns. The parts add up to the time from `expected` to the
            start.
        """
        host_ends = np.clip(launches, expected, starts)
        host_starts = np.clip(self._first_ns, expected, host_ends)
        on_host = self._split_windows(host_starts, host_ends, (LOADS, SYNCHRONIZES), HOST)
        on_device = self._split_windows(host_ends, starts, (COMPUTES, COMMUNICATES), DELAY)
        parts = {BEFORE: host_starts - expected, **on_host, **on_device}
        known_parts = {cause: np.where(launch_known, length, 0) for cause, length in parts.items()}
        return {**known_parts, UNKNOWN: np.where(launch_known, 0, starts - expected)}

    def _split_windows(self, starts: Ints, ends: Ints, causes: tuple[str, ...], other: str) -> dict[str, Ints]:
        """Split windows by cause.

        Time that several causes cover counts for the first of them. Time that no cause covers counts for `other`.
        """
        parts, union, covered = {}, Coverage.none(), np.zeros(len(starts), np.int64)
        for cause in causes:
            union = union.with_more(self._coverages[cause])
            covered_so_far = union.between(starts, ends)
            parts[cause] = covered_so_far - covered
            covered = covered_so_far
        return {**parts, other: ends - starts - covered}

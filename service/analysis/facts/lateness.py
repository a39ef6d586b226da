"""Why a rank starts a collective after others: what its host and its device do in that time."""

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

Until the rank launches the collective: its trace has not begun; its host loads data, waits for the device, or does
something else. After the launch: the device computes or copies, communicates, or does nothing. Of an unknown launch
nothing can be told.
"""

COVERS = pa.schema({"cause": pa.string(), "start_ns": pa.int64(), "end_ns": pa.int64()})
"""Times at which a cause applies."""

_WORK = "SELECT start_ns, end_ns FROM work WHERE {} ORDER BY start_ns"


def covers_of(scope: Scope, communications: pa.Table) -> pa.Table:
    """When a rank loads data or synchronizes; and what its device does between a launch and its communication."""
    slices = scope.slices()
    scope.work(WorkParameters())
    known = communications.filter(communications["launch_ns"].is_valid())
    launches = known["launch_ns"].to_numpy()
    queued = Coverage(launches, np.maximum(known["start_ns"].to_numpy(), launches))
    found = []
    for cause, pattern in ((LOADS, LOADING), (SYNCHRONIZES, "Synchronize")):
        chosen = slices.host_named(re.compile(pattern).search)
        found.append((cause, Coverage(slices.host.starts[chosen], slices.host.ends[chosen])))
    for cause, condition in ((COMPUTES, "type <> 'COMM'"), (COMMUNICATES, "type = 'COMM'")):
        work = scope.table(_WORK.format(condition))
        starts, ends = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
        chosen = queued.between(starts, ends) > 0
        found.append((cause, Coverage(starts[chosen], ends[chosen])))
    tables = [
        pa.table({"cause": [cause] * len(cover.starts), "start_ns": cover.starts, "end_ns": cover.ends}, COVERS)
        for cause, cover in found
    ]
    return pa.concat_tables(tables)


class LateRank:
    """What may make a rank late.

    Args:
        covers: as `covers_of` found them.
        first_ns: when its trace begins.
    """

    def __init__(self, covers: pa.Table, first_ns: int) -> None:
        self._first_ns = first_ns
        causes = covers["cause"].to_numpy(zero_copy_only=False)
        starts, ends = covers["start_ns"].to_numpy(), covers["end_ns"].to_numpy()
        self._covers = {cause: Coverage(starts[causes == cause], ends[causes == cause]) for cause in CAUSES}

    def parts(self, expected: Ints, launches: Ints, launched: Ints, starts: Ints) -> Mapping[str, Ints]:
        """How long each cause delays each communication; all together they are the time from `expected` to the start.

        Args:
            expected: when each would have started in time, by the clock of this rank.
            launches: when each is launched.
            launched: whether that is known.
            starts: when each starts.
        """
        host_ends = np.clip(launches, expected, starts)
        begins = np.clip(self._first_ns, expected, host_ends)
        on_host = self._split(begins, host_ends, (LOADS, SYNCHRONIZES), HOST)
        on_device = self._split(host_ends, starts, (COMPUTES, COMMUNICATES), DELAY)
        parts = {BEFORE: begins - expected, **on_host, **on_device}
        known = {cause: np.where(launched, length, 0) for cause, length in parts.items()}
        return {**known, UNKNOWN: np.where(launched, 0, starts - expected)}

    def _split(self, starts: Ints, ends: Ints, causes: tuple[str, ...], rest: str) -> dict[str, Ints]:
        """How much of each window each cause covers that no former one does, and how much none does."""
        parts, so_far, before = {}, Coverage.none(), np.zeros(len(starts), np.int64)
        for cause in causes:
            so_far = so_far.with_more(self._covers[cause])
            now = so_far.between(starts, ends)
            parts[cause] = now - before
            before = now
        return {**parts, rest: ends - starts - before}

"""Work on devices, with the slices of the host to which it belongs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.analysis.facts.device_events import TIMES, device_events
from service.analysis.facts.host import Host, durations_in_doubles
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import NONE, Indices, first_matches, require_countable
from service.store.database import END

_RUNTIME = "Runtime|.*_runtime"
_CALLS = f"""
SELECT greatest(coalesce(external_id, 0), 0) AS ids, coalesce(correlation, 0) AS correlations, ts_ns AS starts,
    {END} AS ends
FROM events WHERE ph = 'X' AND ts_ns NOTNULL AND {{is_runtime}} ORDER BY starts, ends DESC, row
"""
_COLUMNS = ("external_id", "correlation", "name", "launch", "operator")

MatrixCoreUse = Callable[[str], bool | None]
"""Predicate on a kernel's name: whether the kernel uses matrix cores, None if unknown."""


@dataclass(frozen=True)
class DeviceWork:
    """Work on devices.

    Args:
        ids: External id of each piece of work; 0 for none.
        correlations: correlation id of each piece of work; 0 for none.
        starts: start of each piece of work, in ns.
        durations: duration of each piece of work, in ns.
        launches: row of the launch of each piece of work, or -1.
        operators: row of the operator of each piece of work, or -1.
        on_cores: 1 for work that uses matrix cores, 0 for work that does not, -1 if unknown.
        calls: ``ids``, ``correlations``, ``starts`` and ``durations`` of runtime calls, for the TensorBoard plugin's
            numbers; None if not requested.
    """

    ids: Ints
    correlations: Ints
    starts: Ints
    durations: Ints
    launches: Ints
    operators: Ints
    on_cores: Any
    calls: dict[str, Ints] | None

    def __post_init__(self) -> None:
        require_countable(self.durations.sum(dtype=np.float64), "The time of work on devices")

    def slices(self, host: Host) -> Indices:
        """Return the slice to which each piece of work belongs: its operator, else its launch, else `NONE`."""
        return host.indices_of(np.where(self.operators < 0, self.launches, self.operators))

    def slices_by_external_id(self, host: Host) -> Indices:
        """Return the slice of each piece of work as the TensorBoard plugin does: by External id, if launched."""
        calls = self.calls or dict.fromkeys(("ids", "correlations"), np.empty(0, np.int64))
        call = first_matches(calls["correlations"], self.correlations)
        ids = np.where(self.ids == 0, np.append(calls["ids"], 0)[call], self.ids)
        return first_matches(host.external_ids, np.where(call < 0, 0, ids))

    def with_double_times(self) -> "DeviceWork":
        """Round durations as if times were doubles of microseconds."""
        calls = self.calls and {
            **self.calls,
            "durations": durations_in_doubles(self.calls["starts"], self.calls["durations"]),
        }
        return replace(self, durations=durations_in_doubles(self.starts, self.durations), calls=calls)


def device_work(scope: Scope, on_cores: MatrixCoreUse | None = None, *, runtime_calls: bool = False) -> DeviceWork:
    """Return the work on devices.

    Args:
        scope: scope of the rank.
        on_cores: predicate for the use of matrix cores; if None, no work counts as using them.
        runtime_calls: whether to read runtime calls, too; driver calls are never read.
    """
    work = device_events(scope, (*_COLUMNS, *TIMES))
    names, words = work.names()
    return DeviceWork(
        ids=work.ints("external_id"),
        correlations=work.ints("correlation"),
        starts=work.starts,
        durations=work.ends - work.starts,
        launches=work.ints("launch", NONE),
        operators=work.ints("operator", NONE),
        on_cores=np.array([_use_code(on_cores, word) for word in words], np.int8)[names],
        calls=_calls(scope) if runtime_calls else None,
    )


def _use_code(on_cores: MatrixCoreUse | None, name: str) -> int:
    """Return 1 if kernels of a name use matrix cores, 0 if not, -1 if unknown."""
    use = on_cores(name) if on_cores else False
    return -1 if use is None else int(use)


def _calls(scope: Scope) -> dict[str, Ints]:
    """Return the runtime calls, in order of time; of equal starts the longest first."""
    calls = scope.table(_CALLS.format(is_runtime=scope.has_category(lambda name: re.fullmatch(_RUNTIME, name))))
    starts = calls["starts"].to_numpy()
    return {
        **{name: calls[name].to_numpy() for name in ("ids", "correlations", "starts")},
        "durations": calls["ends"].to_numpy() - starts,
    }

"""Work on devices, with the slices of the host to which it belongs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.analysis.facts.host import Host, durations_in_doubles, read_arrays
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import Indices, first_matches, require_countable

_RUNTIME = "Runtime|.*_runtime"
_WORK = """
SELECT
    coalesce(external_id, 0) AS ids, coalesce(correlation, 0) AS correlations, name AS names,
    start_ns AS starts, end_ns - start_ns AS durations,
    coalesce(launch_row, -1) AS launches, coalesce(operator_row, -1) AS operators
FROM device_events
"""


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
        require_countable(self.durations, "The time of work on devices")

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
    scope.define_device_events()
    columns, words = read_arrays(scope, _WORK, {"names"})
    names = columns.pop("names")
    use_by_name = np.zeros(len(words["names"]), np.int8)
    for name, word in enumerate(words["names"]):
        use_by_name[name] = _use_code(on_cores, word)
    calls = _calls(scope, _RUNTIME) if runtime_calls else None
    return DeviceWork(calls=calls, on_cores=use_by_name[names], **columns)


def _use_code(on_cores: MatrixCoreUse | None, name: str) -> int:
    """Return 1 if kernels of a name use matrix cores, 0 if not, -1 if unknown."""
    use = on_cores(name) if on_cores else False
    return -1 if use is None else int(use)


def _calls(scope: Scope, categories: str) -> dict[str, Ints]:
    """Return the calls whose category matches a regular expression."""
    slices = scope.slices()
    chosen = slices.of_categories(lambda category: re.fullmatch(categories, category))
    host = slices.host
    starts = host.starts[chosen]
    return {
        "ids": np.maximum(host.external_ids[chosen], 0),
        "correlations": host.correlations[chosen],
        "starts": starts,
        "durations": host.ends[chosen] - starts,
    }

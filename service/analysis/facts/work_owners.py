"""What devices do, and for whom."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.analysis.facts.host import Host, lasting_in_doubles, read
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import Indices, first_matches, require_countable

_RUNTIME = "Runtime|.*_runtime"
_WORK = """
SELECT
    coalesce(external_id, 0) AS ids, coalesce(correlation, 0) AS correlations, name AS names,
    start_ns AS starts, end_ns - start_ns AS lasting,
    coalesce(launch_row, -1) AS launches, coalesce(operator_row, -1) AS operators
FROM device_events
"""


OnCores = Callable[[str], bool | None]
"""Tells by a kernel's name whether it uses tensor cores, None where it does not know."""


@dataclass(frozen=True)
class Work:
    """What devices do.

    Args:
        ids: its External id, 0 where it has none.
        correlations: what it has in common with its launch, or 0.
        starts: when it begins.
        lasting: how long it lasts.
        launches: the row of its launch, or -1.
        operators: the row of its operator, likewise.
        on_cores: 1 where it uses tensor cores, 0 where it does not, -1 where that is unknown.
        calls: ``ids``, ``correlations``, ``starts`` and ``lasting`` of the calls of runtimes, for the TensorBoard
            plugin's numbers.
    """

    ids: Ints
    correlations: Ints
    starts: Ints
    lasting: Ints
    launches: Ints
    operators: Ints
    on_cores: Any
    calls: dict[str, Ints] | None

    def __post_init__(self) -> None:
        require_countable(self.lasting, "The time of what devices do")

    def slices(self, host: Host) -> Indices:
        """The slice to which each belongs: its operator, or its launch where that lies in none; negative for none."""
        return host.places(np.where(self.operators < 0, self.launches, self.operators))

    def slices_by_external_id(self, host: Host) -> Indices:
        """The slice to which each belongs to the TensorBoard plugin: that of its External id, if it has a launch."""
        calls = self.calls or dict.fromkeys(("ids", "correlations"), np.empty(0, np.int64))
        call = first_matches(calls["correlations"], self.correlations)
        ids = np.where(self.ids == 0, np.append(calls["ids"], 0)[call], self.ids)
        return first_matches(host.external_ids, np.where(call < 0, 0, ids))

    def in_doubles(self) -> "Work":
        """The same with times as they come out of doubles of microseconds."""
        calls = self.calls and {
            **self.calls,
            "lasting": lasting_in_doubles(self.calls["starts"], self.calls["lasting"]),
        }
        return replace(self, lasting=lasting_in_doubles(self.starts, self.lasting), calls=calls)


def work_of(scope: Scope, on_cores: OnCores | None = None, *, runtime_calls: bool = False) -> Work:
    """What devices do.

    Args:
        scope: what is asked.
        on_cores: tells whether kernels of a name use tensor cores, None where it does not know.
        runtime_calls: read the calls of runtimes, and none of drivers.
    """
    scope.slices()
    found, words = read(scope, _WORK, {"names"})
    cores = np.array([_use(on_cores, word) for word in words["names"]], np.int8)
    calls = _calls(scope, _RUNTIME) if runtime_calls else None
    return Work(calls=calls, on_cores=cores[found.pop("names")], **found)


def _use(on_cores: OnCores | None, name: str) -> int:
    """1, 0, or -1 where it is unknown whether kernels of a name use tensor cores; 0 where nobody asks."""
    use = on_cores(name) if on_cores else False
    return -1 if use is None else int(use)


def _calls(scope: Scope, categories: str) -> dict[str, Ints]:
    """The calls of some categories."""
    slices = scope.slices()
    chosen = slices.of_categories(lambda one: re.fullmatch(categories, one))
    host = slices.host
    starts = host.starts[chosen]
    return {
        "ids": np.maximum(host.external_ids[chosen], 0),
        "correlations": host.correlations[chosen],
        "starts": starts,
        "lasting": host.ends[chosen] - starts,
    }

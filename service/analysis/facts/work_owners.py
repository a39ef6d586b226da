"""What devices do, and for whom."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.analysis.facts.host import lasting_in_doubles, read
from service.analysis.facts.intervals import Ints
from service.analysis.facts.nesting import countable, owners
from service.analysis.facts.scope import Scope
from service.trace.summary import LAUNCH_PATTERN

_RUNTIME = "Runtime|.*_runtime"
_WORK = """
SELECT
    coalesce(external_id, 0) AS ids, coalesce(correlation, 0) AS correlations, name AS names,
    start_ns AS starts, end_ns - start_ns AS lasting
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
        on_cores: 1 where it uses tensor cores, 0 where it does not, -1 where that is unknown.
        calls: ``ids``, ``correlations``, ``starts`` and ``lasting`` of calls that launch, if they matter.
    """

    ids: Ints
    correlations: Ints
    starts: Ints
    lasting: Ints
    on_cores: Any
    calls: dict[str, Ints] | None

    def __post_init__(self) -> None:
        countable(self.lasting, "The time of what devices do")

    def owners(self, *, launched: bool) -> Ints:
        """The External id of each, else that of its launch; where it has to be `launched`, 0 without one."""
        if self.calls is None:
            return self.ids
        call = owners(self.calls["correlations"], self.correlations)
        of_call = np.append(self.calls["ids"], 0)[call]
        ids = np.where(self.ids == 0, of_call, self.ids)
        return np.where(call < 0, 0, ids) if launched else ids

    def in_doubles(self) -> "Work":
        """The same with times as they come out of doubles of microseconds."""
        calls = self.calls and {
            **self.calls,
            "lasting": lasting_in_doubles(self.calls["starts"], self.calls["lasting"]),
        }
        return replace(self, lasting=lasting_in_doubles(self.starts, self.lasting), calls=calls)


def work_of(scope: Scope, on_cores: OnCores | None = None, *, runtime_only: bool = False) -> Work:
    """What devices do.

    Args:
        scope: what is asked.
        on_cores: tells whether kernels of a name use tensor cores, None where it does not know.
        runtime_only: read the calls of the runtime, and none of the driver; else calls are read if there is work that
            has no External id of its own.
    """
    scope.slices()
    found, words = read(scope, _WORK, {"names"})
    cores = np.array([_use(on_cores, word) for word in words["names"]], np.int8)
    calls = None
    if runtime_only or ((found["ids"] == 0) & (found["correlations"] != 0)).any():
        calls = _calls(scope, _RUNTIME if runtime_only else LAUNCH_PATTERN)
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

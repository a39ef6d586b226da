"""Times of work on devices by type."""

from typing import Any, NamedTuple

import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.analysis.table import codes

TYPES = ("COMP", "COMM", "MEM", "OTHER")
"""Types of work by their code; the first three are those of `DeviceEvents.types`."""


class WorkTimes(NamedTuple):
    """Work in order of time: devices, type codes, starts and ends."""

    devices: pa.ChunkedArray
    types: Any
    starts: Ints
    ends: Ints


def work_times(scope: Scope, parameters: WorkParameters) -> WorkTimes:
    """Return the times of the work that the parameters count."""
    from service.analysis.facts.device_events import MEMCPYS, MEMSETS, TIMES, TYPED, device_events  # noqa: PLC0415 - loads numba

    if parameters.types == "exact" and parameters.last_step == "keep" and not parameters.linked_only:
        work = device_events(scope, ("device", *TIMES, *TYPED))
        types = work.types(MEMCPYS | MEMSETS if parameters.memset == "mem" else MEMCPYS)
        return WorkTimes(work.table["device"], types, work.starts, work.ends)
    scope.define_work(parameters)
    table = scope.table("SELECT device, type, start_ns, end_ns FROM work")
    return WorkTimes(
        table["device"], codes(table["type"], TYPES), *(table[name].to_numpy() for name in ("start_ns", "end_ns"))
    )

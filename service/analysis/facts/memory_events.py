"""Allocations and frees: the `[memory]` events of a trace."""

import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.host import THREAD

_KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr")
_PATHS = "[" + ", ".join(f"'$.\"{key}\"'" for key in _KEYS) + "]"

_TYPES = (
    *("CPU", "CUDA", "MKLDNN", "OPENGL", "OPENCL", "IDEEP", "HIP", "FPGA", "MAIA", "XLA", "VULKAN", "METAL", "XPU"),
    *("MPS", "META", "HPU", "VE", "LAZY", "IPU", "MTIA", "PRIVATEUSEONE"),
)
"""Names of torch's device types, by number."""

EVENT = "[memory]"
"""The name of these events."""
COLUMNS = ("ts_ns", "position", "name", "args", "pid", "pid_text", "tid", "tid_text")
"""The columns of events from which allocations and frees are read."""
_TEXTS = frozenset({"name", "args", "pid_text", "tid_text"})

CHANGES = f"""
SELECT
    ts_ns AS at, {THREAD} AS thread,
    coalesce(try_cast(fields[1] AS BIGINT), 0) AS bytes,
    try_cast(fields[2] AS BIGINT) AS allocated,
    try_cast(fields[3] AS BIGINT) AS reserved,
    coalesce(try_cast(fields[4] AS BIGINT), -1) AS device_type,
    coalesce(try_cast(fields[5] AS BIGINT), -1) AS device_id,
    try_cast(fields[6] AS BIGINT) AS address,
    device_type IN (0, 2, 5) AS on_host -- 2 and 5 are CPU libraries
FROM (
    SELECT *, try(json_extract_string(args, {_PATHS})) AS fields
    FROM events WHERE name = '[memory]' AND ts_ns NOTNULL
)
ORDER BY ts_ns, position
"""
"""SQL for these events, in order of time; invalid bytes are 0, an invalid device -1, other invalid numbers null."""


class MemoryEventsCollector:
    """Collects the `[memory]` events of a trace while its columns are written."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def add(self, events: pa.Table) -> None:
        """Add the next events, in order of time."""
        chosen = events.select(COLUMNS).filter(pc.equal(events["name"], EVENT))
        if len(chosen):
            plain = [chosen[name].cast(pa.string()) if name in _TEXTS else chosen[name] for name in COLUMNS]
            self._tables.append(pa.table(plain, COLUMNS))

    def table(self) -> pa.Table:
        """Return the events with `COLUMNS`."""
        empty = {name: pa.array([], pa.string() if name in _TEXTS else pa.int64()) for name in COLUMNS}
        return pa.concat_tables([pa.table(empty), *self._tables])


def device_type_name(number: int) -> str:
    """Return torch's name of a device type, or the number of an unknown type."""
    return _TYPES[number] if 0 <= number < len(_TYPES) else str(number)

"""Allocations and frees: the `[memory]` events of a trace."""

from service.analysis.facts.host import THREAD

_KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr")
_PATHS = "[" + ", ".join(f"'$.\"{key}\"'" for key in _KEYS) + "]"

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
"""SQL for these events, in order of time; invalid numbers are null, or -1 for a device."""

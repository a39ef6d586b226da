"""Allocations and frees: the `[memory]` events of a trace. A file has them, because parsing takes long."""

import logging

import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.host import THREAD
from service.analysis.facts.scope import Scope
from service.store.folder import MEMORY, new_file
from service.trace.errors import DiskFull

log = logging.getLogger(__name__)

EVENT = "[memory]"
"""The name of these events."""
CUDA = 1
"""Torch's number of the device type of NVIDIA's and AMD's GPUs."""

_VERSION = {b"tracedock.memory": b"1"}
"""Metadata of the file; a file with another version is written again."""
_THREAD = ("pid", "pid_text", "tid", "tid_text")
_EVENT_COLUMNS = ("ts_ns", "position", "name", "args", *_THREAD)
_TEXTS = frozenset({"name", "args", "pid_text", "tid_text"})
_KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr")
_PATHS = "[" + ", ".join(f"'$.\"{key}\"'" for key in _KEYS) + "]"

_TYPES = (
    *("CPU", "CUDA", "MKLDNN", "OPENGL", "OPENCL", "IDEEP", "HIP", "FPGA", "MAIA", "XLA", "VULKAN", "METAL", "XPU"),
    *("MPS", "META", "HPU", "VE", "LAZY", "IPU", "MTIA", "PRIVATEUSEONE"),
)
"""Names of torch's device types, by number."""

_PARSED = f"""
SELECT
    ts_ns AS at, {", ".join(_THREAD)},
    coalesce(try_cast(fields[1] AS BIGINT), 0) AS bytes,
    try_cast(fields[2] AS BIGINT) AS allocated,
    try_cast(fields[3] AS BIGINT) AS reserved,
    coalesce(try_cast(fields[4] AS BIGINT), -1) AS device_type,
    coalesce(try_cast(fields[5] AS BIGINT), -1) AS device_id,
    try_cast(fields[6] AS BIGINT) AS address
FROM (
    SELECT *, try(json_extract_string(args, {_PATHS})) AS fields
    FROM {{events}} WHERE name = '{EVENT}' AND ts_ns NOTNULL
)
ORDER BY ts_ns, position
"""
_CHANGES = f"""
SELECT
    "at", {THREAD} AS thread, bytes, allocated, reserved, device_type, device_id, address,
    device_type IN (0, 2, 5) AS on_host -- 2 and 5 are CPU libraries
FROM parsed_changes
"""


class MemoryEventsCollector:
    """Collects the `[memory]` events of a trace while its columns are written."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def add(self, events: pa.Table) -> None:
        """Add the next events, in order of time."""
        chosen = events.select(_EVENT_COLUMNS).filter(pc.equal(events["name"], EVENT))
        if len(chosen):
            plain = [chosen[name].cast(pa.string()) if name in _TEXTS else chosen[name] for name in _EVENT_COLUMNS]
            self._tables.append(pa.table(plain, _EVENT_COLUMNS))

    def table(self) -> pa.Table | None:
        """Return the events; None if there are none."""
        return pa.concat_tables(self._tables) if self._tables else None


def memory_changes_of(scope: Scope) -> pa.Table:
    """Return the allocations and frees of a rank, in order of time.

    The first question to a trace without the file, such as one that was cut from another, writes it.

    Returns:
        ``at``, the time in ns; ``thread``, the key of the thread; ``bytes``, 0 if invalid; ``allocated``, ``reserved``
        and ``address``, null if invalid; ``device_type`` and ``device_id``, -1 if invalid; and ``on_host``.

    Raises:
        ExportFailed: the file or the events can't be read.
    """
    if EVENT not in scope.names():
        parsed = _PARSED.format(events="(SELECT * FROM events LIMIT 0)")
    elif scope.is_selection or not scope.cached("memory file", lambda: _ensure_file(scope)):
        parsed = _PARSED.format(events="events")
    else:
        name = str(scope.columns / MEMORY).replace("'", "''")
        parsed = f"SELECT * FROM read_parquet('{name}')"
    return scope.table(f"WITH parsed_changes AS ({parsed}) {_CHANGES}")


def _ensure_file(scope: Scope) -> bool:
    """Write the file, unless it is there and sound; return False if it can't be written."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - the server does without it

    path = scope.columns / MEMORY
    try:
        if _VERSION.items() <= (pq.read_schema(path).metadata or {}).items():
            return True
    except FileNotFoundError:
        pass
    except (OSError, pa.ArrowException) as error:
        log.warning("allocations and frees are read again: %s is damaged: %s", path, error)
    try:
        write_memory_changes(scope)
    except FileNotFoundError:  # the trace was deleted meanwhile
        return False
    except (DiskFull, OSError) as error:
        log.warning("allocations and frees are not kept: %s can't be written: %s", path, error)
        return False
    return True


def write_memory_changes(scope: Scope, events: pa.Table | None = None) -> None:
    """Write the file of a whole trace's allocations and frees.

    Args:
        scope: scope of the rank.
        events: the `[memory]` events, from a collector; None to read them.

    Raises:
        DiskFull: the disk has no room for the file.
        ExportFailed: the events can't be read.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - the server does without it

    if events is not None:
        scope.db.register("memory_events", events)
    parsed = scope.table(_PARSED.format(events="events" if events is None else "memory_events"))
    if events is not None:
        scope.db.unregister("memory_events")
    with new_file(scope.columns / MEMORY) as file:
        pq.write_table(parsed.replace_schema_metadata(_VERSION), file, compression="zstd")


def device_type_name(number: int) -> str:
    """Return torch's name of a device type, or the number of an unknown type."""
    return _TYPES[number] if 0 <= number < len(_TYPES) else str(number)

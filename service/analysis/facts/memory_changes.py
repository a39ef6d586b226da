"""Allocations and frees: the `[memory]` events of a trace. A file has them, because parsing takes long."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.analysis.facts.host import THREAD
from service.analysis.facts.scope import Scope
from service.store.folder import MEMORY, new_file
from service.store.parts import TRACK
from service.trace.errors import DiskFull

log = logging.getLogger(__name__)

EVENT = "[memory]"
"""The name of these events."""
CUDA = 1
"""Torch's number of the device type of NVIDIA's and AMD's GPUs."""

VERSION = {b"tracedock.memory": b"2"}
"""Metadata of the file; a file with another version is written again."""
_DELTAS = ("at", "bytes", "allocated")
"""Columns of the file that hold differences: a third of the bytes, and read in half the time."""
KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr", "Stack")
"""Arguments of the events that are numbers."""
NUMBERS = ("bytes", "allocated", "reserved", "device_type", "device_id", "address", "stack")
"""Columns of these numbers."""
MISSING = {"bytes": 0, "device_type": -1, "device_id": -1}
"""Values of invalid numbers; the others are null."""
_PATHS = "[" + ", ".join(f"'$.\"{key}\"'" for key in KEYS) + "]"

_TYPES = (
    *("CPU", "CUDA", "MKLDNN", "OPENGL", "OPENCL", "IDEEP", "HIP", "FPGA", "MAIA", "XLA", "VULKAN", "METAL", "XPU"),
    *("MPS", "META", "HPU", "VE", "LAZY", "IPU", "MTIA", "PRIVATEUSEONE"),
)
"""Names of torch's device types, by number."""

_FIELDS = ", ".join(
    f"coalesce(try_cast(fields[{number}] AS BIGINT), {MISSING.get(name, 'NULL')}) AS {name}"
    for number, name in enumerate(NUMBERS, 1)
)
PARSED = f"""
SELECT
    ts_ns AS at, {", ".join(TRACK)},
    {_FIELDS},
    stream
FROM (
    SELECT *, try(json_extract_string(args, {_PATHS})) AS fields
    FROM {{events}} WHERE name = '{EVENT}' AND ts_ns NOTNULL
)
ORDER BY ts_ns, position
"""
"""SQL query for the content of the file from the events of a table."""
_CHANGES = {
    **{name: name for name in ("bytes", "allocated", "reserved", "device_type", "device_id", "address")},
    "at": '"at"',
    "thread": THREAD,
    "on_host": "device_type IN (0, 2, 5)",  # 2 and 5 are CPU libraries
    "stack": "stack",
    "stream": "stream",
}
"""The SQL expression of each column of `memory_changes_of`."""


def memory_changes_of(scope: Scope, columns: Iterable[str] = tuple(_CHANGES)) -> pa.Table:
    """Return the allocations and frees of a rank, in order of time.

    The first question to a trace without the file, such as one that was cut from another, writes it.

    Args:
        scope: scope of the rank.
        columns: names of the columns to read.

    Returns:
        ``at``, the time in ns; ``thread``, the key of the thread; ``bytes``, 0 if invalid; ``allocated``, ``reserved``
        and ``address``, null if invalid; ``device_type`` and ``device_id``, -1 if invalid; ``on_host``; and ``stack``
        and ``stream``, which only memory snapshots have.

    Raises:
        ExportFailed: the file or the events can't be read.
    """
    if file := memory_file_of(scope):
        name = str(file).replace("'", "''")
        parsed = f"SELECT * FROM read_parquet('{name}')"
    elif EVENT in scope.names():
        parsed = PARSED.format(events="events")
    else:
        parsed = PARSED.format(events="(SELECT * FROM events LIMIT 0)")
    chosen = ", ".join(f"{_CHANGES[name]} AS {name}" for name in columns)
    return scope.table(f"SELECT {chosen} FROM ({parsed})")


def memory_file_of(scope: Scope) -> Path | None:
    """Return the file of a whole trace's allocations and frees, in order of time; None for a selection or without any.

    Its columns are those of `memory_changes_of`, except ``on_host`` and ``thread``.

    Raises:
        ExportFailed: the events can't be read.
    """
    is_there = not scope.is_selection and scope.cached("memory file", lambda: _ensure_file(scope))
    return scope.columns / MEMORY if is_there else None


def _ensure_file(scope: Scope) -> bool:
    """Write the file, unless it is there and sound; return False if there are no such events or it can't be written."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - the server does without it

    path = scope.columns / MEMORY
    try:
        if VERSION.items() <= (pq.read_schema(path).metadata or {}).items():
            return True
    except FileNotFoundError:
        pass
    except (OSError, pa.ArrowException) as error:
        log.warning("allocations and frees are read again: %s is damaged: %s", path, error)
    if EVENT not in scope.names():
        return False
    try:
        _write_memory_changes(scope)
    except FileNotFoundError:  # the trace was deleted meanwhile
        return False
    except (DiskFull, OSError) as error:
        log.warning("allocations and frees are not kept: %s can't be written: %s", path, error)
        return False
    return True


def _write_memory_changes(scope: Scope) -> None:
    """Write the file of a whole trace's allocations and frees."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - the server does without it

    parsed = scope.table(PARSED.format(events="events"))
    with new_file(scope.columns / MEMORY) as file:
        pq.write_table(parsed.replace_schema_metadata(VERSION), file, **file_options(parsed))


def file_options(parsed: pa.Table) -> dict[str, Any]:
    """Return the options with which the file is written."""
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in parsed.column_names if name not in _DELTAS],
        "column_encoding": dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED"),
    }


def device_type_name(number: int) -> str:
    """Return torch's name of a device type, or the number of an unknown type."""
    return _TYPES[number] if 0 <= number < len(_TYPES) else str(number)

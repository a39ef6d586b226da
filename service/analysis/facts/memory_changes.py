"""Allocations and frees: the `[memory]` events of a trace. A file has them, because parsing takes long."""

import logging
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.host import THREAD
from service.analysis.facts.scope import Scope
from service.store.database import open_database
from service.store.folder import MEMORY, disk_errors, new_file
from service.trace.errors import DiskFull

log = logging.getLogger(__name__)

EVENT = "[memory]"
"""The name of these events."""
CUDA = 1
"""Torch's number of the device type of NVIDIA's and AMD's GPUs."""

_VERSION = {b"tracedock.memory": b"2"}
"""Metadata of the file; a file with another version is written again."""
_THREAD = ("pid", "pid_text", "tid", "tid_text")
_EVENT_COLUMNS = ("ts_ns", "position", "name", "args", *_THREAD, "stream")
_TEXTS = frozenset({"name", "args", "pid_text", "tid_text"})
_KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr", "Stack")
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
    try_cast(fields[6] AS BIGINT) AS address,
    try_cast(fields[7] AS BIGINT) AS stack,
    stream
FROM (
    SELECT *, try(json_extract_string(args, {_PATHS})) AS fields
    FROM {{events}} WHERE name = '{EVENT}' AND ts_ns NOTNULL
)
ORDER BY ts_ns, position
"""
_CHANGES = {
    **{name: name for name in ("bytes", "allocated", "reserved", "device_type", "device_id", "address")},
    "at": '"at"',
    "thread": THREAD,
    "on_host": "device_type IN (0, 2, 5)",  # 2 and 5 are CPU libraries
    "stack": "stack",
    "stream": "stream",
}
"""The SQL expression of each column of `memory_changes_of`."""


class MemoryChangesWriter:
    """Writer of the file of a trace's allocations and frees while its columns are written.

    Leaving the ``with`` block without an error completes the file. There is none of a trace without such events.

    Args:
        columns: folder of the trace's columns.
    """

    def __init__(self, columns: Path) -> None:
        self._columns = columns
        self._resources = ExitStack()
        self._db: duckdb.DuckDBPyConnection | None = None
        self._writer: Any = None

    def __enter__(self) -> "MemoryChangesWriter":
        self._resources.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._resources.__exit__(kind, error, traceback)

    def add(self, events: pa.Table) -> None:
        """Add the next events, in order of time.

        Raises:
            DiskFull: the disk has no room for the file.
        """
        chosen = events.select(_EVENT_COLUMNS).filter(pc.equal(events["name"], EVENT))
        if len(chosen):
            plain = [chosen[name].cast(pa.string()) if name in _TEXTS else chosen[name] for name in _EVENT_COLUMNS]
            self._write(pa.table(plain, _EVENT_COLUMNS))

    def _write(self, events: pa.Table) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - the server does without it

        if self._db is None:
            self._db = self._resources.enter_context(closing(open_database(self._columns / "memory.spill", threads=2)))
        self._db.register("memory_events", events)
        parsed = self._db.sql(_PARSED.format(events="memory_events")).to_arrow_table()
        self._db.unregister("memory_events")
        parsed = parsed.replace_schema_metadata(_VERSION)
        if self._writer is None:
            file = self._resources.enter_context(new_file(self._columns / MEMORY))
            self._writer = self._resources.enter_context(pq.ParquetWriter(file, parsed.schema, compression="zstd"))
        with disk_errors():
            self._writer.write_table(parsed)


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
    if EVENT not in scope.names():
        parsed = _PARSED.format(events="(SELECT * FROM events LIMIT 0)")
    elif scope.is_selection or not scope.cached("memory file", lambda: _ensure_file(scope)):
        parsed = _PARSED.format(events="events")
    else:
        name = str(scope.columns / MEMORY).replace("'", "''")
        parsed = f"SELECT * FROM read_parquet('{name}')"
    chosen = ", ".join(f"{_CHANGES[name]} AS {name}" for name in columns)
    return scope.table(f"SELECT {chosen} FROM ({parsed})")


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

    parsed = scope.table(_PARSED.format(events="events"))
    with new_file(scope.columns / MEMORY) as file:
        pq.write_table(parsed.replace_schema_metadata(_VERSION), file, compression="zstd")


def device_type_name(number: int) -> str:
    """Return torch's name of a device type, or the number of an unknown type."""
    return _TYPES[number] if 0 <= number < len(_TYPES) else str(number)

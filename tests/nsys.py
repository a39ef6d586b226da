"""SQLite exports of Nsight Systems, in the schema of real ones, of any size, with or without damage.

`write_export` makes an export of a plan of kernels, copies, calls and ranges. Its events are computed by SQLite from
the number of each row, so that millions of them take seconds. `oracle` sums the rows of an export without the service.

    python -m tests.nsys OUT.sqlite --kernels 5000000
"""

import argparse
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_NS = 1_779_630_014_975_716_426
"""Start of the session, in ns since 1970."""

TOKEN = "hf_" + "PlantedPlantedPlantedPlanted99"
"""A secret in the places where real exports have the environment and the output of the process."""

PRIVATE_TOKEN = "a secret without a known form: correct horse battery staple"
"""Another secret, which no search by form would find."""

KERNEL_COLUMNS = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "greenContextId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "shortName",
    "mangledName",
    "launchType",
    "cacheConfig",
    "registersPerThread",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "localMemoryPerThread",
    "localMemoryTotal",
    "gridId",
    "sharedMemoryExecuted",
    "graphNodeId",
    "sharedMemoryLimitConfig",
    "qmdBulkReleaseDone",
    "graphId",
    "clusterX",
    "clusterY",
    "clusterZ",
]

SCHEMA: Mapping[str, str] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ", ".join(f"{column} INTEGER" for column in KERNEL_COLUMNS),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        " greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER"
        " NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId"
        " INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId"
        " INTEGER, virtualAddress INTEGER, copyCount INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId"
        " INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL,"
        " graphNodeId INTEGER, memKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId"
        " INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId"
        " INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL,"
        " eventId INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId"
        " INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color"
        " INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER, smCount INTEGER,"
        " cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER, maxWarpsPerSm INTEGER, threadsPerWarp INTEGER"
    ),
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SYSTEM_ENV": (
        "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER, value TEXT"
    ),
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ProcessStreams": "globalPid INTEGER NOT NULL, filenameId INTEGER NOT NULL, contentId INTEGER NOT NULL",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
}
"""The columns of the tables, as nsys 2026.1 exports them."""

SECRETS: Mapping[str, Sequence[tuple[Any, ...]]] = {
    "TARGET_INFO_SYSTEM_ENV": [
        (1, "DeviceEnvironment", "DeviceEnvironment", 1, f"HF_TOKEN={TOKEN}\nX={PRIVATE_TOKEN}")
    ],
    "PROCESSES": [(1 << 48 | 111 << 24, 111, f"python --token {TOKEN}; {PRIVATE_TOKEN}")],
    "ProcessStreams": [(1 << 48 | 111 << 24, 9001, 9002)],
    "DIAGNOSTIC_EVENT": [(0, 0, 0, 0, f"{TOKEN} {PRIVATE_TOKEN}")],
    "META_DATA_CAPTURE": [("CMDLINE", f"{TOKEN} {PRIVATE_TOKEN}")],
}
SECRET_STRINGS = [(9001, f"{TOKEN} {PRIVATE_TOKEN}"), (9002, f"stdout: {TOKEN} {PRIVATE_TOKEN}")]


def thread(pid: int, tid: int | None = None, machine: int = 1) -> int:
    """Return the ``globalTid`` of a thread; without a thread, the ``globalPid``."""
    return machine << 48 | pid << 24 | (tid or 0)


@dataclass
class Export:
    """The content of an export.

    Attributes:
        kernels: number of kernels, each launched by a call of its own, spread evenly over the processes.
        pids: processes, each with a device of its own.
        rows: further rows, by table, as values by column.
        strings: further strings.
        without: tables that are left out.
        lacking: columns that are left out, by table.
        secrets: whether the tables that are never read hold secrets.
        version: version of the schema.
        statements: statements that are run at the end, to damage the export.
    """

    kernels: int = 100
    pids: Sequence[int] = (111,)
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    strings: Sequence[tuple[int, str]] = ()
    without: Sequence[str] = ()
    lacking: Mapping[str, Sequence[str]] = field(default_factory=dict)
    secrets: bool = True
    version: str | None = "3.24.14"
    statements: Sequence[str] = ()


NAMES = [
    (1, "cudaLaunchKernel_v7000"),
    (2, "cuLaunchKernelEx_ptsz"),
    (3, "pt_main_thread"),
    *((100 + i, f"void at::native::kernel_{i}<float, (int){i}>(int, T{i})") for i in range(20)),
    *((200 + i, f"kernel_{i}") for i in range(20)),
]
PERIOD_NS = 3000
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count} - 1)"
_KERNEL = {
    "start": f"10000000 + i * {PERIOD_NS} + 1500",
    "end": f"10000000 + i * {PERIOD_NS} + 2500 + i % 500",
    "deviceId": "{device}", "contextId": "1", "streamId": "7 + i % 3", "correlationId": "1000 + i * 3",
    "globalPid": "{process}", "demangledName": "100 + i % 20", "shortName": "200 + i % 20", "mangledName": "200",
    "launchType": "1", "registersPerThread": "32 + i % 50", "gridX": "1 + i % 40", "gridY": "4", "gridZ": "1",
    "blockX": "256", "blockY": "1", "blockZ": "1", "staticSharedMemory": "1024", "dynamicSharedMemory": "i % 2 * 512",
    "localMemoryPerThread": "0", "localMemoryTotal": "250871808", "gridId": "i", "sharedMemoryExecuted": "32768",
    "graphId": "0",
}  # fmt: skip
_CALL = {
    "start": f"10000000 + i * {PERIOD_NS}", "end": f"10000000 + i * {PERIOD_NS} + 1200", "eventClass": "0",
    "globalTid": "{thread}", "correlationId": "1000 + i * 3", "nameId": "1 + i % 2", "returnValue": "0",
}  # fmt: skip


def write_export(path: Path, export: Export | None = None) -> Path:
    """Write an export, and return its path."""
    export = export or Export()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        tables = [table for table in SCHEMA if table not in export.without]
        if not export.secrets:
            tables = [table for table in tables if table not in SECRETS]
        for table in tables:
            lacking = export.lacking.get(table, ())
            columns = [column for column in SCHEMA[table].split(", ") if column.split()[0] not in lacking]
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        for device, pid in enumerate(export.pids):
            count = export.kernels // len(export.pids)
            values = {"device": device, "process": thread(pid), "thread": thread(pid, pid)}
            _fill(db, export, "CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, count, values)
            _fill(db, export, "CUPTI_ACTIVITY_KIND_RUNTIME", _CALL, count, values)
        _insert(
            db, export, "StringIds", [dict(zip(("id", "value"), row, strict=True)) for row in (*NAMES, *export.strings)]
        )
        _insert(
            db,
            export,
            "ThreadNames",
            [{"nameId": 3, "priority": 20, "globalTid": thread(pid, pid)} for pid in export.pids],
        )
        _insert(db, export, "TARGET_INFO_SESSION_START_TIME", [{"utcEpochNs": START_NS}])
        if export.version:
            _insert(db, export, "META_DATA_EXPORT", [{"name": "EXPORT_SCHEMA_VERSION", "value": export.version}])
        for table, rows in export.rows.items():
            _insert(db, export, table, rows)
        if export.secrets:
            _insert(db, export, "StringIds", [{"id": number, "value": text} for number, text in SECRET_STRINGS])
            for table, secret_rows in SECRETS.items():
                for row in secret_rows:
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        db.execute("COMMIT")
        for statement in export.statements:
            db.execute(statement)
    return path


def _fill(
    db: sqlite3.Connection,
    export: Export,
    table: str,
    columns: Mapping[str, str],
    count: int,
    values: Mapping[str, int],
) -> None:
    if count and table not in export.without:
        present = {column: text for column, text in columns.items() if column not in export.lacking.get(table, ())}
        expressions = ", ".join(text.format(**values) for text in present.values())
        db.execute(
            f"INSERT INTO {table} ({', '.join(present)}) {_NUMBERS.format(count=count)} SELECT {expressions} FROM n"
        )


def _insert(db: sqlite3.Connection, export: Export, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows if table not in export.without else ():
        present = {column: value for column, value in row.items() if column not in export.lacking.get(table, ())}
        db.execute(
            f"INSERT INTO {table} ({', '.join(present)}) VALUES ({', '.join('?' * len(present))})", [*present.values()]
        )


def gpu_row(start: int, end: int, *, pid: int = 111, device: int = 0, stream: int = 7, **values: Any) -> dict[str, Any]:
    """Return a row of GPU work or of a wait."""
    place = {"deviceId": device, "contextId": 1, "streamId": stream, "globalPid": thread(pid)}
    return {"start": start, "end": end} | place | values


def call_row(
    start: int, end: int, correlation: int, *, pid: int = 111, tid: int | None = None, name: int = 1
) -> dict[str, Any]:
    """Return a row of a call."""
    place = {"globalTid": thread(pid, tid or pid), "correlationId": correlation}
    return {"start": start, "end": end, "eventClass": 0, "nameId": name, "returnValue": 0} | place


def range_row(
    start: int, end: int | None, text: str | None, *, kind: int = 59, pid: int = 111, **values: Any
) -> dict[str, Any]:
    """Return a row of an NVTX range or mark."""
    place = {"globalTid": thread(pid, pid), "domainId": 0}
    return {"start": start, "end": end, "eventType": kind, "text": text} | place | values


def oracle(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on an export."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(sql).fetchall()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write an SQLite export of Nsight Systems.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    options = parser.parse_args()
    write_export(options.path, Export(options.kernels))


if __name__ == "__main__":
    main()

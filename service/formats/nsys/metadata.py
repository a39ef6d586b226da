"""Names of processes and threads, the version of an export, and the document around its events."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from service.formats.nsys.allowed import EXPORT, START_TIME, THREADS
from service.formats.nsys.database import Database
from service.formats.nsys.devices import Devices
from service.formats.nsys.strings import Strings
from service.streaming.schema import SCHEMA
from service.trace.errors import NotATrace

VERSIONS = range(1, 4)
"""Major versions of the schema that are read."""

_VERSION = "EXPORT_SCHEMA_VERSION"
_THREADS_MAX = 100_000
_GPU_ORDER = 5_000_000  # Kineto's order of processes: devices come last


def schema_version(database: Database) -> str | None:
    """Return the version of the schema, or None if the export has none; raises `NotATrace` if it is too new."""
    if EXPORT not in database.columns:
        return None
    version = database.texts(EXPORT, "name", "value", [_VERSION]).get(_VERSION.encode())
    if version is None:
        return None
    major = version.partition(".")[0]
    if not (major.isdecimal() and int(major[:9]) in VERSIONS):
        raise NotATrace(
            f"The export of Nsight Systems has version {version[:40]!r} of its schema; versions"
            f" {VERSIONS[0]} to {VERSIONS[-1]} are read. Export the report with another version of nsys."
        )
    return version


def start_time(database: Database) -> int | None:
    """Return the start of the session, in ns since 1970, to which all times relate; None if it is unknown."""
    if START_TIME in database.columns:
        for _, epoch_ns in database.rows(START_TIME, ["utcEpochNs"], limit=1):
            if isinstance(epoch_ns, int) and 0 < epoch_ns < 1 << 62:
                return epoch_ns
    return None


def envelope(database: Database, devices: Devices) -> tuple[bytes, dict[str, Any]]:
    """Return the document around the events, as text and as its members."""
    members: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if (base := start_time(database)) is not None:
        members["baseTimeNanoseconds"] = base
    if properties := devices.properties():
        members["deviceProperties"] = properties
    return json.dumps(members | {"traceEvents": []}).encode(), members


def name_events(database: Database, strings: Strings, devices: Devices) -> Iterator[pa.RecordBatch]:
    """Yield the metadata events that name processes, threads, devices and streams."""
    rows = [*_host_names(database, strings), *_device_names(devices)]
    if rows:
        empty = dict.fromkeys(SCHEMA.names)
        named = [empty | row | {"position": at, "ph": "M", "verbatim": False} for at, row in enumerate(rows)]
        yield pa.RecordBatch.from_pylist(named, SCHEMA)


def _host_names(database: Database, strings: Strings) -> Iterator[dict[str, Any]]:
    if THREADS not in database.columns:
        return
    rows = [row for row in database.rows(THREADS, ["nameId", "globalTid"], limit=_THREADS_MAX)
            if all(isinstance(value, int) for value in row)]  # fmt: skip
    texts = strings.texts(list({name for _, name, _ in rows}))
    for _, number, thread in rows:
        pid, tid, name = (thread >> 24) & 0xFFFFFF, thread & 0xFFFFFF, texts[number]
        if name is None:
            continue
        if pid == tid:
            yield _event("process_name", pid, 0, name=name)
            yield _event("process_labels", pid, 0, labels="CPU")
        yield _event("thread_name", pid, tid, name=f"thread {tid} ({name})")


def _device_names(devices: Devices) -> Iterator[dict[str, Any]]:
    for device in sorted({device for device, _, _ in devices.tracks}):
        yield _event("process_name", device, 0, name=f"GPU {device}")
        yield _event("process_labels", device, 0, labels=f"GPU {device}")
        yield _event("process_sort_index", device, 0, sort_index=_GPU_ORDER + device)
    for device, stream, track in sorted(devices.tracks):
        waits = "" if stream == track else "waits for "
        yield _event("thread_name", device, track, name=f"{waits}stream {stream} ")
        yield _event("thread_sort_index", device, track, sort_index=track)


def _event(event: str, pid: int, tid: int, **arguments: str | int) -> dict[str, Any]:
    return {"name": event, "pid": pid, "tid": tid, "args": json.dumps(arguments, ensure_ascii=False)}

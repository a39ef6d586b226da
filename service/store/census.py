"""Census of a trace: its summary, from its events while they are written."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.store.anomalies import note_anomalies
from service.store.database import open_database, spill_errors
from service.store.folder import EVENTS
from service.store.parts import METADATA, Flags, Part
from service.store.steps import steps_of
from service.store.tally import Tally
from service.trace.health import Health
from service.trace.rank import distributed_info, merged_ranks, rank_of, whole_number, world_size_of
from service.trace.summary import (
    GPU_CATEGORIES,
    HOST_CATEGORIES,
    LAUNCH_PATTERN,
    STEP_PREFIX,
    TIMELESS_PHASES,
    Bounds,
    Device,
    Key,
    Summary,
    Thread,
    key_of,
)
from service.trace.text import without_halves

THREADS = 2
_ROWS_AT_ONCE = 10_000
_TIME_MAX = np.iinfo(np.int64).max

_NAMING = {"process_name": "name", "process_labels": "labels", "thread_name": "name"}
"""Metadata events that name a process or thread, and the argument that holds the name."""

_TALLY = """
CREATE TEMP TABLE tally AS
SELECT
    * REPLACE (coalesce(ph, '') AS ph, coalesce(cat, '') AS cat),
    coalesce(cat IN $work, false) AS is_work,
    coalesce(ph IN $timeless, false) AS is_timeless
FROM tallied
"""
_COUNTS = "SELECT ph, cat, sum(events)::BIGINT FROM tally GROUP BY ALL ORDER BY ALL"
_BOUNDS = "SELECT min(start_ns), max(end_ns) FROM tally WHERE NOT is_timeless"
_TRACKS = f"""
SELECT
    pid, pid_text, tid, tid_text,
    sum(events)::BIGINT,
    max(device) FILTER (is_work),
    bool_or(cat IN $host OR regexp_full_match(cat, '{LAUNCH_PATTERN}'))
FROM tally WHERE ph <> 'M' GROUP BY ALL
"""  # noqa: S608 - made of constants
_STREAMS = """
SELECT DISTINCT device, stream FROM tally WHERE is_work AND device NOTNULL AND stream NOTNULL ORDER BY ALL
"""
_DEVICES = """
SELECT device, sum(events)::BIGINT, min(start_ns), max(end_ns) FROM tally
WHERE is_work AND device NOTNULL GROUP BY device
"""
_NAME_COLUMNS = ("name", "pid", "pid_text", "tid", "tid_text", "args", "position")
_STEP_COLUMNS = ("name", "ts_ns", "dur_ns", "cat", "pid", "pid_text", "tid", "tid_text", "position")


class _Track(NamedTuple):
    """A track: its number of events, the device that runs them, and whether any of them are host events."""

    events: int = 0
    device: int | None = None
    host: bool = False

    def joined(self, other: "_Track") -> "_Track":
        """Return the sum of two entries for the same track, whose ids are spelled differently."""
        device = self.device if other.device is None else other.device
        return _Track(self.events + other.events, device, self.host or other.host)


def open_events(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a connection with a view ``events`` of the columns in `folder`.

    In addition to the columns, ``row`` numbers the events in order of time.
    """
    connection = open_database(folder / "spill", threads=THREADS)
    path = str(folder / EVENTS).replace("'", "''")
    rows = f"read_parquet('{path}', file_row_number = true)"
    connection.execute(f"CREATE VIEW events AS SELECT * RENAME (file_row_number AS row) FROM {rows}")  # noqa: S608 - the path is ours
    return connection


class Census:
    """The census of a trace. Takes all of its events, in order of time."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._names: dict[tuple[Key, ...], tuple[int, str]] = {}
        self._steps: list[tuple[Any, ...]] = []

    def add(self, part: Part) -> None:
        """Add the next events, at least one."""
        self._tally.add(part)
        for kind, *row in _rows(part, _NAME_COLUMNS, part.which("ph", METADATA) & part.has("args")):
            if kind in _NAMING:
                self._add_name(kind, *row)
        (names,) = part.table["name"].chunks  # a list of all of its words would take long
        is_step = np.append(pc.starts_with(names.dictionary, STEP_PREFIX).to_numpy(zero_copy_only=False), False)
        if is_step.any():
            chosen = part.slices & part.has("ts_ns") & is_step[names.indices.fill_null(-1).to_numpy()]
            for name, start, last, *place in _rows(part, _STEP_COLUMNS, chosen):
                end = start + max(last or 0, 0)
                self._steps.append((name, start, end if end <= _TIME_MAX else start, *place))

    def _add_name(
        self, kind: str, pid: int | None, pid_text: str | None, tid: int | None, tid_text: str | None, args: str,
        position: int,
    ) -> None:  # fmt: skip
        """Note the name in a metadata event; of several names, the last one in the file counts."""
        arguments = json.loads(args, parse_int=float)  # integers may be longer than Python accepts
        name = arguments.get(_NAMING[kind]) if isinstance(arguments, dict) else None
        if isinstance(name, str):
            key = (kind, key_of(pid, pid_text)) + ((key_of(tid, tid_text),) if kind == "thread_name" else ())
            before, _ = self._names.get(key, (position, ""))
            if before <= position:
                self._names[key] = position, without_halves(name)

    def summary(
        self, folder: Path, envelope: Mapping[str, Any], health: Health, *, file_name: str, packed: str | None
    ) -> Summary:
        """Return the summary of the trace.

        Args:
            folder: folder of its columns, which are written.
            envelope: the document's members except for its events.
            health: the trace's health so far, to which anomalies of the events are added.
            file_name: name of the trace's file, which may contain the rank.
            packed: format of the trace's file, or None if there is no file.

        Raises:
            DiskFull: the disk had no room to spill.
        """
        host, backend = envelope.get("host_name"), distributed_info(envelope).get("backend")
        with spill_errors(), open_events(folder) as db:
            db.register("tallied", self._tally.table())
            db.execute(_TALLY, {"work": list(GPU_CATEGORIES), "timeless": list(TIMELESS_PHASES)})
            tracks = _tracks(db)
            processes: Counter[Key] = Counter()
            for (pid, _), track in tracks.items():
                processes[pid] += track.events
            summary = Summary(
                format=packed,
                rank=rank_of(envelope, file_name),
                world_size=world_size_of(envelope),
                backend=backend if isinstance(backend, str) else None,
                host=host if isinstance(host, str) else None,
                bounds=_bounds(*db.execute(_BOUNDS).fetchall()[0]),
                base_ns=whole_number(envelope.get("baseTimeNanoseconds")),
                counts={f"{ph}|{cat}": events for ph, cat, events in db.execute(_COUNTS).fetchall()},
                processes=[
                    {
                        "pid": pid,
                        "name": self._name("process_name", pid),
                        "labels": self._name("process_labels", pid),
                        "events": processes[pid],
                    }
                    for pid in sorted(processes, key=lambda pid: _ordered([pid]))
                ],
                threads=[
                    _thread(pid, tid, self._name("thread_name", pid, tid), tracks[pid, tid])
                    for pid, tid in sorted(tracks, key=_ordered)
                ],
                devices=_devices(db, envelope.get("deviceProperties")),
                streams=[f"{device}/{stream}" for device, stream in db.execute(_STREAMS).fetchall()],
                steps=steps_of(row[:-1] for row in sorted(self._steps, key=lambda row: (row[1], -row[2], row[-1]))),
                ranks=merged_ranks(envelope),
            )
            note_anomalies(db, envelope, summary, health)
        return summary

    def _name(self, *key: Key) -> str | None:
        return self._names[key][1] if key in self._names else None


def _rows(part: Part, columns: Sequence[str], chosen: Flags) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns of the chosen events."""
    rows = np.flatnonzero(chosen)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        few = part.table.select(columns).take(pa.array(rows[first : first + _ROWS_AT_ONCE]))
        yield from zip(*(_plain(few[name]).to_pylist() for name in columns), strict=True)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary, whose values take long to list one by one."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _thread(pid: Key, tid: Key, name: str | None, track: _Track) -> Thread:
    return {
        "pid": pid,
        "tid": tid,
        "name": name,
        "events": track.events,
        "device": track.device,
        "host": track.host,
    }


def _bounds(start: int | None, end: int | None) -> Bounds | None:
    return None if start is None or end is None else {"start_ns": start, "end_ns": end}


def _tracks(db: duckdb.DuckDBPyConnection) -> dict[tuple[Key, Key], _Track]:
    """Return the tracks by pid and tid."""
    tracks: dict[tuple[Key, Key], _Track] = {}
    for pid, pid_text, tid, tid_text, *fields in db.execute(_TRACKS, {"host": list(HOST_CATEGORIES)}).fetchall():
        key = key_of(pid, pid_text), key_of(tid, tid_text)
        tracks[key] = tracks.get(key, _Track()).joined(_Track(*fields))
    return tracks


def _devices(db: duckdb.DuckDBPyConnection, properties: object) -> list[Device]:
    described = {
        entry["id"]: entry
        for entry in (properties if isinstance(properties, list) else [])
        if isinstance(entry, Mapping) and type(entry.get("id")) is int and abs(entry["id"]) < 1 << 63
    }
    work = {device: (events, _bounds(*times)) for device, events, *times in db.execute(_DEVICES).fetchall()}
    devices: list[Device] = []
    for device in sorted({*described, *work}):
        fields, (events, bounds) = described.get(device, {}), work.get(device, (0, None))
        name, memory = fields.get("name"), whole_number(fields.get("totalGlobalMem"))
        devices.append(
            {
                "id": device,
                "name": name if isinstance(name, str) and name else None,
                "memory_bytes": memory,
                "events": events,
                "bounds": bounds,
            }
        )
    return devices


def _ordered(track: Iterable[Key]) -> list[tuple[bool, Key]]:
    """Return a sort key by which integers come before strings."""
    return [(type(part) is str, part) for part in track]

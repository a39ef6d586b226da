"""Computation of a trace's summary from its columns."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from service.store.anomalies import note_anomalies
from service.store.database import open_database, spill_errors
from service.store.folder import EVENTS
from service.trace.health import Health
from service.trace.rank import distributed_info, merged_ranks, rank_of, whole_number, world_size_of
from service.trace.summary import (
    GPU_CATEGORIES,
    HOST_CATEGORIES,
    LAUNCH_PATTERN,
    TIMELESS_PHASES,
    Bounds,
    Device,
    Key,
    Step,
    Summary,
    Thread,
)
from service.trace.text import decoded, without_halves

THREADS = 2

_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_NAMING = {"process_name": "name", "process_labels": "labels", "thread_name": "name"}
"""Metadata events that name a process or thread, and the argument that holds the name."""

END = "coalesce(try(ts_ns + greatest(dur_ns, 0)), ts_ns)"  # greatest() ignores nulls; try() is null on overflow
"""SQL expression of an event's end in ns."""

_TALLY = f"""
CREATE TEMP TABLE tally AS
SELECT
    * REPLACE (coalesce(ph, '') AS ph, coalesce(cat, '') AS cat),
    coalesce(cat IN $work, false) AS is_work,
    coalesce(ph IN $timeless, false) AS is_timeless
FROM (
    SELECT
        ph, cat, pid, pid_text, tid, tid_text, device, stream,
        count(*) AS events,
        min(ts_ns) AS start_ns,
        max({END}) AS end_ns,
        count(ts_ns) AS timed,
        count(*) FILTER (ts_ns < 0) AS before_zero,
        count(*) FILTER (ts_ns = 0) AS at_zero,
        count(dur_ns) AS lasting,
        count(*) FILTER (dur_ns < 0) AS negative
    FROM events GROUP BY ALL
)
"""  # noqa: S608 - made of constants
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
_STEPS = f"""
SELECT name, ts_ns, {END}, cat, pid, pid_text, tid, tid_text FROM events
WHERE ph = 'X' AND starts_with(name, 'ProfilerStep#') AND ts_ns NOTNULL
ORDER BY ts_ns, {END} DESC, position
"""  # noqa: S608 - made of constants
_NAMES = """
SELECT name, pid, pid_text, tid, tid_text, args FROM events
WHERE ph = 'M' AND name IN $naming AND args NOTNULL ORDER BY position
"""


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


def take_census(
    folder: Path, envelope: Mapping[str, Any], health: Health, *, file_name: str, packed: str | None
) -> Summary:
    """Compute the summary of a trace.

    Args:
        folder: folder of its columns.
        envelope: the document's members except for its events.
        health: the trace's health so far, to which anomalies of the events are added.
        file_name: name of the trace's file, which may contain the rank.
        packed: format of the trace's file, or None if there is no file.

    Raises:
        DiskFull: the disk had no room to spill.
    """
    host, backend = envelope.get("host_name"), distributed_info(envelope).get("backend")
    with spill_errors(), open_events(folder) as db:
        db.execute(_TALLY, {"work": list(GPU_CATEGORIES), "timeless": list(TIMELESS_PHASES)})
        names = _names(db)
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
                    "name": names.get(("process_name", pid)),
                    "labels": names.get(("process_labels", pid)),
                    "events": processes[pid],
                }
                for pid in sorted(processes, key=lambda pid: _ordered([pid]))
            ],
            threads=[
                _thread(pid, tid, names.get(("thread_name", pid, tid)), tracks[pid, tid])
                for pid, tid in sorted(tracks, key=_ordered)
            ],
            devices=_devices(db, envelope.get("deviceProperties")),
            streams=[f"{device}/{stream}" for device, stream in db.execute(_STREAMS).fetchall()],
            steps=steps_in(db),
            ranks=merged_ranks(envelope),
        )
        note_anomalies(db, envelope, summary, health)
    return summary


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


def _names(db: duckdb.DuckDBPyConnection) -> dict[tuple[Key, ...], str]:
    """Return the names of processes and threads from metadata events; of several names, the last one counts."""
    names: dict[tuple[Key, ...], str] = {}
    rows = db.execute(_NAMES, {"naming": list(_NAMING)})
    while batch := rows.fetchmany(10_000):
        for kind, pid, pid_text, tid, tid_text, args in batch:
            arguments = json.loads(args, parse_int=float)  # integers may be longer than Python accepts
            name = arguments.get(_NAMING[kind]) if isinstance(arguments, dict) else None
            if isinstance(name, str):
                key = (kind, key_of(pid, pid_text)) + ((key_of(tid, tid_text),) if kind == "thread_name" else ())
                names[key] = without_halves(name)
    return names


def steps_in(db: duckdb.DuckDBPyConnection) -> list[Step]:
    """Return the steps that host annotations in ``events`` mark, by start; of equal starts the longest comes first."""
    return [
        {
            "number": int(match[1]),
            "name": name,
            "start_ns": start,
            "end_ns": end,
            "pid": key_of(pid, pid_text),
            "tid": key_of(tid, tid_text),
        }
        for name, start, end, category, pid, pid_text, tid, tid_text in db.execute(_STEPS).fetchall()
        if category not in {"gpu_user_annotation", *GPU_CATEGORIES} and (match := _STEP.fullmatch(name))
    ]


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


def key_of(number: int | None, text: str | None) -> Key:
    """Return a pid or tid as an integer or a string. Other JSON values become their text, and a missing value "".

    Args:
        number: the value, if it is a 64-bit integer.
        text: the JSON text of any other value; None if the value is missing.
    """
    if number is not None:
        return number
    if text is None:
        return ""
    return decoded(text[1:-1].encode()) if text.startswith('"') else text


def _ordered(track: Iterable[Key]) -> list[tuple[bool, Key]]:
    """Return a sort key by which integers come before strings."""
    return [(type(part) is str, part) for part in track]

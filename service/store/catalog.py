"""The catalog: which traces there are and what is known of them; SQLite, one writer.

A trace's ``state`` is the outcome of its ingest job, and both change in one transaction, so that whatever is
killed when, a restart finds a job for each trace that is not finished; see `service.store.jobs`.
"""

import secrets
import sqlite3
import time
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from service.store.connection import Connection
from service.store.groups import group_named
from service.store.idempotency import note_made
from service.trace.errors import UnknownTrace

INGEST = "ingest"
"""The kind of job that reads a trace."""
_TWINS_MAX = 20
_SELECT = (
    "SELECT *, (SELECT max(id) FROM job WHERE job.trace = trace.id AND kind = 'ingest') AS job,"
    " (SELECT name FROM run_group WHERE run_group.id = group_id) AS group_name FROM trace"
)
_COLUMNS = (
    "id, name, state, error, created_ns, size, sha256, parent, selection, group_id, pinned, path, path_mark,"
    " json_set(json_remove(summary, '$.processes', '$.threads', '$.counts', '$.steps', '$.ranks'),"
    " '$.steps_count', json_array_length(summary, '$.steps')) AS summary"
)
_SELECT_BRIEF = _SELECT.replace("*", _COLUMNS, 1)


class State(StrEnum):
    """What has become of a trace."""

    QUEUED = "queued"
    INGESTING = "ingesting"
    READY = "ready"
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """Whether it stays so."""
        return self in (State.READY, State.FAILED)


@dataclass(frozen=True)
class Trace:
    """A trace as the catalog knows it; `summary` has the fields of `Summary` once it is ready, `job` reads it."""

    id: str
    name: str
    state: State
    error: dict[str, Any] | None
    created_ns: int
    size: int
    sha256: str
    summary: dict[str, Any] | None
    parent: str | None = None
    selection: dict[str, Any] | None = None
    group_id: str | None = None
    pinned: bool = False
    path: str | None = None
    path_mark: str | None = None
    job: int | None = None
    group_name: str | None = None

    @property
    def identity(self) -> str:
        """What tells it from all others: its digest, or its id where it was made here."""
        return self.sha256 or self.id

    @property
    def has_original(self) -> bool:
        """Whether it came as a file; if not, it was made here of other traces."""
        return bool(self.sha256)


def new_trace_id() -> str:
    """A fresh id: 12 hexadecimal digits."""
    return secrets.token_hex(6)


class Catalog:
    """The catalog in the SQLite file at `path`; its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.connection = Connection(path)
        self._transaction, self._rows = self.connection.transaction, self.connection.rows

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def add(  # noqa: PLR0913 - what is known of a trace when it comes
        self,
        trace_id: str,
        *,
        name: str,
        size: int,
        sha256: str,
        group: str | None = None,
        priority: int = 0,
        path: str | None = None,
        path_mark: str | None = None,
        summary: dict[str, Any] | None = None,
    ) -> Trace:
        """Record a trace whose original is safe, and queue its ingest.

        Args:
            trace_id: its id.
            name: the name it was given.
            size: bytes of the original.
            sha256: of these.
            group: the name of the group it belongs to, which is made if there is none.
            priority: of its ingest; the smaller go first.
            path: where the original lies, if not in the data folder.
            path_mark: by which one sees that somebody else changed it; see `service.store.outside`.
            summary: what is known of it already, and it is ready at once.
        """
        state = State.QUEUED if summary is None else State.READY
        told = None if summary is None else orjson.dumps(summary).decode()
        with self._transaction() as db:
            group_id = None if group is None else group_named(db, group)
            db.execute(
                "INSERT INTO trace (id, name, state, created_ns, size, sha256, summary, group_id, path, path_mark)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (trace_id, name, state, time.time_ns(), size, sha256, told, group_id, path, path_mark),
            )
            if summary is None:
                db.execute(
                    "INSERT INTO job (kind, trace, state, priority, created_ns) VALUES (?, ?, 'queued', ?, ?)",
                    (INGEST, trace_id, priority, time.time_ns()),
                )
            note_made(db, f"trace/{trace_id}")
        return self.get(trace_id)

    def get(self, trace_id: str) -> Trace:
        """The trace with that id; raises `UnknownTrace`."""
        rows = self._rows(f"{_SELECT} WHERE id = ?", (trace_id,))
        if not rows:
            raise UnknownTrace(f"No trace has the id {trace_id[:64]!r}.")
        return _trace(rows[0])

    def page(
        self,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        state: State | None = None,
        name: str = "",
        parent: str | None = None,
        group: str | None = None,
        brief: bool = False,
    ) -> list[Trace]:
        """Traces from the newest on.

        Args:
            limit: how many at most.
            after: (created_ns, id) of the last trace of the page before.
            state: only those in that state.
            name: only those whose name contains this, in any case.
            parent: only those that were cut out of that trace.
            group: only those of the group with that id.
            brief: whether their summaries are without lists that can be long; ``steps_count`` is in them instead.
        """
        rows = self._rows(
            f"{_SELECT_BRIEF if brief else _SELECT} WHERE (created_ns, id) < (?, ?) AND (? IS NULL OR state = ?)"
            " AND instr(casefold(name), casefold(?)) AND (? IS NULL OR parent = ?) AND (? IS NULL OR group_id = ?)"
            " ORDER BY created_ns DESC, id DESC LIMIT ?",
            (*(after or ((1 << 63) - 1, "")), state, state, name, parent, parent, group, group, limit),
        )
        return [_trace(row) for row in rows]

    def of_bytes(self, sha256: str, size: int) -> list[Trace]:
        """The oldest traces whose original has these bytes, those that are ready first."""
        rows = self._rows(
            f"{_SELECT} WHERE sha256 = ? AND size = ? ORDER BY state <> 'ready', created_ns LIMIT ?",
            (sha256, size, _TWINS_MAX),
        )
        return [_trace(row) for row in rows]

    def like(self, *, sha256: str, size: int, name: str, group: str | None) -> str | None:
        """The id of a trace with these bytes, under that name, in the group of that name, which did not fail."""
        rows = self._rows(
            "SELECT id FROM trace WHERE sha256 = ? AND size = ? AND name = ? AND state <> 'failed'"
            " AND (SELECT name FROM run_group WHERE run_group.id = group_id) IS ? ORDER BY created_ns LIMIT 1",
            (sha256, size, name, group),
        )
        return rows[0]["id"] if rows else None

    def change(self, trace_id: str, *, pinned: bool | None = None, group: str | None = None) -> Trace:
        """Pin a trace, which retention then leaves alone, or not; put it into the group of a name, "" for none.

        Raises:
            UnknownTrace: there is none.
        """
        self.get(trace_id)
        with self._transaction() as db:
            if pinned is not None:
                db.execute("UPDATE trace SET pinned = ? WHERE id = ?", (pinned, trace_id))
            if group is not None:
                group_id = group_named(db, group) if group else None
                db.execute("UPDATE trace SET group_id = ? WHERE id = ?", (group_id, trace_id))
        return self.get(trace_id)

    def oldest_loose(self, *, before_ns: int, but: Collection[str] = ()) -> Trace | None:
        """The oldest trace that nobody pinned and that is ready or failed, if it came before that, but for some."""
        rows = self._rows(
            f"{_SELECT} WHERE NOT pinned AND state IN ('ready', 'failed') AND created_ns < ?"
            " AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY created_ns, id LIMIT 1",
            (before_ns, orjson.dumps(list(but)).decode()),
        )
        return _trace(rows[0]) if rows else None

    def ids(self) -> list[str]:
        """The ids of all traces."""
        return [row["id"] for row in self._rows("SELECT id FROM trace")]

    def remove(self, trace_id: str) -> None:
        """Forget a trace, and cancel its ingest if that is not over; raises `UnknownTrace`."""
        self.get(trace_id)
        with self._transaction() as db:
            db.execute("DELETE FROM trace WHERE id = ?", (trace_id,))
            db.execute(
                "UPDATE job SET state = 'cancelled', ended_ns = ? WHERE trace = ? AND kind = ?"
                " AND state IN ('queued', 'running')",
                (time.time_ns(), trace_id, INGEST),
            )


def _trace(row: sqlite3.Row) -> Trace:
    values = dict(row)
    for key in ("error", "summary", "selection"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    return Trace(**values | {"state": State(values["state"]), "pinned": bool(values["pinned"])})

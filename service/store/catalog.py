"""The catalog of traces, in SQLite with one writer.

A trace's ``state`` follows the state of its ingest job. Both change in one transaction, so that every unfinished trace
has a job even after a crash; see `service.store.jobs`.
"""

import secrets
import sqlite3
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import orjson

from service.store.baselines import CURRENT
from service.store.connection import Connection
from service.store.groups import group_id_of
from service.store.idempotency import record_created
from service.trace.errors import ErrorDocument, UnknownTrace
from service.trace.summary import Summary

INGEST = "ingest"
"""The kind of the job that reads a trace."""
_TWINS_MAX = 20
_SELECT = (
    "SELECT *, (SELECT max(id) FROM job WHERE job.trace = trace.id AND kind = 'ingest') AS job,"
    " (SELECT name FROM run_group WHERE run_group.id = group_id) AS group_name FROM trace"
)
_COLUMNS = (
    "id, name, state, error, created_ns, size, sha256, parent, selection, group_id, pinned, path, path_mark,"
    " original_removed,"
    " json_set(json_remove(summary, '$.processes', '$.threads', '$.counts', '$.steps', '$.ranks'), '$.totals',"
    " json_object('steps', coalesce(summary ->> '$.totals.steps', json_array_length(summary, '$.steps'), 0)))"
    " AS summary"
)
_SELECT_BRIEF = _SELECT.replace("*", _COLUMNS, 1)


class State(StrEnum):
    """State of a trace."""

    QUEUED = "queued"
    INGESTING = "ingesting"
    READY = "ready"
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """True if the state is final."""
        return self in (State.READY, State.FAILED)


@dataclass(frozen=True)
class Trace:
    """A trace in the catalog.

    Attributes:
        summary: its summary; None until the trace is ready.
        error: the error of a failed ingest.
        sha256: digest of the original; empty if the service made the trace from other traces.
        parent: id of the trace that it was cut out of.
        selection: the selection by which it was cut out, as a JSON object in the form of the version that cut it.
        path: path of the original, or URL of the object, if it is outside of the data folder.
        path_mark: mark by which changes of an original that other programs can write are detected; see
            `service.store.external_files` and `service.store.external_objects`.
        original_removed: whether its original was removed, because files of its format hold secrets.
        job: id of its last ingest.
    """

    id: str
    name: str
    state: State
    error: ErrorDocument | None
    created_ns: int
    size: int
    sha256: str
    summary: Summary | None
    parent: str | None = None
    selection: Mapping[str, object] | None = None
    group_id: str | None = None
    pinned: bool = False
    path: str | None = None
    path_mark: str | None = None
    original_removed: bool = False
    job: int | None = None
    group_name: str | None = None

    @property
    def identity(self) -> str:
        """The digest of its original, or its id if it has none."""
        return self.sha256 or self.id

    @property
    def summary_or_empty(self) -> Summary:
        """The summary, or an empty one until the trace is ready."""
        return self.summary or Summary()

    @property
    def has_original(self) -> bool:
        """True if the trace was received as a file that is still kept; False if it was made from other traces."""
        return bool(self.sha256) and not self.original_removed


def new_trace_id() -> str:
    """Return a new id of 12 hexadecimal digits."""
    return secrets.token_hex(6)


class Catalog:
    """The catalog in the SQLite file at `path`; its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.connection = Connection(path)
        self._transaction, self._rows = self.connection.transaction, self.connection.rows

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def add(  # noqa: PLR0913 - the fields of a new trace
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
        summary: Summary | None = None,
        original_removed: bool = False,
    ) -> Trace:
        """Record a trace whose original is safely stored, and queue its ingest.

        Args:
            trace_id: its id.
            name: its name.
            size: size of the original in bytes.
            sha256: digest of the original.
            group: name of the group to put it into, which is created if it is missing.
            priority: priority of its ingest; smaller ones go first.
            path: path of the original, if it is outside of the data folder.
            path_mark: mark by which changes of the original are detected; see `service.store.external_files`.
            summary: its summary, if it is known already; the trace is then ready without an ingest.
            original_removed: whether its original is not kept.
        """
        state = State.QUEUED if summary is None else State.READY
        summary_text = None if summary is None else summary.as_json()
        with self._transaction() as db:
            group_id = None if group is None else group_id_of(db, group)
            db.execute(
                "INSERT INTO trace (id, name, state, created_ns, size, sha256, summary, group_id, path, path_mark,"
                " original_removed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(trace_id, name, state, time.time_ns(), size, sha256, summary_text, group_id, path, path_mark),
                    original_removed,
                ),
            )
            if summary is None:
                db.execute(
                    "INSERT INTO job (kind, trace, state, priority, created_ns) VALUES (?, ?, 'queued', ?, ?)",
                    (INGEST, trace_id, priority, time.time_ns()),
                )
            record_created(db, f"trace/{trace_id}")
        return self.get(trace_id)

    def queue_again(self, trace_id: str, *, priority: int) -> Trace:
        """Queue the ingest of a failed trace again, unless another call did, and return the trace."""
        with self._transaction() as db:
            update = db.execute(
                "UPDATE trace SET state = ?, error = NULL WHERE id = ? AND state = ?",
                (State.QUEUED, trace_id, State.FAILED),
            )
            if update.rowcount:
                db.execute(
                    "INSERT INTO job (kind, trace, state, priority, created_ns) VALUES (?, ?, 'queued', ?, ?)",
                    (INGEST, trace_id, priority, time.time_ns()),
                )
        return self.get(trace_id)

    def get(self, trace_id: str) -> Trace:
        """Return the trace with an id; raises `UnknownTrace`."""
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
        """Return a page of traces, the newest first.

        Args:
            limit: largest number of traces.
            after: (created_ns, id) of the last trace of the previous page.
            state: return only traces in this state.
            name: return only traces whose name contains this text, ignoring case.
            parent: return only traces that were cut out of this trace.
            group: return only traces of the group with this id.
            brief: leave long lists out of the summaries; `totals` then has only the number of steps.
        """
        rows = self._rows(
            f"{_SELECT_BRIEF if brief else _SELECT} WHERE (created_ns, id) < (?, ?) AND (? IS NULL OR state = ?)"
            " AND instr(casefold(name), casefold(?)) AND (? IS NULL OR parent = ?) AND (? IS NULL OR group_id = ?)"
            " ORDER BY created_ns DESC, id DESC LIMIT ?",
            (*(after or ((1 << 63) - 1, "")), state, state, name, parent, parent, group, group, limit),
        )
        return [_trace(row) for row in rows]

    def ready_of_rank(self, group: str, rank: int | None) -> list[Trace]:
        """Return the ready traces of a rank in a group, the oldest first; None stands for those of unknown rank."""
        rows = self._rows(
            f"{_SELECT} WHERE group_id = ? AND summary ->> '$.rank' IS ? AND state = 'ready' ORDER BY created_ns, id",
            (group, rank),
        )
        return [_trace(row) for row in rows]

    def find_by_bytes(self, sha256: str, size: int) -> list[Trace]:
        """Return the oldest traces whose original has these bytes; ready ones come first."""
        rows = self._rows(
            f"{_SELECT} WHERE sha256 = ? AND size = ? ORDER BY state <> 'ready', created_ns LIMIT ?",
            (sha256, size, _TWINS_MAX),
        )
        return [_trace(row) for row in rows]

    def find_like(self, *, sha256: str, size: int, name: str, group: str | None) -> str | None:
        """Return the id of a trace with these bytes, name and group name that has not failed, or None."""
        rows = self._rows(
            "SELECT id FROM trace WHERE sha256 = ? AND size = ? AND name = ? AND state <> 'failed'"
            " AND (SELECT name FROM run_group WHERE run_group.id = group_id) IS ? ORDER BY created_ns LIMIT 1",
            (sha256, size, name, group),
        )
        return rows[0]["id"] if rows else None

    def update(self, trace_id: str, *, pinned: bool | None = None, group: str | None = None) -> Trace:
        """Update the given fields of a trace, and return the trace.

        Args:
            trace_id: its id.
            pinned: whether retention keeps it.
            group: name of its group, which is created if it is missing; "" takes the trace out of its group.

        Raises:
            UnknownTrace: no trace has this id.
        """
        self.get(trace_id)
        with self._transaction() as db:
            if pinned is not None:
                db.execute("UPDATE trace SET pinned = ? WHERE id = ?", (pinned, trace_id))
            if group is not None:
                group_id = group_id_of(db, group) if group else None
                db.execute("UPDATE trace SET group_id = ? WHERE id = ?", (group_id, trace_id))
        return self.get(trace_id)

    def oldest_removable(self, *, before_ns: int, excluding: Collection[str] = ()) -> Trace | None:
        """Return the oldest removable trace that is older than `before_ns`, or None.

        Such a trace is ready or failed, not pinned, and no baseline's target, nor in a group that is one.
        """
        rows = self._rows(
            f"{_SELECT} WHERE NOT pinned AND state IN ('ready', 'failed') AND created_ns < ?"
            f" AND NOT EXISTS (SELECT 1 FROM baseline WHERE {CURRENT}"
            " AND (baseline.trace = trace.id OR baseline.group_id = trace.group_id))"
            " AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY created_ns, id LIMIT 1",
            (before_ns, orjson.dumps(list(excluding)).decode()),
        )
        return _trace(rows[0]) if rows else None

    def ids(self) -> list[str]:
        """Return the ids of all traces."""
        return [row["id"] for row in self._rows("SELECT id FROM trace")]

    def ids_without_original(self) -> list[str]:
        """Return the ids of the traces whose original was removed."""
        return [row["id"] for row in self._rows("SELECT id FROM trace WHERE original_removed")]

    def remove(self, trace_id: str) -> None:
        """Delete a trace, and cancel its ingest if that is unfinished; raises `UnknownTrace`."""
        self.get(trace_id)
        with self._transaction() as db:
            db.execute("DELETE FROM trace WHERE id = ?", (trace_id,))
            # in the same transaction, so that the object of a direct upload is removed even after a crash
            db.execute(
                "UPDATE direct_upload SET ended_ns = ifnull(ended_ns, ?) WHERE id = ?", (time.time_ns(), trace_id)
            )
            db.execute(
                "UPDATE job SET state = 'cancelled', ended_ns = ? WHERE trace = ? AND kind = ?"
                " AND state IN ('queued', 'running')",
                (time.time_ns(), trace_id, INGEST),
            )


def _trace(row: sqlite3.Row) -> Trace:
    values = dict(row)
    for key in ("error", "selection"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    values["error"] = ErrorDocument.from_dict(values["error"]) if values["error"] else None
    values["summary"] = Summary.from_json(values["summary"]) if values["summary"] else None
    return Trace(
        **values
        | {
            "state": State(values["state"]),
            "pinned": bool(values["pinned"]),
            "original_removed": bool(values["original_removed"]),
        }
    )

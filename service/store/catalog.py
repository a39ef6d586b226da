"""The catalog: which traces there are and what is known of them, and which jobs wait; SQLite, one writer.

A trace's ``state`` is the outcome of its ingest job, and both change in one transaction, so that whatever is
killed when, a restart finds a job for each trace that is not finished.
"""

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from service.trace.errors import DiskFull, TracedockError, UnknownJob, UnknownTrace
from service.trace.summary import Summary

_SCHEMA_VERSION = 3
_TRACE = """
CREATE TABLE trace (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT,
    created_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    summary TEXT,
    parent TEXT,
    selection TEXT
) STRICT;
CREATE INDEX trace_newest ON trace (created_ns DESC, id DESC);
"""
_JOB = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    trace TEXT REFERENCES trace (id) ON DELETE CASCADE,
    request TEXT NOT NULL DEFAULT '{}',
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    result TEXT,
    events INTEGER NOT NULL DEFAULT 0,
    error TEXT
) STRICT;
CREATE INDEX job_waiting ON job (state, id);
"""
_MIGRATIONS = {
    1: (  # made no columns: every trace is read anew
        "UPDATE trace SET state = 'queued', error = NULL, summary = NULL; DELETE FROM job;"
        "INSERT INTO job (kind, trace, state) SELECT 'ingest', id, 'queued' FROM trace;"
    ),
    2: "".join(  # made no traces of traces
        [
            "ALTER TABLE trace ADD COLUMN parent TEXT; ALTER TABLE trace ADD COLUMN selection TEXT;",
            "DROP INDEX job_waiting; ALTER TABLE job RENAME TO old;",
            _JOB,
            "INSERT INTO job (id, kind, trace, state, attempts) SELECT id, kind, trace, state, attempts FROM old;",
            "DROP TABLE old;",
        ]
    ),
}
"""What brings the tables of a version to those of the next."""


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
    """A trace as the catalog knows it; `summary` has the fields of `Summary` once it is ready."""

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

    @property
    def identity(self) -> str:
        """What tells it from all others: its digest, or its id where it was made here."""
        return self.sha256 or self.id

    @property
    def has_original(self) -> bool:
        """Whether it came as a file; if not, it was made here of other traces."""
        return bool(self.sha256)


class JobState(StrEnum):
    """What has become of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether it stays so."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True)
class Job:
    """A piece of work that is to be done: `kind` says what, `attempts` how often it was begun.

    An ingest makes `trace` ready, and is gone once it is over. Other jobs make traces, as their `request` says, and
    stay, with the ids of what they made as `result` and how many `events` these have, or with an `error`.
    """

    id: int
    kind: str
    trace: str
    attempts: int
    state: JobState = JobState.QUEUED
    request: dict[str, Any] = field(default_factory=dict)
    result: list[str] | None = None
    events: int = 0
    error: dict[str, Any] | None = None


INGEST = "ingest"
"""The kind of job that reads a trace."""


def new_trace_id() -> str:
    """A fresh id: 12 hexadecimal digits."""
    return secrets.token_hex(6)


class Catalog:
    """The catalog in the SQLite file at `path`; its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._prepare(path)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path) -> None:
        """Set up the connection, and the tables in a file that is new."""
        self._db.row_factory = sqlite3.Row
        self._db.create_function("casefold", 1, str.casefold, deterministic=True)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        with self._transaction() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= version <= _SCHEMA_VERSION:
                raise TracedockError(
                    f"{path} has the schema version {version}; this version of the service reads {_SCHEMA_VERSION}."
                )
            steps = [_TRACE + _JOB] if not version else [_MIGRATIONS[at] for at in range(version, _SCHEMA_VERSION)]
            for statement in filter(str.strip, "".join(steps).split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:  # a full disk may have rolled back already
                    self._db.execute("ROLLBACK")
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    raise DiskFull("The disk of the data folder has no room for the catalog.") from error
                raise

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock, closing(self._db.execute(sql, values)) as cursor:
            return cursor.fetchall()

    def add(self, trace_id: str, *, name: str, size: int, sha256: str) -> Trace:
        """Record a trace whose original is safe, and queue its ingest."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO trace (id, name, state, created_ns, size, sha256) VALUES (?, ?, ?, ?, ?, ?)",
                (trace_id, name, State.QUEUED, time.time_ns(), size, sha256),
            )
            db.execute("INSERT INTO job (kind, trace, state) VALUES ('ingest', ?, 'queued')", (trace_id,))
        return self.get(trace_id)

    def get(self, trace_id: str) -> Trace:
        """The trace with that id; raises `UnknownTrace`."""
        rows = self._rows("SELECT * FROM trace WHERE id = ?", (trace_id,))
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
    ) -> list[Trace]:
        """Traces from the newest on.

        Args:
            limit: how many at most.
            after: (created_ns, id) of the last trace of the page before.
            state: only those in that state.
            name: only those whose name contains this, in any case.
            parent: only those that were cut out of that trace.
        """
        rows = self._rows(
            "SELECT * FROM trace WHERE (created_ns, id) < (?, ?) AND (? IS NULL OR state = ?)"
            " AND instr(casefold(name), casefold(?)) AND (? IS NULL OR parent = ?)"
            " ORDER BY created_ns DESC, id DESC LIMIT ?",
            (*(after or ((1 << 63) - 1, "")), state, state, name, parent, parent, limit),
        )
        return [_trace(row) for row in rows]

    def ids(self) -> list[str]:
        """The ids of all traces."""
        return [row["id"] for row in self._rows("SELECT id FROM trace")]

    def remove(self, trace_id: str) -> None:
        """Forget a trace and its jobs; raises `UnknownTrace`."""
        self.get(trace_id)
        with self._transaction() as db:
            db.execute("DELETE FROM trace WHERE id = ?", (trace_id,))

    def requeue(self) -> None:
        """Put back into the queue what was running when the server before this one ended."""
        with self._transaction() as db:
            db.execute("UPDATE job SET state = 'queued' WHERE state = 'running'")
            db.execute("UPDATE trace SET state = ? WHERE state = ?", (State.QUEUED, State.INGESTING))

    def take_job(self, trace_id: str | None = None) -> Job | None:
        """Begin the oldest ingest that waits, or that waits for one trace; None if there is none."""
        with self._transaction() as db:
            row = db.execute(
                "UPDATE job SET state = 'running', attempts = attempts + 1"
                " WHERE id = (SELECT id FROM job WHERE state = 'queued' AND kind = ? AND trace = ifnull(?, trace)"
                " ORDER BY id LIMIT 1) RETURNING *",
                (INGEST, trace_id),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE trace SET state = ? WHERE id = ?", (State.INGESTING, row["trace"]))
        return _job(row)

    def retry(self, job: Job) -> None:
        """Put a job back into the queue."""
        with self._transaction() as db:
            db.execute("UPDATE job SET state = 'queued' WHERE id = ?", (job.id,))
            db.execute("UPDATE trace SET state = ? WHERE id = ?", (State.QUEUED, job.trace))

    def finish(self, job: Job, summary: Summary) -> None:
        """The job is done: its trace is ready."""
        self._settle(job, State.READY, "summary", orjson.dumps(asdict(summary)))

    def fail(self, job: Job, error: dict[str, Any]) -> None:
        """The job is done: its trace can't be had, for `error`."""
        self._settle(job, State.FAILED, "error", orjson.dumps(error))

    def _settle(self, job: Job, state: State, column: str, value: bytes) -> None:
        with self._transaction() as db:
            db.execute(
                f"UPDATE trace SET state = ?, {column} = ? WHERE id = ?",  # noqa: S608 - the column is ours
                (state, value.decode(), job.trace),
            )
            db.execute("DELETE FROM job WHERE id = ?", (job.id,))

    # -- jobs that make traces ----------------------------------------------------------------------------------------

    def add_job(self, kind: str, request: dict[str, Any]) -> Job:
        """Queue a job that makes traces of others."""
        with self._transaction() as db:
            row = db.execute(
                "INSERT INTO job (kind, request, state) VALUES (?, ?, 'queued') RETURNING *",
                (kind, orjson.dumps(request).decode()),
            ).fetchone()
        return _job(row)

    def job(self, job_id: int) -> Job:
        """A job that makes traces; raises `UnknownJob`."""
        rows = self._rows("SELECT * FROM job WHERE id = ? AND kind <> ?", (job_id, INGEST)) if job_id < 1 << 63 else []
        if not rows:
            raise UnknownJob(f"No job has the id {job_id}.")
        return _job(rows[0])

    def unfinished_jobs(self) -> list[Job]:
        """The jobs that make traces and are not over, the oldest first."""
        rows = self._rows("SELECT * FROM job WHERE state IN ('queued', 'running') AND kind <> ? ORDER BY id", (INGEST,))
        return [_job(row) for row in rows]

    def begin_job(self, job: Job) -> Job:
        """Begin a job that makes traces."""
        with self._transaction() as db:
            row = db.execute(
                "UPDATE job SET state = 'running', attempts = attempts + 1 WHERE id = ? RETURNING *", (job.id,)
            ).fetchone()
        return _job(row)

    def finish_job(self, job: Job, traces: Sequence[Trace], *, events: int) -> None:
        """The job is done: the traces that it made, with so many events in all, are ready."""
        with self._transaction() as db:
            for one in traces:
                db.execute(
                    "INSERT INTO trace (id, name, state, created_ns, size, sha256, summary, parent, selection)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(one.id, one.name, one.state, one.created_ns, one.size, one.sha256),
                        *(orjson.dumps(one.summary).decode(), one.parent),
                        orjson.dumps(one.selection).decode() if one.selection is not None else None,
                    ),
                )
            db.execute(
                "UPDATE job SET state = 'done', result = ?, events = ? WHERE id = ?",
                (orjson.dumps([one.id for one in traces]).decode(), events, job.id),
            )

    def end_job(self, job: Job, state: JobState, error: dict[str, Any] | None = None) -> None:
        """The job made nothing."""
        with self._transaction() as db:
            told = orjson.dumps(error).decode() if error else None
            db.execute("UPDATE job SET state = ?, error = ? WHERE id = ?", (state, told, job.id))


def _trace(row: sqlite3.Row) -> Trace:
    values = dict(row)
    for key in ("error", "summary", "selection"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    return Trace(**values | {"state": State(values["state"])})


def _job(row: sqlite3.Row) -> Job:
    values = dict(row)
    for key in ("request", "result", "error"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    return Job(**values | {"trace": values["trace"] or "", "state": JobState(values["state"])})

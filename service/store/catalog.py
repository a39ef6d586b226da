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
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from service.trace.errors import DiskFull, TracedockError, UnknownTrace
from service.trace.summary import Summary

_SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE trace (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    error TEXT,
    created_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    summary TEXT
) STRICT;
CREATE INDEX trace_newest ON trace (created_ns DESC, id DESC);
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    trace TEXT NOT NULL REFERENCES trace (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_waiting ON job (state, id);
"""


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


@dataclass(frozen=True)
class Job:
    """A piece of work that is to be done: `kind` says what, `attempts` how often it was begun."""

    id: int
    kind: str
    trace: str
    attempts: int


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
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
            elif version == 1:  # made no columns: every trace is read anew
                db.execute("UPDATE trace SET state = ?, error = NULL, summary = NULL", (State.QUEUED,))
                db.execute("DELETE FROM job")
                db.execute("INSERT INTO job (kind, trace, state) SELECT 'ingest', id, 'queued' FROM trace")
            elif version != _SCHEMA_VERSION:
                raise TracedockError(
                    f"{path} has the schema version {version}; this version of the service reads {_SCHEMA_VERSION}."
                )
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
        self, *, limit: int, after: tuple[int, str] | None = None, state: State | None = None, name: str = ""
    ) -> list[Trace]:
        """Traces from the newest on.

        Args:
            limit: how many at most.
            after: (created_ns, id) of the last trace of the page before.
            state: only those in that state.
            name: only those whose name contains this, in any case.
        """
        rows = self._rows(
            "SELECT * FROM trace WHERE (created_ns, id) < (?, ?) AND (? IS NULL OR state = ?)"
            " AND instr(casefold(name), casefold(?)) ORDER BY created_ns DESC, id DESC LIMIT ?",
            (*(after or ((1 << 63) - 1, "")), state, state, name, limit),
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
        """Begin the oldest job that waits, or that waits for one trace; None if there is none."""
        with self._transaction() as db:
            row = db.execute(
                "UPDATE job SET state = 'running', attempts = attempts + 1"
                " WHERE id = (SELECT id FROM job WHERE state = 'queued' AND trace = ifnull(?, trace)"
                " ORDER BY id LIMIT 1)"
                " RETURNING id, kind, trace, attempts",
                (trace_id,),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE trace SET state = ? WHERE id = ?", (State.INGESTING, row["trace"]))
        return Job(**dict(row))

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


def _trace(row: sqlite3.Row) -> Trace:
    values = dict(row)
    for key in ("error", "summary"):
        values[key] = orjson.loads(values[key]) if values[key] else None
    return Trace(**values | {"state": State(values["state"])})

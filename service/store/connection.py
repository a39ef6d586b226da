"""Connection to the catalog's SQLite file, with its tables and their migrations."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from service.trace.errors import CatalogInUse, CatalogUnwritable, DiskFull, TracedockError

_FULL_DISK_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""SQLite's error codes for a full disk: for the file, and for the index of its log."""

_BASE_VERSION = 3
"""Version of the tables below; later changes are in the migrations."""
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
    1: (  # version 1 has no columns: every trace is ingested again
        "UPDATE trace SET state = 'queued', error = NULL, summary = NULL; DELETE FROM job;"
        "INSERT INTO job (kind, trace, state) SELECT 'ingest', id, 'queued' FROM trace;"
    ),
    2: "".join(  # version 2 has no children of traces
        [
            "ALTER TABLE trace ADD COLUMN parent TEXT; ALTER TABLE trace ADD COLUMN selection TEXT;",
            "DROP INDEX job_waiting; ALTER TABLE job RENAME TO old;",
            _JOB,
            "INSERT INTO job (id, kind, trace, state, attempts) SELECT id, kind, trace, state, attempts FROM old;",
            "DROP TABLE old;",
        ]
    ),
    3: "".join(  # version 3 has no groups, no history of ingests, and no files with several names
        [
            "CREATE TABLE run_group (id TEXT PRIMARY KEY, name TEXT NOT NULL, run_id TEXT,",
            " created_ns INTEGER NOT NULL) STRICT;",
            "CREATE UNIQUE INDEX run_group_name ON run_group (name);",
            "ALTER TABLE trace ADD COLUMN group_id TEXT REFERENCES run_group (id) ON DELETE SET NULL;",
            "ALTER TABLE trace ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;",
            "ALTER TABLE trace ADD COLUMN path TEXT;",
            "ALTER TABLE trace ADD COLUMN path_mark TEXT;",
            "CREATE INDEX trace_group ON trace (group_id); CREATE INDEX trace_bytes ON trace (sha256, size);",
            "DROP INDEX job_waiting; ALTER TABLE job RENAME TO old;",
            "CREATE TABLE job (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, trace TEXT,",
            " request TEXT NOT NULL DEFAULT '{}', state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,",
            " result TEXT, events INTEGER NOT NULL DEFAULT 0, error TEXT, priority INTEGER NOT NULL DEFAULT 0,",
            " created_ns INTEGER NOT NULL DEFAULT 0, started_ns INTEGER, ended_ns INTEGER) STRICT;",
            "INSERT INTO job (id, kind, trace, request, state, attempts, result, events, error) SELECT id, kind,",
            " trace, request, state, attempts, json_object('traces', json(result)), events, error FROM old;",
            "UPDATE job SET result = NULL WHERE state <> 'done'; DROP TABLE old;",
            "CREATE INDEX job_waiting ON job (state, priority, id); CREATE INDEX job_trace ON job (trace);",
            "CREATE TABLE idempotency (key TEXT NOT NULL, caller TEXT NOT NULL, digest TEXT NOT NULL, made TEXT,",
            " status INTEGER, headers TEXT, body BLOB, created_ns INTEGER NOT NULL, PRIMARY KEY (key, caller)) STRICT;",
            "CREATE TABLE import_order (id TEXT PRIMARY KEY, request TEXT NOT NULL, job INTEGER, created_ns INTEGER",
            " NOT NULL, ended_ns INTEGER) STRICT;",
            "CREATE TABLE import_file (import_id TEXT NOT NULL REFERENCES import_order (id) ON DELETE CASCADE,",
            " path TEXT NOT NULL, mark TEXT NOT NULL, trace TEXT, why TEXT, PRIMARY KEY (import_id, path)) STRICT;",
        ]
    ),
    4: (  # version 4 lacks the index that lists the library without reading long summaries
        "CREATE INDEX trace_listed ON trace (id, name, state, created_ns, size, sha256, group_id, pinned);"
    ),
    5: "".join(  # version 5 has no baselines
        [
            "CREATE TABLE baseline (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, kind TEXT NOT NULL,",
            " trace TEXT REFERENCES trace (id) ON DELETE SET NULL,",
            " group_id TEXT REFERENCES run_group (id) ON DELETE SET NULL,",
            " target_name TEXT NOT NULL, set_ns INTEGER NOT NULL) STRICT;",
            "CREATE INDEX baseline_name ON baseline (name, id); CREATE INDEX baseline_trace ON baseline (trace);",
            "CREATE INDEX baseline_group ON baseline (group_id);",
        ]
    ),
    6: (  # version 6 keeps all originals
        "ALTER TABLE trace ADD COLUMN original_removed INTEGER NOT NULL DEFAULT 0;"
    ),
    7: "".join(  # version 7 has no direct uploads
        [
            "CREATE TABLE direct_upload (id TEXT PRIMARY KEY, url TEXT NOT NULL, name TEXT NOT NULL,",
            " size INTEGER NOT NULL, group_name TEXT, priority INTEGER NOT NULL, client TEXT NOT NULL,",
            " url_expires_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, ended_ns INTEGER, removed_ns INTEGER)",
            " STRICT; CREATE INDEX direct_upload_ended ON direct_upload (ended_ns);",
        ]
    ),
    8: "".join(  # version 8 has no attachments
        [
            "CREATE TABLE attachment (id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL,",
            " trace TEXT REFERENCES trace (id) ON DELETE SET NULL,",
            " group_id TEXT REFERENCES run_group (id) ON DELETE SET NULL,",
            " rank INTEGER, size INTEGER NOT NULL, sha256 TEXT NOT NULL, created_ns INTEGER NOT NULL) STRICT;",
            "CREATE INDEX attachment_trace ON attachment (trace);",
            "CREATE INDEX attachment_group ON attachment (group_id);",
        ]
    ),
    9: (  # version 9 lacks the index that finds the traces of a rank without reading the summaries of its run
        "CREATE INDEX trace_rank ON trace (group_id, summary ->> '$.rank');"
    ),
}
SCHEMA_VERSION = max(_MIGRATIONS) + 1
"""Version of the catalog's tables; a further migration raises it."""
"""Statements that migrate the tables from each version to the next one."""


class Connection:
    """A connection to the file at `path`, with the tables of this version. It may be used from any thread."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = open_database(path)
        try:
            self._prepare(path)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path) -> None:
        """Set up the connection, and create or migrate the tables."""
        self._db.row_factory = sqlite3.Row
        self._db.create_function("casefold", 1, str.casefold, deterministic=True)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        with self.transaction() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= version <= SCHEMA_VERSION:
                raise TracedockError(
                    f"{path} has the schema version {version}; this version of the service reads {SCHEMA_VERSION}."
                )
            steps = [] if version else [_TRACE + _JOB]
            steps += [_MIGRATIONS[old_version] for old_version in range(version or _BASE_VERSION, SCHEMA_VERSION)]
            for statement in filter(str.strip, "".join(steps).split(";")):
                db.execute(statement)
            if version != SCHEMA_VERSION:  # on a full disk even a write without a change fails
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run an atomic transaction; raises `DiskFull` if the disk has no room for it."""
        with self._lock, full_disk("the catalog"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # on a full disk SQLite may have rolled back already
                    self._db.execute("ROLLBACK")
                raise

    def check_writable(self) -> None:
        """Raise `CatalogUnwritable` if the file can't be written."""
        try:
            with self._lock:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                finally:
                    self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise CatalogUnwritable(f"The catalog can't be written: {error}.") from error

    def version(self) -> tuple[int, int]:
        """Return a value that differs after each change of the file, by this connection or by another one."""
        with self._lock:
            return self._db.total_changes, self._db.execute("PRAGMA data_version").fetchone()[0]

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._lock, closing(self._db.execute(sql, values)) as cursor:
            return cursor.fetchall()


def open_database(path: Path) -> sqlite3.Connection:
    """Open or create a database with a write-ahead log; any thread may use the connection.

    The index of the log takes 32 KB on disk. Without room for it the connection keeps the index in memory and locks
    the database exclusively.

    Raises:
        DiskFull: the disk has no room for a new file.
        CatalogInUse: another connection has locked the database.
    """
    with full_disk(path.name):
        try:
            return _open_with_log(path, "NORMAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                detail = f"{path.name} is locked by a server that started on a full disk: make room and restart it."
                raise CatalogInUse(detail) from error
            if error.sqlite_errorcode != sqlite3.SQLITE_IOERR_SHMSIZE:
                raise
            return _open_with_log(path, "EXCLUSIVE")


def _open_with_log(path: Path, locking: str) -> sqlite3.Connection:
    """Open a database with a write-ahead log in one of SQLite's locking modes."""
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute(f"PRAGMA locking_mode = {locking}")
        db.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def full_disk(file: str) -> Iterator[None]:
    """Turn SQLite's errors for a full disk into `DiskFull`.

    Args:
        file: name of the written file for the message.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in _FULL_DISK_CODES:
            raise DiskFull(f"The disk of the data folder has no room for {file}.") from error
        raise

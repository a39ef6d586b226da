"""Connections to an untrusted SQLite database: read-only, bounded, and authorised for a few reads alone."""

import sqlite3
from pathlib import Path

from service.formats.nsys.queries import authorize

_VALUE_MAX = 64 << 20  # bytes of a value
_CACHE_KIB = 16 << 10
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _VALUE_MAX,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 2000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_PRAGMAS = (
    *("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0", "temp_store = MEMORY"),
    f"cache_size = -{_CACHE_KIB}",
)


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection for one thread at a time.

    Two threads must not use the same connection: one would wait for SQLite's lock with Python's, the other vice versa.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes  # texts may be no valid UTF-8
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()
    connection.set_authorizer(authorize)
    return connection

"""What is to be imported, and what became of each file: so that after a restart none is taken twice, and none not."""

import secrets
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

import orjson

from service.store.connection import Connection
from service.trace.errors import UnknownImport

KEPT = 1000
"""Orders that are over and stay."""
ARRIVING = "arriving"
"""Why a file has no trace yet whose id is noted: it becomes one just now."""


@dataclass(frozen=True)
class Order:
    """An order to import: its `request`, and the last `job` that works on it. One that watches ends when it is told."""

    id: str
    request: dict[str, Any]
    job: int | None
    created_ns: int
    ended_ns: int | None

    @property
    def watches(self) -> bool:
        """Whether new files are still taken."""
        return self.ended_ns is None


@dataclass(frozen=True)
class File:
    """A file of an order: the trace that it became, or why it became none; its `mark` tells whether it has changed."""

    path: str
    mark: str
    trace: str | None
    why: str | None


class Imports:
    """The orders in the catalog's file."""

    def __init__(self, connection: Connection) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows

    def add(self, request: dict[str, Any], *, watch: bool) -> Order:
        """Note an order, and forget old ones that are over."""
        order_id, now = secrets.token_hex(6), time.time_ns()
        with self._transaction() as db:
            db.execute(
                "INSERT INTO import_order (id, request, created_ns, ended_ns) VALUES (?, ?, ?, ?)",
                (order_id, orjson.dumps(request).decode(), now, None if watch else now),
            )
            db.execute(
                "DELETE FROM import_order WHERE id IN (SELECT id FROM import_order WHERE ended_ns IS NOT NULL"
                " ORDER BY created_ns DESC LIMIT -1 OFFSET ?) AND job IS NOT NULL"
                " AND job NOT IN (SELECT id FROM job WHERE state IN ('queued', 'running'))",
                (KEPT,),
            )
        return self.get(order_id)

    def get(self, order_id: str) -> Order:
        """The order with that id; raises `UnknownImport`."""
        rows = self._rows("SELECT * FROM import_order WHERE id = ?", (order_id,))
        if not rows:
            raise UnknownImport(f"No import has the id {order_id[:64]!r}.")
        return _order(rows[0])

    def watching(self) -> list[Order]:
        """The orders that watch, the oldest first."""
        return [
            _order(row) for row in self._rows("SELECT * FROM import_order WHERE ended_ns IS NULL ORDER BY created_ns")
        ]

    def worked_on(self, order_id: str, job_id: int) -> None:
        """Note the job that works on an order."""
        with self._transaction() as db:
            db.execute("UPDATE import_order SET job = ? WHERE id = ?", (job_id, order_id))

    def end(self, order_id: str) -> Order:
        """Let an order watch no more; raises `UnknownImport`."""
        self.get(order_id)
        with self._transaction() as db:
            db.execute(
                "UPDATE import_order SET ended_ns = ifnull(ended_ns, ?) WHERE id = ?", (time.time_ns(), order_id)
            )
        return self.get(order_id)

    def note(self, order_id: str, file: File) -> None:
        """Note what became of a file."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO import_file (import_id, path, mark, trace, why) VALUES (?, ?, ?, ?, ?)",
                (order_id, file.path, file.mark, file.trace, file.why),
            )

    def file(self, order_id: str, path: str) -> File | None:
        """What is known of a file, if anything."""
        rows = self._rows("SELECT * FROM import_file WHERE import_id = ? AND path = ?", (order_id, path))
        return _file(rows[0]) if rows else None

    def marks(self, order_id: str) -> dict[str, str]:
        """The marks of the files that are known."""
        rows = self._rows("SELECT path, mark FROM import_file WHERE import_id = ?", (order_id,))
        return {row["path"]: row["mark"] for row in rows}

    def files(self, order_id: str, *, limit: int, after: str = "") -> list[File]:
        """What became of the files, by their paths, from those after a path on."""
        rows = self._rows(
            "SELECT * FROM import_file WHERE import_id = ? AND path > ? ORDER BY path LIMIT ?", (order_id, after, limit)
        )
        return [_file(row) for row in rows]

    def counts(self, order_id: str) -> tuple[int, int]:
        """How many files became traces, and how many did not."""
        (row,) = self._rows(
            "SELECT count(trace) AS taken, count(*) - count(trace) AS skipped FROM import_file WHERE import_id = ?",
            (order_id,),
        )
        return row["taken"], row["skipped"]


def _order(row: sqlite3.Row) -> Order:
    return Order(**dict(row) | {"request": orjson.loads(row["request"])})


def _file(row: sqlite3.Row) -> File:
    return File(row["path"], row["mark"], row["trace"], row["why"])

"""Import orders with the outcome of each file, so that each file is imported exactly once despite restarts."""

import secrets
import sqlite3
import time
from dataclasses import dataclass

import orjson

from service.store.connection import Connection
from service.store.file_import import Mode
from service.trace.errors import UnknownImport

KEPT = 1000
"""Number of ended orders that are kept."""
ARRIVING = "arriving"
"""The `why` of a file whose trace is still being recorded."""


@dataclass(frozen=True)
class ImportSpec:
    """Specification of an import, as the catalog keeps it.

    Attributes:
        path: a file, a folder, a pattern or an archive, below an import root.
        mode: how to import the files; see `FileImporter.import_file`.
        group: name of the group of the traces; None for none.
        name: file name of the trace; None for the name of the file.
        watch: whether new files are imported, too, until the order is ended.
    """

    path: str
    mode: Mode
    group: str | None = None
    name: str | None = None
    watch: bool = False


@dataclass(frozen=True)
class Order:
    """An order to import files: its specification, and the last `job` that works on it."""

    id: str
    spec: ImportSpec
    job: int | None
    created_ns: int
    ended_ns: int | None

    @property
    def watches(self) -> bool:
        """True if the order still imports new files."""
        return self.ended_ns is None


@dataclass(frozen=True)
class File:
    """A file of an order.

    Attributes:
        mark: mark by which changes of the file are detected; see `service.store.external_files`.
        trace: id of the trace that the file became, or None.
        why: the reason if the file did not become a trace.
    """

    path: str
    mark: str
    trace: str | None
    why: str | None


class Imports:
    """The import orders in the catalog's file."""

    def __init__(self, connection: Connection) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows

    def add(self, spec: ImportSpec) -> Order:
        """Record an order, and delete the oldest ended ones."""
        order_id, now = secrets.token_hex(6), time.time_ns()
        with self._transaction() as db:
            db.execute(
                "INSERT INTO import_order (id, request, created_ns, ended_ns) VALUES (?, ?, ?, ?)",
                (order_id, orjson.dumps(spec).decode(), now, None if spec.watch else now),
            )
            db.execute(
                "DELETE FROM import_order WHERE id IN (SELECT id FROM import_order WHERE ended_ns IS NOT NULL"
                " ORDER BY created_ns DESC LIMIT -1 OFFSET ?) AND job IS NOT NULL"
                " AND job NOT IN (SELECT id FROM job WHERE state IN ('queued', 'running'))",
                (KEPT,),
            )
        return self.get(order_id)

    def get(self, order_id: str) -> Order:
        """Return the order with an id; raises `UnknownImport`."""
        rows = self._rows("SELECT * FROM import_order WHERE id = ?", (order_id,))
        if not rows:
            raise UnknownImport(f"No import has the id {order_id[:64]!r}.")
        return _order(rows[0])

    def watching(self) -> list[Order]:
        """Return the orders that are watching, the oldest first."""
        return [
            _order(row) for row in self._rows("SELECT * FROM import_order WHERE ended_ns IS NULL ORDER BY created_ns")
        ]

    def set_job(self, order_id: str, job_id: int) -> None:
        """Record the job that works on an order."""
        with self._transaction() as db:
            db.execute("UPDATE import_order SET job = ? WHERE id = ?", (job_id, order_id))

    def end(self, order_id: str) -> Order:
        """End the watch of an order, and return it; raises `UnknownImport`."""
        self.get(order_id)
        with self._transaction() as db:
            db.execute(
                "UPDATE import_order SET ended_ns = ifnull(ended_ns, ?) WHERE id = ?", (time.time_ns(), order_id)
            )
        return self.get(order_id)

    def note(self, order_id: str, file: File) -> None:
        """Record the outcome of a file."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO import_file (import_id, path, mark, trace, why) VALUES (?, ?, ?, ?, ?)",
                (order_id, file.path, file.mark, file.trace, file.why),
            )

    def file(self, order_id: str, path: str) -> File | None:
        """Return the recorded outcome of a file, or None."""
        rows = self._rows("SELECT * FROM import_file WHERE import_id = ? AND path = ?", (order_id, path))
        return _file(rows[0]) if rows else None

    def marks(self, order_id: str) -> dict[str, str]:
        """Return the marks of the recorded files by path."""
        rows = self._rows("SELECT path, mark FROM import_file WHERE import_id = ?", (order_id,))
        return {row["path"]: row["mark"] for row in rows}

    def files(self, order_id: str, *, limit: int, after: str = "") -> list[File]:
        """Return a page of the files' outcomes in order of path; `after` is the last path of the previous page."""
        rows = self._rows(
            "SELECT * FROM import_file WHERE import_id = ? AND path > ? ORDER BY path LIMIT ?", (order_id, after, limit)
        )
        return [_file(row) for row in rows]

    def counts(self, order_id: str) -> tuple[int, int]:
        """Return the numbers of files that became traces and of files that did not."""
        (row,) = self._rows(
            "SELECT count(trace) AS taken, count(*) - count(trace) AS skipped FROM import_file WHERE import_id = ?",
            (order_id,),
        )
        return row["taken"], row["skipped"]


def _order(row: sqlite3.Row) -> Order:
    values = dict(row)
    spec = ImportSpec(**orjson.loads(values.pop("request")))
    return Order(spec=spec, **values)


def _file(row: sqlite3.Row) -> File:
    return File(row["path"], row["mark"], row["trace"], row["why"])

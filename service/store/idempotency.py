"""Responses to requests with an idempotency key, which a client may repeat if it has not received the response.

A key is recorded before its request is handled. The resource that the request creates is recorded with the key, in the
transaction that creates the resource. Even if the server is killed before it responds, the repeated request therefore
finds the resource of the first one.
"""

import sqlite3
import time
from contextvars import ContextVar
from dataclasses import dataclass

import orjson

from service.store.connection import Connection

KEPT_S = 24 * 3600


@dataclass(frozen=True)
class Key:
    """An idempotency key, and the caller that chose it."""

    key: str
    caller: str


@dataclass(frozen=True)
class StoredResponse:
    """A response that was sent, to be sent again if the request is repeated."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True)
class StoredRequest:
    """A request with a key: its digest, its response, and the resource that it created, such as ``trace/ID``."""

    digest: str
    response: StoredResponse | None
    created: str | None


CURRENT_KEY: ContextVar[Key | None] = ContextVar("CURRENT_KEY", default=None)
"""The key of the current request."""


def record_created(db: sqlite3.Connection, resource: str) -> None:
    """Record that this transaction creates a resource, under the key of the current request, if the request has one."""
    if key := CURRENT_KEY.get():
        db.execute(
            "UPDATE idempotency SET made = ? WHERE key = ? AND caller = ? AND status IS NULL",
            (resource, key.key, key.caller),
        )


class Idempotency:
    """The keys in the catalog's file; each is deleted after a day."""

    def __init__(self, connection: Connection) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows

    def find(self, key: Key) -> StoredRequest | None:
        """Return the stored request of a key; None if the key is new."""
        oldest = time.time_ns() - KEPT_S * 10**9
        rows = self._rows(
            "SELECT * FROM idempotency WHERE key = ? AND caller = ? AND created_ns > ?", (key.key, key.caller, oldest)
        )
        if not rows:
            return None
        row, response = rows[0], None
        if row["status"] is not None:
            response = StoredResponse(
                row["status"], [(name, value) for name, value in orjson.loads(row["headers"])], row["body"]
            )
        return StoredRequest(row["digest"], response, row["made"])

    def begin(self, key: Key, digest: str) -> None:
        """Record that a request with this digest has begun; an earlier record of its key is replaced."""
        now = time.time_ns()
        with self._transaction() as db:
            db.execute("DELETE FROM idempotency WHERE created_ns <= ?", (now - KEPT_S * 10**9,))
            db.execute(
                "INSERT OR REPLACE INTO idempotency (key, caller, digest, created_ns) VALUES (?, ?, ?, ?)",
                (key.key, key.caller, digest, now),
            )

    def complete(self, key: Key, response: StoredResponse) -> None:
        """Record the response to a request."""
        with self._transaction() as db:
            db.execute(
                "UPDATE idempotency SET status = ?, headers = ?, body = ? WHERE key = ? AND caller = ?",
                (response.status, orjson.dumps(response.headers).decode(), response.body, key.key, key.caller),
            )

    def forget(self, key: Key, *, refused: bool) -> None:
        """Delete a key if its request was refused or has created nothing."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM idempotency WHERE key = ? AND caller = ? AND (? OR made IS NULL)",
                (key.key, key.caller, refused),
            )

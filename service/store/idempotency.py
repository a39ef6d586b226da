"""What was answered to requests that a client may repeat, because it has not heard the answer.

A key is noted before its request is done, and what the request makes is noted with it, in the same transaction. So
also where the server was killed before it answered, the repeated request finds what the first has made.
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
    """A key, and who chose it."""

    key: str
    caller: str


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True)
class Known:
    """What is known of a key: of which request it is, and what was answered or at least `made`, like ``trace/ID``."""

    digest: str
    answer: Answer | None
    made: str | None


UNDER_WAY: ContextVar[Key | None] = ContextVar("UNDER_WAY", default=None)
"""The key of the request that is done now."""


def note_made(db: sqlite3.Connection, what: str) -> None:
    """Note with the key of the request, if it has one, what it makes in this transaction."""
    if key := UNDER_WAY.get():
        db.execute(
            "UPDATE idempotency SET made = ? WHERE key = ? AND caller = ? AND status IS NULL",
            (what, key.key, key.caller),
        )


class Idempotency:
    """The keys in the catalog's file; each is forgotten after a day."""

    def __init__(self, connection: Connection) -> None:
        self._transaction, self._rows = connection.transaction, connection.rows

    def find(self, key: Key) -> Known | None:
        """What is known of a key; None if it is new."""
        oldest = time.time_ns() - KEPT_S * 10**9
        rows = self._rows(
            "SELECT * FROM idempotency WHERE key = ? AND caller = ? AND created_ns > ?", (key.key, key.caller, oldest)
        )
        if not rows:
            return None
        row, answer = rows[0], None
        if row["status"] is not None:
            answer = Answer(row["status"], [(name, value) for name, value in orjson.loads(row["headers"])], row["body"])
        return Known(row["digest"], answer, row["made"])

    def begin(self, key: Key, digest: str) -> None:
        """Note that a request of that digest is under way; what was known of its key before is forgotten."""
        now = time.time_ns()
        with self._transaction() as db:
            db.execute("DELETE FROM idempotency WHERE created_ns <= ?", (now - KEPT_S * 10**9,))
            db.execute(
                "INSERT OR REPLACE INTO idempotency (key, caller, digest, created_ns) VALUES (?, ?, ?, ?)",
                (key.key, key.caller, digest, now),
            )

    def answered(self, key: Key, answer: Answer) -> None:
        """Note what was answered."""
        with self._transaction() as db:
            db.execute(
                "UPDATE idempotency SET status = ?, headers = ?, body = ? WHERE key = ? AND caller = ?",
                (answer.status, orjson.dumps(answer.headers).decode(), answer.body, key.key, key.caller),
            )

    def forget(self, key: Key, *, refused: bool) -> None:
        """Forget a key whose request was refused, or else has made nothing."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM idempotency WHERE key = ? AND caller = ? AND (? OR made IS NULL)",
                (key.key, key.caller, refused),
            )

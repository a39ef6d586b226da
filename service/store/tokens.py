"""Tokens: the secrets that open the doors, of which only digests are kept.

They lie in an SQLite file of their own, which the command line writes while a server reads it.
"""

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from service.store.connection import full_disk, opened
from service.trace.errors import BadTokenName, TokenExists, UnknownToken

_TABLE = """
CREATE TABLE IF NOT EXISTS token (
    name TEXT PRIMARY KEY,
    scope TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    digest BLOB NOT NULL UNIQUE
) STRICT
"""
_MARK = "tdk_"  # by which one knows such a secret where it should not be
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Scope(StrEnum):
    """What a token may do."""

    READ = "read"
    WRITE = "write"  # and read


@dataclass(frozen=True)
class Token:
    """A token as it is known here: not its secret, but the digest of that."""

    name: str
    scope: Scope
    created_ns: int
    digest: bytes = field(repr=False)

    def is_of(self, secret: str) -> bool:
        """Whether that is its secret; takes as long whichever it is."""
        return hmac.compare_digest(self.digest, digest_of(secret))


def digest_of(secret: str) -> bytes:
    """What is kept of a secret. It is random and long, so that no slower digest would keep it any better."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Tokens:
    """The tokens in the file at `path`, which is made if it is missing; only its owner may read it.

    Its methods may be called from any thread.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._lock = threading.Lock()
        self._db = opened(path)
        self._seen: int | None = None
        self._tokens: tuple[Token, ...] = ()
        try:
            with full_disk("the tokens"):
                self._db.execute(_TABLE)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def all(self) -> tuple[Token, ...]:
        """All tokens, by name: as they are now, whoever has changed them."""
        with self._lock:
            [[version]] = self._db.execute("PRAGMA data_version").fetchall()  # changes with what others commit
            if version != self._seen:
                rows = self._db.execute("SELECT name, scope, created_ns, digest FROM token ORDER BY name").fetchall()
                self._tokens = tuple(Token(name, Scope(scope), at, digest) for name, scope, at, digest in rows)
                self._seen = version
            return self._tokens

    def add(self, name: str, scope: Scope) -> str:
        """Make a token and return its secret, which nobody can tell later.

        Raises:
            BadTokenName: it can't be called so.
            TokenExists: another is called so.
            DiskFull: there is no room for it.
        """
        if not _NAME.fullmatch(name):
            raise BadTokenName(f"{name[:80]!r} is not made of up to 64 letters, digits and `._@-`.")
        secret = _MARK + secrets.token_urlsafe(32)
        row = (name, scope, time.time_ns(), digest_of(secret))
        with self._lock:
            self._seen = None
            try:
                with full_disk("the token"):
                    self._db.execute("INSERT INTO token VALUES (?, ?, ?, ?)", row)
            except sqlite3.IntegrityError as error:
                raise TokenExists(f"A token is called {name!r} already; `tracedock token rm` revokes it.") from error
        return secret

    def remove(self, name: str) -> None:
        """Revoke a token; raises `UnknownToken` or `DiskFull`."""
        with self._lock:
            self._seen = None
            with full_disk("the revocation"):
                removed = self._db.execute("DELETE FROM token WHERE name = ?", (name,)).rowcount
            if not removed:
                raise UnknownToken(f"No token is called {name[:80]!r}.")

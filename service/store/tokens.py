"""API tokens, whose secrets are stored only as digests.

The tokens are in a separate SQLite file, which the command line may write while a server reads it.
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

from service.store.connection import full_disk, open_database
from service.trace.errors import BadTokenName, TokenExists, UnknownToken

_TABLE = """
CREATE TABLE IF NOT EXISTS token (
    name TEXT PRIMARY KEY,
    scope TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    digest BLOB NOT NULL UNIQUE
) STRICT
"""
_MARK = "tdk_"  # prefix by which leaked secrets are recognised
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Scope(StrEnum):
    """Scope of a token."""

    READ = "read"
    WRITE = "write"  # includes reading


@dataclass(frozen=True)
class Token:
    """A token, with the digest of its secret."""

    name: str
    scope: Scope
    created_ns: int
    digest: bytes = field(repr=False)

    def is_of(self, secret: str) -> bool:
        """Return whether a secret is that of the token; compares in constant time."""
        return hmac.compare_digest(self.digest, digest_of(secret))


def digest_of(secret: str) -> bytes:
    """Return the digest of a secret. Secrets are random and long, so a slow digest would add no protection."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Tokens:
    """The tokens in the file at `path`, which is created if it is missing; only its owner may read it.

    Its methods may be called from any thread.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._lock = threading.Lock()
        self._db = open_database(path)
        self._data_version: int | None = None
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
        """Return all tokens by name, including changes by other processes."""
        with self._lock:
            [[version]] = self._db.execute("PRAGMA data_version").fetchall()  # changes when another connection commits
            if version != self._data_version:
                rows = self._db.execute("SELECT name, scope, created_ns, digest FROM token ORDER BY name").fetchall()
                self._tokens = tuple(Token(name, Scope(scope), at, digest) for name, scope, at, digest in rows)
                self._data_version = version
            return self._tokens

    def add(self, name: str, scope: Scope) -> str:
        """Create a token and return its secret, which can't be recovered later.

        Raises:
            BadTokenName: the name is invalid.
            TokenExists: another token has this name.
            DiskFull: the disk has no room for it.
        """
        if not _NAME.fullmatch(name):
            raise BadTokenName(f"{name[:80]!r} is not made of up to 64 letters, digits and `._@-`.")
        secret = _MARK + secrets.token_urlsafe(32)
        row = (name, scope, time.time_ns(), digest_of(secret))
        with self._lock:
            self._data_version = None
            try:
                with full_disk("the token"):
                    self._db.execute("INSERT INTO token VALUES (?, ?, ?, ?)", row)
            except sqlite3.IntegrityError as error:
                raise TokenExists(f"A token is called {name!r} already; `tracedock token rm` revokes it.") from error
        return secret

    def remove(self, name: str) -> None:
        """Revoke a token; raises `UnknownToken` or `DiskFull`."""
        with self._lock:
            self._data_version = None
            with full_disk("the revocation"):
                removed = self._db.execute("DELETE FROM token WHERE name = ?", (name,)).rowcount
            if not removed:
                raise UnknownToken(f"No token is called {name[:80]!r}.")

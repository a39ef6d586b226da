"""Authentication: by a token, or by a session cookie that a browser receives in exchange for a token."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from service.http.hosts import SAFE, is_loopback, is_own
from service.settings import Settings
from service.store.tokens import Scope, Token, Tokens, digest_of
from service.trace.errors import InsufficientScope, TokenRequired, Unauthorized, WrongOrigin

SESSION_S = 7 * 24 * 3600
"""Seconds that a browser stays logged in; a restart of the server logs all browsers out."""
SESSIONS_MAX = 10_000


@dataclass(frozen=True)
class Visitor:
    """The caller of a request. Its name is that of its token, or `local` if no token is required."""

    name: str
    scope: Scope
    by_cookie: bool = False


LOCAL = Visitor("local", Scope.WRITE)


@dataclass(frozen=True)
class _Session:
    token: bytes
    ends: float


class Authenticator:
    """Authenticates requests. Only digests of secrets are stored, for sessions in memory as for tokens on disk.

    Args:
        settings: the address of the server, and the token in TRACEDOCK_TOKEN.
        tokens: the tokens on disk.
        clock: returns the time in seconds, for the expiry of sessions.

    Raises:
        TokenRequired: the server is reachable from other machines, and there is no token.
    """

    def __init__(self, settings: Settings, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._exposed = not is_loopback(settings.host)
        self._stored = tokens
        self._set: tuple[Token, ...] = ()
        if settings.token:
            digest = digest_of(settings.token.get_secret_value())
            self._set = (Token("TRACEDOCK_TOKEN", Scope.WRITE, 0, digest),)
        self._sessions: dict[bytes, _Session] = {}
        self._clock = clock
        if self._exposed and not self.tokens:
            raise TokenRequired(
                f"On {settings.host}, other machines can reach this server, and it has no token yet. Create one"
                " with `tracedock token add NAME --scope write`, or set TRACEDOCK_TOKEN; or listen on 127.0.0.1."
            )

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The token in TRACEDOCK_TOKEN, if it is set, and all tokens on disk."""
        return self._set + self._stored.all()

    @property
    def needed(self) -> bool:
        """Whether requests need a token: if other machines can reach the server, or if there is a token."""
        return self._exposed or bool(self.tokens)

    def visitor(self, connection: HTTPConnection) -> Visitor:
        """Return the caller of a request.

        Raises:
            Unauthorized: the request has no valid token and no valid session.
            WrongOrigin: an unsafe request with a session does not name a page of this server as its origin.
        """
        if not self.needed:
            return LOCAL
        kind, _, secret = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            token = self._token(secret.strip())
            return Visitor(token.name, token.scope)
        session_token = self._session_token(connection.cookies.get(cookie_name_of(connection), ""))
        if session_token is None:
            raise Unauthorized(
                "Send `Authorization: Bearer TOKEN`, set TRACEDOCK_TOKEN for the commands, or log in at /login."
            )
        if connection.scope.get("method") not in SAFE and not is_own(connection):  # a WebSocket has no method
            raise WrongOrigin("A browser session may change data only through pages of this server.")
        return Visitor(session_token.name, session_token.scope, by_cookie=True)

    def _token(self, secret: str) -> Token:
        """Return the token with that secret; raises `Unauthorized`."""
        matches = [token for token in self.tokens if token.is_of(secret)]  # all tokens are compared, for constant time
        if not matches:
            raise Unauthorized("The token is unknown, or was revoked.")
        return matches[0]

    def _session_token(self, secret: str) -> Token | None:
        session = self._sessions.get(digest_of(secret)) if secret else None
        if session is None or session.ends < self._clock():
            return None
        return next((token for token in self.tokens if token.digest == session.token), None)

    def log_in(self, secret: str) -> tuple[str, Visitor]:
        """Start a session for the token with that secret; raises `Unauthorized`.

        Returns:
            The secret of the session for the cookie, and the visitor.
        """
        token = self._token(secret)
        now = self._clock()
        kept = [(digest, session) for digest, session in self._sessions.items() if session.ends > now]
        self._sessions = dict(kept[-SESSIONS_MAX + 1 :])
        cookie = secrets.token_urlsafe(32)
        self._sessions[digest_of(cookie)] = _Session(token.digest, now + SESSION_S)
        return cookie, Visitor(token.name, token.scope, by_cookie=True)

    def log_out(self, secret: str) -> None:
        """End the session with that secret; an unknown secret is ignored."""
        self._sessions.pop(digest_of(secret), None)


def identity(connection: HTTPConnection) -> tuple[str, str]:
    """Return the name and the address of a client; the name is empty on the localhost listener."""
    visitor: Visitor | None = connection.scope.get("visitor")
    return (visitor.name if visitor else "", connection.client.host if connection.client else "")


def uploader(connection: HTTPConnection) -> str:
    """Return the identity under which uploads are counted: the token, or the address if no token is required."""
    visitor: Visitor = connection.scope["visitor"]
    return connection.client.host if visitor == LOCAL and connection.client else visitor.name


def cookie_name(port: int) -> str:
    """Return the name of the cookie. It contains the port, because browsers share cookies among all ports of a host."""
    return f"tracedock_{port}"


def cookie_name_of(connection: HTTPConnection) -> str:
    """Return the name of the cookie of a request."""
    _, port = connection.scope.get("server") or ("", 0)
    return cookie_name(port)


def check_write(connection: HTTPConnection) -> None:
    """Raise `InsufficientScope` if the caller of a request has no write scope."""
    visitor: Visitor = connection.scope["visitor"]
    if visitor.scope is not Scope.WRITE:
        raise InsufficientScope(f"The token {visitor.name!r} has the scope `read`; this request needs `write`.")

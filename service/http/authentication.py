"""Who visits, and what he may do: by a token, or by the cookie that a browser was given for one."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from service.http.hosts import SAFE, is_loopback, is_own
from service.settings import Settings
from service.store.tokens import Scope, Token, Tokens, digest_of
from service.trace.errors import ForbiddenScope, TokenNeeded, Unauthorized, WrongOrigin

SESSION_S = 7 * 24 * 3600
"""How long a browser stays logged in; none does when the server starts anew."""
SESSIONS_MAX = 10_000


@dataclass(frozen=True)
class Visitor:
    """Who makes a request: the name of a token, or `local` where none is needed."""

    name: str
    scope: Scope
    by_cookie: bool = False


LOCAL = Visitor("local", Scope.WRITE)


@dataclass(frozen=True)
class _Session:
    token: bytes
    ends: float


class Access:
    """Who is let in. The digests of sessions are held here as those of tokens are on disk: no secret is.

    Args:
        settings: where the server listens, and the one token that may be set.
        tokens: all others.
        clock: seconds, for the ends of sessions.
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
            raise TokenNeeded(
                f"On {settings.host} others could reach this server, and nothing would keep them out. Make a token"
                " first, with `tracedock token add NAME --scope write`, or set TRACEDOCK_TOKEN; or listen on 127.0.0.1."
            )

    @property
    def tokens(self) -> tuple[Token, ...]:
        """All tokens, as of now."""
        return self._set + self._stored.all()

    @property
    def needed(self) -> bool:
        """Whether a visitor needs a token: where others can reach this server, and wherever there is one."""
        return self._exposed or bool(self.tokens)

    def visitor(self, connection: HTTPConnection) -> Visitor:
        """Who makes the request.

        Raises:
            Unauthorized: nobody that is known.
            WrongOrigin: a browser does that is logged in, and does not tell that a page from here had it do so.
        """
        if not self.needed:
            return LOCAL
        kind, _, secret = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            known = self._of(secret.strip())
            return Visitor(known.name, known.scope)
        token = self._logged_in(connection.cookies.get(cookie_name(connection), ""))
        if token is None:
            raise Unauthorized(
                "Send `Authorization: Bearer TOKEN`, set TRACEDOCK_TOKEN for the commands, or log in at /login."
            )
        if connection.scope.get("method") not in SAFE and not is_own(connection):  # a WebSocket has no method
            raise WrongOrigin("Who is logged in changes things through pages of this server alone.")
        return Visitor(token.name, token.scope, by_cookie=True)

    def _of(self, secret: str) -> Token:
        """The token of that secret; raises `Unauthorized`."""
        found = [token for token in self.tokens if token.is_of(secret)]
        if not found:
            raise Unauthorized("The token is not known here, or was revoked.")
        return found[0]

    def _logged_in(self, secret: str) -> Token | None:
        session = self._sessions.get(digest_of(secret)) if secret else None
        if session is None or session.ends < self._clock():
            return None
        return next((token for token in self.tokens if token.digest == session.token), None)

    def log_in(self, secret: str) -> tuple[str, Visitor]:
        """Begin a session for who knows a token: its secret, for the cookie; raises `Unauthorized`."""
        token = self._of(secret)
        now = self._clock()
        kept = [(key, one) for key, one in self._sessions.items() if one.ends > now]
        self._sessions = dict(kept[-SESSIONS_MAX + 1 :])
        session = secrets.token_urlsafe(32)
        self._sessions[digest_of(session)] = _Session(token.digest, now + SESSION_S)
        return session, Visitor(token.name, token.scope, by_cookie=True)

    def log_out(self, session: str) -> None:
        """End a session; that of nobody is ended already."""
        self._sessions.pop(digest_of(session), None)


def identity(connection: HTTPConnection) -> tuple[str, str]:
    """Return the name and the address of a client; the localhost listener knows no names."""
    visitor: Visitor | None = connection.scope.get("visitor")
    return (visitor.name if visitor else "", connection.client.host if connection.client else "")


def cookie_name(connection: HTTPConnection) -> str:
    """The name of the cookie: browsers give all servers of a host the same ones, whatever their ports."""
    _, port = connection.scope.get("server") or ("", 0)
    return f"tracedock_{port}"


def check_write(connection: HTTPConnection) -> None:
    """Let a request pass that may change things; raises `ForbiddenScope`."""
    visitor: Visitor = connection.scope["visitor"]
    if visitor.scope is not Scope.WRITE:
        raise ForbiddenScope(f"The token {visitor.name!r} may read; this needs one of the scope `write`.")

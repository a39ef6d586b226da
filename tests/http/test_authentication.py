"""Authentication by a token, by a session cookie, and on servers that need neither."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.requests import HTTPConnection

from service.http.authentication import LOCAL, SESSION_S, Authenticator, Visitor
from service.settings import Settings
from service.store.tokens import Scope, Tokens
from service.trace.errors import TokenRequired, Unauthorized, WrongOrigin

ENV_TOKEN = "of-the-environment"


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    with closing(Tokens(tmp_path / "tokens.sqlite")) as tokens:
        yield tokens


def connection(method: str = "GET", **headers: str) -> HTTPConnection:
    raw = [(b"host", b"localhost:8700"), *((name.encode(), value.encode()) for name, value in headers.items())]
    return HTTPConnection({"type": "http", "method": method, "server": ("127.0.0.1", 8700), "headers": raw})


def connection_with_cookie(session: str, method: str = "GET", **headers: str) -> HTTPConnection:
    return connection(method, cookie=f"tracedock_8700={session}", **headers)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node7"])
def test_server_beyond_loopback_needs_a_token_to_start(tokens: Tokens, host: str) -> None:
    with pytest.raises(TokenRequired, match=r"tracedock token add.*TRACEDOCK_TOKEN"):
        Authenticator(Settings(host=host), tokens)
    secret = tokens.add("ci", Scope.READ)
    authenticator = Authenticator(Settings(host=host), tokens)
    assert authenticator.visitor(connection(authorization=f"Bearer {secret}")) == Visitor("ci", Scope.READ)
    tokens.remove("ci")  # the server still requires a token
    with pytest.raises(Unauthorized):
        authenticator.visitor(connection())


def test_loopback_server_is_open_until_a_token_exists(tokens: Tokens) -> None:
    authenticator = Authenticator(Settings(), tokens)
    assert authenticator.visitor(connection("DELETE")) == LOCAL
    tokens.add("ci", Scope.READ)
    with pytest.raises(Unauthorized):
        authenticator.visitor(connection())


def test_token_in_the_environment_has_write_scope(tokens: Tokens) -> None:
    authenticator = Authenticator(Settings(host="0.0.0.0", token=SecretStr(ENV_TOKEN)), tokens)
    visitor = authenticator.visitor(connection(authorization=f"bearer  {ENV_TOKEN}"))
    assert visitor == Visitor("TRACEDOCK_TOKEN", Scope.WRITE)


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer wrong", ENV_TOKEN, f"Basic {ENV_TOKEN}", f"Bearer {ENV_TOKEN}x"]
)
def test_unknown_tokens_are_unauthorized(tokens: Tokens, authorization: str) -> None:
    authenticator = Authenticator(Settings(token=SecretStr(ENV_TOKEN)), tokens)
    with pytest.raises(Unauthorized) as error:
        authenticator.visitor(connection(authorization=authorization))
    assert ENV_TOKEN not in error.value.detail


def test_a_session_lasts_as_long_as_its_token(tokens: Tokens) -> None:
    authenticator = Authenticator(Settings(), tokens)
    session, visitor = authenticator.log_in(tokens.add("ci", Scope.READ))
    assert visitor == Visitor("ci", Scope.READ, by_cookie=True)
    assert authenticator.visitor(connection_with_cookie(session)) == visitor
    tokens.remove("ci")
    tokens.add("ci", Scope.WRITE)  # another token of the same name
    with pytest.raises(Unauthorized):
        authenticator.visitor(connection_with_cookie(session))


def test_session_ends_by_logout_and_by_expiry(tokens: Tokens) -> None:
    now = [0.0]
    authenticator = Authenticator(Settings(), tokens, clock=lambda: now[0])
    secret = tokens.add("ci", Scope.READ)
    ended_session, _ = authenticator.log_in(secret)
    expired_session, _ = authenticator.log_in(secret)
    authenticator.log_out(ended_session)
    authenticator.log_out("unknown session")
    with pytest.raises(Unauthorized):
        authenticator.visitor(connection_with_cookie(ended_session))
    now[0] = SESSION_S - 1
    assert authenticator.visitor(connection_with_cookie(expired_session)).name == "ci"
    now[0] = SESSION_S + 1
    with pytest.raises(Unauthorized):
        authenticator.visitor(connection_with_cookie(expired_session))


def test_session_and_token_are_not_interchangeable(tokens: Tokens) -> None:
    authenticator = Authenticator(Settings(), tokens)
    secret = tokens.add("ci", Scope.WRITE)
    session, _ = authenticator.log_in(secret)
    with_session_as_token = connection(authorization=f"Bearer {session}")
    for request in (with_session_as_token, connection_with_cookie(secret), connection_with_cookie("")):
        with pytest.raises(Unauthorized):
            authenticator.visitor(request)
    with pytest.raises(Unauthorized):
        authenticator.log_in(session)


@pytest.mark.parametrize(
    ("headers", "is_own_page"),
    [({"origin": "http://localhost:8700"}, True), ({}, False), ({"origin": "http://localhost:3000"}, False)],
)
def test_cookie_authorizes_unsafe_requests_of_own_pages_only(
    tokens: Tokens, headers: dict[str, str], is_own_page: bool
) -> None:
    authenticator = Authenticator(Settings(), tokens)
    session, visitor = authenticator.log_in(tokens.add("ci", Scope.WRITE))
    assert authenticator.visitor(connection_with_cookie(session, **headers)) == visitor
    if is_own_page:
        assert authenticator.visitor(connection_with_cookie(session, "DELETE", **headers)) == visitor
    else:
        with pytest.raises(WrongOrigin):
            authenticator.visitor(connection_with_cookie(session, "DELETE", **headers))

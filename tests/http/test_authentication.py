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

SET = "of-the-environment"


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    with closing(Tokens(tmp_path / "tokens.sqlite")) as tokens:
        yield tokens


def connection(method: str = "GET", **headers: str) -> HTTPConnection:
    raw = [(b"host", b"localhost:8700"), *((name.encode(), value.encode()) for name, value in headers.items())]
    return HTTPConnection({"type": "http", "method": method, "server": ("127.0.0.1", 8700), "headers": raw})


def with_cookie(session: str, method: str = "GET", **headers: str) -> HTTPConnection:
    return connection(method, cookie=f"tracedock_8700={session}", **headers)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node7"])
def test_server_beyond_loopback_needs_a_token_to_start(tokens: Tokens, host: str) -> None:
    with pytest.raises(TokenRequired, match=r"tracedock token add.*TRACEDOCK_TOKEN"):
        Authenticator(Settings(host=host), tokens)
    secret = tokens.add("ci", Scope.READ)
    access = Authenticator(Settings(host=host), tokens)
    assert access.visitor(connection(authorization=f"Bearer {secret}")) == Visitor("ci", Scope.READ)
    tokens.remove("ci")  # the server still requires a token
    with pytest.raises(Unauthorized):
        access.visitor(connection())


def test_loopback_server_is_open_until_a_token_exists(tokens: Tokens) -> None:
    access = Authenticator(Settings(), tokens)
    assert access.visitor(connection("DELETE")) == LOCAL
    tokens.add("ci", Scope.READ)
    with pytest.raises(Unauthorized):
        access.visitor(connection())


def test_token_of_the_setting_has_write_scope(tokens: Tokens) -> None:
    access = Authenticator(Settings(host="0.0.0.0", token=SecretStr(SET)), tokens)
    assert access.visitor(connection(authorization=f"bearer  {SET}")) == Visitor("TRACEDOCK_TOKEN", Scope.WRITE)


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer wrong", SET, f"Basic {SET}", f"Bearer {SET}x"]
)
def test_unknown_tokens_are_unauthorized(tokens: Tokens, authorization: str) -> None:
    access = Authenticator(Settings(token=SecretStr(SET)), tokens)
    with pytest.raises(Unauthorized) as refusal:
        access.visitor(connection(authorization=authorization))
    assert SET not in refusal.value.detail


def test_a_session_lasts_as_long_as_its_token(tokens: Tokens) -> None:
    access = Authenticator(Settings(), tokens)
    session, visitor = access.log_in(tokens.add("ci", Scope.READ))
    assert access.visitor(with_cookie(session)) == visitor == Visitor("ci", Scope.READ, by_cookie=True)
    tokens.remove("ci")
    tokens.add("ci", Scope.WRITE)  # another token of the same name
    with pytest.raises(Unauthorized):
        access.visitor(with_cookie(session))


def test_session_ends_by_logout_and_by_expiry(tokens: Tokens) -> None:
    now = [0.0]
    access = Authenticator(Settings(), tokens, clock=lambda: now[0])
    secret = tokens.add("ci", Scope.READ)
    ended_session, expired_session = (access.log_in(secret)[0] for _ in range(2))
    access.log_out(ended_session)
    access.log_out("of nobody")
    with pytest.raises(Unauthorized):
        access.visitor(with_cookie(ended_session))
    now[0] = SESSION_S - 1
    assert access.visitor(with_cookie(expired_session)).name == "ci"
    now[0] = SESSION_S + 1
    with pytest.raises(Unauthorized):
        access.visitor(with_cookie(expired_session))


def test_session_and_token_are_not_interchangeable(tokens: Tokens) -> None:
    access = Authenticator(Settings(), tokens)
    secret = tokens.add("ci", Scope.WRITE)
    session, _ = access.log_in(secret)
    for request in (connection(authorization=f"Bearer {session}"), with_cookie(secret), with_cookie("")):
        with pytest.raises(Unauthorized):
            access.visitor(request)
    with pytest.raises(Unauthorized):
        access.log_in(session)


@pytest.mark.parametrize(
    ("headers", "own"),
    [({"origin": "http://localhost:8700"}, True), ({}, False), ({"origin": "http://localhost:3000"}, False)],
)
def test_cookie_authorizes_unsafe_requests_of_own_pages_only(
    tokens: Tokens, headers: dict[str, str], own: bool
) -> None:
    access = Authenticator(Settings(), tokens)
    session, visitor = access.log_in(tokens.add("ci", Scope.WRITE))
    assert access.visitor(with_cookie(session, **headers)) == visitor
    if own:
        assert access.visitor(with_cookie(session, "DELETE", **headers)) == visitor
    else:
        with pytest.raises(WrongOrigin):
            access.visitor(with_cookie(session, "DELETE", **headers))

"""Login: exchanges a token for a cookie, and redirects only to this server."""

from collections.abc import Iterator

import httpx
import pytest

from tests.server import Server

TOKEN = "0123456789abcdef"
HTML_HEADERS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a token."""
    server = Server(tmp_path_factory.mktemp("login") / "data", token=TOKEN).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def browser(guarded: Server) -> Iterator[httpx.Client]:
    """A client that accepts HTML and keeps cookies."""
    with httpx.Client(base_url=guarded.url, trust_env=False, headers=HTML_HEADERS) as client:
        yield client


def log_in(browser: httpx.Client, token: str = TOKEN, target: str = "/") -> httpx.Response:
    return browser.post("/login", data={"token": token, "next": target}, headers={"Origin": str(browser.base_url)})


def test_browser_without_a_session_is_redirected_to_login_and_back(browser: httpx.Client) -> None:
    target = "/traces/abc?x=1%202&y"
    redirect_to_login = browser.get(target)
    assert redirect_to_login.status_code == 303
    page = browser.get(redirect_to_login.headers["location"])
    assert page.status_code == 200
    assert 'value="/traces/abc?x=1%202&amp;y"' in page.text
    redirect_to_target = log_in(browser, target=target)
    assert (redirect_to_target.status_code, redirect_to_target.headers["location"]) == (303, target)
    assert browser.get("/traces/abc").status_code == 200


def test_cookie_holds_no_token_and_is_limited_to_this_site(browser: httpx.Client, guarded: Server) -> None:
    cookie = log_in(browser).headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Secure" not in cookie
    proxy_headers = {"X-Forwarded-Proto": "https", "Origin": guarded.url.replace("http", "https")}
    assert "Secure" in browser.post("/login", data={"token": TOKEN}, headers=proxy_headers).headers["set-cookie"]


def test_a_wrong_token_gets_no_cookie(browser: httpx.Client) -> None:
    answer = log_in(browser, "wrong", "/traces/abc")
    assert "set-cookie" not in answer.headers
    assert answer.headers["location"] == "/login?failed=1&next=%2Ftraces%2Fabc"
    assert "not known here" in browser.get(answer.headers["location"]).text


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example",
        "/ /evil.example", "javascript:alert(1)", "", "traces", "/\r\nSet-Cookie: a=b", "/ü",
    ],
)  # fmt: skip
def test_login_redirects_only_to_this_server(browser: httpx.Client, target: str) -> None:
    answer = log_in(browser, target=target)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "a=b" not in answer.headers["set-cookie"]


def test_unsafe_request_with_a_session_needs_the_origin_of_the_server(browser: httpx.Client, guarded: Server) -> None:
    log_in(browser)
    assert browser.get("/api/v1/access").json() == {"needed": True, "name": "TRACEDOCK_TOKEN", "scope": "write"}
    for origin, status in ((guarded.url, 404), ("http://localhost:3000", 403), (None, 403)):
        headers = {"Origin": origin} if origin else {}
        assert browser.delete("/api/v1/traces/000000000000", headers=headers).status_code == status


def test_a_foreign_page_cannot_log_a_browser_in(browser: httpx.Client) -> None:
    answer = browser.post("/login", data={"token": TOKEN}, headers={"Origin": "https://evil.example"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_logout_invalidates_the_cookie_everywhere(browser: httpx.Client, guarded: Server) -> None:
    log_in(browser)
    stolen_cookies = dict(browser.cookies)
    assert browser.get("/").status_code == 200
    assert browser.post("/logout", headers={"Origin": guarded.url}).headers["location"] == "/login"
    assert not browser.cookies
    browser.cookies.update(stolen_cookies)
    assert browser.get("/").status_code == 303


def test_program_without_a_token_gets_401_and_no_redirect(browser: httpx.Client) -> None:
    for headers in ({"Accept": "*/*"}, {"Authorization": "Bearer wrong"}):
        assert browser.get("/", headers=headers).status_code == 401
    assert browser.delete("/api/v1/traces/x").status_code == 401


def test_a_large_form_is_refused(browser: httpx.Client) -> None:
    assert browser.post("/login", content=b"token=" + b"x" * (17 << 20)).status_code == 413


def test_server_without_tokens_needs_no_login(server: Server) -> None:
    assert server.api.get("/access").json() == {"needed": False, "name": "local", "scope": "write"}
    answer = server.api.post(f"{server.url}/login", data={"next": "/traces/abc"})
    assert (answer.headers["location"], "set-cookie" in answer.headers) == ("/traces/abc", False)

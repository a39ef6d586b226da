"""Login with a token, work on the pages, and logout."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from service.store.tokens import Scope, Tokens
from tests.server import Server
from tests.waiting import PATIENCE_S
from tests.web.conftest import OpenContext
from tests.web.look import faint_texts, overhang, tab_through
from tests.web.viewer import Viewer

TOKEN = "0123456789abcdef"

CLICK_ALL = """() => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  for (const box of document.querySelectorAll("main input[type=checkbox]")) box.click();
  for (const button of document.querySelectorAll("main button")) if (button.checkVisibility()) button.click();
}"""
"""Uses all that a page offers without another page."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a token."""
    server = Server(tmp_path_factory.mktemp("guarded") / "data", token=TOKEN)
    server.api.headers["Authorization"] = f"Bearer {TOKEN}"
    yield server.start()
    assert server.stop() == 0


@pytest.fixture(scope="module")
def trace_id(guarded: Server, gpu_trace: Path) -> str:
    return str(guarded.upload(gpu_trace)["id"])


def log_in(page: Page, token: str = TOKEN) -> None:
    page.get_by_test_id("login-token").fill(token)
    page.get_by_test_id("login-token").press("Enter")


def test_login_allows_sql_and_uploads_until_logout(
    open_context: OpenContext, guarded: Server, trace_id: str, step_trace: Path
) -> None:
    page = open_context().new_page()
    address = f"{guarded.url}/traces/{trace_id}/sql"
    page.goto(address)
    log_in(page, "wrong token")
    expect(page.get_by_test_id("login-failed")).to_be_visible()
    log_in(page)
    expect(page).to_have_url(address)
    page.get_by_test_id("sql-input").fill("select 6 * 7")
    page.get_by_test_id("sql-input").press("Control+Enter")
    expect(page.get_by_test_id("sql-result").locator("tbody td")).to_have_text(["42"])
    page.goto(guarded.url)
    page.get_by_test_id("file-input").set_input_files(step_trace)
    expect(page.get_by_test_id("upload-row")).to_have_attribute("data-state", "stored")
    assert TOKEN not in page.evaluate("document.cookie + JSON.stringify(localStorage) + location.href")
    page.get_by_test_id("logout").click()
    expect(page.get_by_test_id("login")).to_be_visible()
    page.goto(address)
    expect(page.get_by_test_id("login")).to_be_visible()


def test_link_to_the_perfetto_ui_opens_after_the_login(
    open_context: OpenContext, guarded: Server, trace_id: str
) -> None:
    page = open_context().new_page()
    page.goto(f"{guarded.url}/api/v1/traces/{trace_id}/perfetto")
    log_in(page)
    Viewer(page).expect_tracks()


def test_address_fragment_survives_the_login(open_context: OpenContext, guarded: Server, trace_id: str) -> None:
    page = open_context().new_page()
    address = f"{guarded.url}/perfetto/{trace_id}/#!/viewer"
    page.goto(address)
    log_in(page)
    expect(page).to_have_url(re.compile(rf"^{re.escape(address)}(\?local_cache_key)?$"))  # the UI adds the key


def test_link_on_another_site_recognizes_the_login(open_context: OpenContext, guarded: Server, trace_id: str) -> None:
    page = open_context().new_page()
    page.goto(guarded.url)
    log_in(page)
    expect(page.get_by_test_id("drop-zone")).to_be_visible()
    other_site = guarded.url.replace("127.0.0.1", "localhost")  # the browser treats this as another site
    page.goto(f"{other_site}/login?failed=1")
    with page.expect_request("**/login?next=*"):  # the browser has sent no cookie
        page.evaluate("address => { location = address }", f"{guarded.url}/traces/{trace_id}")
    expect(page.get_by_test_id("verdict")).to_be_visible()
    expect(page).to_have_url(f"{guarded.url}/traces/{trace_id}")


@pytest.mark.parametrize("wanted", ["//evil.example/", "https://evil.example/", "/%09/evil.example/"])
def test_login_never_redirects_to_another_site(open_context: OpenContext, guarded: Server, wanted: str) -> None:
    page = open_context().new_page()
    page.goto(guarded.url)
    log_in(page)
    expect(page.get_by_test_id("drop-zone")).to_be_visible()
    page.goto(f"{guarded.url}/login?next={wanted}")
    expect(page).to_have_url(f"{guarded.url}/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_login_page_is_accessible(open_context: OpenContext, guarded: Server, scheme: Literal["light", "dark"]) -> None:
    page = open_context(width=360, scheme=scheme).new_page()
    page.goto(f"{guarded.url}/login?failed=1")
    expect(page.get_by_test_id("login-token")).to_be_focused()
    assert overhang(page) == 0
    assert faint_texts(page) == []
    page.locator("#main").focus()
    stops = tab_through(page)
    assert [stop["name"] for stop in stops] == ["login-token", "login"]
    assert [stop["name"] for stop in stops if not stop["outlined"]] == []


def test_visitor_who_may_only_read_is_offered_nothing_that_is_refused(
    open_context: OpenContext, guarded: Server, trace_id: str, gpu_trace: Path
) -> None:
    with gpu_trace.open("rb") as file:  # the same bytes: kept once
        rank = guarded.api.put("/traces/rank0.json", params={"group": "run", "wait": PATIENCE_S}, content=file).json()
    with closing(Tokens(guarded.data / "tokens.sqlite")) as tokens:
        secret = tokens.add("reader", Scope.READ)
    page = open_context().new_page()
    refused: list[str] = []
    page.on("response", lambda response: refused.append(response.url) if response.status == 403 else None)
    page.goto(guarded.url)
    log_in(page, secret)
    expect(page.get_by_text("reader (read only)")).to_be_visible()
    for path, ready in (
        ("/", "trace-list"),
        (f"/traces/{trace_id}", "analysis-answer"),
        (f"/groups/{rank['group']['id']}", "run-time"),
        ("/jobs", "jobs-ended"),
    ):
        page.goto(f"{guarded.url}{path}")
        if ready == "analysis-answer":
            page.get_by_test_id("analyses").scroll_into_view_if_needed()  # it asks for nothing before
        expect(page.get_by_test_id(ready)).to_be_visible()
        page.evaluate(CLICK_ALL)
        page.wait_for_load_state("networkidle")
        assert refused == [], path


def test_user_bar_fits_a_small_window(open_context: OpenContext, guarded: Server) -> None:
    page = open_context(width=360).new_page()
    page.goto(guarded.url)
    log_in(page)
    expect(page.get_by_test_id("logout")).to_be_visible()
    assert overhang(page) == 0
    assert faint_texts(page) == []

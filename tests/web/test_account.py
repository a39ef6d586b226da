"""The engine panel of a trace: memory, progress, and the account of the events that engines show."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.server import Server
from tests.web.conftest import OpenContext, gated_engine
from tests.web.folds import unfold
from tests.web.look import faint_texts, overhang
from tests.web.overlaps import write_overlaps
from tests.web.viewer import Viewer

ARGS = "select args from _torch_facts"


@pytest.fixture
def trace_id(server: Server, tmp_path: Path) -> str:
    """A trace of four overlapping slices, whose engines no other test uses."""
    return str(server.upload(write_overlaps(tmp_path))["id"])


def engine_panel(page: Page, server: Server, trace_id: str) -> Locator:
    page.goto(f"{server.url}/traces/{trace_id}")
    unfold(page, "engine", "cut", "contents")
    return page.get_by_test_id("engine")


def session_of(server: Server, trace_id: str, **view: str) -> dict[str, Any]:
    """Return a session once it is ready; start it if there is none."""
    answer = server.api.post(f"/traces/{trace_id}/session", params={"wait": "60"} | view)
    assert answer.status_code == 200, answer.text
    rows: dict[str, Any] = answer.json()
    return rows


def ask(page: Page, sql: str) -> Page:
    """Run a query on the page of SQL to which a trace's page links; return that page."""
    asking = page.context.new_page()
    asking.goto(urljoin(page.url, str(page.get_by_test_id("open-sql").get_attribute("href"))))
    asking.get_by_test_id("sql-input").fill(sql)
    asking.get_by_test_id("sql-input").press("Control+Enter")
    return asking


def test_started_engine_shows_its_account_and_memory_and_is_closed(page: Page, server: Server, trace_id: str) -> None:
    panel = engine_panel(page, server, trace_id)
    expect(panel.get_by_test_id("engine-none")).to_be_visible()
    expect(panel.get_by_test_id("engine-start")).to_be_hidden()  # Perfetto and SQL may need different engines
    panel.get_by_test_id("engine-args").select_option("all")
    panel.get_by_test_id("engine-start").click()
    expect(panel.get_by_test_id("engine-row")).to_contain_text(re.compile("^ready"))
    expect(panel.get_by_test_id("engine-start")).to_be_hidden()
    expect(panel.get_by_test_id("engine-none")).to_be_hidden()

    session = session_of(server, trace_id)
    account = panel.get_by_test_id("engine-account")
    expect(account).to_contain_text("8 of 8 events shown")
    expect(account).to_contain_text("2 lanes added for slices that overlap")
    expect(account).to_contain_text(f"its time 0 is {session['account']['base_ns']} ns")
    expect(account.get_by_title(re.compile("^8 of 8 events; 5 of 5 slices; 0 of 0 arrows"))).to_be_visible()
    facts = panel.get_by_test_id("engine-facts")
    expect(facts).to_contain_text(f"loaded in {session['load_s']:.2f} s")
    expect(facts).to_contain_text(re.compile(r"^\d+(\.\d)? MB of memory"))

    panel.get_by_test_id("engine-close").click()
    expect(panel.get_by_test_id("engine-none")).to_be_visible()
    assert server.api.get(f"/traces/{trace_id}/session").status_code == 409


def test_chosen_arguments_hold_for_sql_and_links_and_after_a_reload(page: Page, server: Server, trace_id: str) -> None:
    def wanted() -> set[str]:
        links = [page.get_by_test_id(name) for name in ("open-perfetto", "open-sql", "cut-open")]
        links += page.get_by_test_id("trace-steps").get_by_role("link").all()
        queries = [parse_qs(urlsplit(str(link.get_attribute("href"))).query) for link in links]
        assert len(queries) == 4
        return {",".join(query.get("args", ["automatic"])) for query in queries}

    panel = engine_panel(page, server, trace_id)
    assert wanted() == {"automatic"}
    panel.get_by_test_id("engine-args").select_option("none")
    assert wanted() == {"none"}
    page.get_by_test_id("cut-name").fill("aten::*")  # this renews the link
    assert wanted() == {"none"}

    asking = ask(page, ARGS)
    expect(asking.get_by_test_id("sql-result").locator("tbody td")).to_have_text(["none"])
    expect(panel.get_by_test_id("engine-row")).to_contain_text("All of this trace, no arguments")
    page.reload()
    unfold(page, "engine", "cut", "contents")
    expect(panel.get_by_test_id("engine-args")).to_have_value("none")
    assert wanted() == {"none"}
    with page.context.expect_page() as opened:
        page.get_by_test_id("open-perfetto").click()
    Viewer(opened.value).expect_tracks()
    expect(opened.value).to_have_title("overlaps.pt.trace.json (no arguments) - Perfetto UI")
    expect(panel.get_by_test_id("engine-row")).to_have_count(1)  # one engine serves SQL and the UI
    expect(panel.get_by_test_id("engine-facts")).to_contain_text("open in 1 tab")

    panel.get_by_test_id("engine-args").select_option("all")
    assert wanted() == {"all"}
    asking = ask(page, ARGS)
    expect(asking.get_by_test_id("sql-result").locator("tbody td")).to_have_text(["all"])
    expect(panel.get_by_test_id("engine-row")).to_have_count(2)


def test_engine_of_a_selection_is_listed_with_that_of_the_whole_trace(
    page: Page, server: Server, trace_id: str
) -> None:
    panel = engine_panel(page, server, trace_id)
    session_of(server, trace_id)
    panel.get_by_test_id("engine-args").select_option("essential")
    page.get_by_test_id("cut-streams").get_by_text("1/7", exact=True).click()
    with page.context.expect_page() as opened:
        page.get_by_test_id("cut-open").click()
    viewer = Viewer(opened.value)
    viewer.expect_tracks()
    expect(viewer.page).to_have_title("overlaps.pt.trace.json (cut) (essential arguments) - Perfetto UI")
    part = panel.get_by_test_id("engine-row").filter(has_text="stream 1/7, essential arguments")
    expect(part).to_contain_text("open in 1 tab")
    session = session_of(server, trace_id, args="essential", selection='{"streams":["1/7"]}')
    count = session["account"]["events"]
    assert 0 < count < 8
    expect(part).to_contain_text(f"{count} of {count} events shown")
    expect(panel.get_by_test_id("engine-row")).to_have_count(2)


def test_page_shows_the_progress_of_a_loading_engine(
    start_server: Callable[..., Server], open_context: OpenContext, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    server = start_server(engine=gated_engine(tmp_path, gate), engine_sandbox="off")
    page = open_context().new_page()
    panel = engine_panel(page, server, str(server.upload(write_overlaps(tmp_path))["id"]))
    asking = ask(page, "select 6 * 7 as answer")
    expect(panel.get_by_test_id("engine-state")).to_have_text("loading")
    loading_text = re.compile(r"Loading 8 events: [\d.]+ k?B so far\.")
    expect(panel.get_by_test_id("engine-row")).to_contain_text(loading_text)
    expect(asking.get_by_test_id("sql-status")).to_contain_text("The engine is loading the trace.")
    expect(asking.get_by_test_id("sql-status")).to_contain_text(loading_text)
    gate.write_text("go")
    expect(asking.get_by_test_id("sql-result").locator("tbody td")).to_have_text(["42"])
    expect(panel.get_by_test_id("engine-state")).to_have_text("ready")


def test_failed_engine_shows_its_error_until_retried_or_closed(
    start_server: Callable[..., Server], open_context: OpenContext, tmp_path: Path
) -> None:
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    script.chmod(0o755)
    server = start_server(engine=script, engine_sandbox="off")
    page = open_context().new_page()
    panel = engine_panel(page, server, str(server.upload(write_overlaps(tmp_path))["id"]))
    panel.get_by_test_id("engine-args").select_option("all")
    panel.get_by_test_id("engine-start").click()
    row = panel.get_by_test_id("engine-row")
    expect(row.get_by_test_id("engine-state")).to_have_text("failed")
    expect(row).to_contain_text("out of luck")
    row.get_by_test_id("engine-again").click()
    expect(row.get_by_test_id("engine-facts")).to_contain_text("died 1 time recently")
    row.get_by_test_id("engine-close").click()
    expect(panel.get_by_test_id("engine-none")).to_be_visible()


# -- what an engine on a large trace would say -----------------------------------------------------------------


def session_body(trace_id: str, state: str = "ready", **changed: Any) -> dict[str, Any]:
    """Return a session as the API represents it."""
    engine = {"version": "v54.0", "pid": 1, "rss_bytes": 10**9, "peak_bytes": 2 * 10**9}
    engine |= {"predicted_bytes": 3 * 10**9, "restarts": 0}
    whole = {
        "trace": trace_id, "selection": None, "args": "all", "source": "columns", "state": state, "error": None,
        "engine": engine,
        "progress": {"bytes": 123_456_789, "events_total": 11_950_003}, "clients": 0, "queries": 0, "waiting": 0,
        "idle_s": 1.0, "load_s": 31.7, "account": None, "account_reason": None, "stats": None,
    }  # fmt: skip
    return whole | changed


def account(shown: int, events: int, **changed: Any) -> dict[str, Any]:
    slices = {"expected": events, "engine": shown}
    none = {"expected": 0, "engine": 0}
    whole = {
        "complete": shown == events, "shown": shown, "events": events, "slices": slices, "flows": none,
        "counters": none, "base_ns": 2**62 + 1, "lanes": 1, "notes": [], "stats": [],
    }  # fmt: skip
    return whole | changed


@pytest.fixture
def large(page: Page, gpu_id: str) -> str:
    """A trace for which the mocked API lists engines with millions of events."""
    trace_id = gpu_id
    note = {"code": "negative", "count": 12_345, "detail": "Slices that end before they begin have no duration."}
    stat = {"name": "json_parser_failure", "value": 3, "severity": "error", "detail": "An event could not be read."}
    sessions = [
        session_body(trace_id, account=account(11_950_003, 11_950_003)),
        session_body(trace_id, args="none", account=account(11_950_000, 11_950_003, notes=[note], stats=[stat])),
        session_body(trace_id, "waiting", selection={"steps": [2**62 + 1]}, load_s=None),
        session_body(trace_id, "loading", selection={"names": ["no_place_to_break_a_line" * 30]}, load_s=None),
        session_body("0" * 12, account=account(1, 1)),
    ]
    body = json.dumps({"sessions": sessions, "memory": {"held_bytes": 1, "budget_bytes": 2}, "next": None})
    page.context.route("**/api/v1/sessions", lambda route: route.fulfill(body=body, content_type="application/json"))
    return trace_id


def test_millions_are_rounded_only_if_no_event_is_missing(page: Page, server: Server, large: str) -> None:
    rows = engine_panel(page, server, large).get_by_test_id("engine-row")
    expect(rows).to_have_count(4)  # the session of another trace is left out
    whole, torn, waiting, loading = rows.all()
    expect(whole.get_by_text("12 of 12 M events shown", exact=True)).to_have_attribute(
        "title", re.compile("^11,950,003 of 11,950,003 events; 11,950,003 of 11,950,003 slices;")
    )
    expect(whole).to_contain_text("its time 0 is 4611686018427387905 ns")
    expect(torn).to_contain_text("11,950,000 of 11,950,003 events shown")
    expect(torn).to_contain_text("Not all events are shown: 11,950,000 of 11,950,003 slices")
    expect(torn).to_contain_text(re.compile("12,345 . Slices that end before they begin have no duration. negative"))
    expect(torn).to_contain_text(re.compile("3 . The engine's importer reports an error: An event could not be read."))
    expect(waiting).to_contain_text("step 4611686018427387905")
    expect(waiting).to_contain_text("Waiting until other engines have ended.")
    expect(loading).to_contain_text("Loading 11,950,003 events: 123 MB so far.")


def test_close_button_names_its_engine(page: Page, server: Server, large: str) -> None:
    rows = engine_panel(page, server, large).get_by_test_id("engine-row")
    expect(rows).to_have_count(4)
    with page.expect_request(lambda request: request.method == "DELETE") as closing:
        rows.nth(2).get_by_test_id("engine-close").click()
    query = parse_qs(urlsplit(closing.value.url).query)
    selected = '{"steps":[4611686018427387905]}'
    assert query == {"args": ["all"], "source": ["columns"], "selection": [selected]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_engine_panel_is_legible_and_fits_a_small_window(
    open_context: OpenContext, page: Page, server: Server, large: str, scheme: Literal["light", "dark"], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    panel = engine_panel(page, server, large)
    expect(panel.get_by_test_id("engine-row")).to_have_count(4)
    assert faint_texts(page) == []
    assert overhang(page) == 0

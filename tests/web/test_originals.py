"""Originals of Perfetto traces in the browser: they open in the UI, and answer SQL."""

from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.pftrace import content, program, system
from tests.server import Server
from tests.web.conftest import OpenContext
from tests.web.folds import unfold
from tests.web.look import faint_texts, overhang
from tests.web.viewer import Viewer

RUNNING = "SELECT count(*) AS n FROM sched"


@pytest.fixture(scope="module")
def mixed_id(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace with a slice of a program, and packets of the system."""
    path = tmp_path_factory.mktemp("originals") / "mixed.pftrace"
    path.write_bytes(content([*program(), *system()]))
    return str(server.upload(path)["id"])


@pytest.fixture(scope="module")
def system_id(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace with packets of the system alone."""
    path = tmp_path_factory.mktemp("originals") / "system.pftrace"
    path.write_bytes(content(system()))
    return str(server.upload(path)["id"])


def opened_ui(page: Page, button: str) -> Viewer:
    """Click a button that opens the Perfetto UI, and wait for its tracks."""
    with page.context.expect_page() as tab:
        page.get_by_test_id(button).click()
    viewer = Viewer(tab.value)
    viewer.expect_tracks()
    return viewer


def test_original_opens_with_the_tracks_of_the_scheduler(page: Page, server: Server, mixed_id: str) -> None:
    page.goto(f"{server.url}/traces/{mixed_id}")
    columns = opened_ui(page, "open-perfetto")
    expect(columns.page).to_have_title("mixed.pftrace - Perfetto UI")
    expect(columns.track("CPU 0 Scheduling")).to_have_count(0)

    original = opened_ui(page, "open-original")

    expect(original.page).to_have_title("mixed.pftrace (original) - Perfetto UI")
    expect(original.track("CPU 0 Scheduling")).to_be_visible()
    expect(original.track("CPU 1 Scheduling")).to_be_visible()
    assert original.search("work") == 1


def test_trace_without_other_packets_offers_no_original(page: Page, server: Server, gpu_id: str) -> None:
    page.goto(f"{server.url}/traces/{gpu_id}")
    expect(page.get_by_test_id("open-perfetto")).to_be_visible()
    expect(page.get_by_test_id("open-original")).to_have_count(0)
    page.goto(f"{server.url}/traces/{gpu_id}/sql")
    expect(page.get_by_test_id("sql-input")).to_be_visible()
    expect(page.get_by_test_id("sql-source")).to_be_hidden()


def test_sql_is_run_on_the_source_that_is_chosen(page: Page, server: Server, mixed_id: str) -> None:
    page.goto(f"{server.url}/traces/{mixed_id}/sql")
    page.get_by_test_id("sql-input").fill(RUNNING)
    cells = page.get_by_test_id("sql-result").locator("tbody td")
    page.get_by_test_id("sql-run").click()
    expect(cells).to_have_text(["0"])

    page.get_by_test_id("sql-source").select_option("original")
    expect(page.get_by_test_id("sql-args")).to_be_disabled()
    page.get_by_test_id("sql-run").click()

    expect(cells).to_have_text(["150"])
    assert parse_qs(urlsplit(page.url).query)["source"] == ["original"]
    page.reload()
    expect(page.get_by_test_id("sql-source")).to_have_value("original")


def test_engine_of_the_original_says_why_it_has_no_account(page: Page, server: Server, mixed_id: str) -> None:
    server.api.post(f"/traces/{mixed_id}/session", params={"source": "original", "wait": 60})
    page.goto(f"{server.url}/traces/{mixed_id}")
    unfold(page, "engine")
    row = page.get_by_test_id("engine-row").filter(has_text="The original of this trace")
    expect(row.get_by_test_id("engine-account")).to_contain_text("reports no error and no loss of data")
    expect(row.get_by_test_id("engine-account")).to_contain_text("The engine has the original as it is")
    row.get_by_test_id("engine-close").click()
    expect(row).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_trace_without_events_leads_to_its_original(
    open_context: OpenContext, server: Server, system_id: str, scheme: Literal["light", "dark"]
) -> None:
    page = open_context(scheme=scheme).new_page()
    page.goto(f"{server.url}/traces/{system_id}")
    note = page.get_by_test_id("no-events")
    expect(note).to_contain_text(
        "This trace has no events: its packets are of other kinds (ftrace_events: 2, process_tree: 1)"
    )
    for panel in ("overview", "verdict", "analyses", "cut"):
        expect(page.get_by_test_id(panel)).to_be_hidden()
    expect(page.get_by_test_id("engine-args")).to_be_disabled()
    assert faint_texts(page) == []
    assert overhang(page) <= 0

    viewer = opened_ui(page, "open-perfetto")

    expect(viewer.page).to_have_title("system.pftrace - Perfetto UI")
    expect(viewer.track("CPU 0 Scheduling")).to_be_visible()
    page.get_by_test_id("open-sql").click()
    page.get_by_test_id("sql-run").click()
    expect(page.get_by_test_id("sql-result")).to_contain_text("loader")

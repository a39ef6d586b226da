"""The pages of a run and of a trace show the files beside them: reports, text, and the use of execution traces."""

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.http.test_attachments import attach, execution_trace, operators_trace
from tests.http.test_groups import group_of
from tests.server import Server
from tests.waiting import PATIENCE_S
from tests.web.conftest import OpenContext
from tests.web.look import faint_texts, overhang, serious_violations

HOSTILE_NAME = "<img src=x onerror=alert(1)>&amp;\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET}1.txt" + "long" * 45
HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>\n\tindented"
NSYS = b'Time (%),Total Time (ns),Instances,Name\n70.0,2000000,20,"<b>gemm</b>"\n30.50,1000000,10,small\n'


@pytest.fixture(scope="module")
def run_id(server: Server) -> str:
    """A run of one rank with an attachment of each kind that looks different."""
    params: dict[str, str | float] = {"group": "with attachments", "wait": PATIENCE_S}
    trace = server.api.put("/traces/rank0.json", params=params, content=operators_trace(0)).json()["id"]
    group = group_of(server, trace)
    attach(server, f"groups/{group}", "notes.html", HOSTILE.encode())
    attach(server, f"groups/{group}", "kern_sum.csv", NSYS)
    attach(server, f"groups/{group}", "cut.csv", b"Time (%),Total Time (ns),Name\n1,2\n")
    attach(server, f"groups/{group}", "et_rank0.json", execution_trace("aten::mm"))
    attach(server, f"traces/{trace}", "et_other.json", execution_trace("aten::add"))
    return group


@pytest.fixture(scope="module")
def trace_id(server: Server) -> str:
    """A trace with attachments of its own, of which one has a hostile name."""
    params = {"wait": PATIENCE_S}
    trace = str(server.api.put("/traces/alone.json", params=params, content=operators_trace(0)).json()["id"])
    attach(server, f"traces/{trace}", "kern_sum.csv", NSYS)
    attach(server, f"traces/{trace}", "et.json", execution_trace("aten::mm"))
    attach(server, f"traces/{trace}", quote(HOSTILE_NAME), HOSTILE.encode())
    return trace


def opened(page: Page, server: Server, run_id: str, name: str) -> Locator:
    """Open the page of the run, and unfold an attachment."""
    page.goto(f"{server.url}/groups/{run_id}")
    entry = page.get_by_test_id("attachment").filter(has_text=name)
    entry.locator("summary").first.click()
    return entry


def test_attachments_are_listed_with_kind_size_and_trace(page: Page, server: Server, run_id: str) -> None:
    page.goto(f"{server.url}/groups/{run_id}")
    entries = page.get_by_test_id("attachment").locator("summary")
    expect(entries).to_have_count(5)
    expect(entries.nth(0)).to_contain_text("et_other.json execution trace")
    expect(entries.nth(0)).to_contain_text("of rank0.json")
    expect(entries.nth(3)).to_contain_text("kern_sum.csv summary of nsys stats")


def test_report_is_a_table_with_the_decimals_of_the_file(page: Page, server: Server, run_id: str) -> None:
    entry = opened(page, server, run_id, "kern_sum.csv")
    expect(entry.locator("th")).to_have_text(["Time (%)", "Total Time (ns)", "Instances", "Name"])
    cells = entry.locator("tbody tr").nth(1).locator("td")
    expect(cells).to_have_text(["30.50", "1000000", "10", "small"])
    expect(entry.locator("tbody b")).to_have_count(0)
    expect(entry.locator("tbody tr").first).to_contain_text("<b>gemm</b>")
    with page.expect_download() as download:
        entry.get_by_role("link", name="CSV").click()
    assert Path(download.value.path()).read_bytes() == NSYS.replace(b"\n", b"\r\n").replace(b'"', b"")


def test_text_is_text(page: Page, server: Server, run_id: str) -> None:
    entry = opened(page, server, run_id, "notes.html")
    expect(entry.get_by_test_id("attachment-text")).to_have_text(HOSTILE, use_inner_text=True)
    expect(entry.locator("img")).to_have_count(0)
    with page.expect_download() as download:
        entry.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == HOSTILE
    assert download.value.suggested_filename == "notes.html"


def test_report_that_fits_no_table_is_text_with_the_reason(page: Page, server: Server, run_id: str) -> None:
    entry = opened(page, server, run_id, "cut.csv")
    expect(entry.get_by_test_id("attachment-reason")).to_have_text("Line 2 has 2 cells, and its table 3 columns.")
    expect(entry.get_by_test_id("attachment-text")).to_contain_text("1,2")


def test_execution_traces_say_what_they_are_used_for(page: Page, server: Server, run_id: str) -> None:
    used = opened(page, server, run_id, "et_rank0.json").get_by_test_id("attachment-match")
    expect(used).to_have_text("rank0.json: 20 operators of 20 have their shapes from this file; 20 of 20 names agree.")
    other = opened(page, server, run_id, "et_other.json").get_by_test_id("attachment-match")
    expect(other).to_contain_text("it is not used. It is of another capture: 2 of 20 operators")


def test_run_without_attachments_shows_no_section(page: Page, server: Server) -> None:
    group = server.api.post("/groups", json={"name": "without attachments"}).json()["id"]
    page.goto(f"{server.url}/groups/{group}")
    expect(page.get_by_test_id("group-files")).to_be_visible()
    expect(page.get_by_test_id("attachments")).to_be_hidden()


def test_page_of_a_trace_shows_its_attachments_and_not_those_of_its_run(
    page: Page, server: Server, run_id: str
) -> None:
    page.goto(f"{server.url}/groups/{run_id}")
    page.get_by_test_id("attachment").filter(has_text="et_other.json").locator("summary").click()
    page.get_by_test_id("attachment-match").get_by_role("link", name="rank0.json").click()

    expect(page.get_by_test_id("trace-contents")).to_be_visible()
    entry = page.get_by_test_id("attachment")
    expect(entry).to_have_count(1)
    expect(entry).to_contain_text("et_other.json")
    expect(entry).not_to_contain_text("of rank0.json")
    entry.locator("summary").click()
    expect(entry.get_by_test_id("attachment-match")).to_contain_text("rank0.json: it is not used.")


def test_attachments_of_a_trace_are_read_with_the_keyboard(page: Page, server: Server, trace_id: str) -> None:
    page.goto(f"{server.url}/traces/{trace_id}")
    entry = page.get_by_test_id("attachment").filter(has_text="kern_sum.csv")
    entry.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(entry.locator("tbody tr")).to_have_count(2)
    page.keyboard.press("Tab")
    expect(entry.get_by_role("link", name="Download")).to_be_focused()
    used = page.get_by_test_id("attachment").filter(has_text="et.json")
    used.locator("summary").press("Space")
    expect(used.get_by_test_id("attachment-match")).to_contain_text("alone.json: 20 operators of 20 have their shapes")


def test_hostile_name_is_text(page: Page, server: Server, trace_id: str) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(f"{server.url}/traces/{trace_id}")
    entry = page.get_by_test_id("attachment").filter(has_text="onerror")
    expect(entry.locator("summary .mono")).to_have_text(HOSTILE_NAME)
    entry.locator("summary").click()
    expect(entry.get_by_test_id("attachment-text")).to_have_attribute("aria-label", f"Text of {HOSTILE_NAME}")
    expect(page.locator("#attachments img")).to_have_count(0)


def test_trace_without_attachments_shows_no_section(page: Page, server: Server) -> None:
    trace = server.api.put("/traces/none.json", params={"wait": PATIENCE_S}, content=operators_trace(1)).json()["id"]
    with page.expect_response(lambda answer: "/attachments?" in answer.url) as listed:
        page.goto(f"{server.url}/traces/{trace}")
    assert listed.value.json() == {"attachments": [], "next": None}
    expect(page.get_by_test_id("trace-contents")).to_be_visible()
    expect(page.get_by_test_id("attachments")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(("owner", "matches"), [("groups", 2), ("traces", 1)])
def test_attachments_look_right(  # noqa: PLR0917 - parameters and fixtures
    owner: str,
    matches: int,
    scheme: str,
    width: int,
    open_context: OpenContext,
    server: Server,
    run_id: str,
    trace_id: str,
) -> None:
    page = open_context(width=width, scheme=scheme).new_page()
    page.goto(f"{server.url}/{owner}/{run_id if owner == 'groups' else trace_id}")
    summaries = page.get_by_test_id("attachment").locator("> summary")
    expect(summaries).not_to_have_count(0)  # all of them appear at once
    for summary in summaries.all():
        summary.click()
    expect(page.get_by_test_id("attachment-match")).to_have_count(matches)
    expect(page.get_by_test_id("attachment-text").first).to_be_visible()
    assert overhang(page) <= 0
    assert faint_texts(page) == []
    assert serious_violations(page) == []

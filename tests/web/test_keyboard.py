"""The whole job by keyboard alone: from the upload of a trace to a kernel in Perfetto, a query, and a comparison."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.http.conftest import ENDLESS
from tests.server import Server
from tests.web.address import address_of, query_of
from tests.web.viewer import Viewer

EXAMPLE = Path(__file__).parents[2] / "docs/examples/gpt_rank0.pt.trace.json.gz"
STOPS_MAX = 200


def go_to(page: Page, control: Locator, key: str = "Tab") -> None:
    """Press a key until the control has the focus."""
    expect(control).to_be_visible()
    for _ in range(STOPS_MAX):
        if control.evaluate("(control) => control === document.activeElement"):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} does not reach {control}")


def test_keyboard_alone_does_the_whole_job(page: Page, server: Server, gpu_id: str) -> None:
    page.goto(server.url)
    upload(page, EXAMPLE)
    address = address_of(page)
    open_a_step(page, server)
    open_a_kernel(page)
    cancel_a_query(page)
    page.goto(address)
    compare(page, gpu_id)
    page.goto(address)
    open_the_report(page)


def upload(page: Page, path: Path) -> None:
    """Upload a trace in the library, and follow the link to its page."""
    with page.expect_file_chooser() as chooser:
        go_to(page, page.get_by_test_id("file-input"))
        page.keyboard.press("Enter")
    chooser.value.set_files(path)
    go_to(page, page.get_by_test_id("upload-row").get_by_role("link").first)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("verdict")).to_contain_text(re.compile("idle|compute", re.IGNORECASE))


def open_a_step(page: Page, server: Server) -> None:
    """Choose a step in the overview, and open it in Perfetto."""
    canvas = page.get_by_test_id("overview-canvas")
    expect(canvas).to_have_attribute("data-drawn", re.compile("."))
    go_to(page, canvas)
    page.keyboard.press("]")
    expect(page.get_by_test_id("overview-chosen")).to_be_visible()
    (start,), (end,) = (query_of(page)[name] for name in ("start_ns", "end_ns"))
    go_to(page, page.get_by_test_id("overview-perfetto"))
    with page.context.expect_page() as opened:
        page.keyboard.press("Enter")
    Viewer(opened.value).expect_tracks()
    windows = [(session["selection"] or {}).get("window") for session in server.api.get("/sessions").json()["sessions"]]
    assert {"start_ns": int(start), "end_ns": int(end)} in windows
    opened.value.close()


def open_a_kernel(page: Page) -> None:
    """Find a kernel by search and sorting, and open its longest slice in Perfetto."""
    go_to(page, page.get_by_test_id("analysis-themes").get_by_role("link", name="Kernel breakdown"))
    page.keyboard.press("Enter")
    fold = page.get_by_test_id("fold-kernels")
    go_to(page, fold.locator("summary"))
    page.keyboard.press("Enter")
    go_to(page, fold.get_by_test_id("table-search"))
    page.keyboard.type("nccl")
    rows = fold.locator("tbody tr")
    expect(fold.get_by_role("status")).to_have_text(re.compile(r"^\d+ of \d+ rows"))
    assert all("nccl" in text for text in rows.all_inner_texts())
    go_to(page, fold.locator("th[data-column=count] button"))
    page.keyboard.press("Enter")
    expect(fold.locator("th[data-column=count]")).to_have_attribute("aria-sort", "descending")
    counts = [int(text.replace(",", "")) for text in rows.locator("td:nth-child(5)").all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    go_to(page, rows.first.get_by_test_id("slices"))
    page.keyboard.press("Enter")
    go_to(page, page.get_by_test_id("sql-result").locator("tbody tr").first.get_by_test_id("slice-link"))
    with page.context.expect_page() as opened:
        page.keyboard.press("Enter")
    Viewer(opened.value).expect_tracks()
    expect(opened.value.locator(".pf-details-shell")).to_contain_text("nccl")
    opened.value.close()


def cancel_a_query(page: Page) -> None:
    """Cancel an endless query, and run another one."""
    editor = page.get_by_test_id("sql-input")
    for query in (ENDLESS, "SELECT 6 * 7"):
        go_to(page, editor, "Shift+Tab")
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(query)
        page.keyboard.press("Control+Enter")
        if query == ENDLESS:
            go_to(page, page.get_by_test_id("sql-cancel"))
            page.keyboard.press("Enter")
            expect(page.get_by_test_id("sql-status")).to_contain_text("Cancelled")
    expect(page.get_by_test_id("sql-result").locator("tbody td").first).to_have_text("42")


def compare(page: Page, other: str) -> None:
    """Compare the trace of the page with another one."""
    go_to(page, page.get_by_test_id("compare-with"))
    page.keyboard.press("Enter")
    go_to(page, page.get_by_test_id("other-search"))
    page.keyboard.type(other)
    expect(page.get_by_test_id("other-found").get_by_role("option").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("Step time")


def open_the_report(page: Page) -> None:
    """Open the report on the trace of the page."""
    go_to(page, page.get_by_test_id("open-report"))
    with page.context.expect_page() as opened:
        page.keyboard.press("Enter")
    expect(opened.value.get_by_role("heading", name="Where the time goes")).to_be_visible()

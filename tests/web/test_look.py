"""The pages work without a mouse, in a small window, and with enough contrast."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import DATA
from tests.server import Server
from tests.traces import examples
from tests.waiting import PATIENCE_S
from tests.web.conftest import OpenContext
from tests.web.folds import unfold
from tests.web.look import faint_texts, overhang, serious_violations, tab_through
from tests.web.npm_scripts import AXE

WIDE = "select name, 'a' || hex(zeroblob(300)) as wide, ts, dur, category, depth from slice limit 20"

Visit = Callable[[Page], None]


STATES = [
    "list", "ranks", "no match", "merge", "deletions", "import", "jobs", "not found", "bad link", "ready", "cut",
    "cut error", "child", "merged", "damaged", "failed", "unknown", "rows", "SQL error", "deletion", "group", "run",
    "comparison", "analyses",
]  # fmt: skip


@pytest.fixture(scope="module")
def parent_id(server: Server, gpu_trace: Path) -> str:
    """A trace with a long name and a child that was cut from it."""
    trace_id = str(server.upload(gpu_trace, f"{'parent_of_a_long_line' * 9}.json")["id"])
    create_trace(
        server, f"/traces/{trace_id}/split", {"selection": {"steps": [3], "exclude": {"names": ["no_name" * 30]}}}
    )
    return trace_id


@pytest.fixture(scope="module")
def merged_id(server: Server) -> str:
    """A trace of two ranks."""
    ranks = [server.upload(DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz")["id"] for rank in (0, 1)]
    return create_trace(server, "/traces/merge", {"traces": ranks})


@pytest.fixture(scope="module")
def group_id(server: Server, long_name_id: str, failed_id: str) -> str:
    """A group with a long name, of a trace with a long name and a failed one."""
    body = {"name": "run_of_a_long_line" * 12, "run_id": "id" * 60, "traces": [long_name_id, failed_id]}
    return str(server.api.post("/groups", json=body).json()["id"])


@pytest.fixture(scope="module")
def run_id(server: Server) -> str:
    """A group of two ready ranks."""
    for name, content in examples().items():
        answer = server.api.put(f"/traces/{name}", params={"wait": PATIENCE_S, "group": "looked at"}, content=content)
        assert answer.status_code == 201, answer.text
    (run,) = server.api.get("/groups", params={"name": "looked at"}).json()["groups"]
    return str(run["id"])


def create_trace(server: Server, path: str, request: dict[str, Any]) -> str:
    answer = server.api.post(path, json=request, params={"wait": PATIENCE_S})
    assert answer.status_code == 202, answer.text
    [trace_id] = answer.json()["result"]["traces"]
    return str(trace_id)


@pytest.fixture(params=STATES)
def visit(  # noqa: PLR0915, PLR0917 - each fixture makes one of the pages
    request: pytest.FixtureRequest,
    server: Server,
    gpu_trace: Path,
    long_name_id: str,
    parent_id: str,
    merged_id: str,
    group_id: str,
    run_id: str,
    damaged_id: str,
    failed_id: str,
) -> Visit:
    """Opens a page in one of its states, with long names."""
    trace = f"{server.url}/traces/{long_name_id}"

    def sql(page: Page, statement: str, test_id: str) -> None:
        page.goto(f"{trace}/sql")
        page.get_by_test_id("sql-input").fill(statement)
        page.get_by_test_id("sql-input").press("Control+Enter")
        expect(page.get_by_test_id(test_id)).to_be_visible()

    def opens(url: str, test_id: str) -> Visit:
        def go(page: Page) -> None:
            page.goto(url)
            expect(page.get_by_test_id(test_id)).to_be_visible()

        return go

    def deletion(page: Page) -> None:
        page.goto(trace)
        page.get_by_test_id("delete-trace").click()

    def ranks(page: Page) -> None:
        page.goto(f"{server.url}/?open={group_id}")
        expect(page.get_by_test_id("rank-row")).to_have_count(2)

    def deletions(page: Page) -> None:
        server.upload(gpu_trace, f"{'deleted_in_a_line' * 9}.json")
        page.goto(f"{server.url}/?q=deleted_in_a_line")
        page.get_by_test_id("delete-trace").first.click()
        expect(page.get_by_test_id("removal")).to_be_visible()

    def imports(page: Page) -> None:
        page.goto(server.url)
        page.get_by_test_id("import-open").click()
        page.get_by_test_id("import-path").fill("/no_such_folder" * 20)
        page.get_by_test_id("import-run").click()
        expect(page.locator("#import-problem")).to_be_visible()

    def ready(page: Page) -> None:
        page.goto(trace)
        expect(page.get_by_test_id("listener")).to_be_visible()
        for section in page.locator("summary:visible").all():
            section.click()

    def cut(page: Page) -> None:
        page.goto(f"{server.url}/traces/{parent_id}")
        expect(page.get_by_test_id("trace-children")).to_be_visible()
        unfold(page, "cut")
        page.get_by_test_id("cut-more").locator("summary").click()
        page.get_by_test_id("cut-steps").get_by_role("checkbox").last.check()
        expect(page.get_by_test_id("cut-keeps")).to_contain_text("about")

    def cut_error(page: Page) -> None:
        page.goto(trace)
        unfold(page, "cut")
        page.get_by_test_id("cut-start").fill("no_such_time" * 20)
        expect(page.get_by_test_id("cut-keeps")).to_contain_text("no_such_time")

    def child(page: Page) -> None:
        page.goto(f"{server.url}/traces/{parent_id}")
        unfold(page, "children")
        page.get_by_test_id("trace-children").get_by_role("link").click()
        unfold(page, "contents")
        expect(page.get_by_text("without name no_name")).to_be_visible()
        expect(page.get_by_test_id("cut")).to_be_visible()

    def run(page: Page) -> None:
        page.goto(f"{server.url}/groups/{run_id}")
        for chart in ("verdict", "run-steps"):
            expect(page.get_by_test_id(f"chart-{chart}")).to_be_visible()
        for fold in page.locator("summary:visible").all():
            fold.click()

    def analyses(page: Page) -> None:
        page.goto(trace)
        page.locator("#analyses").scroll_into_view_if_needed()
        expect(page.locator("#analysis-said")).to_contain_text("Answered")

    def group(page: Page) -> None:
        page.goto(f"{server.url}/groups/{group_id}")
        unfold(page, "files")
        expect(page.get_by_test_id("group-table")).to_be_visible()

    def merge(page: Page) -> None:
        page.goto(f"{server.url}/?state=ready&kind=file")
        for index in (0, 1):
            page.get_by_test_id("select-trace").nth(index).check()
        expect(page.get_by_test_id("merge-run")).to_be_visible()

    visits: dict[str, Visit] = {
        "merge": merge,
        "cut": cut,
        "cut error": cut_error,
        "child": child,
        "group": group,
        "run": run,
        "comparison": opens(f"{server.url}/compare?base=run:{run_id}&other={long_name_id}", "chart-compare"),
        "analyses": analyses,
        "merged": opens(f"{server.url}/traces/{merged_id}", "trace-ranks"),
        "list": opens(server.url, "trace-list"),
        "ranks": ranks,
        "deletions": deletions,
        "import": imports,
        "jobs": opens(f"{server.url}/jobs", "jobs-ended"),
        "not found": opens(f"{server.url}/{'no_such_page' * 9}", "not-found"),
        "bad link": opens(f"{server.url}/api/v1/traces/{long_name_id}/perfetto?slice=at:1:{'none' * 40}", "problem"),
        "no match": opens(f"{server.url}/?q={'no_such_trace' * 9}", "no-match"),
        "ready": ready,
        "damaged": opens(f"{server.url}/traces/{damaged_id}", "trace-health"),
        "failed": opens(f"{server.url}/traces/{failed_id}", "trace-failure"),
        "unknown": opens(f"{server.url}/traces/{'0' * 12}", "trace-problem"),
        "rows": lambda page: sql(page, WIDE, "sql-result"),
        "SQL error": lambda page: sql(page, f"select {'nonsense' * 20} from slice", "sql-error"),
        "deletion": deletion,
    }
    return visits[request.param]


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_texts_have_contrast_and_pages_do_not_scroll_sideways(
    open_context: OpenContext, visit: Visit, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = open_context(width=width, scheme=scheme).new_page()
    visit(page)
    assert overhang(page) == 0
    assert faint_texts(page) == []


@pytest.mark.skipif(not AXE.path.exists(), reason=AXE.reason_to_skip)
def test_pages_break_no_rule_of_accessibility(open_context: OpenContext, visit: Visit) -> None:
    page = open_context().new_page()
    visit(page)
    assert serious_violations(page) == []


def test_tab_reaches_all_controls_of_the_list_with_visible_focus(
    open_context: OpenContext, server: Server, gpu_trace: Path
) -> None:
    server.api.put(
        "/traces/tabbed.json", params={"wait": PATIENCE_S, "group": "tabbed run"}, content=gpu_trace.read_bytes()
    )
    page = open_context().new_page()
    page.goto(f"{server.url}/?q=tabbed")
    expect(page.get_by_test_id("run-row")).to_have_count(1)
    page.get_by_test_id("unfold").press("Enter")
    expect(page.get_by_test_id("rank-row")).to_have_count(1)
    page.goto(page.url)
    expect(page.get_by_test_id("rank-row")).to_have_count(1)
    stops = tab_through(page)
    assert [stop["name"] for stop in stops if not stop["outlined"]] == []
    names = [stop["name"] for stop in stops]
    assert names[:6] == ["Skip to content", "Tracedock", "Traces", "Compare", "Jobs", "API"]
    assert names[6:9] == ["file-input", "folder-input", "import-open"]
    assert names[9:15] == [
        "search", "filter-state", "filter-kind", "filter-gpu", "filter-pinned", "filter-damaged",
    ]  # fmt: skip
    assert names[15:17] == ["filter-clear", "Name"]
    assert names[-7:] == [
        "pin", "delete-run", "select-trace", "tabbed.json", "open-perfetto", "pin", "delete-trace",
    ]  # fmt: skip


def test_tab_reaches_all_controls_of_a_trace_page_with_visible_focus(
    open_context: OpenContext, server: Server, gpu_id: str
) -> None:
    page = open_context().new_page()
    page.goto(f"{server.url}/traces/{gpu_id}")
    expect(page.get_by_test_id("listener")).to_be_visible()
    page.evaluate("document.querySelectorAll('details.panel').forEach(panel => { panel.open = true; })")
    page.locator("#analyses").scroll_into_view_if_needed()
    # An answer moves the controls below it, so it must be there before the focus passes through them.
    expect(page.locator("#analysis-said")).to_contain_text("Answered")
    stops = tab_through(page)
    assert [stop["name"] for stop in stops if not stop["outlined"]] == []
    names = [stop["name"] for stop in stops]
    order = ["open-perfetto", "open-sql", "download-trace", "delete-trace"]
    order += ["cut-name", "cut-start", "cut-end", "cut-least", "cut-straddle", "cut-open", "cut-download"]
    order += ["cut-download-pftrace", "cut-by", "cut-split"]
    assert [name for name in names if name in order] == order
    assert (
        len([name for name in names if "·" in name])  # the headings of processes
        == page.get_by_test_id("trace-processes").locator("summary").count()
    )


def test_files_can_be_chosen_by_keyboard(open_context: OpenContext, server: Server) -> None:
    page = open_context().new_page()
    page.on("filechooser", lambda _: None)  # with a handler, Chromium passes its file dialogs to the test
    page.goto(server.url)
    for kind in ("file-input", "folder-input"):
        with page.expect_file_chooser() as chooser:
            page.get_by_test_id(kind).press("Enter")
        assert chooser.value.is_multiple()


def test_deletion_is_confirmed_or_cancelled_by_keyboard(open_context: OpenContext, server: Server, gpu_id: str) -> None:
    page = open_context().new_page()
    page.goto(f"{server.url}/traces/{gpu_id}")
    delete = page.get_by_test_id("delete-trace")
    for key in ("Enter", "Escape"):  # the focus is on Cancel, so Enter pressed by habit does not delete
        delete.press("Enter")
        expect(page.get_by_test_id("confirm-cancel")).to_be_focused()
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(delete).to_be_focused()
    assert server.api.get(f"/traces/{gpu_id}").status_code == 200

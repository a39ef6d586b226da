"""The page of SQL on a trace."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.server import Server
from tests.web.address import address_of
from tests.web.viewer import Viewer

ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"
MANY = (
    "with recursive c(x) as (select 1 union all select x + 1 from c limit 100000)"
    " select x, 100000 - x as y, 'n' || x as n from c"
)


@pytest.fixture
def sql_page(page: Page, server: Server, gpu_id: str) -> Page:
    """The page of SQL on `gpu_trace`."""
    page.goto(f"{server.url}/traces/{gpu_id}/sql")
    expect(page.get_by_test_id("sql-input")).to_be_visible()
    return page


def run_sql(page: Page, sql: str) -> None:
    page.get_by_test_id("sql-input").fill(sql)
    page.get_by_test_id("sql-input").press("Control+Enter")


def test_sql_returns_rows_of_exact_values(sql_page: Page) -> None:
    run_sql(
        sql_page,
        "select 9007199254740993 as big, -9223372036854775808 as least, 0.1 as tenth, "
        "null as gone, 'NULL' as word, '' as empty",
    )
    cells = sql_page.get_by_test_id("sql-result").locator("tbody td")
    expect(cells).to_have_text(["9007199254740993", "-9223372036854775808", "0.1", "NULL", "NULL", ""])
    expect(cells.nth(3)).to_have_class(re.compile("null"))
    expect(cells.nth(4)).not_to_have_class(re.compile("null"))
    expect(sql_page.get_by_test_id("sql-status")).to_contain_text("1 row in")


def test_sample_query_finds_the_kernels(sql_page: Page) -> None:
    sql_page.get_by_role("button", name="Top kernels").click()
    sql_page.get_by_test_id("sql-run").click()
    result = sql_page.get_by_test_id("sql-result")
    expect(result).to_contain_text("ampere_sgemm_128x64_tn")
    expect(result).to_contain_text("ncclDevKernel_AllReduce")


def test_wrong_sql_shows_the_engine_message_and_its_position(sql_page: Page) -> None:
    run_sql(sql_page, "select name,\n  nonsense from slice")
    error = sql_page.get_by_test_id("sql-error")
    expect(error).to_contain_text("no such column: nonsense")
    error.get_by_role("button", name="Go to line 2, column 3").click()
    selected = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
    assert sql_page.get_by_test_id("sql-input").evaluate(selected) == "nonsense"


def test_cancelled_query_is_followed_by_a_working_one(sql_page: Page, server: Server, gpu_id: str) -> None:
    with sql_page.expect_request(lambda request: "/query" in request.url):
        run_sql(sql_page, ENDLESS)
    expect(sql_page.get_by_test_id("sql-status")).to_contain_text(re.compile(r"Running…\s+\d\.\d s"))
    sql_page.get_by_test_id("sql-cancel").click()
    expect(sql_page.get_by_test_id("sql-status")).to_contain_text("Cancelled after")
    run_sql(sql_page, "select 6 * 7 as answer")
    expect(sql_page.get_by_test_id("sql-result").locator("tbody td")).to_have_text(["42"])


def test_csv_has_all_rows_beyond_the_limit_of_the_table(sql_page: Page, server: Server, gpu_id: str) -> None:
    [[rows]] = server.rows(gpu_id, "select count(*) from slice")
    sql_page.get_by_test_id("sql-limit").select_option("100")
    run_sql(sql_page, "select id, name from slice")
    expect(sql_page.get_by_test_id("sql-status")).to_contain_text("Truncated: only the first 100")
    with sql_page.expect_download() as download:
        sql_page.get_by_test_id("sql-csv").click()
    assert download.value.suggested_filename == "rank0.csv"
    assert len(download.value.path().read_text().splitlines()) == 1 + int(str(rows))


def test_every_example_runs_on_a_training_trace(sql_page: Page) -> None:
    examples = sql_page.get_by_test_id("sql-samples").get_by_role("button")
    assert examples.count() > 10
    for example in examples.all():
        example.click()
        with sql_page.expect_response("**/query*") as answer:
            sql_page.get_by_test_id("sql-run").click()
        while answer.value.status == 202:  # the engine loads
            with sql_page.expect_response("**/query*") as answer:
                pass
        assert answer.value.status == 200, example.inner_text()
        expect(sql_page.get_by_test_id("sql-cancel")).to_be_disabled()


def test_names_of_the_engine_complete_by_keyboard(sql_page: Page) -> None:
    run_sql(sql_page, "select 1")
    expect(sql_page.locator("#sql-input[data-words]")).to_be_visible()
    field = sql_page.get_by_test_id("sql-input")
    field.fill("")
    field.press_sequentially("select op_name from torch_ker")
    expect(sql_page.get_by_test_id("sql-words").get_by_role("option", selected=True)).to_contain_text("torch_kernel")
    field.press("Tab")
    expect(field).to_have_value("select op_name from torch_kernel")
    field.press_sequentially(" where op_id")
    field.press("Escape")
    expect(sql_page.get_by_test_id("sql-words")).to_be_hidden()


def test_whole_words_and_chosen_queries_open_no_suggestions(sql_page: Page) -> None:
    run_sql(sql_page, "select 1")
    expect(sql_page.locator("#sql-input[data-words]")).to_be_visible()
    expect(sql_page.get_by_test_id("sql-result")).to_be_visible()
    sql_page.get_by_role("button", name="Import issues").click()
    expect(sql_page.get_by_test_id("sql-words")).to_be_hidden()
    expect(sql_page.get_by_test_id("sql-result")).to_be_hidden()
    expect(sql_page.get_by_test_id("sql-status")).not_to_contain_text("row")
    field = sql_page.get_by_test_id("sql-input")
    chosen = field.input_value()
    field.press("Enter")
    field.press_sequentially("desc")
    field.press("Enter")
    expect(field).to_have_value(f"{chosen}\ndesc\n")


def test_chart_of_a_result_names_its_bars_by_the_text_that_differs(sql_page: Page) -> None:
    run_sql(
        sql_page,
        "select 'memcpy' as kind, 'copy ' || value as name, value as dur_ns from (select 1 as value union select 2)",
    )
    chart = sql_page.locator("#sql-chart")
    expect(chart).to_contain_text("copy 1")
    expect(chart).to_contain_text("copy 2")


def test_result_of_100_000_rows_keeps_few_in_the_page_and_sorts_and_searches(sql_page: Page) -> None:
    sql_page.get_by_test_id("sql-limit").select_option("100000")
    run_sql(sql_page, MANY)
    result = sql_page.get_by_test_id("sql-result")
    rows = result.locator("tbody tr:not(.spacer)")
    expect(rows.first).to_have_text("199999n1")
    assert rows.count() < 200
    result.get_by_role("region").evaluate("region => { region.scrollTop = region.scrollHeight; }")
    expect(rows.last).to_have_text("1000000n100000")
    result.get_by_role("button", name="y", exact=True).click()  # numbers begin with the largest
    expect(rows.first).to_have_text("199999n1")
    result.get_by_role("button", name="y", exact=True).click()
    expect(rows.first).to_have_text("1000000n100000")
    result.get_by_test_id("table-search").fill("n4242")
    expect(result).to_contain_text("11 of 100,000 rows")
    expect(rows).to_have_count(11)
    expect(rows.first).to_contain_text("n42429")  # still sorted


def test_bars_of_the_chart_are_the_rows(sql_page: Page) -> None:
    run_sql(sql_page, "select 'a' as name, 30 as dur_ns union all select 'b', 9007199254740993 union all select 'c', 0")
    marks = sql_page.get_by_test_id("chart-query").locator("rect")
    expect(marks).to_have_count(3)
    assert [mark.get_attribute("data-value") for mark in marks.all()] == ["30", "9007199254740993", "0"]


def test_query_is_in_the_address_in_the_history_and_can_be_saved(sql_page: Page, server: Server, gpu_id: str) -> None:
    run_sql(sql_page, "select 6 * 7 as answer")
    expect(sql_page.get_by_test_id("sql-result").locator("tbody td")).to_have_text(["42"])
    link = address_of(sql_page)
    assert link.endswith("?q=select+6+*+7+as+answer")
    expect(sql_page.get_by_test_id("sql-history")).to_contain_text("select 6 * 7 as answer")
    sql_page.get_by_test_id("sql-save-name").fill("the answer")
    sql_page.get_by_test_id("sql-save").click()
    run_sql(sql_page, "select 1")
    sql_page.get_by_test_id("sql-saved").get_by_role("button", name="the answer", exact=True).click()
    expect(sql_page.get_by_test_id("sql-input")).to_have_value("select 6 * 7 as answer")
    sql_page.goto("about:blank")
    sql_page.goto(link)
    expect(sql_page.get_by_test_id("sql-input")).to_have_value("select 6 * 7 as answer")


def test_link_of_another_site_starts_no_query(page: Page, server: Server, gpu_id: str) -> None:
    queries: list[str] = []
    page.on("request", lambda request: queries.append(request.post_data or "") if "/query" in request.url else None)
    page.goto(f"{server.url}/traces/{gpu_id}/sql?q={quote('select 1')}", referer="https://example.org/")
    expect(page.get_by_test_id("sql-input")).to_have_value("select 1")
    page.get_by_test_id("sql-save-name").focus()
    assert [query for query in queries if "select 1" in query] == []  # an engine that runs already lists its tables


def test_kernel_of_an_analysis_leads_to_its_longest_slice_in_perfetto(page: Page, server: Server, gpu_id: str) -> None:
    page.goto(f"{server.url}/traces/{gpu_id}?analysis=kernel_breakdown")
    fold = page.get_by_test_id("fold-kernels")
    fold.locator("summary").click()
    row = fold.locator("tbody tr").first
    name, longest = row.locator("td").nth(3).text_content(), row.locator("td").nth(8).get_attribute("title")
    row.get_by_test_id("slices").click()
    first = page.get_by_test_id("sql-result").locator("tbody tr").first
    expect(first.locator("td").nth(4)).to_have_text(str(name))
    assert f"{first.locator('td').nth(2).text_content()} ns" == longest
    wanted = int(str(first.locator("td").first.text_content()))
    with page.context.expect_page() as opened:
        first.get_by_test_id("slice-link").click()
    Viewer(opened.value).expect_tracks()
    opened.value.locator(".pf-details-shell").wait_for()
    assert opened.value.evaluate("app.trace.selection.selection.eventId") == wanted

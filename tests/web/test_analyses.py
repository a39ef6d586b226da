"""The analyses panel of a trace."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.server import Server


def opened(page: Page, server: Server, trace_id: str) -> Locator:
    """Return the panel of a trace once it has listed the analyses."""
    page.goto(f"{server.url}/traces/{trace_id}")
    panel = page.get_by_test_id("analyses")
    with page.expect_response("**/analysis") as listed:
        panel.scroll_into_view_if_needed()
    assert listed.value.ok
    return panel


def answer(server: Server, trace_id: str, name: str, **trace: Any) -> dict[str, Any]:
    tables: dict[str, Any] = server.api.get(f"/traces/{trace_id}/analysis/{name}", params=trace).json()["tables"]
    return tables


def table_cells(panel: Locator, table: str) -> list[list[str]]:
    rows = panel.get_by_test_id(f"analysis-{table}").locator("tbody tr")
    return [row.locator("td").all_text_contents() for row in rows.all()]


def as_text(row: list[Any]) -> list[str]:
    """Format a row as on the page: numbers with thousands separators and at most three decimals."""
    return ["NULL" if value is None else f"{round(value, 3):,}" for value in row]


def test_first_analysis_is_shown_at_once(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id)
    expect(panel.get_by_test_id("analysis-breakdown").locator("tbody tr")).to_have_count(1)
    expect(panel.get_by_test_id("analysis-said")).to_contain_text("Answered in")
    expected = answer(server, gpu_id, "temporal_breakdown")["breakdown"]["rows"]
    assert table_cells(panel, "breakdown")[0][:12] == as_text(expected[0])[:12]


def test_changed_parameter_or_step_updates_the_answer(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id)
    with page.expect_response("**/analysis/temporal_breakdown?memset=comp"):
        panel.locator("[name=memset]").select_option("comp")
    with page.expect_response("**/analysis/temporal_breakdown?memset=comp&steps=4"):
        panel.get_by_test_id("analysis-part").select_option("4")
    expected = answer(server, gpu_id, "temporal_breakdown", memset="comp", steps=4)["breakdown"]["rows"]
    expect(panel.get_by_test_id("analysis-breakdown").locator("tbody td").nth(2)).to_have_text(f"{expected[0][2]:,}")


def test_table_downloads_as_csv(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id)
    with page.expect_download() as download:
        panel.get_by_role("link", name="CSV").first.click()
    columns = answer(server, gpu_id, "temporal_breakdown")["breakdown"]["columns"]
    header, *rows = download.value.path().read_text().splitlines()
    assert header.replace('"', "").split(",") == [column["name"] for column in columns]
    assert len(rows) == 1


def test_analyses_that_do_not_apply_show_a_reason(page: Page, server: Server, step_trace: Path) -> None:
    on_host = str(server.upload(step_trace)["id"])
    panel = opened(page, server, on_host)
    listed = server.api.get(f"/traces/{on_host}/analysis").json()["analyses"]
    reasons = {analysis["name"]: analysis["reason"] for analysis in listed if not analysis["applies"]}
    assert "temporal_breakdown" in reasons
    panel.get_by_test_id("analysis-rest").locator("summary").click()
    rows = panel.get_by_test_id("analysis-rest").get_by_role("listitem")
    expect(rows).to_have_count(len(reasons))
    for row, reason in zip(rows.all(), reasons.values(), strict=True):
        expect(row).to_contain_text(reason)
    expect(panel.get_by_test_id("analysis-name").locator("option")).to_have_count(len(listed) - len(reasons))


def test_refusal_is_shown_until_the_next_answer(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id)
    expect(panel.get_by_test_id("analysis-breakdown")).to_be_visible()
    problem = '{"title": "No room", "detail": "There is no room.", "code": "disk_full", "status": 507}'
    page.route("**/analysis/temporal_breakdown*", lambda route: route.fulfill(status=507, body=problem))
    panel.get_by_test_id("analysis-run").click()
    expect(panel.get_by_test_id("analysis-problem")).to_contain_text("There is no room.")
    expect(panel.get_by_test_id("analysis-breakdown")).to_have_count(0)
    page.unroute("**/analysis/temporal_breakdown*")
    panel.get_by_test_id("analysis-run").click()
    expect(panel.get_by_test_id("analysis-breakdown")).to_be_visible()
    expect(panel.get_by_test_id("analysis-problem")).to_be_hidden()


def test_critical_path_opens_in_perfetto(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id)
    panel.get_by_test_id("analysis-part").select_option("4")
    panel.locator("#analysis-name").select_option("critical_path")
    panel.get_by_role("button", name="Show in Perfetto").click()
    link = panel.get_by_role("link", name="Open it in Perfetto")
    expect(link).to_be_visible(timeout=60_000)
    child_id = str(link.get_attribute("href")).split("/")[-2]
    child = server.api.get(f"/traces/{child_id}").json()
    assert (child["parent"], child["selection"]) == (gpu_id, {"steps": [4]})
    assert child["counts"]["X|critical_path"] > 0

"""The page of a run, which compares its ranks."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from service.analysis.kept_answers import KEPT
from tests.server import Server
from tests.web.address import address_of
from tests.web.viewer import Viewer

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json.gz"))


@pytest.fixture(scope="module")
def run_id(server: Server) -> str:
    """The run of two ranks that ships with the project."""
    for path in EXAMPLES:
        query = {"group": "gpt of the examples", "wait": "60"}
        trace = server.api.put(f"/traces/{path.name}", params=query, content=path.read_bytes()).json()
    return str(trace["group"]["id"])


def rows_of(server: Server, run_id: str, name: str, table: str) -> list[dict[str, Any]]:
    content = server.api.get(f"/groups/{run_id}/analysis/{name}").json()["tables"][table]
    return [dict(zip([column["name"] for column in content["columns"]], row, strict=True)) for row in content["rows"]]


def cells_of(chart: Locator) -> dict[tuple[str, str], int]:
    """Return the value of each cell of a heatmap, by its row and column."""
    cells = chart.locator("rect[data-row]").all()
    values = [[str(cell.get_attribute(f"data-{name}")) for name in ("row", "column", "value")] for cell in cells]
    return {(row, column): int(value) for row, column, value in values}


def test_run_page_shows_the_values_of_the_analyses(page: Page, server: Server, run_id: str) -> None:
    page.goto(f"{server.url}/groups/{run_id}")
    bars = page.get_by_test_id("chart-verdict").locator("rect[data-series=idle]")
    idle = [row["idle_ns"] for row in rows_of(server, run_id, "temporal_breakdown", "breakdown")]
    expect(bars).to_have_count(len(idle))
    assert [int(str(bar.get_attribute("data-value"))) for bar in bars.all()] == idle

    chart = page.get_by_test_id("chart-run-steps")
    steps = rows_of(server, run_id, "steps", "steps")
    expect(chart.locator("rect[data-row]")).to_have_count(len(steps))
    assert cells_of(chart) == {(f"rank {row['rank']}", str(row["step"])): row["total_ns"] for row in steps}
    page.get_by_test_id("run-measure").select_option("waiting")
    expect(chart).to_contain_text("Wait for other ranks")
    waits = rows_of(server, run_id, "collectives", "steps")
    expect(chart.locator("rect[data-row]")).to_have_count(len(waits))  # drawn once the width of the chart is known
    assert cells_of(chart) == {(f"rank {row['rank']}", str(row["step"])): row["synchronizing_ns"] for row in waits}

    late = page.get_by_test_id("run-waits").locator("tbody tr")
    expect(late).to_have_count(2)
    expect(late.first).to_contain_text(rows_of(server, run_id, "collectives", "ranks")[0]["late_cause"])
    expect(page.get_by_test_id("run-advice")).to_contain_text("num_workers")


def test_pages_at_first_request_only_what_is_prepared(page: Page, server: Server, run_id: str, gpu_id: str) -> None:
    asked: list[tuple[str, set[str]]] = []

    def note(request: Request) -> None:
        address = urlsplit(request.url)
        if "/analysis/" in address.path:
            asked.append((address.path.rpartition("/")[2], {*parse_qs(address.query)}))

    page.on("request", note)
    page.goto(f"{server.url}/groups/{run_id}")
    expect(page.get_by_test_id("chart-run-steps")).to_be_visible()
    expect(page.locator("#run-advice :is([data-testid=advice], [data-testid=no-advice])").first).to_be_visible()
    page.goto(f"{server.url}/traces/{gpu_id}")
    expect(page.locator(":is([data-testid=advice], [data-testid=no-advice])").first).to_be_visible()
    page.get_by_test_id("analyses").scroll_into_view_if_needed()
    for name in ("steps", "kernel_breakdown", "idle_breakdown"):
        expect(page.get_by_test_id(f"dashboard-{name}")).to_be_visible()
    questions = [(name, parameters) for name, parameters in asked if name != "overview"]  # which has a file of its own
    assert {name for name, _ in questions} == {*KEPT}
    assert all(parameters <= {"table"} for _, parameters in questions), questions


def test_step_of_a_rank_leads_to_its_window_in_the_trace(page: Page, server: Server, run_id: str) -> None:
    page.goto(f"{server.url}/groups/{run_id}")
    [step] = [row for row in rows_of(server, run_id, "steps", "steps") if (row["rank"], row["step"]) == (1, 11)]
    page.get_by_role("link", name="rank 1, step 11").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("gpt_rank1.pt.trace.json.gz")
    assert f"start_ns={step['start_ns']}&end_ns={step['end_ns']}" in address_of(page)


def test_collective_opens_in_perfetto_on_the_rank_that_came_last(page: Page, server: Server, run_id: str) -> None:
    page.goto(f"{server.url}/groups/{run_id}")
    with page.context.expect_page() as opened:
        page.get_by_test_id("run-collectives").get_by_role("link", name="Perfetto, rank 0").first.click()
    Viewer(opened.value).expect_tracks()
    expect(opened.value).to_have_title("gpt_rank0.pt.trace.json.gz (cut) - Perfetto UI")


def test_run_with_clocks_that_differ_says_so(page: Page, server: Server) -> None:
    args = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": 1, "device": 0, "stream": 7}
    for rank in range(2):
        reduces = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "dur": 100}
        events = [{**reduces, "ts": 1000 + 400 * rank, "args": args}]
        content = json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}).encode()
        query = {"group": "a run with two clocks", "wait": "60"}
        trace = server.api.put(f"/traces/clock{rank}.json", params=query, content=content).json()
    page.goto(f"{server.url}/groups/{trace['group']['id']}")
    expect(page.get_by_test_id("waits-note")).to_contain_text("The clocks of the ranks differ")
    expect(page.get_by_test_id("waits-note")).to_contain_text("300.0 µs longer")


def test_run_without_gpu_work_says_so(page: Page, server: Server, step_trace: Path) -> None:
    query = {"group": "a run on hosts", "wait": "60"}
    trace = server.api.put("/traces/host.json.gz", params=query, content=step_trace.read_bytes()).json()
    page.goto(f"{server.url}/groups/{trace['group']['id']}")
    expect(page.get_by_test_id("run-time")).to_have_text("No work ran on a GPU in these traces.")
    expect(page.get_by_test_id("run-waits")).to_contain_text("The ranks have no collectives.")
    expect(page.get_by_test_id("chart-run-steps").locator("rect[data-row]").first).to_be_visible()

"""The analyses panel of a trace."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, Page, expect

from tests.server import Server
from tests.traces import examples
from tests.waiting import PATIENCE_S
from tests.web.address import address_of


def opened(page: Page, server: Server, trace_id: str, query: str = "") -> Locator:
    """Return the panel of a trace once it has listed the analyses."""
    with page.expect_response("**/analysis") as listed:
        page.goto(f"{server.url}/traces/{trace_id}{query}")
        page.get_by_test_id("analyses").scroll_into_view_if_needed()  # it asks for nothing before
    assert listed.value.ok
    panel = page.get_by_test_id("analyses")
    panel.scroll_into_view_if_needed()
    return panel


def answer(server: Server, trace_id: str, name: str, **trace: Any) -> dict[str, Any]:
    tables: dict[str, Any] = server.api.get(f"/traces/{trace_id}/analysis/{name}", params=trace).json()["tables"]
    return tables


def unfolded(panel: Locator, table: str) -> Locator:
    """Open a table and return it."""
    panel.get_by_test_id(f"fold-{table}").locator("summary").first.click()
    return panel.get_by_test_id(f"analysis-{table}")


def test_page_without_a_choice_shows_the_pictures_that_matter_most(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id)
    for name in ("steps", "kernel_breakdown", "idle_breakdown"):
        expect(panel.get_by_test_id(f"chart-{name}").locator("svg")).to_be_visible()
    panel.get_by_role("link", name="All of steps").click()
    expect(page).to_have_url(f"{server.url}/traces/{gpu_id}?analysis=steps")


def test_link_to_an_analysis_leads_to_it_whatever_is_above(page: Page, server: Server, gpu_id: str) -> None:
    page.set_viewport_size({"width": 800, "height": 200})
    page.goto(f"{server.url}/traces/{gpu_id}?analysis=kernel_breakdown")
    expect(page.get_by_test_id("fold-kernels")).to_be_visible()
    expect(page.get_by_role("heading", name="Analyses", exact=True)).to_be_in_viewport()


@pytest.fixture(scope="module")
def example_id(server: Server) -> str:
    """An example trace, which has collectives, a data loader and annotations."""
    name, content = next(iter(examples().items()))
    return str(server.api.put(f"/traces/{name}", params={"wait": PATIENCE_S}, content=content).json()["id"])


def positive(rows: list[dict[str, Any]], columns: Sequence[str]) -> list[float]:
    return sorted(float(row[column]) for row in rows for column in columns if row[column])


BARS = [
    ("temporal_breakdown", "temporal_breakdown", "breakdown",
     ["computing_alone", "overlap_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns"]),
    ("idle_breakdown", "idle_breakdown", "breakdown", ["idle_ns"]),
    ("comm_overlap", "comm_overlap", "overlap", ["overlap_ns", "exposed_comm_ns"]),
    ("dataloader", "dataloader", "steps", ["exposed_ns", "hidden_ns"]),
    ("gpu_summary", "gpu_summary", "gpus",
     ["busy_pct", "utilization_pct", "sm_efficiency_pct", "occupancy_pct", "tensor_core_pct"]),
    ("collectives", "collective_kinds", "operations", ["latency_ns"]),
    ("launch_stats", "launch_calls", "calls", ["cpu_duration_ns"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "chart", "table", "columns"), BARS, ids=[chart for _, chart, *_ in BARS])
def test_bars_have_the_values_of_the_analysis(
    page: Page, server: Server, example_id: str, name: str, chart: str, table: str, columns: list[str]
) -> None:
    content = answer(server, example_id, name)[table]
    names = [column["name"] for column in content["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in content["rows"]]
    for row in rows:
        if "compute_ns" in row:
            row["computing_alone"] = row["compute_ns"] - row["overlap_ns"]
    panel = opened(page, server, example_id, f"?analysis={name}")
    bars = panel.get_by_test_id(f"chart-{chart}").locator("[data-value]")
    expect(bars.first).to_be_visible()
    drawn = sorted(float(str(bar.get_attribute("data-value"))) for bar in bars.all())
    assert [value for value in drawn if value > 0] == pytest.approx(positive(rows, columns))
    assert drawn


def test_flame_graph_of_annotations_leaves_out_only_what_is_too_thin(
    page: Page, server: Server, example_id: str
) -> None:
    content = answer(server, example_id, "annotations")["nested"]
    names = [column["name"] for column in content["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in content["rows"]]
    lengths = Counter(row["sum_ns"] for row in rows if row["side"] == "host")
    wide = Counter({length: times for length, times in lengths.items() if length > max(lengths) / 100})
    panel = opened(page, server, example_id, "?analysis=annotations")
    bars = panel.get_by_test_id("chart-annotations_host").locator("[data-value]")
    expect(bars.first).to_be_visible()
    drawn = Counter(int(str(bar.get_attribute("data-value"))) for bar in bars.all())
    assert wide <= drawn <= lengths


def test_lines_of_queues_have_all_points(page: Page, server: Server, example_id: str) -> None:
    content = answer(server, example_id, "queue_length")["series"]
    at = [column["name"] for column in content["columns"]].index("stream")
    streams = Counter(row[at] for row in content["rows"])
    panel = opened(page, server, example_id, "?analysis=queue_length")
    lines = panel.get_by_test_id("chart-queue_length").locator("path[data-points]")
    expect(lines).to_have_count(len(streams))
    assert {int(str(line.get_attribute("data-points"))) for line in lines.all()} == {*streams.values()}


def test_sequences_with_the_most_time_are_drawn(page: Page, server: Server, example_id: str) -> None:
    content = answer(server, example_id, "kernel_sequences")["sequences"]
    at = [column["name"] for column in content["columns"]].index("device_ns")
    longest = sorted((float(row[at]) for row in content["rows"] if row[at]), reverse=True)[:15]
    panel = opened(page, server, example_id, "?analysis=kernel_sequences")
    bars = panel.get_by_test_id("chart-kernel_sequences").locator("[data-value]")
    expect(bars.first).to_be_visible()
    assert [float(str(bar.get_attribute("data-value"))) for bar in bars.all()] == longest


KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 5}


@pytest.mark.parametrize("events", [0, 1], ids=["empty", "one event"])
def test_page_of_a_trace_without_much_in_it_has_no_fault(page: Page, server: Server, events: int) -> None:
    document = {"traceEvents": [KERNEL | {"args": {"device": 0, "stream": 7}}] * events}
    content = json.dumps(document)
    trace = server.api.put("/traces/small.json", params={"wait": PATIENCE_S}, content=content).json()["id"]
    faults: list[Error] = []
    page.on("pageerror", lambda fault: faults.append(fault))  # noqa: PLW0108 - no builtin function is taken
    panel = opened(page, server, trace)
    expect(page.locator("#verdict-body")).not_to_contain_text("Reading the trace")
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("idle 0 %" if events else "No work ran on a GPU")
    expect(panel.locator("#analysis-said")).to_contain_text("Answered")
    assert faults == []


def test_page_of_a_trace_with_many_streams_counts_the_lanes_that_it_leaves_out(page: Page, server: Server) -> None:
    events = [KERNEL | {"tid": n, "ts": n, "args": {"device": 0, "stream": n}} for n in range(1000)]
    content = json.dumps({"traceEvents": events})
    trace = server.api.put("/traces/streams.json", params={"wait": PATIENCE_S}, content=content).json()["id"]
    page.goto(f"{server.url}/traces/{trace}")
    expect(page.locator("#overview-canvas")).to_have_attribute("data-drawn", re.compile("/"))
    expect(page.locator("#overview-more")).to_have_text("48 more lanes of 984")
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("computing 100 %")
    page.locator("#overview-more").click()
    expect(page.locator("#overview-more")).to_have_text("192 more lanes of 936")


def test_bar_of_a_trace_without_steps_is_that_of_the_whole_trace(page: Page, server: Server) -> None:
    content = json.dumps({"traceEvents": [KERNEL | {"args": {"device": 0, "stream": 7}}]})
    trace = server.api.put("/traces/stepless.json", params={"wait": PATIENCE_S}, content=content).json()["id"]
    panel = opened(page, server, trace, "?analysis=steps")
    expect(panel.get_by_test_id("chart-steps")).to_contain_text("Whole trace")


def test_chosen_analysis_is_in_the_address_and_back_returns(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id, "?analysis=operators&start_ns=0&end_ns=9000000000000000000")
    expect(panel.get_by_test_id("chart-operators_host")).to_be_visible()
    panel.get_by_role("link", name="Launch stats").click()
    expect(panel.get_by_test_id("chart-launch_stats")).to_be_visible()
    assert "analysis=launch_stats" in address_of(page)
    assert "start_ns=0&end_ns=9000000000000000000" in address_of(page)
    page.go_back()
    expect(panel.get_by_test_id("chart-operators_host")).to_be_visible()
    expect(panel.locator("nav [aria-current=page]")).to_contain_text("Operators")


def test_step_and_options_restrict_the_answer_and_are_in_the_address(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id, "?analysis=temporal_breakdown")
    panel.get_by_test_id("analysis-options").locator("summary").click()
    with page.expect_response("**/analysis/temporal_breakdown?memset=comp"):
        panel.locator("[name=memset]").select_option("comp")
    with page.expect_response("**/analysis/temporal_breakdown?memset=comp&steps=4"):
        panel.get_by_test_id("analysis-part").select_option("4")
    expected = answer(server, gpu_id, "temporal_breakdown", memset="comp", steps=4)["breakdown"]["rows"][0]
    span = unfolded(panel, "breakdown").locator("tbody td").nth(2)
    expect(span).to_have_attribute("title", f"{expected[2]} ns")
    page.reload()
    panel.scroll_into_view_if_needed()
    expect(panel.locator("[name=memset]")).to_have_value("comp")
    expect(panel.get_by_test_id("analysis-part")).to_have_value("4")


def test_table_downloads_as_csv(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id, "?analysis=temporal_breakdown")
    table = unfolded(panel, "breakdown")
    with page.expect_download() as download:
        table.get_by_role("link", name="CSV").click()
    columns = answer(server, gpu_id, "temporal_breakdown")["breakdown"]["columns"]
    header, *rows = download.value.path().read_text().splitlines()
    assert header.replace('"', "").split(",") == [column["name"] for column in columns]
    assert len(rows) == 1


def test_analyses_that_do_not_apply_show_a_reason(page: Page, server: Server, step_trace: Path) -> None:
    on_host = str(server.upload(step_trace)["id"])
    panel = opened(page, server, on_host)
    expect(panel.get_by_test_id("chart-operators_host").locator("rect[data-value]").first).to_be_visible()
    listed = server.api.get(f"/traces/{on_host}/analysis").json()["analyses"]
    reasons = {analysis["name"]: analysis["reason"] for analysis in listed if not analysis["applies"]}
    of_two_sides = {"compare", "compare_snapshots"}  # which have a page of their own
    expect(panel.locator("nav .absent")).to_have_count(len(reasons.keys() - of_two_sides))
    panel.get_by_role("link", name="Temporal breakdown").click()
    expect(panel.get_by_test_id("analysis-reason")).to_have_text(reasons["temporal_breakdown"])


def test_refusal_is_shown_until_the_next_answer(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id, "?analysis=steps")
    expect(panel.get_by_test_id("chart-steps")).to_be_visible()
    panel.get_by_test_id("analysis-options").locator("summary").click()
    problem = '{"title": "No room", "detail": "There is no room.", "code": "disk_full", "status": 507}'
    page.route("**/analysis/steps*", lambda route: route.fulfill(status=507, body=problem))
    panel.get_by_test_id("analysis-run").click()
    expect(panel.get_by_test_id("analysis-problem")).to_contain_text("There is no room.")
    expect(panel.get_by_test_id("chart-steps")).to_have_count(0)
    page.unroute("**/analysis/steps*")
    panel.get_by_test_id("analysis-options").locator("summary").click()
    panel.get_by_test_id("analysis-run").click()
    expect(panel.get_by_test_id("chart-steps")).to_be_visible()
    expect(panel.get_by_test_id("analysis-problem")).to_be_hidden()


def test_critical_path_opens_in_perfetto(page: Page, server: Server, gpu_id: str) -> None:
    panel = opened(page, server, gpu_id, "?analysis=critical_path&steps=4")
    panel.get_by_role("button", name="Show in Perfetto").click()
    link = panel.get_by_role("link", name="Open it in Perfetto")
    expect(link).to_be_visible(timeout=60_000)
    child_id = str(link.get_attribute("href")).split("/")[-2]
    child = server.api.get(f"/traces/{child_id}").json()
    assert (child["parent"], child["selection"]) == (gpu_id, {"steps": [4]})
    assert child["counts"]["X|critical_path"] > 0

"""The panel of a trace's page that says where the time goes, and what to try first."""

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from service.analysis.facts.checks import IDLE_ADVICE
from tests.conftest import DATA
from tests.server import Server
from tests.waiting import PATIENCE_S
from tests.web.viewer import Viewer

PARTS = ("overlap_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns")


def rows_of(server: Server, trace_id: str, name: str, table: str) -> list[dict[str, Any]]:
    content = server.api.get(f"/traces/{trace_id}/analysis/{name}").json()["tables"][table]
    return [dict(zip([column["name"] for column in content["columns"]], row, strict=True)) for row in content["rows"]]


def test_bar_of_each_gpu_is_its_temporal_breakdown(page: Page, server: Server, gpu_id: str) -> None:
    page.goto(f"{server.url}/traces/{gpu_id}")
    [device] = rows_of(server, gpu_id, "temporal_breakdown", "breakdown")
    marks = page.get_by_test_id("chart-verdict").locator("rect[data-value]")
    expect(marks).to_have_count(5)
    drawn = [int(str(mark.get_attribute("data-value"))) for mark in marks.all()]
    assert drawn == [device["compute_ns"] - device["overlap_ns"], *(device[part] for part in PARTS)]
    assert sum(drawn) == device["span_ns"]
    widths = [float(str(mark.get_attribute("width"))) for mark in marks.all()]
    assert abs(widths[4] / sum(widths) - device["idle_ns"] / device["span_ns"]) < 1e-3
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text(f"{device['idle_pct']:.3g} %")


def test_advice_has_its_reason_its_figures_and_a_link_to_its_place(page: Page, server: Server, gpu_id: str) -> None:
    page.goto(f"{server.url}/traces/{gpu_id}")
    advice = rows_of(server, gpu_id, "recommendations", "recommendations")
    assert advice
    items = page.get_by_test_id("advice").locator("> li")
    expect(items).to_have_count(len(advice))
    for item, row in zip(items.all(), advice, strict=True):
        expect(item).to_contain_text(row["advice"])
        expect(item).to_contain_text(row["reason"])
    checks = rows_of(server, gpu_id, "recommendations", "checks")
    others = page.locator(".checks li")
    expect(others).to_have_count(sum(check["found"] != "yes" for check in checks))
    with page.context.expect_page() as opened:
        page.get_by_test_id("advice-place").first.click()
    Viewer(opened.value).expect_tracks()
    start, end = opened.value.evaluate("[app.trace.traceInfo.start, app.trace.traceInfo.end].map(Number)")
    length = advice[0]["end_ns"] - advice[0]["start_ns"]
    assert end - start >= length


def test_advice_that_several_gpus_get_names_each(page: Page, server: Server, tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "dur": 5}
    events = [
        kernel | {"pid": gpu, "ts": at, "args": {"device": gpu, "stream": 7}} for gpu in (0, 1) for at in (0, 900)
    ]
    path = tmp_path / "idle.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace_id = server.upload(path)["id"]
    page.goto(f"{server.url}/traces/{trace_id}")
    items = page.get_by_test_id("advice").locator("> li[data-rule=utilization] strong")
    advice = IDLE_ADVICE["nothing"].text
    expect(items).to_have_text([f"GPU 0: {advice}", f"GPU 1: {advice}"])


def test_trace_without_gpu_work_shows_its_steps_and_operators(page: Page, server: Server) -> None:
    trace_id = server.upload(DATA / "cpu_train_steps.pt.trace.json.gz")["id"]
    page.goto(f"{server.url}/traces/{trace_id}")
    expect(page.get_by_test_id("verdict-sentence")).to_have_text("No work ran on a GPU in this trace.")
    steps = rows_of(server, trace_id, "steps", "steps")
    marks = page.get_by_test_id("chart-verdict").locator("rect[data-series=operators]")
    expect(marks).to_have_count(len(steps))
    assert [int(str(mark.get_attribute("data-value"))) for mark in marks.all()] == [row["cpu_exec_ns"] for row in steps]
    operators = sorted(rows_of(server, trace_id, "operators", "operators"), key=lambda row: -row["host_self_ns"])
    expect(page.get_by_test_id("verdict").locator("ol").first).to_contain_text(operators[0]["name"])


def test_trace_without_timed_slices_says_so(page: Page, server: Server) -> None:
    empty = b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]}'
    trace_id = server.api.put("/traces/empty.json", params={"wait": PATIENCE_S}, content=empty).json()["id"]
    page.goto(f"{server.url}/traces/{trace_id}")
    expect(page.get_by_test_id("verdict-sentence")).to_have_text("No work ran on a GPU in this trace.")
    expect(page.get_by_test_id("verdict").get_by_role("alert")).to_have_count(0)

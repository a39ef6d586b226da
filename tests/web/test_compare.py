"""The page that compares two traces, two steps or two runs."""

import gzip
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.conftest import DATA
from tests.http.conftest import connected
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import until
from tests.web.address import query_of
from tests.web.conftest import OpenContext
from tests.web.look import faint_texts, overhang, serious_violations, tab_through
from tests.web.npm_scripts import AXE

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json.gz"))
CPU = [DATA / f"cpu_{name}.pt.trace.json.gz" for name in ("train_steps", "stack_memory")]
BARS_MAX = 15


def uploaded(server: Server, run: str, slower: float) -> str:
    """Upload the ranks of the example as a run that takes `slower` times as long; return its id."""
    for path in EXAMPLES:
        document = json.loads(gzip.decompress(path.read_bytes()))
        timed = [event for event in document["traceEvents"] if "ts" in event]
        first = min(event["ts"] for event in timed)
        for event in timed:
            event["ts"] = first + (event["ts"] - first) * slower
            event["dur"] = event.get("dur", 0) * slower
        content = json.dumps(document).encode()
        query = {"group": run, "wait": "60"}
        trace = server.api.put(f"/traces/{run}_{path.name.removesuffix('.gz')}", params=query, content=content).json()
    return str(trace["group"]["id"])


@pytest.fixture(scope="module")
def runs(server: Server) -> tuple[str, str]:
    """Two runs; the second takes a fifth longer."""
    return uploaded(server, "compare_before", 1), uploaded(server, "compare_after", 1.2)


@pytest.fixture(scope="module")
def traces(server: Server, runs: tuple[str, str]) -> tuple[str, str]:
    """Rank 0 of both runs."""
    first, second = (server.api.get(f"/groups/{run}").json()["ranks"][0]["trace"] for run in runs)
    return first, second


def opened(page: Page, server: Server, **query: str) -> Locator:
    """Open the page and return its result."""
    page.goto(f"{server.url}/compare?{urlencode(query)}")
    return page.get_by_test_id("compare-result")


def rows_of(answer: Any, table: str) -> list[dict[str, Any]]:
    content = answer["tables"][table]
    return [dict(zip([column["name"] for column in content["columns"]], row, strict=True)) for row in content["rows"]]


def largest(rows: list[dict[str, Any]], difference: str) -> list[dict[str, Any]]:
    changed = [row for row in rows if row["verdict"] != "same"]
    return sorted(changed, key=lambda row: -abs(row[difference]))[:BARS_MAX]


def drawn(result: Locator) -> list[tuple[str, str, float]]:
    """Return the label, the verdict and the value of each bar."""
    bars = result.get_by_test_id("chart-compare").locator("rect[data-bar]").all()
    names = ("bar", "verdict", "value")
    values = [[str(bar.get_attribute(f"data-{name}")) for name in names] for bar in bars]
    return [(label, verdict, float(value)) for label, verdict, value in values]


def test_drawn_bars_and_sentence_are_those_of_the_analysis(page: Page, server: Server, traces: tuple[str, str]) -> None:
    base, other = traces
    result = opened(page, server, base=base, other=other)
    answer = server.api.get(f"/traces/{other}/analysis/compare", params={"base": base}).json()
    expected = largest(rows_of(answer, "kernels"), "per_step_difference_ns")
    assert {row["verdict"] for row in expected} >= {"slower"}
    expect(result.locator("rect[data-bar]")).to_have_count(len(expected))
    assert [(label, verdict) for label, verdict, _ in drawn(result)] == [
        (row["name"], row["verdict"]) for row in expected
    ]
    assert [value for *_, value in drawn(result)] == [pytest.approx(row["per_step_difference_ns"]) for row in expected]
    total = rows_of(answer, "steps")[0]
    assert total["verdict"] == "slower"
    expect(page.get_by_test_id("compare-sentence")).to_contain_text(f"grew by {total['difference_pct']:.3g} %, from")
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("most of it: computing +")

    page.get_by_test_id("view-steps").click()
    kinds = [row for row in rows_of(answer, "steps") if row["base_mean_ns"] or row["mean_ns"]]
    expect(result.locator("rect[data-bar]")).to_have_count(len(kinds))
    assert [value for _, _, value in drawn(result)] == [pytest.approx(row["difference_ns"]) for row in kinds]
    page.get_by_test_id("view-ops").click()
    page.get_by_test_id("table-search").fill("aten::linear")
    expect(page.get_by_test_id("compare-table").locator("tbody tr").first).to_contain_text("aten::linear")


def test_choices_are_in_the_address_and_back_returns(page: Page, server: Server, traces: tuple[str, str]) -> None:
    base, other = traces
    result = opened(page, server, base=base, other=other)
    expect(page.get_by_test_id("compare-tally")).to_contain_text("slower")
    page.get_by_test_id("compare-pct").fill("50")
    page.get_by_test_id("compare-pct").press("Enter")
    expect(page.get_by_test_id("compare-tally")).not_to_contain_text("slower")
    page.get_by_test_id("compare-by").select_option("total")
    expect(result.get_by_test_id("chart-compare")).to_contain_text("in total")  # the links are drawn anew until then
    page.get_by_test_id("view-each_step").click()
    expect(result.get_by_test_id("chart-compare")).to_contain_text("of each step")
    assert query_of(page) == {
        "base": [base],
        "other": [other],
        "show": ["each_step"],
        "by": ["total"],
        "threshold_pct": ["50"],
    }
    page.reload()
    expect(page.get_by_test_id("view-each_step")).to_have_attribute("aria-current", "page")
    expect(page.get_by_test_id("compare-by")).to_have_value("total")
    page.go_back()
    page.go_back()
    page.go_back()
    expect(page.get_by_test_id("compare-tally")).to_contain_text("slower")
    page.get_by_test_id("compare-ms").fill("a lot")
    page.get_by_test_id("compare-ms").press("Enter")
    expect(page.get_by_test_id("compare-problem")).to_contain_text("Write a percentage like 5")


def test_two_steps_of_one_trace_are_compared_and_lead_to_their_slices(
    page: Page, server: Server, traces: tuple[str, str]
) -> None:
    trace, _ = traces
    result = opened(page, server, base=trace, other=trace)
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("No change")
    expect(page.get_by_test_id("view-ops")).to_contain_text("no change")
    page.get_by_test_id("base-steps").select_option("10")
    page.get_by_test_id("other-steps").select_option("11")
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("Step time grew by")
    query = {"base": trace, "base_selection": '{"steps":[10]}', "steps": "11"}
    answer = server.api.get(f"/traces/{trace}/analysis/compare", params=query).json()
    expected = largest(rows_of(answer, "kernels"), "per_step_difference_ns")
    expect(result.locator("rect[data-bar]")).to_have_count(len(expected))
    assert [value for _, _, value in drawn(result)] == [
        pytest.approx(row["per_step_difference_ns"]) for row in expected
    ]
    name = expected[0]["name"]
    row = page.get_by_test_id("compare-table").locator("tbody tr").first
    assert parse_qs(urlsplit(str(row.get_by_test_id("perfetto-base").get_attribute("href"))).query) == {
        "selection": [json.dumps({"steps": [10], "names": [name]}, separators=(",", ":"))]
    }
    row.get_by_test_id("slices-other").click()
    rows = page.get_by_test_id("sql-result").locator("tbody tr")
    expect(rows).to_have_count(expected[0]["count"])
    expect(rows.first).to_contain_text(name)


def test_two_runs_are_compared_by_rank_from_the_page_of_one(page: Page, server: Server, runs: tuple[str, str]) -> None:
    page.goto(f"{server.url}/groups/{runs[0]}")
    page.get_by_test_id("compare-with").click()
    expect(page.get_by_test_id("base-name")).to_have_text("compare_before")
    search = page.get_by_test_id("other-search")
    search.fill("compare_aft")
    expect(page.get_by_test_id("other-found").get_by_role("option").first).to_contain_text("compare_after")
    search.press("Enter")
    expect(page.get_by_test_id("other-name")).to_have_text("compare_after")
    expect(page.get_by_test_id("compare-notes")).to_contain_text("The sides are matched by rank: ranks 0, 1.")
    result = page.get_by_test_id("compare-result")
    answer = server.api.get(f"/groups/{runs[1]}/analysis/compare", params={"base": runs[0]}).json()
    expected = largest(rows_of(answer, "kernels"), "per_step_difference_ns")
    expect(result.locator("rect[data-bar]")).to_have_count(len(expected))
    assert [value for _, _, value in drawn(result)] == [
        pytest.approx(row["per_step_difference_ns"]) for row in expected
    ]
    page.get_by_test_id("view-each_step").click()
    last = server.api.get(f"/groups/{runs[1]}").json()["ranks"][1]["trace"]
    link = page.get_by_role("link", name="Perfetto, other, rank 1").first
    expect(link).to_have_attribute("href", re.compile(f"/traces/{last}/perfetto.*steps"))
    page.get_by_test_id("compare-swap").click()
    expect(page.get_by_test_id("base-name")).to_have_text("compare_after")
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("shrank by")


def test_traces_without_steps_or_gpu_work_say_so(page: Page, server: Server, tmp_path: Path) -> None:
    ids = [str(server.upload(path)["id"]) for path in CPU]
    opened(page, server, base=ids[0], other=ids[1], show="kernels")
    expect(page.get_by_test_id("compare-tally")).to_contain_text("Neither side runs work on a GPU.")
    page.goto(f"{server.url}/compare?base={ids[0]}&other={ids[1]}")
    expect(page.get_by_test_id("view-ops")).to_have_attribute("aria-current", "page")
    bare = tmp_path / "bare.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 40}
    bare.write_text(json.dumps({"traceEvents": [kernel]}))
    without = str(server.upload(bare)["id"])
    opened(page, server, base=without, other=without)
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("the time of the trace is 40 µs on both sides")
    expect(page.get_by_test_id("compare-notes")).to_contain_text("Neither side has steps")


def test_unknown_id_says_what_to_do_and_search_replaces_it(
    page: Page, server: Server, traces: tuple[str, str], failed_id: str
) -> None:
    page.goto(f"{server.url}/compare?base={'0' * 12}&other={traces[0]}")
    expect(page.get_by_test_id("base-problem")).to_contain_text("search for another by its name")
    page.get_by_test_id("base-search").fill(failed_id)
    page.get_by_test_id("base-found").get_by_text("by its id").click()
    expect(page.get_by_test_id("base-problem")).to_contain_text("could not be read")
    page.get_by_test_id("base-search").fill("compare_after_gpt_rank0")
    page.get_by_test_id("base-found").get_by_text("compare_after_gpt_rank0").click()
    expect(page.get_by_test_id("base-problem")).to_be_hidden()
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("shrank by")


def test_trace_that_is_not_ready_is_followed_and_then_compared(
    page: Page, server: Server, traces: tuple[str, str], tmp_path: Path
) -> None:
    large = write_trace(tmp_path / "followed.json", sized(TraceShape(), 30_000_000))
    body = b"\t" + large.read_bytes()  # bytes that no other test uploads: those of a ready trace are not read again
    with connected(server) as upload:
        head = f"PUT /api/v1/traces/compared.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        upload.sendall(head.encode() + body[: len(body) // 2])
        until(lambda: server.children("tracedock ingest") != [])
        [worker] = server.children("tracedock ingest")
        worker.suspend()  # so that the page opens before ingest ends
        upload.sendall(body[len(body) // 2 :])
        assert upload.recv(1 << 16).startswith(b"HTTP/1.1 201")
    [trace] = server.api.get("/traces", params={"name": "compared.json"}).json()["traces"]
    opened(page, server, base=traces[0], other=trace["id"])
    expect(page.get_by_test_id("other-about")).to_contain_text("Being read")
    expect(page.get_by_test_id("compare-result")).to_be_hidden()
    worker.resume()
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("Step time")


def test_sides_are_chosen_and_swapped_by_keyboard(page: Page, server: Server, traces: tuple[str, str]) -> None:
    page.goto(f"{server.url}/traces/{traces[0]}")
    page.get_by_test_id("compare-with").press("Enter")
    expect(page.get_by_test_id("base-name")).to_contain_text("rank0")
    page.get_by_test_id("other-search").focus()
    page.keyboard.type("compare_")
    found = page.get_by_test_id("other-found").get_by_role("option")
    expect(found.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")  # from the first to the last
    expect(found.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(found.first).to_be_hidden()
    page.keyboard.press("ArrowDown")
    expect(found.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("other-name")).to_contain_text("compare_after")
    page.get_by_test_id("compare-swap").press("Enter")
    expect(page.get_by_test_id("base-name")).to_contain_text("compare_after")
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("shrank")
    page.reload()
    expect(page.get_by_test_id("compare-table").locator("tbody tr").first).to_be_visible()
    stops = tab_through(page)
    assert [stop["name"] for stop in stops if not stop["outlined"]] == []
    names = ["base-search", "base-steps", "compare-swap", "other-search", "other-steps", "compare-by"]
    assert [stop["name"] for stop in stops if stop["name"] in names] == names


def test_comparison_can_be_cancelled(page: Page, server: Server, traces: tuple[str, str]) -> None:
    page.route("**/analysis/compare?*", lambda _: None)  # it never answers
    opened(page, server, base=traces[0], other=traces[1])
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_test_id("compare-said")).to_contain_text("Cancelled")
    page.unroute("**/analysis/compare?*")
    page.get_by_test_id("compare-by").select_option("mean")
    expect(page.get_by_test_id("compare-result").get_by_test_id("chart-compare")).to_contain_text("per call")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_page_fits_and_breaks_no_serious_rule(
    open_context: OpenContext, server: Server, traces: tuple[str, str], long_name_id: str, width: int, scheme: Any
) -> None:
    page = open_context(width, scheme).new_page()
    result = opened(page, server, base=traces[0], other=long_name_id)
    expect(result.locator("rect[data-bar]").first).to_be_visible()
    assert overhang(page) == 0
    assert faint_texts(page) == []
    if AXE.path.exists():
        assert serious_violations(page) == []

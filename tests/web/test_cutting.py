"""The cut panel selects, opens, downloads and splits parts of a trace; the list merges ranks."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.conftest import DATA
from tests.formats.pftrace.reading import read
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.web.conftest import OpenContext
from tests.web.folds import unfold
from tests.web.viewer import Viewer

GLOO = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in (0, 1)]


@pytest.fixture
def page(open_context: OpenContext) -> Iterator[Page]:
    """A tab that fails the test on an error in its console."""
    tab = open_context().new_page()
    errors: list[str] = []
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield tab
    assert [text for text in errors if "status of 422" not in text] == []  # Chromium logs each 422 response


@pytest.fixture(scope="module")
def long_id(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace of hundreds of steps, which takes a while to split."""
    shape = sized(TraceShape(), 40 * 10**6)
    path = tmp_path_factory.mktemp("long") / "long.pt.trace.json.gz"
    return str(server.upload(write_trace(path, shape, compress="gzip"))["id"])


def cut_panel(page: Page, server: Server, trace_id: str) -> Locator:
    page.goto(f"{server.url}/traces/{trace_id}")
    expect(page.locator("#overview-canvas")).to_have_attribute("data-drawn", re.compile("/"))  # it moves what follows
    expect(page.locator("#verdict-body")).not_to_contain_text("Reading the trace")
    unfold(page, "cut")
    return page.get_by_test_id("cut")


def choose(page: Page, control: str, text: str) -> None:
    page.get_by_test_id(f"cut-{control}").get_by_text(text, exact=True).click()


def selection_of(link: Locator) -> Any:
    """Return the selection in the address of a link."""
    [selection_json] = parse_qs(urlsplit(str(link.get_attribute("href"))).query).get("selection", ["null"])
    return json.loads(selection_json)


def kept_count(server: Server, trace_id: str, selection: dict[str, Any]) -> int:
    """Return the number of events that a selection keeps, by the API."""
    answer = server.api.post(f"/traces/{trace_id}/split", json={"selection": selection, "dry_run": True})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["events"])


def events_in(packed: bytes) -> Counter[tuple[str, str]]:
    return Counter((event["ph"], event.get("cat", "")) for event in json.loads(gzip.decompress(packed))["traceEvents"])


def test_chosen_step_updates_all_links_and_the_count(page: Page, server: Server, gpu_id: str) -> None:
    panel = cut_panel(page, server, gpu_id)
    expect(page.get_by_test_id("cut-keeps")).to_contain_text("the whole trace, 709 events")
    assert selection_of(page.get_by_test_id("cut-open")) is None
    expect(page.get_by_test_id("cut-make")).to_be_disabled()

    choose(page, "steps", "Step 4")
    wanted = {"steps": [4]}
    expect(page.get_by_test_id("cut-keeps")).to_have_text(
        re.compile(rf"^{kept_count(server, gpu_id, wanted)} events of 709 · about \d.* kB$")
    )
    for name in ("cut-open", "cut-download", "cut-download-pftrace"):
        assert selection_of(page.get_by_test_id(name)) == wanted
    with page.expect_download() as download:
        page.get_by_test_id("cut-download").click()
    assert download.value.suggested_filename == "rank0.cut.pt.trace.json.gz"
    assert events_in(download.value.path().read_bytes()).total() == kept_count(server, gpu_id, wanted)
    with page.expect_download() as download:
        page.get_by_test_id("cut-download-pftrace").click()
    assert download.value.suggested_filename == "rank0.cut.pt.trace.pftrace"
    assert len(read(download.value.path().read_bytes()).rows) == kept_count(server, gpu_id, wanted)

    step_link = panel.get_by_role("link", name="Open step 5 in Perfetto")
    assert selection_of(step_link) == {"steps": [5]}
    unfold(page, "contents")
    assert selection_of(page.get_by_test_id("trace-steps").get_by_role("link", name="Open step 5 in Perfetto")) == {
        "steps": [5]
    }


def test_all_fields_of_the_form_are_in_the_selection_with_exact_times(page: Page, server: Server, gpu_id: str) -> None:
    cut_panel(page, server, gpu_id)
    choose(page, "streams", "0/7")
    choose(page, "categories", "kernel")
    for name, text in (
        ("start", "0.000001"), ("end", "9007199254.740993"), ("least", ".5"), ("name", "*gemm*,*"),
        ("without-name", "re:^nccl"),
    ):  # fmt: skip
        page.get_by_test_id("cut-more").evaluate("details => details.open = true")
        page.get_by_test_id(f"cut-{name}").fill(text)
    page.get_by_test_id("cut-straddle").select_option("clip")
    page.get_by_label("the kernels and copies of each launch").uncheck()
    page.get_by_test_id("cut-without").get_by_text("overhead", exact=True).click()
    assert selection_of(page.get_by_test_id("cut-open")) == {
        "streams": ["0/7"], "categories": ["kernel"], "names": ["*gemm*,*"], "min_dur_ns": 500,
        "window": {"start_ns": 1, "end_ns": 9_007_199_254_740_993, "relative": True}, "straddle": "clip",
        "closure": {"kernels": False}, "exclude": {"categories": ["overhead"], "names": ["re:^nccl"]},
    }  # fmt: skip


def test_preview_sends_one_request_at_a_time(page: Page, server: Server, gpu_id: str) -> None:
    cut_panel(page, server, gpu_id)
    in_flight: set[Request] = set()
    max_in_flight, selections = 0, []

    def record(route: Route) -> None:
        nonlocal max_in_flight
        in_flight.add(route.request)
        selections.append(json.loads(str(route.request.post_data))["selection"])
        max_in_flight = max(max_in_flight, len(in_flight))
        if len(selections) == 1:  # the form changes while the first request is pending
            for step in ("Step 4", "Step 5"):
                page.get_by_test_id("cut-steps").get_by_text(step, exact=True).evaluate("text => text.click()")
        route.continue_()

    page.on("requestfinished", lambda request: in_flight.remove(request) if request in in_flight else None)
    page.route("**/split", record)
    keeps = page.get_by_test_id("cut-keeps")
    choose(page, "steps", "Step 3")
    expect(keeps).to_contain_text(f"{kept_count(server, gpu_id, {'steps': [3, 4, 5]})} events of 709")
    assert (max_in_flight, selections[0], selections[-1]) == (1, {"steps": [3]}, {"steps": [3, 4, 5]})


def test_preview_shows_errors(page: Page, server: Server, gpu_id: str) -> None:
    cut_panel(page, server, gpu_id)
    keeps = page.get_by_test_id("cut-keeps")
    for step in ("Step 3", "Step 4", "Step 5"):
        choose(page, "steps", step)
    expect(keeps).to_contain_text(f"{kept_count(server, gpu_id, {'steps': [3, 4, 5]})} events of 709")

    page.get_by_test_id("cut-start").fill("1 s")
    expect(keeps).to_have_text("“1 s” is no number of ms.")
    expect(page.get_by_test_id("cut-start")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_test_id("cut-open")).not_to_have_attribute("href", re.compile("."))
    page.get_by_test_id("cut-start").fill("24")
    answer = server.api.post(
        f"/traces/{gpu_id}/split",
        json={
            "selection": {"steps": [3, 4, 5], "window": {"start_ns": 24_000_000, "relative": True}},
            "dry_run": True,
        },
    )
    assert answer.status_code == 422
    expect(keeps).to_have_text(answer.json()["detail"])
    expect(page.get_by_test_id("cut-open")).to_have_attribute("aria-disabled", "true")
    page.get_by_test_id("cut-start").fill("")
    expect(keeps).to_contain_text("events of 709")
    assert selection_of(page.get_by_test_id("cut-open")) == {"steps": [3, 4, 5]}


def test_split_by_step_links_to_children_that_link_to_their_parent(page: Page, server: Server, gpu_trace: Path) -> None:
    trace_id = str(server.upload(gpu_trace, "parent.pt.trace.json")["id"])
    cut_panel(page, server, trace_id)
    choose(page, "streams", "0/7")
    page.get_by_test_id("cut-by").select_option("step")
    page.get_by_test_id("cut-split").click()
    child_links = page.get_by_test_id("job-made").get_by_role("link")
    unfold(page, "children")
    expect(child_links).to_have_text([f"parent.step{number}.pt.trace.json.gz" for number in (3, 4, 5)])
    children = page.get_by_test_id("trace-children")
    expect(children.locator("tbody tr")).to_have_count(3)
    child = server.api.get("/traces", params={"parent": trace_id}).json()["traces"][1]
    row = children.get_by_role("row").filter(has_text=child["name"])
    expect(row).to_contain_text("step 4 · stream 0/7")
    expect(row).to_contain_text(f"{child['events']['kept']}")

    row.get_by_role("link").click()
    expect(page).to_have_url(f"{server.url}/traces/{child['id']}")
    unfold(page, "contents")
    facts = page.get_by_test_id("trace-facts")
    expect(facts).to_contain_text("made here")
    expect(facts.locator("[data-fact='SHA-256']")).to_be_hidden()
    cut_from = facts.locator("[data-fact='Cut from']")
    expect(cut_from.get_by_role("listitem")).to_have_text(["step 4", "stream 0/7"])
    cut_from.get_by_role("link", name="parent.pt.trace.json").click()
    expect(page).to_have_url(f"{server.url}/traces/{trace_id}")
    expect(children.locator("tbody tr")).to_have_count(3)

    page.goto(f"{server.url}/?q=parent.")
    mark = page.locator(f"[data-id='{child['id']}']").get_by_role("link", name="parent.pt.trace.json", exact=True)
    expect(mark).to_have_attribute("href", f"/traces/{trace_id}")


def test_equal_parts_show_their_time_from_the_start_of_the_trace(page: Page, server: Server, gpu_trace: Path) -> None:
    trace = server.upload(gpu_trace, "thirds.pt.trace.json")
    cut_panel(page, server, trace["id"])
    page.get_by_test_id("cut-by").select_option("parts")
    page.get_by_test_id("cut-value").fill("0")
    page.get_by_test_id("cut-split").click()
    expect(page.get_by_test_id("cut")).to_contain_text("Number of parts: more than 0.")
    page.get_by_test_id("cut-value").fill("3")
    page.get_by_test_id("cut-split").click()
    expect(page.get_by_test_id("job")).to_contain_text("Made 3 traces")
    start, end = (server.api.get(f"/traces/{trace['id']}").json()["bounds"][edge] for edge in ("start_ns", "end_ns"))
    third = f"{(end + 1 - start) // 3 / 1e6:.6f}".rstrip("0").rstrip(".")
    expect(page.get_by_test_id("trace-children").locator("tbody tr").first).to_contain_text(f"to {third} ms")


def test_long_job_shows_progress_and_can_be_cancelled(page: Page, server: Server, long_id: str) -> None:
    cut_panel(page, server, long_id)
    steps = page.get_by_test_id("cut-steps")
    steps.get_by_role("searchbox").fill("Step 44")
    expect(steps.get_by_text("Step 4", exact=True)).to_be_hidden()
    choose(page, "steps", "Step 44")
    expect(page.get_by_test_id("cut-keeps")).to_contain_text("events of")
    steps.get_by_role("button", name="Clear").click()
    page.get_by_test_id("cut-by").select_option("step")
    page.get_by_test_id("cut-split").click()
    job = page.get_by_test_id("job")
    expect(job).to_contain_text(re.compile(r"\d of [\d,]+ events"))
    expect(page.get_by_test_id("cut-split")).to_be_disabled()
    page.reload()
    unfold(page, "cut")  # the reloaded page keeps showing the job's progress
    page.get_by_test_id("job-cancel").click()
    expect(job).to_contain_text("Cancelled: nothing was made.")
    expect(job).to_be_focused()
    expect(page.get_by_test_id("cut-split")).to_be_enabled()
    assert server.api.get("/traces", params={"parent": long_id}).json()["traces"] == []


def test_ranks_selected_in_the_list_merge_into_a_trace(page: Page, server: Server) -> None:
    for path in GLOO:
        server.upload(path, f"to-merge-{path.name}")
    page.goto(f"{server.url}/?q=to-merge")
    boxes = page.get_by_test_id("select-trace")
    expect(boxes).to_have_count(2)
    boxes.first.check()
    expect(page.get_by_test_id("merge-run")).to_be_hidden()
    box_position = boxes.last.bounding_box()
    boxes.last.check()
    expect(page.get_by_test_id("merge-align")).to_have_value("collectives")
    assert boxes.last.bounding_box() == box_position
    page.get_by_test_id("merge-run").click()
    page.get_by_test_id("job-made").get_by_role("link", name="merged-2.pt.trace.json.gz").click()

    expect(page.get_by_test_id("trace-facts")).to_contain_text("ranks 0, 1 of 2")
    trace = server.api.get(f"/traces/{page.url.rsplit('/', 1)[1]}").json()
    unfold(page, "ranks")
    rows = page.get_by_test_id("trace-ranks").locator("tbody tr")
    for row, rank in zip(rows.all(), trace["ranks"], strict=True):
        expect(row).to_contain_text(rank["name"])
        for ns in (rank["shift_ns"], *rank["residual_ns"].values()):
            expect(row.get_by_title(f"{ns} ns", exact=True).first).to_be_visible()
    unfold(page, "cut")
    choose(page, "ranks", "Rank 1")
    expect(page.get_by_test_id("cut-keeps")).to_contain_text(
        f"{kept_count(server, trace['id'], {'ranks': [1]})} events of"
    )
    expect(page.get_by_test_id("cut-steps").get_by_text(re.compile("2 times"))).not_to_have_count(0)


def test_failed_merge_shows_the_reason(page: Page, server: Server, gpu_trace: Path) -> None:
    for name in ("twice-a.json", "twice-b.json"):
        server.upload(gpu_trace, name)
    page.goto(f"{server.url}/?q=twice-")
    boxes = page.get_by_test_id("select-trace")
    expect(boxes).to_have_count(2)
    for box in boxes.all():
        box.check()
    with page.expect_response("**/traces/merge") as answer:
        page.get_by_test_id("merge-run").click()
    assert answer.value.status == 422
    expect(page.get_by_test_id("job")).to_contain_text(answer.value.json()["detail"])
    page.get_by_test_id("merge-clear").click()
    expect(page.get_by_test_id("merge")).to_be_hidden()
    expect(page.get_by_test_id("select-trace").first).not_to_be_checked()


def test_perfetto_opens_a_selection_and_shows_its_slices(page: Page, server: Server, gpu_id: str) -> None:
    cut_panel(page, server, gpu_id)
    choose(page, "steps", "Step 4")
    with page.context.expect_page() as opened:
        page.get_by_test_id("cut-open").click()
    viewer = Viewer(opened.value)
    viewer.expect_tracks()
    expect(viewer.page).to_have_title("rank0.pt.trace.json (cut) - Perfetto UI")
    gemms = "select count(*) from slice where name glob '*sgemm*'"
    [[count]] = server.query(gpu_id, gemms, selection={"steps": [4]}).json()["rows"]
    assert 0 < viewer.search("sgemm") == count < int(str(server.rows(gpu_id, gemms)[0][0]))
    viewer.expect_no_dialog()


def test_list_of_hundreds_of_steps_is_one_tab_stop(page: Page, server: Server, long_id: str) -> None:
    cut_panel(page, server, long_id)
    steps = page.get_by_test_id("cut-steps")
    assert steps.get_by_role("checkbox").count() > 700
    steps.get_by_role("searchbox").press("Tab")
    boxes = steps.get_by_role("checkbox")
    expect(boxes.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(boxes.nth(1)).to_be_checked()
    page.keyboard.press("Tab")
    expect(steps.get_by_role("link").nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(steps.locator("*:focus")).to_have_count(0)
    boxes.nth(3).click(modifiers=["Shift"])
    expect(steps).to_contain_text(re.compile(r"Steps3 of \d+"))

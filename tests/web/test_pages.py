"""The pages upload a trace, show its contents, and query it with SQL."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from tests.server import Server
from tests.traces import TraceShape, expected, sized, write_trace
from tests.web.folds import unfold


@pytest.fixture
def trace_page(page: Page, server: Server, gpu_id: str) -> Page:
    """The page of `gpu_trace`."""
    page.goto(f"{server.url}/traces/{gpu_id}")
    expect(page.get_by_test_id("verdict")).to_be_visible()
    return page


def limit_upload(page: Page, bytes_per_s: int | None) -> None:
    """Limit the upload rate of the page; None lifts the limit."""
    session = page.context.new_cdp_session(page)
    rate = -1 if bytes_per_s is None else bytes_per_s
    limits = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": rate}
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", limits)


@contextmanager
def halted_workers(server: Server) -> Iterator[None]:
    """Wait for an ingest process, and suspend all of them while the block runs."""
    while not (workers := server.children("tracedock ingest")):
        pass
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:  # other tests use the server too
        for worker in workers:
            worker.resume()


def test_uploaded_trace_is_followed_until_ready(page: Page, server: Server, tmp_path: Path) -> None:
    shape = sized(TraceShape(), 20 * 10**6)
    path = write_trace(tmp_path / "followed.pt.trace.json", shape)
    page.goto(server.url)
    limit_upload(page, path.stat().st_size // 15)  # slow enough for a worker to read the file during its upload
    page.get_by_test_id("file-input").set_input_files(path)
    upload = page.get_by_test_id("upload-row").filter(has_text=path.name)
    expect(upload).to_contain_text(re.compile(r"\d MB of \d.*/s · \d+ s left"))
    bar = upload.locator("progress").element_handle()
    page.wait_for_function("bar => bar.value > 0 && bar.value < bar.max", arg=bar)

    with halted_workers(server):  # else ingest might end before the page shows its progress
        limit_upload(page, None)
        expect(upload).to_have_attribute("data-state", "stored")
        row = page.get_by_test_id("trace-row").filter(has_text=path.name)
        expect(row).to_contain_text(re.compile(r"ingesting.*of .* events"))
        row.get_by_role("link", name=path.name).first.click()
        progress = page.get_by_test_id("ingest-progress")
        expect(progress).to_contain_text(re.compile(r"of .* events"))
    expect(page.get_by_test_id("trace-state")).to_have_text("ready", timeout=60_000)
    expect(progress).to_be_hidden()
    expect(page.get_by_test_id("trace-facts")).to_contain_text(f"{expected(shape).events:,}")


def test_trace_page_shows_facts_steps_and_streams(trace_page: Page) -> None:
    totals = expected(TraceShape(streams=(20, 7)))
    facts = trace_page.get_by_test_id("trace-facts")
    for fact in ("0 of 8", "nccl", f"{totals.events:,}", f"{totals.end_ns - totals.start_ns} ns", str(totals.base_ns)):
        expect(facts).to_contain_text(fact)
    unfold(trace_page, "contents")
    steps = trace_page.get_by_test_id("trace-steps").locator("tbody tr")
    expect(steps).to_have_count(len(totals.steps))
    for row, step in zip(steps.all(), totals.steps, strict=True):
        expect(row).to_contain_text(step.name)
        expect(row.get_by_title(f"{step.end_ns - step.start_ns} ns", exact=True)).to_be_visible()
    for stream in totals.streams:
        expect(trace_page.get_by_test_id("trace-devices").get_by_text(stream, exact=True)).to_be_visible()
    expect(trace_page.get_by_test_id("trace-devices")).to_contain_text("No event on the other devices 1, 2")
    counts = trace_page.get_by_test_id("trace-counts")
    expect(counts.get_by_role("row").filter(has_text="kernel")).to_contain_text(f"{totals.counts['X|kernel']}")


def test_failed_trace_shows_the_error_and_its_offset(page: Page, server: Server, failed_id: str) -> None:
    error = server.api.get(f"/traces/{failed_id}").json()["error"]
    page.goto(f"{server.url}/traces/{failed_id}")
    failure = page.get_by_test_id("trace-failure")
    for part in (error["code"], error["title"], error["detail"], f"byte {error['offset']}"):
        expect(failure).to_contain_text(part)
    expect(page.get_by_test_id("trace-facts")).not_to_contain_text("unknown")
    expect(page.get_by_test_id("open-perfetto")).to_have_count(0)
    page.goto(f"{server.url}/?state=failed")
    expect(page.locator(f"[data-id='{failed_id}']")).to_contain_text(error["title"])


def test_damaged_trace_shows_refusals_repairs_and_oddities_with_offsets(
    page: Page, server: Server, damaged_trace: Path
) -> None:
    page.goto(server.url)
    page.get_by_test_id("file-input").set_input_files(damaged_trace)
    page.get_by_test_id("upload-row").filter(has_text=damaged_trace.name).get_by_role("link").first.click()
    health = page.get_by_test_id("trace-health")
    expect(health).to_be_visible()
    trace = server.api.get(f"/traces/{page.url.rsplit('/', 1)[1]}").json()
    summary_text = f"{trace['health']['refused']} refused · {trace['health']['repaired']} repairs"
    expect(health.locator("summary")).to_contain_text(summary_text)
    assert {note["kind"] for note in trace["health"]["notes"]} == {"refused", "repaired", "oddity"}
    for note in trace["health"]["notes"]:
        shown = health.get_by_role("listitem").filter(has=page.get_by_text(note["code"], exact=True))
        expect(shown).to_contain_text(note["detail"])
        expect(shown).to_contain_text(str(note["count"]) if note["count"] > 1 else "")
        for example in note["examples"]:
            if example["offset"] is not None:
                expect(shown).to_contain_text(f"byte {example['offset']:,}")
    expect(health).to_contain_text("<b>backwards</b>")
    expect(health).not_to_contain_text("hf_abc")
    expect(health).to_contain_text(r"\u0001")
    assert page.evaluate("window.broken") is None
    assert health.locator("img, b").count() == 0

    health.locator("summary").click()
    expect(health.get_by_role("listitem").first).to_be_hidden()
    page.goto(server.url)
    expect(page.locator(f"[data-id='{trace['id']}']")).to_contain_text(summary_text)


def test_undamaged_trace_shows_one_line_with_collapsed_oddities(
    page: Page, server: Server, gpu_id: str, step_trace: Path
) -> None:
    health = page.get_by_test_id("trace-health")
    page.goto(f"{server.url}/traces/{gpu_id}")
    expect(health).to_have_text(re.compile(r"^\s*Health\s*Nothing lost, nothing repaired\.\s*$"))
    trace_id = server.upload(step_trace)["id"]
    page.goto(f"{server.url}/traces/{trace_id}")
    expect(health.locator("summary")).to_have_text("Nothing lost, nothing repaired · 1 oddity")
    expect(health.get_by_text("unknown_rank")).to_be_hidden()
    health.locator("summary").click()
    expect(health.get_by_text("unknown_rank")).to_be_visible()
    page.goto(server.url)
    expect(page.locator(f"[data-id='{trace_id}']")).not_to_contain_text("repair")


def test_markup_in_names_is_escaped(page: Page, server: Server, long_name: str, long_name_id: str) -> None:
    page.goto(f"{server.url}/?q=a_very_long_run")
    row = page.locator(f"[data-id='{long_name_id}']")
    expect(row.get_by_role("link", name=long_name, exact=True)).to_be_visible()
    page.goto(f"{server.url}/traces/{long_name_id}")
    page.get_by_test_id("delete-trace").click()
    expect(page.get_by_role("dialog")).to_contain_text(long_name)
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(long_name)
    expect(page).to_have_title(f"{long_name} · Tracedock")
    page.get_by_test_id("open-perfetto").evaluate("link => link.removeAttribute('target')")
    page.get_by_test_id("open-perfetto").click()
    expect(page.locator(".pf-sidebar__trace-file-name")).to_have_text(long_name)
    assert page.evaluate("window.broken") is None
    assert page.locator("img[src='x']").count() == 0


def test_trace_is_deleted_after_confirmation(page: Page, server: Server, gpu_trace: Path) -> None:
    trace_id = server.upload(gpu_trace, "to_be_deleted.json")["id"]
    page.goto(f"{server.url}/traces/{trace_id}")
    page.get_by_test_id("delete-trace").click()
    expect(page.get_by_test_id("confirm-cancel")).to_be_focused()
    page.get_by_test_id("confirm-ok").click()
    expect(page.get_by_test_id("trace-list")).to_be_visible()
    expect(page.locator(f"[data-id='{trace_id}']")).to_have_count(0)
    assert server.api.get(f"/traces/{trace_id}").status_code == 404


def test_first_visit_of_a_trace_receives_less_than_half_a_megabyte_of_code(
    page: Page, server: Server, gpu_id: str
) -> None:
    requests: list[Request] = []
    page.on("requestfinished", lambda request: requests.append(request))  # noqa: PLW0108 - no builtin function is taken
    page.goto(f"{server.url}/traces/{gpu_id}")
    page.locator("#analyses").scroll_into_view_if_needed()
    expect(page.locator("#analysis-said")).to_contain_text("Answered")
    code = [request for request in requests if "/static/" in request.url]
    assert len(code) > 30
    assert sum(request.sizes()["responseBodySize"] for request in code) < 500_000


def test_api_page_needs_no_other_host(page: Page, server: Server) -> None:
    """`open_context` fails the test on any request to another host."""
    page.goto(server.url)
    page.get_by_role("link", name="API").click()
    expect(page.locator(".opblock").first).to_be_visible()
    expect(page.locator("body")).to_contain_text("/api/v1/traces/{trace_id}/query")

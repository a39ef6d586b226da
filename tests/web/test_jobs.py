"""Pages follow jobs: by events, by polling, and over a restart of the server."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.http.conftest import connected
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import until
from tests.web.folds import unfold


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that takes seconds to read and to split."""
    return write_trace(tmp_path_factory.mktemp("large") / "large.json", sized(TraceShape(), 60_000_000))


def requests_of(page: Page) -> list[str]:
    """Record the addresses of the page's requests to the API."""
    rows: list[str] = []
    page.on("request", lambda request: rows.append(request.url.partition("/api/v1")[2]))
    return rows


def test_ingest_is_followed_by_events_without_polling(page: Page, server: Server, large: Path) -> None:
    body = b"\n" + large.read_bytes()
    half = len(body) // 2
    with connected(server) as upload:
        head = f"PUT /api/v1/traces/followed.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        upload.sendall(head.encode() + body[:half])
        until(lambda: server.children("tracedock ingest") != [])
        [worker] = server.children("tracedock ingest")
        worker.suspend()  # so that the page opens before ingest ends
        upload.sendall(body[half:])
        assert upload.recv(1 << 16).startswith(b"HTTP/1.1 201")
    [trace] = server.api.get("/traces", params={"name": "followed.json"}).json()["traces"]
    requests = requests_of(page)
    page.goto(f"{server.url}/traces/{trace['id']}")
    state = page.get_by_test_id("trace-state").first
    expect(state).to_have_text("ingesting")
    expect(page.locator("#progress")).to_contain_text(re.compile(r" of [\d.]+ MB"))
    worker.resume()
    expect(state).to_have_text("ready")
    assert requests.count(f"/jobs/{trace['job']}/events") == 1
    assert requests.count(f"/traces/{trace['id']}") == 2


def test_page_polls_if_events_do_not_arrive(page: Page, server: Server, large: Path) -> None:
    trace = server.api.put("/traces/asked.json", content=b"\n\n" + large.read_bytes()).json()
    page.route("**/events", lambda route: route.fulfill(status=502, body="a proxy that knows no events"))
    requests = requests_of(page)
    page.goto(f"{server.url}/traces/{trace['id']}")
    expect(page.get_by_test_id("trace-state").first).to_have_text("ready")
    assert f"/jobs/{trace['job']}" in requests


def test_split_is_followed_over_a_restart_of_the_server(
    page: Page, start_server: Callable[..., Server], large: Path
) -> None:
    server = start_server()
    trace = server.upload(large)
    page.goto(f"{server.url}/traces/{trace['id']}")
    unfold(page, "cut")
    page.get_by_test_id("cut-by").select_option("parts")
    page.get_by_test_id("cut-value").fill("12")
    page.get_by_test_id("cut-split").click()
    job = page.get_by_test_id("job")
    expect(job).to_contain_text(" events")
    server.kill()
    expect(job).to_contain_text("The server does not answer")
    server.start()
    expect(job).to_contain_text("Made 12 traces")

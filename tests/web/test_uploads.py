"""Uploads over a slow link, a lost connection, and a restarted server."""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.link import Link
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace

SIZE = 20 * 10**6  # several times what the kernel buffers while the server reads nothing


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("slow") / "slow.pt.trace.json", sized(TraceShape(), SIZE))


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """A server for one test."""
    return start_server()


@pytest.fixture
def link(server: Server) -> Iterator[Link]:
    """A slow link to the server."""
    with Link(server.url, SIZE // 10) as link:
        yield link


def bytes_on_disk(server: Server) -> int:
    """Return the bytes on disk of the only upload."""
    rows = [path for path in (server.data / "incoming").iterdir() if not path.suffix]
    return rows[0].stat().st_size if rows else 0


def begin_upload(page: Page, link: Link, server: Server, path: Path) -> Locator:
    """Begin a slow upload, and return its row once some bytes are on disk."""
    page.on("dialog", lambda dialog: dialog.accept())  # a reload during an upload asks first
    link.bytes_per_s = 1 << 30
    page.goto(link.url)
    link.bytes_per_s = SIZE // 10
    page.get_by_test_id("file-input").set_input_files(path)
    row = page.get_by_test_id("upload-row")
    expect(row).to_contain_text(re.compile(r"MB of .*/s · \d+ s left"))
    while not bytes_on_disk(server):
        page.evaluate("1")
    return row


def stored(page: Page, link: Link, server: Server, path: Path) -> None:
    """Assert that the upload succeeds."""
    link.bytes_per_s = 1 << 30
    expect(page.get_by_test_id("upload-row")).to_have_attribute("data-state", "stored")
    [trace] = server.api.get("/traces").json()["traces"]
    assert (trace["name"], trace["sha256"]) == (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    assert page.evaluate("localStorage.length") == 0


def record_offsets(page: Page) -> list[int]:
    """Record the offsets of the chunks that the page sends from now on."""
    rows: list[int] = []
    page.on("request", lambda request: rows.append(int(request.headers.get("upload-offset", -1))))
    return rows


def test_paused_upload_resumes_where_it_stopped(page: Page, link: Link, server: Server, path: Path) -> None:
    row = begin_upload(page, link, server, path)
    row.get_by_role("button", name="Pause").click()
    expect(row).to_have_attribute("data-state", "paused")
    expect(row).to_contain_text("paused")
    expect(row.get_by_role("button", name="Resume")).to_be_focused()
    sent = record_offsets(page)
    row.get_by_role("button", name="Resume").click()
    stored(page, link, server, path)
    assert max(sent) > 0
    assert 0 not in sent


def test_upload_survives_a_reload_of_the_page(page: Page, link: Link, server: Server, path: Path) -> None:
    begin_upload(page, link, server, path)
    page.reload()
    unfinished = page.get_by_test_id("upload-left")
    expect(unfinished).to_contain_text(re.compile(r"B of 2\d.* MB · choose the file again"))
    sent = record_offsets(page)
    page.get_by_test_id("file-input").set_input_files(path)
    stored(page, link, server, path)
    expect(unfinished).to_have_count(0)
    assert max(sent) > 0
    assert 0 not in sent


def test_upload_survives_a_restart_of_the_server(page: Page, link: Link, server: Server, path: Path) -> None:
    row = begin_upload(page, link, server, path)
    sent = record_offsets(page)
    server.kill()
    expect(row).to_contain_text(re.compile(r"trying again in \d+ s"))
    server.start()
    stored(page, link, server, path)
    assert max(sent) > 0
    assert 0 not in sent


def test_upload_survives_a_lost_connection(page: Page, link: Link, server: Server, path: Path) -> None:
    row = begin_upload(page, link, server, path)
    for share in (0.1, 0.3):
        while bytes_on_disk(server) < share * SIZE:
            page.evaluate("1")
        link.cut()
        expect(row).to_contain_text(re.compile(r"trying again in \d+ s"))
    stored(page, link, server, path)


def test_cancelled_upload_leaves_nothing(page: Page, link: Link, server: Server, path: Path) -> None:
    row = begin_upload(page, link, server, path)
    with page.expect_response(lambda response: response.request.method == "DELETE"):
        row.get_by_role("button", name="Cancel").click()
    expect(row).to_contain_text("Cancelled")
    assert list((server.data / "incoming").iterdir()) == []
    assert page.evaluate("localStorage.length") == 0


def test_unfinished_upload_can_be_discarded(page: Page, link: Link, server: Server, path: Path) -> None:
    begin_upload(page, link, server, path)
    page.reload()
    unfinished = page.get_by_test_id("upload-left")
    unfinished.get_by_role("button", name="Discard").click()
    expect(unfinished).to_have_count(0)
    assert list((server.data / "incoming").iterdir()) == []


def test_upload_unknown_to_the_server_starts_again(page: Page, link: Link, server: Server, path: Path) -> None:
    row = begin_upload(page, link, server, path)
    row.get_by_role("button", name="Pause").click()
    expect(row).to_have_attribute("data-state", "paused")
    [upload] = [path.stem for path in (server.data / "incoming").glob("*.upload")]
    assert server.api.delete(f"/uploads/{upload}", headers={"Tus-Resumable": "1.0.0"}).status_code == 204
    row.get_by_role("button", name="Resume").click()
    stored(page, link, server, path)

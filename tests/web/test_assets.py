"""A page names all modules of its script, so that browsers load them at once, and keep them until the next release."""

import re

import pytest
from playwright.sync_api import Page, expect

from service.web.assets import imported_by, release
from tests.server import Server

TRANSFERRED = """() => performance.getEntriesByType("resource")
  .filter(({ name }) => name.includes("/static/")).map(({ transferSize }) => transferSize)"""


@pytest.mark.parametrize(
    ("path", "script", "ready"),
    [
        ("/", "library/page.js", "drop-zone"),
        ("/traces/{0}", "trace.js", "verdict"),
        ("/traces/{0}/sql", "sql/page.js", "sql-input"),
        ("/compare", "compare/page.js", "base-search"),
        ("/jobs", "library/jobs.js", "jobs-ended"),
    ],
)
def test_page_loads_the_modules_that_it_names_and_no_other(
    page: Page, server: Server, gpu_id: str, path: str, script: str, ready: str
) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(server.url + path.format(gpu_id))
    expect(page.get_by_test_id(ready)).to_be_visible()
    modules = [match[1] for url in loaded if (match := re.search(rf"/static/{release()}/(.+\.js)$", url))]
    assert sorted(modules) == sorted([script, *imported_by(script)])


def test_second_page_requests_no_script_and_no_style_again(page: Page, server: Server, gpu_id: str) -> None:
    page.goto(f"{server.url}/traces/{gpu_id}")
    expect(page.get_by_test_id("verdict")).to_be_visible()
    with page.expect_response("**/api/v1/traces/*"):
        page.goto(f"{server.url}/traces/{gpu_id}")
    sizes = page.evaluate(TRANSFERRED)
    assert len(sizes) > 20
    assert set(sizes) == {0}  # from the browser's cache


def test_only_files_below_their_release_are_kept(server: Server) -> None:
    kept = server.api.get(f"{server.url}/static/{release()}/trace.js")
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    revalidated = server.api.get(f"{server.url}/static/trace.js")
    assert (revalidated.headers["cache-control"], revalidated.text) == ("no-cache", kept.text)
    for path in (f"{release()}/nothing.js", f"{release()}/../pages.py", "000000000000/trace.js", release()):
        missing = server.api.get(f"{server.url}/static/{path}")
        assert missing.status_code == 404, path
        assert "immutable" not in missing.headers.get("cache-control", "")

"""A page names all modules of its script, so that browsers need not find them level by level."""

import re

import pytest
from playwright.sync_api import Page, expect

from service.web.modules import imported_by
from tests.server import Server


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
    modules = [match[1] for url in loaded if (match := re.search(r"/static/(.+\.js)$", url))]
    assert sorted(modules) == sorted([script, *imported_by(script)])

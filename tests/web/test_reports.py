"""A report opens in a browser from the page, and from disk with the network off."""

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect

from tests.conftest import DATA
from tests.server import Server
from tests.traces import examples
from tests.waiting import PATIENCE_S
from tests.web.conftest import OpenContext
from tests.web.look import faint_texts, overhang, serious_violations
from tests.web.npm_scripts import AXE


@pytest.fixture(scope="module")
def run_ids(server: Server) -> list[str]:
    """The ids of a group and of its two ready ranks."""
    ids = []
    for name, content in examples().items():
        answer = server.api.put(f"/traces/{name}", params={"wait": PATIENCE_S, "group": "shown"}, content=content)
        ids.append(str(answer.json()["id"]))
    (group,) = server.api.get("/groups", params={"name": "shown"}).json()["groups"]
    return [group["id"], *ids]


@pytest.mark.parametrize("page_path", ["/traces/{1}", "/groups/{0}"])
def test_page_leads_to_the_report(
    open_context: OpenContext, server: Server, run_ids: list[str], page_path: str
) -> None:
    context = open_context()
    page = context.new_page()
    page.goto(f"{server.url}{page_path.format(*run_ids)}")
    with context.expect_page() as opened:
        page.get_by_test_id("open-report").click()
    expect(opened.value.get_by_role("heading", name="Where the time goes")).to_be_visible()
    assert opened.value.locator("svg rect").first.bounding_box()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
@pytest.mark.parametrize("path", ["/traces/{1}", "/groups/{0}", "host"])
def test_report_opens_from_disk_with_the_network_off(
    open_context: OpenContext,
    server: Server,
    run_ids: list[str],
    tmp_path: Path,
    path: str,
    width: int,
    scheme: Literal["light", "dark"],
) -> None:
    if path == "host":
        path = f"/traces/{server.upload(DATA / 'cpu_train_steps.pt.trace.json.gz')['id']}"
    file = tmp_path / "report.html"
    file.write_text(server.api.get(f"{path.format(*run_ids)}/report").text)
    context = open_context(width=width, scheme=scheme)
    context.set_offline(True)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.get_by_role("heading", name="What to try first")).to_be_visible()
    assert overhang(page) == 0
    assert faint_texts(page) == []
    if AXE.path.exists():
        assert serious_violations(page) == []

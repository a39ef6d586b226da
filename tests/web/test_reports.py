"""A report opens in a browser from the page of its trace or run, and from disk with the network off."""

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

WITHOUT_GPU = "a trace without GPU work"


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
def test_page_opens_its_report(open_context: OpenContext, server: Server, run_ids: list[str], page_path: str) -> None:
    context = open_context()
    page = context.new_page()
    page.goto(f"{server.url}{page_path.format(*run_ids)}")
    with context.expect_page() as opened:
        page.get_by_test_id("open-report").click()
    report = opened.value
    expect(report.get_by_role("heading", name="Where the time goes")).to_be_visible()
    assert report.locator("svg rect").first.bounding_box()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
@pytest.mark.parametrize("resource_path", ["/traces/{1}", "/groups/{0}", WITHOUT_GPU])
def test_report_opens_from_disk_with_the_network_off(
    open_context: OpenContext,
    server: Server,
    run_ids: list[str],
    tmp_path: Path,
    resource_path: str,
    width: int,
    scheme: Literal["light", "dark"],
) -> None:
    if resource_path == WITHOUT_GPU:
        resource_path = f"/traces/{server.upload(DATA / 'cpu_train_steps.pt.trace.json.gz')['id']}"
    file = tmp_path / "report.html"
    file.write_text(server.api.get(f"{resource_path.format(*run_ids)}/report").text)
    context = open_context(width=width, scheme=scheme)
    context.set_offline(True)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.get_by_role("heading", name="What to try first")).to_be_visible()
    assert overhang(page) == 0
    assert faint_texts(page) == []
    if AXE.path.exists():
        assert serious_violations(page) == []

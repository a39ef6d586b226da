"""The page of a group shows the ranks of a run, merges them, and deletes them together."""

from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S
from tests.web.folds import unfold

_numbers = count(1)


@pytest.fixture
def run(server: Server, tmp_path: Path) -> tuple[str, list[str]]:
    """A group of two ranks of three, and their ids."""
    ids = []
    group = f"run <b>{next(_numbers)}</b>".replace("/", "")
    for rank in range(2):
        file = write_trace(tmp_path / f"rank{rank}.json", TraceShape(rank=rank, world_size=3, seed=next(_numbers)))
        answer = server.api.put(
            f"/traces/{file.name}", params={"wait": PATIENCE_S, "group": group}, content=file.read_bytes()
        )
        ids.append(answer.json()["id"])
    return answer.json()["group"]["id"], ids


def test_group_is_linked_from_the_list_and_shows_its_ranks(
    page: Page, server: Server, run: tuple[str, list[str]]
) -> None:
    group_id, ids = run
    name = server.api.get(f"/groups/{group_id}").json()["name"]
    page.goto(server.url)

    page.get_by_test_id("run-row").get_by_role("link", name=name, exact=True).click()

    expect(page).to_have_url(f"{server.url}/groups/{group_id}")
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    unfold(page, "files")
    rows = page.get_by_test_id("group-table").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("rank0.json")
    expect(page.get_by_test_id("group-facts")).to_contain_text("Missing ranks2")
    rows.first.get_by_role("link", name="rank0.json", exact=True).click()
    expect(page).to_have_url(f"{server.url}/traces/{ids[0]}")
    unfold(page, "contents")
    page.get_by_test_id("trace-facts").get_by_role("link", name=name).click()
    expect(page).to_have_url(f"{server.url}/groups/{group_id}")


def test_two_traces_of_a_rank_are_two_cycles(page: Page, server: Server, tmp_path: Path) -> None:
    for name, rank, first_step in (("a", 0, 3), ("b", 1, 3), ("c", 0, 13)):
        shape = TraceShape(rank=rank, world_size=2, first_step=first_step, seed=next(_numbers))
        file = write_trace(tmp_path / f"{name}.json", shape)
        query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "two cycles"}
        answer = server.api.put(f"/traces/{file.name}", params=query, content=file.read_bytes()).json()
    page.goto(f"{server.url}/groups/{answer['group']['id']}")

    facts = page.get_by_test_id("group-facts")
    expect(facts).to_contain_text("Cycles2, distinguished by their steps")
    expect(facts).to_contain_text("cycle 1: 1")
    unfold(page, "files")
    rows = page.get_by_test_id("group-table").locator("tbody tr")
    expect(rows).to_have_count(3)
    assert [row.locator("td").all_inner_texts()[:3] for row in rows.all()] == [
        ["0", "0", "a.json"],
        ["1", "0", "b.json"],
        ["0", "1", "c.json"],
    ]


def test_ranks_of_a_group_merge_into_one_trace(page: Page, server: Server, run: tuple[str, list[str]]) -> None:
    page.goto(f"{server.url}/groups/{run[0]}")

    page.get_by_test_id("group-merge").click()

    result_link = page.get_by_test_id("job-made").get_by_role("link")
    expect(result_link).to_have_text("merged-2.pt.trace.json.gz")
    result_link.click()
    expect(page.get_by_test_id("trace-ranks")).to_be_visible()


def test_group_is_deleted_with_its_traces_only_after_confirmation(
    page: Page, server: Server, run: tuple[str, list[str]]
) -> None:
    group_id, ids = run
    page.goto(f"{server.url}/groups/{group_id}")
    page.get_by_test_id("group-delete").click()
    page.get_by_test_id("confirm-cancel").click()
    assert server.api.get(f"/groups/{group_id}").status_code == 200

    page.get_by_test_id("group-delete").click()
    page.get_by_test_id("confirm-ok").click()

    expect(page).to_have_url(f"{server.url}/")
    assert [server.api.get(f"/traces/{trace_id}").status_code for trace_id in ids] == [404, 404]
    assert server.api.get(f"/groups/{group_id}").status_code == 404


def test_dissolved_group_leaves_its_traces(page: Page, server: Server, run: tuple[str, list[str]]) -> None:
    group_id, ids = run
    page.goto(f"{server.url}/groups/{group_id}")

    page.get_by_test_id("group-dissolve").click()
    page.get_by_test_id("confirm-ok").click()

    expect(page).to_have_url(f"{server.url}/")
    assert [server.api.get(f"/traces/{trace_id}").json()["group"] for trace_id in ids] == [None, None]


def test_trace_is_pinned_and_unpinned(page: Page, server: Server, run: tuple[str, list[str]]) -> None:
    trace = f"/traces/{run[1][0]}"
    page.goto(f"{server.url}{trace}")
    pin = page.get_by_test_id("pin-trace")

    pin.click()
    expect(pin).to_have_text("Unpin")
    assert server.api.get(trace).json()["pinned"]
    pin.click()
    expect(pin).to_have_text("Pin")
    assert not server.api.get(trace).json()["pinned"]


def test_unknown_group_shows_an_error(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/groups/{'0' * 12}")

    expect(page.get_by_test_id("group-problem")).to_contain_text("There is no such group")

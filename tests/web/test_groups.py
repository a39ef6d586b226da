"""The page of a group shows the ranks of a run, merges them, and deletes them together."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.pftrace import content, program
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S
from tests.web.conftest import OpenContext
from tests.web.folds import unfold
from tests.web.look import faint_texts, overhang, serious_violations
from tests.web.npm_scripts import AXE

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


def test_traces_that_could_not_be_read_are_named_and_the_others_analysed(
    page: Page, server: Server, run: tuple[str, list[str]]
) -> None:
    group_id, _ = run
    name = server.api.get(f"/groups/{group_id}").json()["name"]
    server.api.put("/traces/<i>2.json", params={"wait": PATIENCE_S, "group": name}, content=b"no trace")
    assert server.api.get(f"/groups/{group_id}").json()["ranks"][-1]["state"] == "failed"

    page.goto(f"{server.url}/groups/{group_id}")

    expect(page.get_by_test_id("left-out")).to_have_text("1 trace could not be read, and is left out: <i>2.json")
    steps = server.api.get(f"/groups/{group_id}/analysis/steps", params={"table": "steps"})
    expect(page.get_by_test_id("chart-run-steps").locator("rect[data-row]")).to_have_count(
        len(steps.json()["tables"]["steps"]["rows"])
    )
    merge = page.get_by_test_id("group-merge")
    expect(merge).to_be_disabled()
    expect(merge).to_have_text("Merge 2 ranks")
    assert faint_texts(page) == []


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


@pytest.fixture(scope="module")
def cycles(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A group of two ranks, each with a trace of two cycles."""
    for rank in range(2):
        for first_step in (3, 13):
            shape = TraceShape(rank=rank, world_size=2, first_step=first_step, seed=next(_numbers))
            file = write_trace(tmp_path_factory.mktemp("cycles") / f"rank{rank}.{first_step}.json", shape)
            query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "ranks with two cycles"}
            trace = server.api.put(f"/traces/{file.name}", params=query, content=file.read_bytes()).json()
    return str(trace["group"]["id"])


def spans(server: Server, group: str, cycle: int) -> list[int]:
    """Return the time of each GPU in a cycle, as the page draws it: the parts of its bar."""
    answer = server.api.get(f"/groups/{group}/analysis/temporal_breakdown", params={"cycle": cycle}).json()
    table = answer["tables"]["breakdown"]
    place = [column["name"] for column in table["columns"]].index("idle_ns")
    return [row[place] for row in table["rows"]]


def test_page_shows_one_cycle_of_a_group(page: Page, server: Server, cycles: str) -> None:
    page.goto(f"{server.url}/groups/{cycles}")
    expect(page.get_by_test_id("headline")).to_contain_text("2 of 2 ranks · 2 cycles · 4 traces · ")
    choice = page.get_by_test_id("cycle")
    assert choice.locator("option").all_inner_texts() == ["0, steps 3 to 5", "1, steps 13 to 15"]

    idle = page.get_by_test_id("chart-verdict").locator("rect[data-series=idle]")
    columns = page.get_by_test_id("chart-run-steps").locator("rect[data-row]")
    for cycle, first_step in ((0, 3), (1, 13)):
        choice.select_option(str(cycle))
        expect(page).to_have_url(f"{server.url}/groups/{cycles}{'?cycle=1' if cycle else ''}")
        expect(columns.first).to_have_attribute("data-column", str(first_step))
        expect(columns).to_have_count(2 * 3)
        expect(page.get_by_test_id("verdict-sentence")).to_contain_text("The 2 GPUs are idle")
        of_ranks = spans(server, cycles, cycle)
        expect(idle.first).to_have_attribute("data-value", str(of_ranks[0]))  # drawn once the chart's width is known
        assert [int(str(bar.get_attribute("data-value"))) for bar in idle.all()] == of_ranks
        expect(page.get_by_test_id("run-waits").locator("tbody tr")).to_have_count(2)
        address = f"/api/v1/groups/{cycles}/report?cycle={cycle}"
        expect(page.get_by_test_id("open-report")).to_have_attribute("href", address)
        base = f"/compare?base=run:{cycles}&base_cycle={cycle}"
        expect(page.get_by_test_id("compare-with")).to_have_attribute("href", base)
    page.go_back()
    expect(choice).to_have_value("0")
    expect(columns.first).to_have_attribute("data-column", "3")
    page.goto(f"{server.url}/groups/{cycles}?cycle=1")
    expect(choice).to_have_value("1")
    expect(columns.first).to_have_attribute("data-column", "13")


def test_collectives_of_another_cycle_are_not_left_on_the_page(page: Page, server: Server) -> None:
    late = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "dur": 100}
    args = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": 1, "device": 0, "stream": 7}
    alone = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 100}
    for rank in range(2):
        for start, event in ((1000, {**late, "args": args}), (9000, {**alone, "args": {"device": 0, "stream": 7}})):
            whole = {"ph": "X", "cat": "cpu_op", "name": "step", "pid": 1, "tid": 1, "ts": start, "dur": 2000}
            events = [whole, {**event, "ts": start + 400 * rank}]
            body = json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}).encode()
            query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "collectives in one cycle"}
            trace = server.api.put(f"/traces/rank{rank}.{start}.json", params=query, content=body).json()
    page.goto(f"{server.url}/groups/{trace['group']['id']}")
    expect(page.get_by_test_id("waits-note")).to_contain_text("The clocks of the ranks differ")
    page.get_by_test_id("cycle").select_option("1")
    expect(page.get_by_test_id("run-collectives")).to_contain_text("The ranks have no collectives.")
    expect(page.get_by_test_id("waits-note")).to_have_count(0)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_pages_of_several_cycles_fit_and_break_no_serious_rule(
    open_context: OpenContext, server: Server, cycles: str, width: int, scheme: Any
) -> None:
    page = open_context(width, scheme).new_page()
    for path in (f"groups/{cycles}?cycle=1", f"compare?base=run:{cycles}&other=run:{cycles}&base_cycle=0&cycle=1"):
        page.goto(f"{server.url}/{path}")
        expect(page.locator("tbody tr").first).to_be_visible()
        assert overhang(page) == 0
        assert faint_texts(page) == []
        if AXE.path.exists():
            assert serious_violations(page) == []


def test_chosen_cycle_of_a_group_is_merged(page: Page, server: Server, cycles: str) -> None:
    page.goto(f"{server.url}/groups/{cycles}?cycle=1")
    expect(page.get_by_test_id("group-merge")).to_have_text("Merge 2 ranks")
    page.get_by_test_id("group-merge").click()
    made = page.get_by_test_id("job-made").get_by_role("link")
    expect(made).to_have_text("merged-cycle1.pt.trace.json.gz")
    trace = server.api.get(f"/traces/{str(made.get_attribute('href')).rpartition('/')[2]}").json()
    assert [rank["name"] for rank in trace["ranks"]] == ["rank0.13.json", "rank1.13.json"]


def test_inputs_of_several_kinds_of_a_rank_are_merged_together(page: Page, server: Server, tmp_path: Path) -> None:
    for rank in range(2):
        shape = TraceShape(rank=rank, world_size=2, seed=next(_numbers))
        kineto = write_trace(tmp_path / f"rank{rank}.json", shape).read_bytes()
        for name, body in ((f"rank{rank}.json", kineto), (f"rank{rank}.pftrace", content(program()))):
            query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "of two profilers"}
            trace = server.api.put(f"/traces/{name}", params=query, content=body).json()
    page.goto(f"{server.url}/groups/{trace['group']['id']}")
    expect(page.get_by_test_id("cycle")).to_be_visible()
    page.get_by_test_id("merge-align").select_option("none")
    expect(page.get_by_test_id("group-merge")).to_have_text("Merge 2 ranks")
    page.get_by_test_id("group-merge").click()
    made = page.get_by_test_id("job-made").get_by_role("link")
    trace = server.api.get(f"/traces/{str(made.get_attribute('href')).rpartition('/')[2]}").json()
    assert [[beside["kind"] for beside in rank["beside"]] for rank in trace["ranks"]] == [["perfetto"], ["perfetto"]]


def test_group_of_one_cycle_offers_no_choice_of_it(page: Page, server: Server, run: tuple[str, list[str]]) -> None:
    page.goto(f"{server.url}/groups/{run[0]}")
    expect(page.get_by_test_id("headline")).to_contain_text("2 of 3 ranks · ")
    expect(page.get_by_test_id("headline")).not_to_contain_text("cycle")
    expect(page.get_by_test_id("cycle")).to_be_hidden()
    expect(page.get_by_test_id("open-report")).to_have_attribute("href", f"/api/v1/groups/{run[0]}/report")
    expect(page.get_by_test_id("compare-with")).to_have_attribute("href", f"/compare?base=run:{run[0]}")


def test_cycles_of_a_group_are_compared_on_the_page(page: Page, server: Server, cycles: str) -> None:
    page.goto(f"{server.url}/compare?base=run:{cycles}&other=run:{cycles}&show=each_step")
    expect(page.get_by_test_id("base-about")).to_contain_text("2 ranks · 2 cycles")
    table = page.get_by_test_id("compare-table")
    expect(table.locator("tbody tr")).to_have_count(2 * 2 * 3)

    page.get_by_test_id("base-cycle").select_option("0")
    expect(page.get_by_test_id("other-cycle")).to_have_value("0")
    expect(page.get_by_test_id("base-about")).to_contain_text("2 ranks · 3 steps each")
    expect(table.locator("tbody tr")).to_have_count(2 * 3)
    page.get_by_test_id("other-cycle").select_option("1")
    expect(page).to_have_url(re.compile(r"base_cycle=0&cycle=1"))
    expect(table.get_by_role("row").filter(has_text="13")).to_have_count(2)
    assert page.get_by_test_id("other-steps").locator("option").all_inner_texts()[1:] == [
        f"step {step}" for step in (13, 14, 15)
    ]
    page.get_by_test_id("compare-swap").click()
    expect(page).to_have_url(re.compile(r"base_cycle=1&cycle=0"))
    page.get_by_test_id("base-cycle").select_option("")
    expect(page.get_by_test_id("other-cycle")).to_have_value("")
    page.goto(f"{server.url}/compare?base=run:{cycles}&base_cycle=5")
    expect(page.get_by_test_id("base-problem")).to_contain_text(
        "It has cycle 0, steps 3 to 5; cycle 1, steps 13 to 15."
    )


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


def test_traces_without_rank_and_steps_are_shown_as_what_they_are(page: Page, server: Server) -> None:
    group = f"plain {next(_numbers)}"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 40}
    for name, facts in (
        ("ranked.json", {"distributedInfo": {"rank": 0, "world_size": 2}}),
        ("bare.json", {}),
    ):
        answer = server.api.put(
            f"/traces/{name}",
            params={"wait": PATIENCE_S, "group": group},
            content=json.dumps({**facts, "traceEvents": [event]}),
        )
    page.goto(f"{server.url}/groups/{answer.json()['group']['id']}")

    chart = page.get_by_test_id("chart-run-steps")
    expect(chart).to_contain_text("Length of each trace: 40 µs")
    expect(chart.get_by_role("link", name="no rank, no step: 40 µs")).to_be_visible()
    labels = chart.locator("svg text")
    expect(labels).to_have_text(["rank 0", "no rank", "no step"])
    left = chart.bounding_box()
    assert left is not None
    assert all((box := label.bounding_box()) and box["x"] >= left["x"] for label in labels.all())

    expect(page.get_by_test_id("group-merge")).to_have_text("Merge 2 traces")
    page.get_by_test_id("group-merge").click()
    expect(page.get_by_text("The rank of bare.json is unknown; give the rank of each trace")).to_be_visible()

"""The pages of datasets show the progress of an ingest, and what the facts say about the ranks of a run."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from service.fleet.dataset import Dataset
from service.fleet.merging import merge_facts
from service.fleet.plan import Counts, Plan
from service.fleet.record import FAILED
from tests.fleet.test_questions import BAD_STEP, RANKS, SLOW_RANK, add_rank
from tests.http.test_datasets import TRACEDOCK, folder_of_traces
from tests.server import Server
from tests.web.conftest import OpenContext
from tests.web.look import faint_texts, overhang, serious_violations
from tests.web.npm_scripts import AXE

HOSTILE = "<img src=x onerror=window.broken=1>'s run"
FAILURES = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two runs, one with a hostile name, whose last ingest was stopped, and failures of two pages."""
    folder = tmp_path_factory.mktemp("datasets") / "facts"
    dataset = Dataset.create(str(folder))
    records = [add_rank(dataset, run, rank) for run in (HOSTILE, "second") for rank in range(RANKS)]
    merge_facts(dataset, records, ())
    for number in range(FAILURES):
        error = {"code": "truncated", "title": "The file ends early", "detail": f"<b>{number}</b> {'long_name' * 20}"}
        changes: dict[str, Any] = {"key": f"cut-{number:02}", "source": f"/run/<i>cut-{number:02}", "trace": ""}
        dataset.record(replace(records[0], error=error, state=FAILED, **changes))
    counts = Counts(sources=200, size_bytes=10**9, present=0, done=16, failed=60, left_bytes=4 * 10**8, bytes_per_s=1e6)
    plan = Plan(
        **asdict(counts), key="k", host="node<b>1", process=77, started_ns=10**18, beat_ns=10**18, ended="stopped"
    )
    dataset.location.write("ingests/k.json", plan.as_json())
    return folder


@pytest.fixture(scope="module")
def datasets(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that shows the dataset, and one that is not there."""
    server = Server(tmp_path_factory.mktemp("server") / "data", datasets=f"{store},{store}-missing").start()
    yield server
    assert server.stop() == 0


def open_run(page: Page, server: Server, run: str = HOSTILE) -> None:
    """Open the page of a run as a visitor does, and wait until all panels have their answers."""
    page.goto(f"{server.url}/datasets/facts")
    page.get_by_test_id("runs-table").get_by_role("link", name=run).click()
    expect(page.get_by_test_id("step-grid")).to_have_attribute("data-drawn", re.compile("."))
    for panel in ("slow", "outliers", "kernels", "last"):
        expect(page.locator(f"#{panel}-about")).to_contain_text("tracedock fleet ask")


def cell(page: Page, row: int, column: int, rows: int, columns: int) -> dict[str, float]:
    """Return the place of a cell of the picture on its canvas."""
    size: dict[str, float] = page.get_by_test_id("step-grid").evaluate(
        "(canvas) => ({ width: canvas.clientWidth, height: canvas.clientHeight })"
    )
    wide, tall = min(60, (size["width"] - 72) / columns), (size["height"] - 22) / rows
    return {"x": 72 + (column + 0.5) * wide, "y": (row + 0.5) * tall}


def tooltip(page: Page) -> Locator:
    return page.locator(".tooltip:visible")


# -- progress ---------------------------------------------------------------------------------------------------------


def test_list_has_each_dataset_with_its_state(page: Page, datasets: Server) -> None:
    page.goto(datasets.url)
    page.get_by_role("navigation", name="Site").get_by_role("link", name="Datasets").click()
    facts, missing = page.get_by_test_id("dataset-row").first, page.get_by_test_id("dataset-row").nth(1)
    expect(facts).to_contain_text("stopped")
    expect(facts).to_contain_text("16 of 200 sources done · 60 failed · 600 MB of 1.00 GB")
    bar = facts.get_by_test_id("dataset-progress")
    assert bar.evaluate("(bar) => bar.value / bar.max") == pytest.approx(0.6)
    expect(missing).to_contain_text("unavailable")
    expect(missing).to_contain_text("has no dataset")


def test_dataset_shows_why_it_stopped_and_all_failures(page: Page, datasets: Server) -> None:
    page.goto(f"{datasets.url}/datasets/facts")
    expect(page.get_by_test_id("dataset-reason")).to_contain_text("Start it again")
    expect(page.get_by_test_id("ingests-table")).to_contain_text("node<b>1, process 77")
    rows = page.get_by_test_id("failures-table").locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("/run/<i>cut-00")
    expect(rows.first).to_contain_text("The file ends early truncated <b>0</b>")
    page.get_by_test_id("failures-next").press("Enter")
    expect(rows).to_have_count(FAILURES - 50)
    expect(rows.first).to_contain_text("cut-50")
    page.get_by_test_id("failures-first").click()
    expect(rows).to_have_count(50)


def test_unknown_dataset_and_run_are_named(page: Page, datasets: Server) -> None:
    page.goto(f"{datasets.url}/datasets/none")
    expect(page.get_by_test_id("dataset-problem")).to_contain_text("It shows facts, facts-missing")
    page.goto(f"{datasets.url}/datasets/facts/runs/none")
    expect(page.get_by_test_id("slow").get_by_role("alert")).to_contain_text("There is no run 'none'")


def test_ingest_beside_moves_on_the_page_until_it_is_done(page: Page, tmp_path: Path) -> None:
    run = folder_of_traces(tmp_path / "run-7", 10)
    server = Server(tmp_path / "data", datasets=str(tmp_path / "growing")).start()
    page.goto(f"{server.url}/datasets/growing")
    expect(page.get_by_test_id("dataset-state")).to_have_text("unavailable")
    command = [TRACEDOCK, "fleet", "ingest", str(run), "--to", str(tmp_path / "growing"), "--mode", "here"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        expect(page.get_by_test_id("dataset-state")).to_have_text("ingesting")
        expect(page.get_by_test_id("dataset-progress-text")).to_contain_text("of 10 sources done")
        process.wait()
    expect(page.get_by_test_id("dataset-state")).to_have_text("idle")
    expect(page.get_by_test_id("dataset-progress-text")).to_contain_text("10 of 10 sources done")
    expect(page.get_by_test_id("runs-table")).to_contain_text("run-7")
    assert server.stop() == 0


# -- a run ------------------------------------------------------------------------------------------------------------


def test_run_page_shows_the_answers_of_the_api(page: Page, datasets: Server) -> None:
    open_run(page, datasets)
    expect(page.get_by_test_id("run-headline")).to_contain_text(f"{RANKS} of {RANKS} ranks")
    slowest = page.get_by_test_id("slow-ranks").locator("tbody tr").first
    expect(slowest.locator("td").first).to_have_text("1")
    expect(page.get_by_test_id("slow-hosts").locator("tbody tr")).to_have_count(4)
    worst = page.get_by_test_id("outliers-outliers").locator("tbody tr").first.locator("td")
    assert worst.all_inner_texts()[:4] == ["0", str(BAD_STEP), "1", "node1"]
    expect(page.get_by_test_id("kernels-kernels")).to_contain_text("gemm")
    expect(page.get_by_test_id("last-ranks").locator("tbody tr")).to_have_count(1)
    assert page.evaluate("window.broken") is None
    assert page.locator("h1").inner_text() == HOSTILE


def test_picture_names_rank_host_step_and_value(page: Page, datasets: Server) -> None:
    open_run(page, datasets)
    grid = page.get_by_test_id("step-grid")
    grid.hover(position=cell(page, SLOW_RANK, 2, RANKS, 6))  # type: ignore[arg-type] # has the keys of a position
    expect(tooltip(page)).to_contain_text("rank 5 on node1")
    expect(tooltip(page)).to_contain_text("step 2")
    expect(tooltip(page)).to_contain_text("µs")
    expect(tooltip(page)).to_contain_text("over the median of the step")
    page.get_by_test_id("grid-order").select_option("time")
    grid.hover(position=cell(page, 0, BAD_STEP, RANKS, 6))  # type: ignore[arg-type]
    expect(tooltip(page)).to_contain_text("rank 1 on node1")
    page.get_by_test_id("grid-order").select_option("host")
    grid.hover(position=cell(page, 1, 0, RANKS, 6))  # type: ignore[arg-type]
    expect(tooltip(page)).to_contain_text("rank 4 on node0")


def test_keys_choose_a_cell_which_is_read_out(page: Page, datasets: Server) -> None:
    open_run(page, datasets)
    grid, said = page.get_by_test_id("step-grid"), page.get_by_test_id("step-grid-said")
    grid.press("ArrowRight")
    expect(said).to_have_text(re.compile("^rank 0 on node0, step 0, "))
    grid.press("ArrowDown")
    grid.press("ArrowRight")
    expect(said).to_have_text(re.compile("^rank 1 on node1, step 1, "))
    grid.press("End")
    expect(said).to_have_text(re.compile(f"^rank {RANKS - 1} on node3, step 5, "))


def test_value_of_the_picture_is_chosen(page: Page, datasets: Server) -> None:
    open_run(page, datasets)
    page.get_by_test_id("grid-value").select_option("communication")
    expect(page.locator("#grid-about")).to_contain_text("value=communication")
    page.get_by_test_id("grid-shade").select_option("time")
    expect(page.get_by_test_id("step-grid-legend")).to_contain_text("The stronger the color, the longer")


def test_drift_is_against_the_chosen_run(page: Page, datasets: Server) -> None:
    open_run(page, datasets)
    drift = page.get_by_test_id("drift")
    expect(drift.get_by_role("alert")).to_contain_text("No run has started before")
    page.get_by_test_id("drift-base").select_option("second")
    expect(page.get_by_test_id("drift-kernels")).to_contain_text("gemm")
    expect(drift.get_by_role("alert")).to_be_hidden()
    expect(page.locator("#drift-about")).to_contain_text("fleet analyze")


def test_commands_of_the_page_give_its_answers(page: Page, datasets: Server, store: Path) -> None:
    open_run(page, datasets)
    for panel, question in {"slow": "slow_ranks", "outliers": "step_outliers", "grid": "step_matrix"}.items():
        command = shlex.split(page.locator(f"#{panel}-about code", has_text="fleet ask").inner_text())
        assert command[:6] == ["tracedock", "fleet", "ask", str(store), question, "--run"]
        printed = subprocess.run([TRACEDOCK, *command[1:], "--json"], check=True, capture_output=True).stdout
        link = page.locator(f"#{panel}-about").get_by_role("link", name="JSON")
        address = str(link.evaluate("(link) => link.href"))
        assert json.loads(printed) == datasets.api.get(address).json()


def test_csv_links_have_all_rows(page: Page, datasets: Server) -> None:
    open_run(page, datasets)
    for link in page.get_by_role("link", name="CSV").all():
        answer = datasets.api.get(str(link.evaluate("(link) => link.href")))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_texts_have_contrast_and_pages_do_not_scroll_sideways(
    open_context: OpenContext, datasets: Server, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = open_context(width=width, scheme=scheme).new_page()
    page.goto(f"{datasets.url}/datasets")
    expect(page.get_by_test_id("dataset-row")).to_have_count(2)
    looks = [(overhang(page), faint_texts(page))]
    page.goto(f"{datasets.url}/datasets/facts")
    expect(page.get_by_test_id("failures-table")).to_be_visible()
    looks.append((overhang(page), faint_texts(page)))
    open_run(page, datasets)
    looks.append((overhang(page), faint_texts(page)))
    assert looks == [(0, [])] * 3


@pytest.mark.skipif(not AXE.path.exists(), reason=AXE.reason_to_skip)
def test_pages_break_no_rule_of_accessibility(page: Page, datasets: Server) -> None:
    page.goto(f"{datasets.url}/datasets")
    expect(page.get_by_test_id("dataset-row")).to_have_count(2)
    assert serious_violations(page) == []
    page.goto(f"{datasets.url}/datasets/facts")
    expect(page.get_by_test_id("failures-table")).to_be_visible()
    assert serious_violations(page) == []
    open_run(page, datasets)
    assert serious_violations(page) == []


def test_two_thousand_ranks_scroll_and_jump(page: Page, tmp_path: Path) -> None:
    ranks = 2000
    dataset = Dataset.create(str(tmp_path / "large"))
    records = [add_rank(dataset, "wide", rank, like=rank % RANKS) for rank in range(ranks)]
    for first in range(0, ranks, 500):
        merge_facts(dataset, records[first : first + 500], ())
    server = Server(tmp_path / "data", datasets=str(tmp_path / "large")).start()
    page.goto(f"{server.url}/datasets/large/runs/wide")
    grid = page.get_by_test_id("step-grid")
    expect(grid).to_have_attribute("data-rows", str(ranks))
    grid.press("End")
    expect(page.get_by_test_id("step-grid-said")).to_have_text(re.compile("^rank 1999 "))
    drawn = grid.get_attribute("data-drawn") or ""
    assert int(drawn.split()[1]) > ranks // 2, "the last rows are in view"
    assert server.stop() == 0

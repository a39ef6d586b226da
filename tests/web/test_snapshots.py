"""Memory snapshots in the browser: what they show at a glance, their pictures, and the way to Perfetto."""

import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.server import Server
from tests.snapshots import BASE, MB, SMALL, STACKS, START_US, block, entry, pickled, segment, snapshot
from tests.traces import TraceShape, write_trace
from tests.web.conftest import OpenContext
from tests.web.look import faint_texts, overhang, serious_violations
from tests.web.npm_scripts import AXE
from tests.web.test_analyses import answer, opened
from tests.web.test_charts import marks, rows_of
from tests.web.test_library import drop
from tests.web.viewer import Viewer


@pytest.fixture(scope="module")
def snapshot_id(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("snapshots") / "memory_rank0.pickle"
    path.write_bytes(pickled(SMALL))
    return str(server.upload(path)["id"])


@pytest.fixture(scope="module")
def leaking_id(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A snapshot of two GPUs and four steps, each of which leaves a block."""
    trace = [entry("alloc", BASE + step * MB, 100_000, 100 * step + 1, frames=STACKS[1]) for step in range(4)]
    notes = [
        {"stage": stage, "name": f"ProfilerStep#{step}", "device": 0, "time_us": START_US + 100 * step + at}
        for step in range(4)
        for stage, at in (("START", 0), ("END", 90))
    ]
    other = segment(BASE + 64 * MB, 2 * MB, [block(BASE + 64 * MB, MB, frames=[])], device=1)
    path = tmp_path_factory.mktemp("snapshots") / "leaking.pickle"
    path.write_bytes(pickled(snapshot(trace, segments=[other], external_annotations=notes)))
    return str(server.upload(path)["id"])


def test_snapshot_dropped_beside_its_ranks_trace_leads_to_its_peak_in_perfetto(
    page: Page, server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "run with memory"
    folder.mkdir()
    write_trace(folder / "rank0.json", TraceShape(rank=0, world_size=1, seed=77))
    (folder / "memory_rank0.pickle").write_bytes(pickled(SMALL))
    page.goto(server.url)
    drop(page, folder)
    batch = page.get_by_test_id("upload-batch")
    expect(batch).to_contain_text("2 traces stored")
    page.get_by_test_id("open-run").click()
    expect(page.get_by_test_id("chart-run-steps")).to_be_visible()
    expect(page.get_by_test_id("chart-run-steps")).not_to_contain_text("null")
    page.get_by_role("link", name="memory_rank0.pickle", exact=True).click()

    sentence = page.get_by_test_id("verdict-sentence")
    expect(sentence).to_have_text(
        "Rank 0 · GPU 0 held at most 8.39 MB, at 3 µs. 21.0 MB were reserved then."
        " Of the peak, 62.5 % is of forward · model.py:12."
    )
    expect(sentence.locator("code")).to_have_attribute("title", "/home/ann/model.py:12 forward")
    expect(page.get_by_test_id("snapshot-findings")).to_contain_text(
        "Memory ran out once: forward · model.py:13 asked for 94.4 MB while 5.24 MB were active"
        " and the device had 7.34 MB free."
    )
    with page.context.expect_page() as tab:
        page.get_by_test_id("peak-place").click()
    Viewer(tab.value).expect_tracks()


def test_pictures_equal_the_tables(page: Page, server: Server, snapshot_id: str) -> None:
    panel = opened(page, server, snapshot_id, "?analysis=memory_snapshot")
    tables = {name: rows_of(table) for name, table in answer(server, snapshot_id, "memory_snapshot").items()}

    for moment in ("peak", "live"):
        held = sorted(row["held_bytes"] for row in tables["frames"] if row["moment"] == moment)
        assert sorted(int(mark["value"]) for mark in marks(panel, f"snapshot_{moment}")) == held
    (drawn,) = marks(panel, "snapshot_segments")
    assert (int(drawn["value"]), drawn["marks"]) == (5 * MB, "1")
    assert drawn["bar"] == f"{tables['segments'][0]['address']} · 21.0 MB"
    points = panel.get_by_test_id("chart-snapshot_curve").locator("[data-series=active]")
    expect(points).to_have_attribute("data-points", str(len(tables["curve"])))


def test_map_of_memory_names_the_block_under_the_pointer(page: Page, server: Server, snapshot_id: str) -> None:
    panel = opened(page, server, snapshot_id, "?analysis=memory_snapshot")
    bar = panel.get_by_test_id("chart-snapshot_segments").locator("rect[fill=transparent]")
    bar.scroll_into_view_if_needed()
    width = (bar.bounding_box() or {"width": 0})["width"]

    bar.hover(position={"x": width * 0.3, "y": 5})
    expect(page.locator(".tooltip")).to_contain_text("forward · model.py:12")
    bar.hover(position={"x": width * 0.9, "y": 5})
    expect(page.locator(".tooltip")).to_contain_text("unused, or a block that is not listed")


def test_moment_is_chosen_by_an_option(page: Page, server: Server, snapshot_id: str) -> None:
    panel = opened(page, server, snapshot_id, "?analysis=memory_snapshot&options=at_ns%3D1500")

    expect(panel.get_by_test_id("chart-snapshot_live").locator("figcaption")).to_contain_text("at 500 ns")
    assert {int(mark["value"]) for mark in marks(panel, "snapshot_live")} == {3 * MB}


def test_leaks_stand_out(page: Page, server: Server, leaking_id: str) -> None:
    page.goto(f"{server.url}/traces/{leaking_id}")

    expect(page.get_by_test_id("snapshot-findings")).to_have_text(
        "GPU 0: forward · model.py:11 leaves memory behind in 3 of 3 steps: 300 kB, 100 kB a step."
    )
    expect(page.get_by_test_id("verdict-sentence")).to_have_text(
        [
            "GPU 0 held at most 400 kB, at 301 µs. 0 B were reserved then. Of the peak, 100 % is of forward · model.py:11.",  # noqa: E501 - as the page has it
            "GPU 1 held at most 1.05 MB, at the start. Of the peak, 100 % has no stack.",
        ]
    )
    page.get_by_test_id("verdict-analysis").click()
    panel = page.get_by_test_id("analyses")
    assert {mark["bar"] for mark in marks(panel, "snapshot_leaks")} == {"forward · model.py:11 · GPU 0"}
    assert len(marks(panel, "snapshot_steps")) == 8


def test_overview_has_the_memory_from_the_first_change_to_the_last(
    page: Page, server: Server, snapshot_id: str
) -> None:
    page.goto(f"{server.url}/traces/{snapshot_id}")

    expect(page.get_by_test_id("overview-range")).to_have_text(re.compile("^all "))
    expect(page.locator("#overview-legend")).to_contain_text("allocated memory")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_snapshot_fits_the_screen_with_contrast(
    open_context: OpenContext, server: Server, leaking_id: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = open_context(width=width, scheme=scheme).new_page()
    opened(page, server, leaking_id, "?analysis=memory_snapshot")
    expect(page.get_by_test_id("chart-snapshot_segments").first).to_be_visible()

    assert overhang(page) == 0
    assert faint_texts(page) == []


@pytest.mark.skipif(not AXE.path.exists(), reason=AXE.reason_to_skip)
def test_snapshot_breaks_no_rule_of_accessibility(page: Page, server: Server, leaking_id: str) -> None:
    opened(page, server, leaking_id, "?analysis=memory_snapshot")
    expect(page.get_by_test_id("chart-snapshot_segments").first).to_be_visible()

    assert serious_violations(page) == []


def test_two_snapshots_are_compared_by_what_holds_their_peaks(
    page: Page, server: Server, snapshot_id: str, leaking_id: str
) -> None:
    page.goto(f"{server.url}/compare?base={snapshot_id}&other={leaking_id}")

    expect(page.get_by_test_id("compare-sentence")).to_have_text(
        "The peak of GPU 0 shrank by 95.2 %, from 8.39 MB to 400 kB."
        " The peak of GPU 1 grew by 1.05 MB, from 0 B to 1.05 MB."
    )
    drawn = marks(page.get_by_test_id("compare-result"), "compare")
    tables = server.api.get(f"/traces/{leaking_id}/analysis/compare_snapshots", params={"base": snapshot_id}).json()[
        "tables"
    ]
    rows = rows_of(tables["stacks"])
    assert [int(mark["value"]) for mark in drawn] == [row["difference_bytes"] for row in rows]
    assert [mark["verdict"] for mark in drawn] == [row["verdict"] for row in rows]
    expect(page.locator("#compare-options")).to_be_hidden()
    expect(page.get_by_test_id("compare-table")).to_contain_text("/home/ann/model.py:12 forward")
    expect(page.get_by_test_id("compare-table")).to_contain_text("-5.24 MB")
    page.get_by_test_id("compare-swap").click()
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("GPU 0 grew by 2,000 %, from 400 kB to 8.39 MB.")

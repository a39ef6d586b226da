"""Memory snapshots in the browser: what they show at a glance, their pictures, and the way to Perfetto."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.server import Server
from tests.snapshots import BASE, MB, SMALL, STACKS, START_US, block, entry, freed, pickled, segment, snapshot
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S
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


def open_snapshot(page: Page) -> None:
    """Open the snapshot from the page of its run, whose list of traces is folded if a trace is ready."""
    page.get_by_test_id("group-files").evaluate("fold => { fold.open = true; }")
    page.get_by_role("link", name="memory_rank0.pickle", exact=True).click()


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
    open_snapshot(page)

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


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with a peak in the second of three steps of 100 µs, which only the trace of its rank has."""
    folder = tmp_path_factory.mktemp("runs") / "run with <b>steps"
    folder.mkdir()
    blocks = [(10, 3 * MB, 1), (110, 5 * MB, 2), (210, MB, 3)]
    entries: list[Any] = [
        entry("alloc", BASE + place * 16 * MB, size, at, frames=STACKS[stack])
        for place, (at, size, stack) in enumerate(blocks)
    ]
    entries[2:2] = freed(BASE + 16 * MB, 5 * MB, 190)
    (folder / "memory_rank0.pickle").write_bytes(pickled(snapshot(entries)))
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": at, "dur": 99}
        for step, at in ((7, 5000), (8, 5100), (9, 5200))
    ]
    base_ns = (START_US - 5000) * 1000
    (folder / "rank0.json").write_text(json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": steps}))
    return folder


@pytest.fixture(scope="module")
def with_steps_id(server: Server, run_folder: Path) -> str:
    """The snapshot, in a run with the trace."""
    params: dict[str, str | int] = {"group": "with steps", "wait": 60}
    ids = [
        server.api.put(f"/traces/{path.name}", params=params, content=path.read_bytes()).json()["id"]
        for path in sorted(run_folder.iterdir())
    ]
    return str(ids[0])


def test_snapshot_has_the_steps_of_its_ranks_trace_and_is_merged_with_it_on_one_clock(
    page: Page, server: Server, run_folder: Path
) -> None:
    page.goto(server.url)
    drop(page, run_folder)
    expect(page.get_by_test_id("upload-batch")).to_contain_text("2 traces stored")
    page.get_by_test_id("open-run").click()
    expect(page.get_by_test_id("run-waits")).to_be_visible()
    run = page.url.rpartition("/")[2]
    assert server.api.get(f"/groups/{run}/analysis/memory_snapshot", params={"wait": PATIENCE_S}).status_code == 200
    open_snapshot(page)

    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("GPU 0 held at most 8.39 MB, at 100 µs.")
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("62.5 % is of forward · model.py:12.")
    peaks = {mark["bar"]: int(mark["value"]) for mark in marks(page.get_by_test_id("verdict"), "verdict_steps")}
    assert peaks == {"ProfilerStep#7": 3 * MB, "ProfilerStep#8": 8 * MB, "ProfilerStep#9": 4 * MB}
    origin = page.get_by_test_id("snapshot-steps-from")
    expect(origin).to_have_text("Steps from trace rank0.json.")
    snapshot_url = page.url
    origin.get_by_role("link").click()
    expect(page.locator("#name")).to_have_text("rank0.json")

    page.goto(snapshot_url)
    page.get_by_test_id("merge-snapshot").press("Enter")
    page.get_by_test_id("job-made").get_by_role("link").click()
    expect(page.get_by_test_id("open-perfetto")).to_be_visible()
    merged = page.url.rpartition("/")[2]
    with page.context.expect_page() as tab:
        page.get_by_test_id("open-perfetto").click()
    viewer = Viewer(tab.value)
    viewer.expect_tracks()
    assert viewer.search("ProfilerStep#8") == 1
    titles = {str(name) for (name,) in server.rows(merged, "SELECT DISTINCT name FROM process WHERE name NOTNULL")}
    assert titles == {
        "rank 0 · process 1",
        *(f"rank 0 · memory snapshot · GPU 0 {what}" for what in ("memory", "largest blocks")),
    }
    assert server.rows(
        merged,
        "SELECT step.name, memory.ts - step.ts FROM slice AS step JOIN slice AS memory"
        " ON memory.ts >= step.ts AND memory.ts < step.ts + step.dur"
        " WHERE step.name LIKE 'ProfilerStep#%' AND memory.name = '[memory]' ORDER BY memory.ts",
    ) == [
        ["ProfilerStep#7", 10_000],
        ["ProfilerStep#8", 10_000],
        ["ProfilerStep#8", 90_000],
        ["ProfilerStep#9", 10_000],
    ]


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_steps_of_a_trace_fit_the_screen_with_contrast(
    open_context: OpenContext, server: Server, with_steps_id: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = open_context(width=width, scheme=scheme).new_page()
    page.goto(f"{server.url}/traces/{with_steps_id}")
    expect(page.get_by_test_id("merge-snapshot")).to_be_visible()

    assert overhang(page) == 0
    assert faint_texts(page) == []


@pytest.mark.skipif(not AXE.path.exists(), reason=AXE.reason_to_skip)
def test_steps_of_a_trace_break_no_rule_of_accessibility(page: Page, server: Server, with_steps_id: str) -> None:
    page.goto(f"{server.url}/traces/{with_steps_id}")
    expect(page.get_by_test_id("merge-snapshot")).to_be_visible()

    assert serious_violations(page) == []


def test_page_shows_the_steps_once_the_trace_of_the_rank_is_ready(page: Page, server: Server, run_folder: Path) -> None:
    params: dict[str, str | int] = {"group": "trace comes later", "wait": 60}
    snapshot, trace = sorted(run_folder.iterdir())
    snapshot_id = server.api.put(f"/traces/{snapshot.name}", params=params, content=snapshot.read_bytes()).json()["id"]
    page.goto(f"{server.url}/traces/{snapshot_id}")
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("GPU 0 held at most 8.39 MB")
    expect(page.get_by_test_id("snapshot-steps-from")).to_have_count(0)

    server.api.put(f"/traces/{trace.name}", params=params, content=trace.read_bytes())

    expect(page.get_by_test_id("snapshot-steps-from")).to_have_text("Steps from trace rank0.json.")
    assert len(marks(page.get_by_test_id("verdict"), "verdict_steps")) == 3


def test_page_says_why_no_trace_beside_a_snapshot_has_its_steps(page: Page, server: Server, run_folder: Path) -> None:
    params: dict[str, str | int] = {"group": "steps of two traces", "wait": 60}
    ids = [
        server.api.put(f"/traces/{name}", params=params, content=(run_folder / file).read_bytes()).json()["id"]
        for file, name in (
            ("memory_rank0.pickle", "memory_rank0.pickle"),
            ("rank0.json", "<img src=x onerror=alert(1)>_rank0.json"),
            ("rank0.json", "b_rank0.json"),
        )
    ]
    page.goto(f"{server.url}/traces/{ids[0]}")

    expect(page.get_by_test_id("snapshot-steps-from")).to_contain_text(
        "Several traces fit: <img src=x onerror=alert(1)>_rank0.json, b_rank0.json. Name one with `steps_from`."
    )
    expect(page.get_by_test_id("verdict").locator("img")).to_have_count(0)
    panel = opened(page, server, ids[0], "?analysis=memory_snapshot&options=steps_from%3Db_rank0.json")
    assert len(marks(panel, "snapshot_steps")) == 3


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

    expect(panel.get_by_test_id("chart-snapshot_live").locator("figcaption")).to_contain_text("at 1.5 µs")
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


def test_label_of_a_narrow_frame_is_cut_at_its_edge(
    open_context: OpenContext, server: Server, snapshot_id: str
) -> None:
    page = open_context(width=390).new_page()
    panel = opened(page, server, snapshot_id, "?analysis=memory_snapshot")
    label = panel.get_by_test_id("chart-snapshot_peak").locator(".frame[data-key='2'] text")

    expect(label).to_have_text("forward · model.py:10")
    widths = label.evaluate("text => [text.getBBox().width, text.parentElement.width.baseVal.value]")
    assert widths[0] > widths[1]
    assert label.evaluate("text => getComputedStyle(text.parentElement).overflow") == "hidden"


@pytest.mark.skipif(not AXE.path.exists(), reason=AXE.reason_to_skip)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("snapshot", ["snapshot_id", "leaking_id"])
def test_snapshot_breaks_no_rule_of_accessibility(
    open_context: OpenContext, server: Server, snapshot: str, width: int, request: pytest.FixtureRequest
) -> None:
    page = open_context(width=width).new_page()
    opened(page, server, request.getfixturevalue(snapshot), "?analysis=memory_snapshot")
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

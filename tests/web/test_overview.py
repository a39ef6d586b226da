"""The overview of a trace: what is drawn equals the analysis, and mouse or keys alone do the whole job."""

import gzip
import json
import re
from math import ceil, floor
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.server import Server
from tests.waiting import PATIENCE_S
from tests.web.address import address_of, query_of
from tests.web.viewer import Viewer

EXAMPLES = Path(__file__).parents[2] / "docs/examples"

Box = dict[str, float]

# What the canvas draws: the range of its data, the lengths in each bin of each lane, and the place of each row.
_DRAWN = """(canvas) => {
  const { frame, view, source, rows } = canvas.overview;
  const steps = (sums) => [...sums].slice(1).map((value, index) => value - sums[index]);
  const lanes = frame.lanes.map(({ lane, sums }) => ({
    ...lane, ...Object.fromEntries(Object.entries(sums).map(([content, edges]) => [content, steps(edges)])),
  }));
  return {
    from: String(source.at(frame.from)), to: String(source.at(frame.to)), bins: frame.bins, lanes,
    launches: steps(frame.launches),
    curves: frame.curves.map(({ most }) => [...most].map((value) => (Number.isNaN(value) ? null : value))),
    steps: source.steps.map(({ number, from, to }) => [number, from, to]),
    view: [view.from, view.to, view.length], rows: rows.map(({ label, height }) => [label, height]),
  };
}"""

# The colors of pixels of the canvas, as `#rrggbb`.
_COLORS = """(canvas, places) => places.map(([x, y]) => {
  const pixel = [x, y].map((place) => Math.floor(place * devicePixelRatio));
  const [red, green, blue] = canvas.getContext("2d").getImageData(...pixel, 1, 1).data;
  return `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
})"""

_STYLE = "(name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()"
GAP = 4  # pixels between rows
STREAM = {"busy": "busy_ns", "compute": "compute_ns", "comm": "comm_ns", "mem": "mem_ns"}


class Overview:
    """The overview on the page of a trace.

    Args:
        page: the tab.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.canvas = page.get_by_test_id("overview-canvas")
        self.chosen = page.get_by_test_id("overview-chosen")
        self.range = page.get_by_test_id("overview-range")

    @classmethod
    def open(cls, page: Page, server: Server, trace_id: str, query: str = "") -> "Overview":
        """Open the page of a trace, and wait until the overview is drawn."""
        page.goto(f"{server.url}/traces/{trace_id}{query}")
        overview = cls(page)
        expect(overview.canvas).to_have_attribute("data-drawn", re.compile("."))
        overview.canvas.scroll_into_view_if_needed()
        return overview

    def drawn(self) -> dict[str, Any]:
        """Return what the canvas draws."""
        return cast(dict[str, Any], self.canvas.evaluate(_DRAWN))

    def view(self) -> tuple[float, float, float]:
        """Return the start and end of the visible range, and the length of the whole, in ns."""
        start, end, length = self.drawn()["view"]
        return start, end, length

    def plot(self) -> Box:
        """Return the box of the part of the canvas that has a scale of time."""
        box = self.canvas.bounding_box()
        assert box
        left = round(min(190, box["width"] * 0.28))
        return {"left": box["x"] + left, "top": box["y"], "width": box["width"] - left, "label": left}

    def drag(self, start: float, end: float, y: float = 100, steps: int = 3) -> None:
        """Drag from one share of the width to another, in some moves."""
        plot, mouse = self.plot(), self.page.mouse
        mouse.move(plot["left"] + start * plot["width"], plot["top"] + y)
        mouse.down()
        mouse.move(plot["left"] + end * plot["width"], plot["top"] + y, steps=steps)
        mouse.up()

    def window(self) -> tuple[int, int]:
        """Return the chosen window, as the page's address has it."""
        query = query_of(self.page)
        return int(query["start_ns"][0]), int(query["end_ns"][0])


def analysis(server: Server, trace_id: str, **parameters: Any) -> dict[str, list[dict[str, Any]]]:
    answer = server.api.get(f"/traces/{trace_id}/analysis/overview", params={"busiest": "trace"} | parameters)
    assert answer.status_code == 200, answer.text
    return {
        name: [dict(zip([column["name"] for column in table["columns"]], row, strict=True)) for row in table["rows"]]
        for name, table in answer.json()["tables"].items()
    }


def expect_equal(drawn: dict[str, Any], answer: dict[str, list[dict[str, Any]]]) -> None:
    """Assert that the canvas draws an answer: each length in each bin of each lane, the launches, and the memory."""
    assert len(drawn["lanes"]) == len(answer["tracks"])
    for track, lane in zip(answer["tracks"], drawn["lanes"], strict=True):
        assert {name: lane[name] for name in ("kind", "device", "stream", "process", "thread")}.items() <= track.items()
        expected = {name: [0] * drawn["bins"] for name in STREAM}
        for row in answer["bins"]:
            if row["track"] == track["track"]:
                for name, column in STREAM.items():
                    expected[name][row["bin"]] = row[column] or 0
        assert {name: lane[name] for name in STREAM} == expected
    launches = {row["bin"]: row["launches"] for row in answer["launches"]}
    assert drawn["launches"] == [launches.get(bin_, 0) for bin_ in range(drawn["bins"])]
    memory = [row["allocated_bytes"] for row in answer["memory"]]
    assert [value for curve in drawn["curves"] for value in curve if value is not None] == memory


def test_canvas_draws_the_analysis(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    drawn = overview.drawn()
    answer = analysis(server, gpu_id, bins=drawn["bins"], tracks=16)
    [window] = answer["window"]
    assert (int(drawn["from"]), int(drawn["to"])) == (window["start_ns"], window["end_ns"])
    expect_equal(drawn, answer)
    assert drawn["steps"] == [
        [row["step"], row["start_ns"] - window["start_ns"], row["end_ns"] - window["start_ns"]]
        for row in answer["steps"]
    ]

    overview.canvas.focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    expect(overview.canvas).not_to_have_attribute("data-drawn", f"0/{drawn['view'][2]}")
    closer = overview.drawn()
    assert int(closer["to"]) - int(closer["from"]) < window["end_ns"] - window["start_ns"]
    within = {"from_ns": closer["from"], "to_ns": closer["to"], "bins": closer["bins"], "tracks": 16}
    expect_equal(closer, analysis(server, gpu_id, **within))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pixels_have_the_color_of_what_runs(open_context: Any, server: Server, gpu_id: str, scheme: str) -> None:
    overview = Overview.open(open_context(scheme=scheme).new_page(), server, gpu_id)
    drawn, plot = overview.drawn(), overview.plot()
    assert plot["width"] == drawn["bins"]
    length = (int(drawn["to"]) - int(drawn["from"])) / drawn["bins"]
    head = 20 + 19 + 26  # ruler, steps, launches
    color = {name: overview.page.evaluate(_STYLE, name) for name in ("compute", "comm", "mem", "sunk")}
    expected: dict[tuple[float, float], str] = {}
    bottom = head
    for label, height in drawn["rows"]:
        bottom += height
        [lane] = [lane for lane in drawn["lanes"] if label == f"GPU 0 · stream {lane['stream']}"] or [{}]
        for bin_, busy in enumerate(lane.get("busy", [])):
            kinds = [name for name in ("compute", "comm", "mem") if lane[name][bin_] > 0]
            if busy == 0 or (busy > 0.2 * length and len(kinds) == 1):
                expected[plot["label"] + bin_ + 0.5, bottom - GAP - 0.5] = color[kinds[0] if kinds else "sunk"]
    found = overview.canvas.evaluate(_COLORS, [*expected])
    assert {color["compute"], color["comm"], color["sunk"]} <= set(found)
    wrong = [place for place, got in zip(expected, found, strict=True) if got != expected[place]]
    assert len({x for x, _ in wrong}) < 15, wrong[:5]  # only on lines of the grid


def test_wheel_zooms_around_the_pointer(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    plot, (_, _, whole) = overview.plot(), overview.view()
    page.mouse.move(plot["left"] + plot["width"] / 4, plot["top"] + 100)
    page.mouse.wheel(0, -400)
    expect(overview.range).to_contain_text("from")
    start, end, _ = overview.view()
    assert end - start < 0.6 * whole
    assert start + (end - start) / 4 == pytest.approx(whole / 4, rel=0.01)
    page.mouse.wheel(100, 0)
    page.wait_for_url("**from_ns=*")
    assert overview.view()[0] > start
    page.mouse.dblclick(plot["left"] + plot["width"] / 2, plot["top"] + 100)
    expect(overview.range).to_contain_text("all")
    assert overview.view() == (0, whole, whole)


def test_shift_and_drag_moves_the_visible_range(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    for _ in range(3):
        page.get_by_test_id("overview-in").click()
    start, end, _ = overview.view()
    page.keyboard.down("Shift")
    overview.drag(0.6, 0.4)
    page.keyboard.up("Shift")
    moved = overview.view()
    assert moved[0] == pytest.approx(start + (end - start) * 0.2, rel=0.02)
    assert moved[1] - moved[0] == pytest.approx(end - start)
    expect(overview.chosen).to_be_hidden()
    page.get_by_test_id("overview-left").click()
    assert overview.view()[0] < moved[0]
    page.get_by_test_id("overview-out").click()
    assert overview.view()[1] - overview.view()[0] > end - start
    page.get_by_test_id("overview-whole").click()
    assert overview.view()[0] == 0


def test_dragged_window_leads_to_all_that_can_be_done_with_it(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    _, _, whole = overview.view()
    overview.drag(0.3, 0.6)
    expect(overview.chosen).to_be_visible()
    start, end = overview.window()
    first = int(overview.drawn()["from"])
    assert [start - first, end - first] == pytest.approx([0.3 * whole, 0.6 * whole], rel=0.02)
    expect(page.get_by_test_id("overview-length")).to_have_attribute("title", re.compile(f"^{end - start} ns, "))

    selection = {"window": {"start_ns": start, "end_ns": end}}
    for name in ("overview-perfetto", "overview-download"):
        query = parse_qs(urlsplit(str(page.get_by_test_id(name).get_attribute("href"))).query)
        assert json.loads(query["selection"][0]) == selection
    with page.expect_download() as download:
        page.get_by_test_id("overview-download").click()
    kept = json.loads(gzip.decompress(download.value.path().read_bytes()))["traceEvents"]
    assert 0 < len(kept) < server.api.get(f"/traces/{gpu_id}").json()["events"]["kept"]

    sql = parse_qs(urlsplit(str(page.get_by_test_id("overview-sql").get_attribute("href"))).query)["q"][0]
    assert server.rows(gpu_id, sql)

    page.get_by_test_id("overview-make").click()
    expect(page.get_by_test_id("cut-make")).to_be_focused()
    bounds = server.api.get(f"/traces/{gpu_id}").json()["bounds"]
    after = [time - bounds["start_ns"] for time in (start, end)]
    fields = [page.get_by_test_id(name).input_value() for name in ("cut-start", "cut-end")]
    assert [round(float(field) * 1e6) for field in fields] == after

    page.reload()
    expect(overview.chosen).to_be_visible()
    assert overview.window() == (start, end)
    page.get_by_test_id("overview-zoom").click()
    page.wait_for_url("**from_ns=*")
    seen = overview.view()
    page.reload()
    expect(overview.range).to_contain_text("from")
    assert list(overview.view()) == pytest.approx(seen, abs=2)
    page.get_by_test_id("overview-clear").click()
    expect(overview.chosen).to_be_hidden()
    assert "start_ns" not in address_of(page)


def test_times_count_from_the_start_of_the_trace(page: Page, server: Server, tmp_path: Path) -> None:
    first = {"ph": "i", "s": "t", "name": "start", "pid": 1, "tid": 1, "ts": 0}
    trace = uploaded(server, tmp_path, "late.json", [first, slice_of("cpu_op", 1, 1, 5e6, 1e6)])
    overview = Overview.open(page, server, trace, "?start_ns=5300000000&end_ns=5600000000")
    expect(page.get_by_test_id("overview-length")).to_have_text("300 ms from 5.3 s")
    page.get_by_test_id("overview-zoom").click()
    expect(overview.range).to_have_text(re.compile(r"^\S+ ms from 5\.[23]\d* s$"))


def test_dragged_window_is_the_part_that_analyses_are_about(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    page.locator("#analyses").scroll_into_view_if_needed()
    expect(page.get_by_test_id("dashboard-steps")).to_be_visible()
    page.wait_for_load_state("networkidle")  # nothing above the canvas moves it any more
    overview.canvas.scroll_into_view_if_needed()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/analysis/" in request.url else None)
    part = page.get_by_test_id("analysis-part").locator("option").first
    for start in (0.1, 0.2):
        asked.clear()
        overview.drag(start, 0.6, steps=30)
        with page.expect_response("**/analysis/steps?*start_ns=*"):
            expect(part).to_have_text(re.compile("^the chosen window, "))
        page.wait_for_load_state("networkidle")
        windows = {parse_qs(urlsplit(url).query)["start_ns"][0] for url in asked if "start_ns" in url}
        assert windows == {str(overview.window()[0])}
        assert len(asked) == len({*asked})
    page.get_by_test_id("overview-clear").click()
    expect(part).to_have_text("all of this trace")


def test_visible_range_is_a_table_with_exact_times(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    start = analysis(server, gpu_id)["window"][0]["start_ns"]
    page.get_by_test_id("overview-lanes").locator("summary").click()
    rows = page.get_by_test_id("overview-table").locator("tbody tr")
    for key in ("", "+", "ArrowRight"):
        if key:
            before = overview.view()
            overview.canvas.press(key)
            assert overview.view() != before
        first, last, _ = overview.view()
        window = {"from_ns": start + floor(first), "to_ns": start + ceil(last)}
        answer = analysis(server, gpu_id, bins=1, **window)
        times = {row["track"]: f"{row['busy_ns']} ns" for row in answer["bins"]}
        labels = [label for label, _ in overview.drawn()["rows"] if not label.startswith("Memory")]
        for track, label in zip(answer["tracks"], labels, strict=True):
            busy = rows.filter(has_text=label).locator("td").nth(1)
            expect(busy).to_have_attribute("title", times.get(track["track"], "0 ns"))


def test_memory_of_an_unknown_device_is_named_so(page: Page, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    change = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "args": {"Bytes": 8, "Total Allocated": 8}}
    path.write_text(json.dumps({"traceEvents": [change | {"ts": at} for at in (0, 9)]}))
    overview = Overview.open(page, server, server.upload(path)["id"])
    assert [label for label, _ in overview.drawn()["rows"]] == ["Memory · unknown device"]


def test_merged_trace_shows_the_steps_of_its_first_rank(page: Page, server: Server) -> None:
    ranks = [server.upload(path)["id"] for path in sorted(EXAMPLES.glob("gpt_rank*.json.gz"))]
    job = server.api.post("/traces/merge", json={"traces": ranks}).json()
    [merged] = server.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()["result"]["traces"]
    steps = [row for row in analysis(server, merged)["steps"] if row["rank"] == 0]
    overview = Overview.open(page, server, merged)
    assert [number for number, _, _ in overview.drawn()["steps"]] == [row["step"] for row in steps]
    overview.canvas.press("]")
    assert overview.window() == (steps[0]["start_ns"], steps[0]["end_ns"])


def test_clicked_step_is_chosen_exactly(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    steps = analysis(server, gpu_id)["steps"]
    _, _, whole = overview.view()
    middle = (steps[1]["start_ns"] + steps[1]["end_ns"]) / 2 - int(overview.drawn()["from"])
    plot = overview.plot()
    page.mouse.click(plot["left"] + plot["width"] * middle / whole, plot["top"] + 28)
    expect(overview.chosen).to_be_visible()
    assert overview.window() == (steps[1]["start_ns"], steps[1]["end_ns"])


def test_keys_alone_open_a_step_in_perfetto(page: Page, server: Server, gpu_id: str) -> None:
    overview = Overview.open(page, server, gpu_id)
    steps = analysis(server, gpu_id)["steps"]
    keyboard = page.keyboard
    overview.canvas.focus()
    keyboard.press("Shift+ArrowRight")
    expect(overview.chosen).to_be_visible()
    start, end = overview.window()
    keyboard.press("Shift+ArrowRight")
    keyboard.press("Shift+ArrowUp")
    moved = overview.window()
    assert moved[0] > start
    assert moved[1] - moved[0] > end - start
    keyboard.press("Escape")
    expect(overview.chosen).to_be_hidden()
    for _ in steps[:2]:
        keyboard.press("]")
    assert overview.window() == (steps[1]["start_ns"], steps[1]["end_ns"])
    keyboard.press("+")
    keyboard.press("ArrowRight")
    assert overview.view()[0] > 0
    keyboard.press("Home")
    assert overview.view()[0] == 0

    link = page.get_by_test_id("overview-perfetto")
    for _ in range(8):
        keyboard.press("Tab")
        if link.evaluate("(link) => link === document.activeElement"):
            break
    expect(link).to_be_focused()
    with page.context.expect_page() as opened:
        keyboard.press("Enter")
    viewer = Viewer(opened.value)
    viewer.expect_tracks()
    selections = [session["selection"] for session in server.api.get("/sessions").json()["sessions"]]
    start, end = overview.window()
    assert any((one or {}).get("window") == {"start_ns": start, "end_ns": end} for one in selections), selections
    assert any(f"ProfilerStep#{steps[1]['step']}" in str(row) for row in _step_names(viewer))
    opened.value.close()


def _step_names(viewer: Viewer) -> list[str]:
    """Return the names of the steps that the engine of the UI has."""
    sql = "select distinct name from slice where name glob 'ProfilerStep#*'"
    script = (
        "async (sql) => { const result = await app.trace.engine.query(sql); const names = [];"
        " for (const it = result.iter({name: 'str'}); it.valid(); it.next()) names.push(it.name); return names; }"
    )
    return cast(list[str], viewer.page.evaluate(script, sql))


# -- extreme traces ---------------------------------------------------------------------------------------------------


def uploaded(server: Server, folder: Path, name: str, events: list[dict[str, Any]]) -> str:
    path = folder / f"{name}.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return str(server.upload(path)["id"])


def slice_of(cat: str, pid: int, tid: int, start: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": f"{cat}!", "pid": pid, "tid": tid, "ts": start, "dur": dur, "args": args}


@pytest.mark.parametrize(
    ("name", "events", "reason"),
    [
        ("empty", [], "This trace has no events."),
        ("instants", [{"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 1, "s": "t"}], "no timed slices"),
    ],
)
def test_trace_without_slices_says_why_nothing_is_drawn(
    page: Page, server: Server, tmp_path: Path, name: str, events: list[dict[str, Any]], reason: str
) -> None:
    page.goto(f"{server.url}/traces/{uploaded(server, tmp_path, name, events)}")
    expect(page.get_by_test_id("overview-empty")).to_contain_text(reason)
    expect(page.get_by_test_id("overview-canvas")).to_be_hidden()


def test_trace_of_a_cpu_has_lanes_of_threads(page: Page, server: Server, step_trace: Path) -> None:
    trace_id = str(server.upload(step_trace)["id"])
    overview = Overview.open(page, server, trace_id)
    drawn = overview.drawn()
    assert {lane["kind"] for lane in drawn["lanes"]} == {"thread"}
    expect_equal(drawn, analysis(server, trace_id, bins=drawn["bins"], tracks=16))
    expect(page.locator("#overview-legend")).not_to_contain_text("computing")


def test_trace_of_one_event_is_drawn(page: Page, server: Server, tmp_path: Path) -> None:
    event = slice_of("kernel", 0, 7, 5, 1, device=0, stream=7)
    overview = Overview.open(page, server, uploaded(server, tmp_path, "one", [event]))
    drawn = overview.drawn()
    assert drawn["view"][2] == 1000
    [lane] = drawn["lanes"]
    assert sum(lane["compute"]) == 1000
    overview.canvas.focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(overview.chosen).to_be_visible()


def test_many_steps_are_drawn_and_chosen_exactly(page: Page, server: Server, tmp_path: Path) -> None:
    steps = [
        slice_of("user_annotation", 1, 1, 10 * number, 9) | {"name": f"ProfilerStep#{number}"} for number in range(3000)
    ]
    overview = Overview.open(page, server, uploaded(server, tmp_path, "steps", steps))
    expect(overview.canvas).to_have_attribute("data-steps", "3000")
    assert overview.drawn()["steps"][-1] == [2999, 29_990_000, 29_999_000]
    overview.canvas.focus()
    page.keyboard.press("[")
    expect(overview.chosen).to_be_visible()
    assert overview.window() == (29_990_000, 29_999_000)


def test_busiest_of_100_000_streams_are_drawn_first(page: Page, server: Server, tmp_path: Path) -> None:
    events = [
        slice_of("kernel", 0, stream, stream % 1000, 1 + stream % 7 + (stream < 20) * 1000, device=0, stream=stream)
        for stream in range(100_000)
    ]
    trace_id = uploaded(server, tmp_path, "streams", events)
    overview = Overview.open(page, server, trace_id)
    expect(page.get_by_test_id("verdict-sentence")).to_contain_text("computing 100 %")
    drawn = overview.drawn()
    assert len(drawn["lanes"]) == 16
    assert all(lane["stream"] < 20 for lane in drawn["lanes"])
    expect_equal(drawn, analysis(server, trace_id, bins=drawn["bins"], tracks=16))
    more = page.get_by_test_id("overview-more")
    expect(more).to_have_text("48 more lanes of 99,984")
    more.click()
    expect(more).to_have_text("192 more lanes of 99,936")
    assert len(overview.drawn()["lanes"]) == 64
    before = _label_at_top(overview.canvas)
    overview.canvas.focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    expect(page.locator("#overview-scroll")).not_to_have_js_property("scrollTop", 0)
    assert _label_at_top(overview.canvas) != before
    page.get_by_test_id("overview-fewer").click()
    expect(more).to_have_text("48 more lanes of 99,984")


def _label_at_top(canvas: Locator) -> int:
    """Return how far the lanes are scrolled."""
    return int(canvas.evaluate("(canvas) => canvas.parentElement.scrollTop"))

"""The Perfetto UI opens at the selection or slice of its address, in a real browser."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.http.test_opening import write_opening
from tests.server import Server
from tests.web.folds import unfold
from tests.web.viewer import Viewer

VISIBLE = """() => {
    const { start, end } = app.trace.timeline.visibleWindow.toTimeSpan();
    return [Number(start), Number(end)];
}"""


@pytest.fixture(scope="module")
def opening_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_opening(tmp_path_factory.mktemp("opening") / "opening.pt.trace.json")


@pytest.fixture(scope="module")
def opening(server: Server, opening_path: Path) -> str:
    return str(server.upload(opening_path)["id"])


def address(server: Server, trace: str, query: str = "") -> str:
    return f"{server.url}/api/v1/traces/{trace}/perfetto{query}"


def expect_visible(page: Page, start: int, end: int) -> None:
    """Assert that the timeline shows a span of the engine's time, in ns."""
    page.wait_for_function(f"([start, end]) => {{ const [a, b] = ({VISIBLE})(); return a === start && b === end; }}",
                           arg=[start, end])  # fmt: skip


def expect_mark(viewer: Viewer, mark: int) -> None:
    """Assert that the details of the slice with that mark are shown, and its track is visible."""
    expect(viewer.details()).to_contain_text(re.compile(rf"args\.mark[a-z_\s]*{mark}(\D|$)"))


def position_of(opening_path: Path, **wanted: Any) -> int:
    events = json.loads(opening_path.read_text())["traceEvents"]
    return next(at for at, entry in enumerate(events) if all(entry.get(key) == value for key, value in wanted.items()))


def test_link_to_a_step_opens_a_long_trace_at_the_step(server: Server, page: Page, opening: str) -> None:
    viewer = Viewer.open(page, address(server, opening, "?steps=3"))
    expect_visible(page, 970_000, 2_030_000)
    page.reload()
    viewer.expect_tracks()
    expect_visible(page, 970_000, 2_030_000)


def test_link_to_a_window_opens_at_the_window_despite_a_longer_slice(server: Server, page: Page, opening: str) -> None:
    Viewer.open(page, address(server, opening, "?start_ns=1200000&end_ns=1300000&relative=true"))
    start, end = page.evaluate("[Number(app.trace.traceInfo.start), Number(app.trace.traceInfo.end)]")
    assert (start, end) == (0, 5_000_000)  # of the frame around it
    expect_visible(page, 1_197_000, 1_303_000)


def test_button_of_the_page_opens_at_its_step(server: Server, page: Page, opening: str) -> None:
    page.goto(f"{server.url}/traces/{opening}")
    unfold(page, "contents")
    with page.context.expect_page() as opened:
        page.get_by_test_id("trace-steps").get_by_role("link", name="Open step 4 in Perfetto").click()
    Viewer(opened.value).expect_tracks()
    expect_visible(opened.value, 2_076_000, 2_924_000)


@pytest.mark.parametrize("nth", [0, 1, 3])
def test_position_selects_among_equal_slices(
    server: Server, page: Page, opening: str, opening_path: Path, nth: int
) -> None:
    events = json.loads(opening_path.read_text())["traceEvents"]
    first = position_of(opening_path, name="alike", ts=events[3]["ts"] + 300)
    viewer = Viewer.open(page, address(server, opening, f"?slice=position:{first + nth}"))
    expect_mark(viewer, first + nth)
    expect(viewer.track("thread 11").first).to_be_in_viewport()  # that of process 10; process 12 has one, too
    expect_visible(page, 1_125_000, 1_325_000)


def test_name_and_time_select_the_slice(server: Server, page: Page, opening: str, opening_path: Path) -> None:
    position = position_of(opening_path, name="later")
    viewer = Viewer.open(page, address(server, opening, f"?slice=at:{4_458_676_420_999_500}:later"))
    expect_mark(viewer, position)
    page.reload()
    viewer.expect_tracks()
    expect_mark(viewer, position)


@pytest.mark.parametrize("query", ["", "&args=essential"])
def test_sql_id_selects_the_slice(server: Server, page: Page, opening: str, query: str) -> None:
    [[number, ts, dur]] = server.rows(opening, "select id, ts, dur from slice where name = 'later'")
    assert isinstance(ts, int)
    assert isinstance(dur, int)
    viewer = Viewer.open(page, address(server, opening, f"?slice=id:{number}{query}"))
    expect(viewer.details()).to_contain_text("later")
    expect(viewer.details()).to_contain_text(f"slice[{number}]")
    expect_visible(page, ts - 30_000, 5_019_500)


def test_slice_is_selected_within_a_selection(server: Server, page: Page, opening: str, opening_path: Path) -> None:
    position = position_of(opening_path, name="ProfilerStep#4")
    viewer = Viewer.open(page, address(server, opening, f"?steps=4&slice=position:{position}"))
    expect_mark(viewer, position)


def test_unknown_sql_id_shows_an_error_and_the_trace_opens(server: Server, page: Page, opening: str) -> None:
    [[slices]] = server.rows(opening, "select count(*) from slice")
    page.goto(address(server, opening, f"?slice=id:{slices}"))
    viewer = Viewer(page)
    expect(viewer.notice).to_contain_text(f"No slice has the id {slices}: there are {slices} here, with ids from 0 on.")
    viewer.notice.get_by_role("button", name="Close").click()
    viewer.expect_tracks()


@pytest.mark.parametrize("end", ["", "/", "/#", "/#!", "/#!/", "/#elsewhere", "/?visStart=970000&visEnd=2030000"])
def test_address_without_a_ui_page_opens_the_trace(server: Server, page: Page, opening: str, end: str) -> None:
    trace: list[str] = []
    page.on("request", lambda request: trace.append(request.url))
    Viewer.open(page, f"{server.url}/perfetto/{opening}{end}")
    expect(page).to_have_url(re.compile(r"#!/viewer\b"))
    assert not [url for url in trace if "vizviewer_info" in url or "localtrace" in url]
    if "visStart" in end:
        expect_visible(page, 970_000, 2_030_000)


def test_address_that_loses_its_ui_page_returns_to_the_trace(server: Server, page: Page, opening: str) -> None:
    viewer = Viewer.open(page, f"{server.url}/perfetto/{opening}/#!/info")
    page.evaluate("location.hash = ''")
    expect(page).to_have_url(re.compile(r"#!/viewer\b"))
    viewer.expect_tracks()
    page.goto("about:blank")
    page.go_back()
    viewer.expect_tracks()

"""Pages in a real browser: what people wait for from a ready trace to its slices in Perfetto, and the page of a run."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.bench.figures import Row, announce, timed
from tests.server import Server
from tests.web.conftest import CHROMIUM, SWITCHES
from tests.web.viewer import Viewer

PAGE = "page: "
_BARS = "[data-testid=chart-verdict]"
_ADVICE = ":is([data-testid=advice], [data-testid=no-advice])"
PARTS = {
    f"{PAGE}overview of the trace": "[data-testid=overview-canvas][data-drawn]",
    f"{PAGE}where the time goes": _BARS,
    f"{PAGE}what to try first": _ADVICE,
}
"""Steps of the page of a trace, with the element that ends each."""
RUN_PARTS = (_BARS, "[data-testid=chart-run-steps]", _ADVICE)
ZOOM, PERFETTO = f"{PAGE}zoom or pan, slowest of {{}}", f"{PAGE}1 % window to slices in Perfetto"
SCREENS = {"": f"{PAGE}whole trace in Perfetto", "all": f"{PAGE}the same, all arguments"}
"""Steps from the link of a trace without an engine to its slices, by the arguments that the link names."""
SELECTED = f"{PAGE}a slice's arguments in Perfetto"
RUN = f"{PAGE}run of the ranks"
ZOOMS = 10
TIMEOUT_MS = 600_000

# Zoom or move by a wheel event; return the milliseconds until the canvas shows data fine enough for the visible range.
_WHEEL = """(canvas, [deltaX, deltaY]) => new Promise((resolve) => {
  const { left, top, width } = canvas.getBoundingClientRect();
  const place = { clientX: left + width * 0.6, clientY: top + 100, bubbles: true, cancelable: true };
  const start = performance.now();
  canvas.dispatchEvent(new WheelEvent("wheel", { ...place, deltaX, deltaY }));
  const look = () => {
    const { asked, frame } = canvas.overview;
    const isDrawn = canvas.dataset.drawn === `${frame.from}/${frame.to}`;
    if (asked === null && isDrawn && canvas.overview.suffices(frame)) resolve(performance.now() - start);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""


@contextmanager
def opened_page() -> Iterator[Page | None]:
    """A tab of a new Chromium; None if Chromium is missing."""
    if CHROMIUM is None:
        sys.stdout.write("Chromium is missing, so no page is measured\n")
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(TIMEOUT_MS)
        yield page
        browser.close()


def measure_pages(server: Server, trace_id: str, forget: Callable[[], None]) -> list[Row]:
    """Measure the page of a trace that no process has read yet, its overview, and Perfetto on a window of it.

    Args:
        server: the server.
        trace_id: the trace.
        forget: replaces the analysis process by one that has not read the trace.
    """
    with opened_page() as page:
        if page is None:
            return []
        rows = []
        for step, selector in PARTS.items():
            forget()
            announce(step)
            rows.append(Row(step, _load(page, f"{server.url}/traces/{trace_id}", selector)))
        announce(f"{PAGE}zoom and Perfetto")
        canvas = page.get_by_test_id("overview-canvas")
        canvas.scroll_into_view_if_needed()
        page.wait_for_load_state("networkidle")  # the analyses of the page are answered
        wheels = [(0, -300)] * ZOOMS + [(200, 0)] * ZOOMS + [(0, 300)] * ZOOMS
        milliseconds = [float(canvas.evaluate(_WHEEL, wheel)) for wheel in wheels]
        rows.append(Row(ZOOM.format(len(wheels)), max(milliseconds) / 1000))
        rows.append(Row(PERFETTO, _open_window(page, 0.01)))
    return rows


def measure_screen(server: Server, trace: dict[str, Any], args: str) -> list[Row]:
    """Measure Perfetto on a whole trace that no engine has loaded: until it draws slices, and one slice's arguments."""
    rows: list[Row] = []
    with opened_page() as page:
        if page:
            viewer, query = Viewer(page), f"?args={args}" if args else ""
            with timed(SCREENS[args], server, rows):
                page.goto(f"{server.url}/api/v1/traces/{trace['id']}/perfetto{query}", wait_until="commit")
                viewer.expect_any_drawn()
            if not args:
                page.wait_for_function("!app.isLoadingTrace && !app.trace.engine.numRequestsPending")
                with timed(SELECTED, server, rows):
                    viewer.select(trace["events"]["kept"] // 2)
    return rows


def measure_run(server: Server, group: str) -> list[Row]:
    """Measure the page of a run until it shows the time of all ranks, their steps and the advice."""
    with opened_page() as page:
        if page is None:
            return []
        announce(RUN)
        return [Row(RUN, _load(page, f"{server.url}/groups/{group}", *RUN_PARTS))]


def _load(page: Page, url: str, *selectors: str) -> float:
    """Open an address, and return the seconds until each selector has an element."""
    page.goto("about:blank")
    start = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(
        "(selectors) => selectors.every((selector) => document.querySelector(selector))", arg=selectors
    )
    return time.perf_counter() - start


def _open_window(page: Page, share: float) -> float:
    """Drag a window of that share of the visible range, and return the seconds from the click to its slices."""
    page.get_by_test_id("overview-whole").click()
    canvas = page.get_by_test_id("overview-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    left = box["x"] + min(190, box["width"] * 0.28)
    start = left + (box["x"] + box["width"] - left) * 0.5
    page.mouse.move(start, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(start + (box["x"] + box["width"] - left) * share, box["y"] + 100, steps=3)
    page.mouse.up()
    began = time.perf_counter()
    with page.context.expect_page() as opened:
        page.get_by_test_id("overview-perfetto").click()
    tab = opened.value
    tab.set_default_timeout(TIMEOUT_MS)
    Viewer(tab).expect_any_drawn()
    return time.perf_counter() - began

"""Page object of the Perfetto UI."""

import re

from playwright.sync_api import Locator, Page, expect

DIALOGS = (".pf-modal-backdrop", "text=Oops", "text=YES, use loaded trace")

_POLLING_MS = 100  # between looks at the canvas; with a look at each frame, the UI takes a quarter longer

_GROUPS = """() => app.trace.workspace.children.map((group) => [
  group.name, group.expanded, group.flatTracksOrdered.filter((node) => !node.headless).map((node) => node.name),
])"""

_MINIMAP = """() => app.trace.minimap.getLoad().map((row) =>
  row.map(({ ts, dur, load }) => [Number(ts), Number(dur), load]))"""

# The share of a track's pixel columns in which the UI has drawn a colour other than grey, by the track's title.
_DRAWN = """(title) => {
  const track = [...document.querySelectorAll('.pf-track')].find(
    (node) => node.querySelector('.pf-track__title-popup')?.textContent === title,
  );
  const area = track?.querySelector('.pf-track__canvas').getBoundingClientRect();
  const canvas = [...document.querySelectorAll('canvas')].at(-1);
  const { left, top, width } = canvas.getBoundingClientRect();
  if (!area) return 0;
  const scale = canvas.width / width;
  const box = [area.left - left, area.top - top, area.width, area.height].map((length) => Math.round(length * scale));
  const { data, width: columns } = canvas.getContext('2d').getImageData(...box);
  const drawn = new Set();
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue] = data.subarray(at, at + 3);
    if (Math.max(red, green, blue) - Math.min(red, green, blue) > 24) drawn.add((at / 4) % columns);
  }
  return drawn.size / columns;
}"""


class Viewer:
    """Tab with the UI on a trace.

    Args:
        page: the tab.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.notice = page.get_by_test_id("perfetto-notice")

    @classmethod
    def open(cls, page: Page, url: str) -> "Viewer":
        """Open the UI of a trace in a tab, and wait for its tracks."""
        page.goto(url)
        viewer = cls(page)
        viewer.expect_tracks()
        return viewer

    def expect_tracks(self) -> None:
        """Assert that the trace is loaded without a dialog."""
        self.page.wait_for_function("window.app?.trace && !app.isLoadingTrace")
        expect(self.page.locator(".pf-track").first).to_be_visible()
        expect(self.notice).to_have_count(0)
        self.expect_no_dialog()

    def expect_no_dialog(self) -> None:
        """Assert that no dialog covers the page."""
        for dialog in DIALOGS:
            expect(self.page.locator(dialog)).to_have_count(0)

    def track(self, title: str) -> Locator:
        """Locate the head of a track by its title; the UI appends an id to the name, which may end in a space."""
        words = r"\s+".join(map(re.escape, title.split()))
        popup = self.page.locator(".pf-track__title-popup", has_text=re.compile(f"^{words}$"))
        return self.page.locator(".pf-track__title").filter(has=popup)

    def click(self, group: str) -> None:
        """Expand or collapse a process."""
        self.track(group).click()

    def groups(self) -> dict[str, tuple[bool, list[str]]]:
        """Return the groups of the timeline in order: name, expansion, and the titles of the tracks."""
        groups: list[tuple[str, bool, list[str]]] = self.page.evaluate(_GROUPS)
        return {title: (is_open, tracks) for title, is_open, tracks in groups}

    def minimap(self) -> list[list[tuple[int, int, float]]]:
        """Wait until the minimap is filled, and return the stretches of each row: start, duration, share that is busy.

        Times are in ns.
        """
        self.page.wait_for_function("app.trace.minimap.getLoad().length")
        rows: list[list[list[float]]] = self.page.evaluate(_MINIMAP)
        return [[(int(start), int(duration), load) for start, duration, load in row] for row in rows]

    def queries(self, text: str) -> list[str]:
        """Return the queries that the UI has sent and that contain a text."""
        sent: list[str] = self.page.evaluate("app.trace.engine.queryLog.map(({ query }) => query)")
        return [query for query in sent if text in query]

    def expect_drawn(self, title: str, share: float) -> None:
        """Wait until the UI has drawn at least that share of a track's width."""
        drawn = f"([title, share]) => ({_DRAWN})(title) >= share"
        self.page.wait_for_function(drawn, arg=[title, share], polling=_POLLING_MS)

    def expect_any_drawn(self) -> None:
        """Wait until the UI has drawn slices in some track."""
        titles = "[...document.querySelectorAll('.pf-track__title-popup')].map((node) => node.textContent)"
        drawn = f"window.app?.trace && {titles}.some((title) => ({_DRAWN})(title) > 0)"
        self.page.wait_for_function(drawn, polling=_POLLING_MS)

    def search(self, text: str) -> int:
        """Search slices by name, go to the first one, and return their number."""
        box = self.page.locator(".pf-omnibox input")
        box.fill(text)
        place = self.page.locator(".pf-omnibox__stepthrough-current")
        expect(place).to_have_text(re.compile(r"^0 / [1-9]\d*$"))
        box.press("Enter")
        expect(place).to_have_text(re.compile(r"^1 / "))
        return int(place.inner_text().split("/")[1])

    def query(self, sql: str) -> None:
        """Run SQL as the UI's page for queries does."""
        self.page.evaluate("async (sql) => { await app.trace.engine.query(sql); }", sql)

    def select(self, number: int) -> None:
        """Select a slice by its id in the engine, and wait for its details."""
        self.page.evaluate("id => app.trace.selection.selectSqlEvent('slice', id)", number)
        expect(self.details()).to_contain_text(f"slice[{number}]")

    def details(self) -> Locator:
        """Locate the panel below, which shows the selected slice."""
        return self.page.locator(".pf-details-shell")

    def complaints(self) -> list[str]:
        """Return the errors and losses that the UI reports: its flag, and parts of its statistics page."""
        flags = self.page.locator(".pf-topbar__error-box button").all()
        answer = [str(flag.get_attribute("title")) for flag in flags]
        self.page.goto(f"{self.page.url.split('#')[0]}#!/info")
        expect(self.page.get_by_role("heading", name="Debugging stats")).to_be_visible()
        return answer + self.page.locator(".pf-trace-info-page__errors h2").all_inner_texts()

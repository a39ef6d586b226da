"""The Perfetto UI, as someone uses it."""

import re

from playwright.sync_api import Locator, Page, expect

DIALOGS = (".pf-modal-backdrop", "text=Oops", "text=YES, use loaded trace")


class Viewer:
    """A tab with the UI on a trace.

    Args:
        page: the tab.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.notice = page.get_by_test_id("perfetto-notice")

    @classmethod
    def open(cls, page: Page, url: str) -> "Viewer":
        """Lead a tab to a trace's UI, and wait until its tracks are there."""
        page.goto(url)
        viewer = cls(page)
        viewer.expect_tracks()
        return viewer

    def expect_tracks(self) -> None:
        """The trace is loaded, and nobody was asked anything."""
        self.page.wait_for_function("window.app?.trace && !app.isLoadingTrace")
        expect(self.page.locator(".pf-track").first).to_be_visible()
        expect(self.notice).to_have_count(0)
        self.expect_no_dialog()

    def expect_no_dialog(self) -> None:
        """Nothing lies over the page."""
        for dialog in DIALOGS:
            expect(self.page.locator(dialog)).to_have_count(0)

    def track(self, title: str) -> Locator:
        """The head of a track by its title, with the id that the UI sets behind a name, which may end in a space."""
        words = r"\s+".join(map(re.escape, title.split()))
        popup = self.page.locator(".pf-track__title-popup", has_text=re.compile(f"^{words}$"))
        return self.page.locator(".pf-track__title").filter(has=popup)

    def unfold(self, group: str) -> None:
        """Click a process open."""
        self.track(group).click()

    def search(self, text: str) -> int:
        """Look for slices by name, go to the first one, and return how many there are."""
        box = self.page.locator(".pf-omnibox input")
        box.fill(text)
        place = self.page.locator(".pf-omnibox__stepthrough-current")
        expect(place).to_have_text(re.compile(r"^0 / [1-9]\d*$"))
        box.press("Enter")
        expect(place).to_have_text(re.compile(r"^1 / "))
        return int(place.inner_text().split("/")[1])

    def details(self) -> Locator:
        """The panel below, which shows the selected slice."""
        return self.page.locator(".pf-details-shell")

    def complaints(self) -> list[str]:
        """What the UI tells of errors and losses: its flag on top, and parts of its page of statistics, left open."""
        flags = self.page.locator(".pf-topbar__error-box button").all()
        told = [str(flag.get_attribute("title")) for flag in flags]
        self.page.goto(f"{self.page.url.split('#')[0]}#!/info")
        expect(self.page.get_by_role("heading", name="Debugging stats")).to_be_visible()
        return told + self.page.locator(".pf-trace-info-page__errors h2").all_inner_texts()

"""The folded panels of a trace's page."""

from playwright.sync_api import Page, expect


def unfold(page: Page, *panels: str) -> None:
    """Open panels by their ids; an open one stays open."""
    for panel in panels:
        expect(page.locator(f"#{panel}")).to_be_visible()
        # A click would move the focus, from which Tab continues.
        page.locator(f"#{panel}").evaluate("panel => { panel.open = true; }")

"""The address of a page, as the browser has it: `page.url` learns of `history.replaceState` a moment later."""

from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page


def address_of(page: Page) -> str:
    """Return the address that the page has now."""
    return str(page.evaluate("location.href"))


def query_of(page: Page) -> dict[str, list[str]]:
    """Return the parameters in the address that the page has now."""
    return parse_qs(urlsplit(address_of(page)).query)

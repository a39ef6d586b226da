"""Measurements of pages: contrast, width, visible focus, and the rules of axe."""

from typing import Any, cast

from playwright.sync_api import Page

from tests.web.npm_scripts import AXE

# Every visible text that isn't disabled, with the contrast of its colour to its background (WCAG 2.2).
_CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], back) => [r, g, b].map((c, i) => c * a + back[i] * (1 - a));
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const own = rgba(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, behind(element.parentElement));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.data.trim();
    const unused = element.closest(":disabled, [aria-disabled='true'], .unseen, noscript, option");
    if (!text || unused || !element.checkVisibility({ visibilityProperty: true })) continue;
    const back = behind(element);
    const style = getComputedStyle(element);
    const large = parseFloat(style.fontSize) >= 24;
    found.push({ text: text.slice(0, 60), ratio: ratio(over(rgba(style.color), back), back), wanted: large ? 3 : 4.5 });
  }
  return found;
}"""

_FOCUSED = """() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const shown = element.type === "file" ? document.querySelector(`label[for="${element.id}"]`) : element;
  const style = getComputedStyle(shown);
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const box = shown.getBoundingClientRect();
  return {
    name: element.dataset.testid || element.id || element.textContent.trim() || element.tagName,
    outlined: outlined && box.width > 0 && box.top >= 0 && box.bottom <= innerHeight + 1,
  };
}"""


def faint_texts(page: Page) -> list[dict[str, Any]]:
    """Return the texts with a contrast below 4.5, or 3 for large ones."""
    texts = cast(list[dict[str, Any]], page.evaluate(_CONTRASTS))
    assert len(texts) > 10
    return [text for text in texts if text["ratio"] < text["wanted"]]


_AXE = """async () => {
  const { violations } = await axe.run({ resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`));
}"""


def serious_violations(page: Page) -> list[str]:
    """Return the rules of axe that the page breaks seriously, with the element and the reason of each."""
    page.evaluate(AXE.path.read_text())
    return cast(list[str], page.evaluate(_AXE))


def overhang(page: Page) -> int:
    """Return the pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def tab_through(page: Page) -> list[dict[str, Any]]:
    """Press Tab from the start of the page to its end; return the focused elements and whether the focus is visible."""
    stops: list[dict[str, Any]] = []
    while True:
        page.keyboard.press("Tab")
        stop = page.evaluate(_FOCUSED)
        if stop is None:
            return stops
        stops.append(stop)
        assert len(stops) < 300, "the focus goes round in circles"

"""A report as one HTML file without scripts, which needs no network."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from service.report.document import CODE, Bar, Bars, Cell, Report, Series
from service.report.units import readable

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
STYLE = (_HERE / "report.css").read_text()
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Policy of a report: its one style sheet, and nothing else."""
_WIDTH = 1000
"""Width of a drawing in its own units; the page stretches it."""


def as_html(report: Report) -> str:
    """Return a report as an HTML document."""
    return _environment().get_template("report.html").render(report=report, style=STYLE)


@dataclass(frozen=True)
class Part:
    """A part of a drawn bar, in units of the drawing; `title` has the exact length."""

    kind: str
    x: float
    width: float
    title: str


def parts_of(bars: Bars, bar: Bar) -> Sequence[Part]:
    """Return the parts of a bar; the longest bar fills the drawing."""
    longest = max(sum(other.lengths) for other in bars.bars) or 1
    parts, start = [], 0
    for series, length in zip(bars.series, bar.lengths, strict=True):
        if length > 0:
            share = readable(100 * length / sum(bar.lengths), "%")
            title = f"{series.label}: {readable(length, 'ns')} ({length:,} ns, {share})"
            x, end = _WIDTH * start / longest, _WIDTH * (start + length) / longest
            parts.append(Part(series.kind, round(x, 2), round(end - x, 2), title))
        start += length
    return parts


def used_series(bars: Bars) -> Sequence[Series]:
    """Return the series of which a bar has a part."""
    return [series for place, series in enumerate(bars.series) if any(bar.lengths[place] for bar in bars.bars)]


def text_of(value: Cell, unit: str | None) -> str:
    """Return a value as people read it."""
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else readable(value, None if unit == CODE else unit)


def exact(value: Cell, unit: str | None) -> str:
    """Return a number with all of its digits."""
    return f"{value:,} {unit or ''}".rstrip() if isinstance(value, int | float) else ""


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - few servers write reports

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(parts_of=parts_of, used_series=used_series, text_of=text_of, exact=exact, width=_WIDTH)
    environment.tests["number"] = lambda value: isinstance(value, int | float)
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment

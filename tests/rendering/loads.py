"""Loads of rendered traces into a real engine."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from service.cutting.source import Source
from service.engine.load_report import LoadReport
from service.engine.result import Cell
from service.engine.session import EngineLimits, Load, Session
from service.engine.trace_processor import provision
from service.engine.trace_processor.load_check import check_load
from service.engine.trace_processor.process import TraceProcessor
from service.jobs.children.encoding import decode, encode
from service.rendering.document import render
from service.rendering.render_report import RenderReport
from service.settings import Settings
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from tests.engine.conftest import all_rows

LIMITS = EngineLimits(load_timeout_s=30.0, stop_s=1.0, max_result_bytes=1 << 30, stall_s=20.0)

SLICES = """
SELECT place.pid, place.tid, slice.ts + base_ns, slice.dur, slice.name
FROM slice JOIN thread_track ON thread_track.id = track_id JOIN _torch_track AS place USING (utid), _torch_facts
"""

Row = tuple[Cell, ...]


@dataclass
class LoadResult:
    """A rendered trace, the report on its load, and the rows of queries on it."""

    document: bytes
    rendered: RenderReport
    report: LoadReport
    answers: list[list[Row]]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of slices, flows and counters in the engine."""
        slices, flows, counters = (
            count.engine for count in (self.report.slices, self.report.flows, self.report.counters)
        )
        return slices, flows, counters


def load(trace: Source, *statements: str, args: Args = "all", selection: Mapping[str, Any] | None = None) -> LoadResult:
    """Load a trace, or a selection of it, and run SQL on it."""
    return asyncio.run(_load(trace, statements, args, selection))


async def _load(
    trace: Source, statements: Iterable[str], args: Args, selection: Mapping[str, Any] | None
) -> LoadResult:
    rendered = RenderReport()
    chosen = None if selection is None else Selection.parsed(selection)
    pieces = [*render(trace.columns, trace.summary, rendered, selection=chosen, args=args)]
    reports: list[LoadReport] = []

    async def source() -> AsyncGenerator[bytes]:
        for piece in pieces:
            yield piece

    async def check(session: Session) -> None:
        reports.append(await check_load(session, decode(RenderReport, encode(rendered))))

    binary = provision.engine_path(Settings())
    document = Load("trace", source, args=args, after_load=check)
    session = Session(document, lambda _: TraceProcessor.start(binary), LIMITS)
    try:
        assert await session.settled()
        answers = [await all_rows(session.query(sql, limit=None, timeout_s=30)) for sql in statements]
    finally:
        await session.close()
    return LoadResult(b"".join(pieces), rendered, reports[0], answers)


# -- expectations -----------------------------------------------------------------------------------------------


def nanoseconds(microseconds: Decimal | int) -> int:
    """Return a time in ns, rounded down as in the columns."""
    return int((Decimal(microseconds) * 1000).to_integral_value(ROUND_FLOOR))


def slices_of(events: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    """Return the slices of a document as rows of `SLICES`; times are integers or `Decimal`."""
    return Counter(
        (
            str(event["pid"]),
            str(event["tid"]),
            nanoseconds(event["ts"]),
            nanoseconds(event["dur"]),
            event["name"] or "[No name]",  # the engine's name for an empty name
        )
        for event in events
        if event["ph"] == "X"
    )


def flat(args: Any) -> dict[str, Any]:
    """Return arguments as the engine has them; see `readable`."""
    named = args if isinstance(args, dict) else {}
    return {f"args.{name}": readable(value) for name, value in named.items() if value is not None}


def readable(value: Any) -> Any:
    """Return an argument as a number, a string, or what its JSON text says; the engine has lists as text."""
    match value:
        case bool():
            return int(value)
        case Decimal():
            return float(value)
        case int() if abs(value) >= 1 << 63:
            return str(value)
        case str() if value[:1] in {"[", "{"}:
            with suppress(ValueError):
                return json.loads(value, parse_float=Decimal)
    return value

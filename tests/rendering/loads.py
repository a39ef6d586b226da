"""A trace's rendering, loaded by a real engine: what the engine says of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import orjson

from service.cutting.source import Source
from service.engine import provision
from service.engine.account import take_account
from service.engine.process import EngineProcess
from service.engine.result import Cell
from service.engine.session import EngineLimits, Load, Session
from service.rendering.account import Rendered
from service.rendering.document import rendering
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
class Loaded:
    """What was rendered of a trace, the account of its load, and the answers to what was asked."""

    document: bytes
    rendered: Rendered
    account: dict[str, Any]
    answers: list[list[Row]]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Slices, flows and counters in the engine."""
        slices, flows, counters = (self.account[kind]["engine"] for kind in ("slices", "flows", "counters"))
        return slices, flows, counters


def loaded(trace: Source, *statements: str, args: Args = "all", selection: Mapping[str, Any] | None = None) -> Loaded:
    """Load a trace, or a selection of it, and ask about it."""
    return asyncio.run(_loaded(trace, statements, args, selection))


async def _loaded(trace: Source, statements: Iterable[str], args: Args, selection: Mapping[str, Any] | None) -> Loaded:
    rendered = Rendered()
    chosen = None if selection is None else Selection.parsed(selection)
    pieces = [*rendering(trace.columns, trace.summary, rendered, selection=chosen, args=args)]
    accounts: list[dict[str, Any]] = []

    async def source() -> AsyncGenerator[bytes]:
        for piece in pieces:
            yield piece

    async def take(session: Session) -> None:
        accounts.append(await take_account(session, orjson.loads(orjson.dumps(rendered))))

    binary = provision.engine_path(Settings())
    session = Session(Load("trace", source, args=args, after_load=take), lambda _: EngineProcess.start(binary), LIMITS)
    try:
        assert await session.settled()
        answers = [await all_rows(session.query(one, limit=None, timeout_s=30)) for one in statements]
    finally:
        await session.close()
    return Loaded(b"".join(pieces), rendered, accounts[0], answers)


# -- what it should be --------------------------------------------------------------------------------------------


def nanoseconds(microseconds: Decimal | int) -> int:
    """A time as columns have it."""
    return int((Decimal(microseconds) * 1000).to_integral_value(ROUND_FLOOR))


def slices_of(events: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    """The slices of a document, as `SLICES` tells them; times are integers or `Decimal`."""
    return Counter(
        (
            str(event["pid"]),
            str(event["tid"]),
            nanoseconds(event["ts"]),
            nanoseconds(event["dur"]),
            event["name"] or "[No name]",  # as the engine calls it
        )
        for event in events
        if event["ph"] == "X"
    )


def flat(value: Any, key: str = "args") -> dict[str, Any]:
    """Arguments as the engine has them: each under the way to it, integers that are too large as texts."""
    match value:
        case dict():
            parts = {f"{key}.{name}": item for name, item in value.items()}
        case list():
            parts = {f"{key}[{place}]": item for place, item in enumerate(value)}
        case None:
            return {}
        case Decimal():
            return {key: float(value)}
        case bool():
            return {key: int(value)}
        case int() if abs(value) >= 1 << 63:
            return {key: str(value)}
        case _:
            return {key: value}
    return {way: found for name, item in parts.items() for way, found in flat(item, name).items()}

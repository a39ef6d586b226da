"""Lookup of a slice of an engine by its id."""

from collections.abc import Hashable

from service.engine.result import Cell
from service.engine.session import Session
from service.rendering.view import EngineSlice, not_one_event
from service.trace.errors import UnknownSlice

_PROPERTIES = """
SELECT s.ts, s.dur, s.name, t.pid, t.tid
FROM slice AS s LEFT JOIN thread_track AS tt ON tt.id = s.track_id LEFT JOIN _torch_track AS t USING (utid)
WHERE s.id = {}
"""
_COUNT = "SELECT count(*) FROM slice"
_ALIKE = """
SELECT count(*), sum(s.id < {})
FROM slice AS s JOIN thread_track AS tt ON tt.id = s.track_id JOIN _torch_track AS t USING (utid)
WHERE s.ts = {} AND s.dur = {} AND s.name = {} AND t.pid = {} AND t.tid = {}
"""


async def slice_of(session: Session, number: int, client: Hashable, timeout_s: float) -> tuple[EngineSlice, int]:
    """Return the slice of an id, and the number of slices that share its properties, itself included.

    Args:
        session: a session whose engine has loaded columns.
        number: the id.
        client: the client that asks; see `Session.query`.
        timeout_s: seconds until each of the two queries is stopped.

    Raises:
        UnknownSlice: there is no such slice, or it is on no thread.
        EngineError: the engine can't answer.
    """

    async def first_row(sql: str) -> tuple[Cell, ...] | None:
        result = session.query(sql, limit=1, timeout_s=timeout_s, client=client, owner=client)
        try:
            await result.complete()
            rows = [row async for batch in result.follow() for row in zip(*batch.columns(), strict=True)]
            return rows[0] if rows else None
        finally:
            result.close()

    properties = await first_row(_PROPERTIES.format(number))
    if properties is None:
        slices = int((await first_row(_COUNT) or (0,))[0] or 0)
        raise UnknownSlice(
            f"No slice of the engine has the id {number}: it has {slices} slices, and ids count from 0.", slices=slices
        )
    ts, dur, name, pid, tid = properties
    if pid is None:
        raise not_one_event(str(name))
    alike = await first_row(_ALIKE.format(number, ts, dur, *map(_quoted, (name, pid, tid))))
    count, before = (int(cell or 0) for cell in alike or (0, 0))
    return EngineSlice(int(ts or 0), int(dur or 0), str(name), str(pid), str(tid), nth=before), count


def _quoted(cell: Cell) -> str:
    return "'" + str(cell).replace("'", "''") + "'"

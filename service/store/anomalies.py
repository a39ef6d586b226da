"""Anomalies of a trace that are not errors: the number and the first examples of each, found in its columns."""

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from service.trace.health import EXAMPLES_MAX, Health
from service.trace.summary import LAUNCH_PATTERN, Summary

APART_NS = 60_000_000_000
"""Minimum gap in ns between outlier events and all other events."""

EPOCH_NS = 1_262_304_000_000_000_000
"""The year 2010 in ns since 1970. Profiles are not older, so a clock with smaller times does not count from 1970."""

_TALLIED = """
SELECT
    coalesce(sum(before_zero), 0)::BIGINT, coalesce(sum(at_zero), 0)::BIGINT, coalesce(sum(timed), 0)::BIGINT,
    coalesce(sum(events - timed) FILTER (ph <> 'M'), 0)::BIGINT,
    coalesce(sum(events - lasting) FILTER (ph = 'X'), 0)::BIGINT,
    coalesce(sum(negative), 0)::BIGINT
FROM tally
"""
_WORK = "SELECT DISTINCT cat FROM tally WHERE is_work"
_LAUNCHES = f"SELECT DISTINCT cat FROM tally WHERE regexp_full_match(cat, '{LAUNCH_PATTERN}')"  # noqa: S608 - made of constants
_UNLINKED = """
events ANTI JOIN (SELECT correlation FROM events WHERE cat IN $launches AND correlation NOTNULL) USING (correlation)
WHERE cat IN $work
"""
_TIMES = "SELECT ts_ns FROM events WHERE row BETWEEN ? AND ? ORDER BY ts_ns"
_EXAMPLE = "concat_ws(', ', left(coalesce(name, cat, ph), 60), 'ts ' || ts_ns || ' ns', 'dur ' || dur_ns || ' ns')"

Times = npt.NDArray[np.int64]


def note_anomalies(
    db: duckdb.DuckDBPyConnection, envelope: Mapping[str, Any], summary: Summary, health: Health
) -> None:
    """Find the anomalies of a trace, and add them to its health.

    Args:
        db: a connection with the view ``events`` and the table ``tally`` of the census.
        envelope: the document's members except for its events.
        summary: the summary so far.
        health: the health to add to.
    """

    def note(code: str, count: int, rows: str, **values: Any) -> None:
        if count:
            health.add(code, count=count)
            examples = f"SELECT {_EXAMPLE} FROM {rows} ORDER BY position LIMIT {EXAMPLES_MAX}"  # noqa: S608 - made of constants
            for (text,) in db.execute(examples, values).fetchall():
                health.add_example(code, text=text)

    ((before_zero, at_zero, timed, untimed, unlasting, negative),) = db.execute(_TALLIED).fetchall()
    note("no_time", untimed, "events WHERE ts_ns IS NULL AND ph IS DISTINCT FROM 'M'")
    note("no_duration", unlasting, "events WHERE dur_ns IS NULL AND ph = 'X'")
    note("negative_times", before_zero, "events WHERE ts_ns < 0")
    note("negative_durations", negative, "events WHERE dur_ns < 0")

    rows, latest = range(before_zero + at_zero, timed), 0
    if rows:
        early, late = _edges(db, rows)
        latest = int(late[0])
        if early[0] > APART_NS:
            note("zero_times", at_zero, "events WHERE ts_ns = 0")
        before, behind = _far(early, late)
        far = f"events WHERE ts_ns > 0 AND row NOT BETWEEN {rows[before]} AND {rows[-1 - behind]}"
        note("outlier_times", before + behind, far)

    work, launches = ([cat for (cat,) in db.execute(sql).fetchall()] for sql in (_WORK, _LAUNCHES))
    if work:
        cats = {"work": work, "launches": launches}
        ((unlinked,),) = db.execute(f"SELECT count(*) FROM {_UNLINKED}", cats).fetchall()  # noqa: S608 - made of constants
        note("unlinked_kernels", unlinked, _UNLINKED, **cats)

    if summary.rank is None and not summary.ranks:
        health.add("unknown_rank")
    if summary.base_ns is None:
        base = envelope.get("baseTimeNanoseconds")
        if base is not None or (timed and latest < EPOCH_NS):
            shown = base is not None and not isinstance(base, dict | list)
            health.add("unknown_base", text=f"baseTimeNanoseconds: {base}" if shown else None)


def _edges(db: duckdb.DuckDBPyConnection, rows: range) -> tuple[Times, Times]:
    """Return the sorted starts of about the first and the last hundredth of the events at `rows`."""
    edge = min(len(rows) // 100 + 1, (len(rows) - 1) // 2)
    parts = (rows[: edge + 1], rows[-1 - edge :])
    early, late = (db.execute(_TIMES, [part[0], part[-1]]).fetchnumpy()["ts_ns"] for part in parts)
    return early, late


def _far(early: Times, late: Times) -> tuple[int, int]:
    """Return the numbers of outliers at the start and at the end.

    The distance of an outlier from the other events exceeds both `APART_NS` and the time between the two edges.
    """
    apart = max(APART_NS, late[0] - early[-1])
    before, behind = (np.flatnonzero(np.diff(part) > apart) for part in (early, late))
    return (
        int(before[-1]) + 1 if len(before) else 0,
        len(late) - 1 - int(behind[0]) if len(behind) else 0,
    )

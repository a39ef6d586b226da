"""The account of a load: what the trace's columns told, held against what the engine now has.

What the document held comes from its rendering (`service.rendering.account.Rendered`, as JSON); no event that the
engine can show may be missing, and each complaint of its importer is told with what it means.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from service.engine.names import LISTED
from service.engine.result import Cell
from service.engine.session import Session

_COUNTED = """
SELECT (SELECT count(*) FROM slice), (SELECT count(*) FROM flow), (SELECT count(*) FROM counter),
    (SELECT count(*) FROM slice WHERE dur < 0)
"""
_COMPLAINTS = """
SELECT name, value, severity, description FROM stats
WHERE value > 0 AND (severity <> 'info' OR name GLOB 'flow_*') ORDER BY name
"""
_SLICES = ("X", "i", "I", "R", "B", "b", "n")
_BEGINS, _ENDS = ("B", "b"), ("E", "e")  # an end is no slice of its own
_ARROWS = ("t", "f")  # each is where one from the event before it arrives
_ROWS = 500  # of a table, in one statement
_GROUP_ROWS = 20  # likewise, each with a list of ranks
_TRACK_COLUMNS = "utid INTEGER, pid TEXT, tid TEXT, rank INTEGER, device INTEGER, stream INTEGER, lane INTEGER"
_GROUP_COLUMNS = "rank INTEGER, name TEXT, group_size INTEGER, description TEXT, ranks TEXT, is_assumed INTEGER"
_COMPLAINTS_IN_WORDS = {
    "flow_duplicate_id": "An arrow begins under the id of another: ends under that id belong to the first.",
    "flow_end_without_start": "An arrow ends that has not begun.",
    "flow_invalid_id": "An end of an arrow has no id.",
    "flow_no_enclosing_slice": "An arrow begins or ends where no slice is.",
    "flow_step_without_start": "An arrow goes on that has not begun.",
    "misplaced_end_event": "Slices end in another order than they began.",
    "slice_drop_overlapping_complete_event": "A slice overlaps another of its thread without nesting: it is dropped.",
}
"""Of complaints that the engine itself has no words for, what they mean."""

_NOTES = {
    "untimed": "Events with no time that is a number can't be shown.",
    "loose_ends": "Ends of arrows that no event begins: there is nothing to draw.",
    "moved": "Events that begin or last beyond 52 days are shown at the edge of that.",
    "negative": "Slices that end before they begin are shown with no duration.",
    "no_numbers": "Values of counters that are no finite numbers are left out.",
}


async def take_account(session: Session, rendered: Mapping[str, Any]) -> dict[str, Any]:
    """Tell an engine whose tracks it shows, and how many events of the trace it has.

    Args:
        session: whose engine has just loaded.
        rendered: what its document held.

    Returns:
        ``complete``, whether nothing is missing; ``events`` that can be shown, and how many are ``shown``; ``slices``,
        ``flows`` and ``counters``, each as ``expected`` and ``engine``; ``base_ns``, the trace's time at the engine's
        0; ``lanes`` beyond the first of their tracks; ``notes`` on what is shown otherwise than it came or not at all;
        and ``stats``, the complaints of the engine's importer.
    """
    for statement in statements(rendered, session.load.args):
        (await session.run(statement)).close()
    session.names.protect([str(name) async for (name,) in _rows(session, LISTED)])
    [(slices, flows, counters, endless)] = [row async for row in _rows(session, _COUNTED)]
    stats = [
        dict(zip(("name", "value", "severity", "detail"), row, strict=True))
        async for row in _rows(session, _COMPLAINTS)
    ]
    for stat in stats:
        stat["detail"] = stat["detail"] or _COMPLAINTS_IN_WORDS.get(str(stat["name"]), "trace_processor does not say.")
    phases: Mapping[str, int] = rendered["phases"]
    counts = {
        "slices": {"expected": sum(phases.get(phase, 0) for phase in _SLICES), "engine": slices},
        "flows": {"expected": sum(phases.get(phase, 0) for phase in _ARROWS), "engine": flows},
        "counters": {"expected": rendered["numbers"], "engine": counters},
    }
    missing = sum(max(count["expected"] - int(count["engine"] or 0), 0) for count in counts.values())
    ended = sum(phases.get(phase, 0) for phase in _BEGINS) - int(endless or 0)
    unbegun = max(sum(phases.get(phase, 0) for phase in _ENDS) - ended, 0)
    missing += unbegun
    events = rendered["events"] - rendered["loose_ends"]
    notes = [
        {"code": code, "count": rendered[code], "detail": detail} for code, detail in _NOTES.items() if rendered[code]
    ]
    if unbegun:
        notes.append({"code": "unbegun", "count": unbegun, "detail": "Ends of slices that nothing begins."})
    if (undrawn := counts["flows"]["expected"] - int(flows or 0)) > 0:
        notes.append(
            {"code": "undrawn_flows", "count": undrawn, "detail": "Arrows that begin or end where no slice is."}
        )
    if rendered["as_instants"]:
        told = ", ".join(f"{count} of phase {phase!r}" for phase, count in sorted(rendered["as_instants"].items()))
        count = sum(rendered["as_instants"].values())
        detail = f"Events of phases that the engine passes over are shown as instants: {told}."
        notes.append({"code": "as_instants", "count": count, "detail": detail})
    return {
        "complete": not missing,
        "events": events,
        "shown": events - rendered["untimed"] - missing,
        **counts,
        "base_ns": rendered["base_ns"],
        "lanes": sum(track["lane"] > 1 for track in rendered["tracks"]),
        "notes": notes,
        "stats": stats,
    }


async def _rows(session: Session, sql: str) -> AsyncIterator[tuple[Cell, ...]]:
    result = await session.run(sql)
    try:
        async for batch in result.follow():
            for row in zip(*batch.columns(), strict=True):
                yield row
    finally:
        result.close()


def statements(rendered: Mapping[str, Any], args: str) -> list[str]:
    """The SQL that makes the tables which the package `torch` reads; see `service.engine.sql`."""
    tracks = rendered["tracks"]
    facts = f"{rendered['base_ns']}, {_quoted(args)}, {_quoted(rendered['external_ids'])}"
    made = [
        "CREATE TABLE _torch_facts(base_ns INTEGER, args TEXT, external_ids TEXT)",
        f"INSERT INTO _torch_facts VALUES ({facts})",  # noqa: S608 - of values that are quoted
        f"CREATE TABLE _torch_track({_TRACK_COLUMNS})",
        f"CREATE TABLE _torch_group({_GROUP_COLUMNS})",
    ]
    groups = rendered["groups"]
    for first in range(0, len(groups), _GROUP_ROWS):
        rows = ", ".join(map(_group_row, groups[first : first + _GROUP_ROWS]))
        made.append(f"INSERT INTO _torch_group VALUES {rows}")  # noqa: S608 - of values that are quoted
    for first in range(0, len(tracks), _ROWS):
        rows = ", ".join(map(_row, tracks[first : first + _ROWS]))
        made.append(
            "INSERT INTO _torch_track"  # noqa: S608 - of values that are quoted
            " SELECT utid, column3, column4, column5, column6, column7, column8"
            f" FROM (VALUES {rows}) JOIN process ON process.pid = column1"
            " JOIN thread ON thread.upid = process.upid AND thread.tid = column2"
        )
    return made


def _row(track: Mapping[str, Any]) -> str:
    keys = ("pid", "tid", "own_pid", "own_tid", "rank", "device", "stream", "lane")
    return f"({', '.join(_quoted(str(track[key])) if key.startswith('own') else _number(track[key]) for key in keys)})"


def _group_row(listed: Mapping[str, Any]) -> str:
    group = listed["group"]
    words = (listed["name"], group["description"], group["ranks"])
    name, description, ranks = ("NULL" if word is None else _quoted(word) for word in words)
    rank, size, assumed = (_number(one) for one in (listed["rank"], group["size"], int(group["assumed"])))
    return f"({rank}, {name}, {size}, {description}, {ranks}, {assumed})"


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("\0", "\N{REPLACEMENT CHARACTER}").replace("'", "''"))

"""Comparison of a loaded trace's document with the engine's tables, and creation of the tables of `torch`.

The `RenderReport` counts the document's events. Each event that the engine can show must be in the engine's tables.
The `LoadReport` has each issue that the engine's importer reports, with its meaning.
"""

from collections.abc import AsyncIterator

from service.engine.load_report import EventCount, ImporterIssue, LoadNote, LoadReport
from service.engine.names import LISTED
from service.engine.result import Cell
from service.engine.session import Session
from service.rendering.render_report import EngineTrack, RankGroup, RenderReport

_COUNTS = """
SELECT (SELECT count(*) FROM slice), (SELECT count(*) FROM flow), (SELECT count(*) FROM counter),
    (SELECT count(*) FROM slice WHERE dur < 0)
"""
_ISSUES = """
SELECT name, value, severity, description FROM stats
WHERE value > 0 AND (severity <> 'info' OR name GLOB 'flow_*') ORDER BY name
"""
_ORIGINAL_ISSUES = """
SELECT name, sum(value), severity, description FROM stats
WHERE value > 0 AND severity IN ('error', 'data_loss') GROUP BY name ORDER BY name
"""
_SLICE_PHASES = ("X", "i", "I", "R", "B", "b", "n")
_BEGIN_PHASES, _END_PHASES = ("B", "b"), ("E", "e")  # an end event has no row of its own
_ARROW_PHASES = ("t", "f")  # the engine draws an arrow to each of these
_TRACKS_PER_STATEMENT = 500
_GROUPS_PER_STATEMENT = 20  # fewer groups than tracks: each group may have a long list of ranks
_TRACK_COLUMNS = "utid INTEGER, pid TEXT, tid TEXT, rank INTEGER, device INTEGER, stream INTEGER, lane INTEGER"
_GROUP_COLUMNS = "rank INTEGER, name TEXT, group_size INTEGER, description TEXT, ranks TEXT, is_assumed INTEGER"
_ISSUE_MEANINGS = {
    "flow_duplicate_id": "An arrow begins with the id of another arrow: ends with that id belong to the first.",
    "flow_end_without_start": "The end of an arrow has no beginning.",
    "flow_invalid_id": "An end of an arrow has no id.",
    "flow_no_enclosing_slice": "An arrow begins or ends where there is no slice.",
    "flow_step_without_start": "A step of an arrow has no beginning.",
    "misplaced_end_event": "A slice ends before a slice inside it has ended.",
    "slice_drop_overlapping_complete_event": "A slice overlaps another of its thread without nesting: it is dropped.",
}
"""Meanings of issues for which the engine has no description."""

_NOTE_DETAILS = {
    "untimed": "Events whose time is not a number can't be shown.",
    "loose_ends": "Arrow ends without a beginning: there is nothing to draw.",
    "moved": "Events that begin or last beyond 52 days are shown at the edge of this range.",
    "negative": "Slices that end before they begin are shown without a duration.",
    "no_numbers": "Counter values that are not finite numbers are left out.",
}


async def check_load(session: Session, rendered: RenderReport) -> LoadReport:
    """Create the tables of the package `torch`, and compare the engine's tables with the document.

    Args:
        session: a session whose engine has just loaded the trace.
        rendered: the report on the trace's document.
    """
    for statement in setup_statements(rendered, session.load.args):
        (await session.run(statement)).close()
    # all names so far are those of the engine and the service: clients may not change them
    session.names.protect([str(name) async for (name,) in _rows(session, LISTED)])
    [counts] = [row async for row in _rows(session, _COUNTS)]
    slices, flows, counters, unended = map(_integer, counts)
    phases = rendered.phases
    slice_count = EventCount(sum(phases[phase] for phase in _SLICE_PHASES), slices)
    flow_count = EventCount(sum(phases[phase] for phase in _ARROW_PHASES), flows)
    counter_count = EventCount(rendered.numbers, counters)
    ended_count = sum(phases[phase] for phase in _BEGIN_PHASES) - unended
    unbegun_count = max(sum(phases[phase] for phase in _END_PHASES) - ended_count, 0)
    missing_count = slice_count.missing + flow_count.missing + counter_count.missing + unbegun_count
    events = rendered.events - rendered.loose_ends
    return LoadReport(
        complete=not missing_count,
        events=events,
        shown=events - rendered.untimed - missing_count,
        slices=slice_count,
        flows=flow_count,
        counters=counter_count,
        base_ns=rendered.base_ns,
        lanes=sum(track.lane > 1 for track in rendered.tracks),
        notes=_notes(rendered, unbegun_count, flow_count.missing),
        stats=await _issues(session, _ISSUES),
    )


async def check_original_load(session: Session) -> list[ImporterIssue]:
    """Return the errors and losses of data that the engine reports about an original, and protect its tables.

    The tables of the package `torch` are not created: they describe documents that are written from columns.

    Args:
        session: a session whose engine has just loaded the original.
    """
    session.names.protect([str(name) async for (name,) in _rows(session, LISTED)])
    return await _issues(session, _ORIGINAL_ISSUES)


async def _issues(session: Session, sql: str) -> list[ImporterIssue]:
    return [
        ImporterIssue(str(name), _integer(value), str(severity), _meaning(str(name), description))
        async for name, value, severity, description in _rows(session, sql)
    ]


def _notes(rendered: RenderReport, unbegun_count: int, undrawn_count: int) -> list[LoadNote]:
    counts = {code: getattr(rendered, code) for code in _NOTE_DETAILS}
    notes = [LoadNote(code, count, _NOTE_DETAILS[code]) for code, count in counts.items() if count]
    if unbegun_count:
        notes.append(LoadNote("unbegun", unbegun_count, "Slice ends without a beginning."))
    if undrawn_count:
        notes.append(LoadNote("undrawn_flows", undrawn_count, "Arrows that begin or end where there is no slice."))
    if rendered.as_instants:
        phases = ", ".join(f"{count} of phase {phase!r}" for phase, count in sorted(rendered.as_instants.items()))
        detail = f"Events of phases that the engine ignores are shown as instants: {phases}."
        notes.append(LoadNote("as_instants", sum(rendered.as_instants.values()), detail))
    return notes


def _meaning(name: str, description: Cell) -> str:
    return str(description or _ISSUE_MEANINGS.get(name, "trace_processor has no description of it."))


def _integer(cell: Cell) -> int:
    return int(cell or 0)


async def _rows(session: Session, sql: str) -> AsyncIterator[tuple[Cell, ...]]:
    result = await session.run(sql)
    try:
        async for batch in result.follow():
            for row in zip(*batch.columns(), strict=True):
                yield row
    finally:
        result.close()


def setup_statements(rendered: RenderReport, args: str) -> list[str]:
    """Return the SQL that creates and fills the tables that the package `torch` reads; see `service.engine.sql`."""
    facts = f"{rendered.base_ns}, {_quoted(args)}, {_quoted(rendered.external_ids)}"
    sql = [
        "CREATE TABLE _torch_facts(base_ns INTEGER, args TEXT, external_ids TEXT)",
        f"INSERT INTO _torch_facts VALUES ({facts})",  # noqa: S608 - the values are quoted
        f"CREATE TABLE _torch_track({_TRACK_COLUMNS})",
        f"CREATE TABLE _torch_group({_GROUP_COLUMNS})",
    ]
    groups, tracks = rendered.groups, rendered.tracks
    for first in range(0, len(groups), _GROUPS_PER_STATEMENT):
        rows = ", ".join(map(_group_row, groups[first : first + _GROUPS_PER_STATEMENT]))
        sql.append(f"INSERT INTO _torch_group VALUES {rows}")  # noqa: S608 - the values are quoted
    for first in range(0, len(tracks), _TRACKS_PER_STATEMENT):
        rows = ", ".join(map(_track_row, tracks[first : first + _TRACKS_PER_STATEMENT]))
        sql.append(  # SQLite names the columns of VALUES column1, column2, …
            "INSERT INTO _torch_track"  # noqa: S608 - the values are quoted
            " SELECT utid, column3, column4, column5, column6, column7, column8"
            f" FROM (VALUES {rows}) JOIN process ON process.pid = column1"
            " JOIN thread ON thread.upid = process.upid AND thread.tid = column2"
        )
    return sql


def _track_row(track: EngineTrack) -> str:
    trace_ids = _quoted(str(track.own_pid)), _quoted(str(track.own_tid))
    numbers = map(_number, (track.rank, track.device, track.stream, track.lane))
    return f"({', '.join((_number(track.pid), _number(track.tid), *trace_ids, *numbers))})"


def _group_row(rank_group: RankGroup) -> str:
    group = rank_group.group
    texts = (rank_group.name, group.description, group.ranks)
    name, description, ranks = ("NULL" if text is None else _quoted(text) for text in texts)
    rank, size, assumed = map(_number, (rank_group.rank, group.size, int(group.assumed)))
    return f"({rank}, {name}, {size}, {description}, {ranks}, {assumed})"


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("\0", "\N{REPLACEMENT CHARACTER}").replace("'", "''"))

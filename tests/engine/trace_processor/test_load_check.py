"""The check of a load: the document compared with the engine's tables."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from service.engine.load_report import EventCount, LoadReport
from service.engine.trace_processor.load_check import check_load, setup_statements
from service.jobs.children.encoding import decode, encode
from service.rendering.render_report import EngineTrack, RankGroup, RenderReport
from service.trace.process_groups import ProcessGroup
from tests.engine.conftest import OpenSession, query_rows

HERE = {"ph": "X", "name": "one", "pid": 1, "tid": 1}
TRACKS = "SELECT place.* FROM _torch_track AS place ORDER BY utid, lane"


def trace_of(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def rendered(**fields: Any) -> RenderReport:
    """Return a report on a rendering, as received from the rendering process."""
    fields["phases"] = Counter(fields.get("phases", {}))
    return decode(RenderReport, encode(RenderReport(**fields)))


def track(number: int, **changes: Any) -> EngineTrack:
    fields = {"pid": 1, "tid": number, "name": None, "process": None, "own_pid": 1, "own_tid": number, "rank": None}
    return EngineTrack(**(fields | {"device": None, "stream": None, "lane": 1} | changes))


async def report_on(open_session: OpenSession, trace: Path, document: RenderReport) -> LoadReport:
    """Load a trace, and check the load against the given report on its document."""
    async with open_session(trace) as session:
        await session.settled()
        return await check_load(session, document)


async def test_load_of_all_events_is_complete(open_session: OpenSession, tmp_path: Path) -> None:
    arrow = {"pid": 1, "tid": 1, "id": 1, "cat": "c", "name": "f"}
    trace = trace_of(
        tmp_path,
        {**HERE, "ts": 1, "dur": 2},
        {**arrow, "ph": "s", "ts": 1},
        {**HERE, "ts": 5, "dur": 2},
        {**arrow, "ph": "f", "bp": "e", "ts": 5},
        {"ph": "C", "name": "c", "pid": 1, "ts": 3, "args": {"a": 1, "b": 2}},
        {**HERE, "ph": "i", "ts": 9, "s": "t"},
    )
    document = rendered(events=7, metadata=1, phases={"X": 2, "s": 1, "f": 1, "C": 1, "i": 1}, numbers=2, base_ns=17)
    assert await report_on(open_session, trace, document) == LoadReport(
        complete=True,
        events=7,
        shown=7,
        slices=EventCount(3, 3),
        flows=EventCount(1, 1),
        counters=EventCount(2, 2),
        base_ns=17,
        lanes=0,
        notes=[],
        stats=[],
    )


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"events": 3, "phases": {"X": 3}}, 2),
        ({"events": 4, "phases": {"X": 1, "s": 1, "t": 1, "f": 1}}, 2),
        ({"events": 2, "phases": {"X": 1, "C": 1}, "numbers": 5}, 5),
    ],
    ids=["slices", "flows", "counters"],
)
async def test_missing_events_are_reported(
    open_session: OpenSession, one_event: Path, fields: dict[str, Any], missing: int
) -> None:
    report = await report_on(open_session, one_event, rendered(**fields))
    assert not report.complete
    assert report.shown == fields["events"] - missing


async def test_surplus_of_one_kind_does_not_hide_missing_events_of_another(
    open_session: OpenSession, tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, *({**HERE, "ts": ts, "dur": 0.5} for ts in range(9)))
    report = await report_on(open_session, trace, rendered(events=5, phases={"X": 1, "C": 4}, numbers=4))
    assert (report.complete, report.shown) == (False, 1)


async def test_issues_of_the_importer_are_reported(open_session: OpenSession, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *({**HERE, "ts": ts, "dur": 10} for ts in (1, 2, 3)))
    report = await report_on(open_session, trace, rendered(events=3, phases={"X": 3}))
    assert (report.complete, report.shown) == (False, 1)
    [issue] = report.stats
    assert (issue.name, issue.value) == ("slice_drop_overlapping_complete_event", 2)
    assert issue.severity == "error"


async def test_ends_without_a_beginning_are_reported_as_not_shown(open_session: OpenSession, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, {**HERE, "ts": 1, "dur": 1}, {**HERE, "ph": "E", "ts": 9})
    report = await report_on(open_session, trace, rendered(events=2, phases={"X": 1, "E": 1}))
    assert (report.complete, report.shown) == (False, 1)
    assert {note.code: note.count for note in report.notes} == {"unbegun": 1}


async def test_arrows_without_a_slice_are_reported(open_session: OpenSession, tmp_path: Path) -> None:
    arrow = {"pid": 1, "tid": 1, "id": 1, "cat": "c", "name": "f"}
    events = [{**HERE, "ts": 1, "dur": 2}, {**arrow, "ph": "s", "ts": 1}, {**arrow, "ph": "f", "ts": 9}]
    report = await report_on(
        open_session, trace_of(tmp_path, *events), rendered(events=3, phases={"X": 1, "s": 1, "f": 1})
    )
    assert not report.complete
    assert {note.code: note.count for note in report.notes} == {"undrawn_flows": 1}


async def test_events_shown_differently_are_noted(open_session: OpenSession, one_event: Path) -> None:
    counts = {"untimed": 2, "loose_ends": 3, "moved": 4, "negative": 5, "no_numbers": 6}
    document = rendered(events=6, phases={"X": 1}, as_instants=Counter({"N": 7, "": 1}), **counts)
    report = await report_on(open_session, one_event, document)
    notes = {note.code: note for note in report.notes}
    assert {code: note.count for code, note in notes.items()} == counts | {"as_instants": 8}
    assert all(note.detail.endswith(".") for note in notes.values())
    assert "7 of phase 'N'" in notes["as_instants"].detail
    assert (report.events, report.shown) == (3, 1)


async def test_track_table_has_the_numbers_and_names_of_the_trace(open_session: OpenSession, tmp_path: Path) -> None:
    names = ["it's", "\0", '"; --', "π"]
    tracks = [track(tid, own_tid=name, own_pid="a'b") for tid, name in enumerate(names, 2)]
    tracks += [track(9, rank=3, device=1, stream=7, lane=2), track(77)]
    trace = trace_of(tmp_path, *({**HERE, "tid": tid, "ts": 1, "dur": 1} for tid in (2, 3, 4, 5, 9)))
    async with open_session(trace) as session:
        await session.settled()
        report = await check_load(session, rendered(events=5, phases={"X": 5}, tracks=tracks, base_ns=-5))
        assert report.lanes == 1
        assert [row[1:] for row in await query_rows(session, TRACKS)] == [
            *(("a'b", name.replace("\0", "\N{REPLACEMENT CHARACTER}"), None, None, None, 1) for name in names),
            ("1", "9", 3, 1, 7, 2),
        ]
        assert await query_rows(session, "SELECT * FROM _torch_facts") == [(-5, "all", "unknown")]


async def test_group_table_has_the_process_groups_of_the_ranks(open_session: OpenSession, one_event: Path) -> None:
    named = RankGroup(3, "it's", ProcessGroup(2, "π", "[0, 1]"))
    listed = [named, RankGroup(None, None, ProcessGroup(8, assumed=True))]
    async with open_session(one_event) as session:
        await session.settled()
        await check_load(session, rendered(events=1, phases={"X": 1}, groups=listed))
        assert await query_rows(session, "SELECT * FROM _torch_group") == [
            (3, "it's", 2, "π", "[0, 1]", 0), (None, None, 8, None, None, 1)
        ]  # fmt: skip


async def test_track_table_holds_thousands_of_tracks(open_session: OpenSession, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *({**HERE, "tid": tid, "ts": 1, "dur": 1} for tid in range(2, 3002)))
    async with open_session(trace) as session:
        await session.settled()
        document = rendered(events=3000, phases={"X": 3000}, tracks=[track(tid) for tid in range(2, 3002)])
        assert (await check_load(session, document)).complete
        rows = await query_rows(
            session, "SELECT count(DISTINCT utid), min(CAST(tid AS INT)), sum(lane) FROM _torch_track"
        )
        assert rows == [(3000, 2, 3000)]
        assert max(map(len, setup_statements(document, "all"))) < 100_000

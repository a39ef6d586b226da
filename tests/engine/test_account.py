"""The account of a load: what a document held, against what the engine has of it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.engine.account import statements, take_account
from service.rendering.account import GroupOfRank, Rendered
from service.rendering.tracks import Shown
from service.trace.process_groups import ProcessGroup
from tests.engine.conftest import OpenSession, asked

HERE = {"ph": "X", "name": "one", "pid": 1, "tid": 1}
TRACKS = "SELECT place.* FROM _torch_track AS place ORDER BY utid, lane"


def trace_of(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def rendered(**told: Any) -> dict[str, Any]:
    """What a rendering said of its document, as its process writes it."""
    told["phases"] = Counter(told.get("phases", {}))
    account: dict[str, Any] = orjson.loads(orjson.dumps(Rendered(**told)))
    return account


def shown(number: int, **other: Any) -> Shown:
    told = {"pid": 1, "tid": number, "name": None, "process": None, "own_pid": 1, "own_tid": number, "rank": None}
    return Shown(**(told | {"device": None, "stream": None, "lane": 1} | other))


async def account_of(open_session: OpenSession, trace: Path, told: dict[str, Any]) -> dict[str, Any]:
    async with open_session(trace) as session:
        await session.settled()
        return await take_account(session, told)


async def test_a_load_of_all_events_is_complete(open_session: OpenSession, tmp_path: Path) -> None:
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
    told = rendered(events=7, metadata=1, phases={"X": 2, "s": 1, "f": 1, "C": 1, "i": 1}, numbers=2, base_ns=17)
    found = await account_of(open_session, trace, told)
    assert found == {
        "complete": True,
        "events": 7,
        "shown": 7,
        "slices": {"expected": 3, "engine": 3},
        "flows": {"expected": 1, "engine": 1},
        "counters": {"expected": 2, "engine": 2},
        "base_ns": 17,
        "lanes": 0,
        "notes": [],
        "stats": [],
    }


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"events": 3, "phases": {"X": 3}}, 2),
        ({"events": 4, "phases": {"X": 1, "s": 1, "t": 1, "f": 1}}, 2),
        ({"events": 2, "phases": {"X": 1, "C": 1}, "numbers": 5}, 5),
    ],
    ids=["slices", "flows", "counters"],
)
async def test_what_the_engine_lacks_is_told(
    open_session: OpenSession, one_event: Path, told: dict[str, Any], missing: int
) -> None:
    found = await account_of(open_session, one_event, rendered(**told))
    assert not found["complete"]
    assert found["shown"] == told["events"] - missing


async def test_what_is_missing_of_one_kind_is_not_made_up_for_by_another(
    open_session: OpenSession, tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, *({**HERE, "ts": ts, "dur": 0.5} for ts in range(9)))
    found = await account_of(open_session, trace, rendered(events=5, phases={"X": 1, "C": 4}, numbers=4))
    assert (found["complete"], found["shown"]) == (False, 1)


async def test_complaints_of_the_importer_are_told(open_session: OpenSession, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *({**HERE, "ts": ts, "dur": 10} for ts in (1, 2, 3)))
    found = await account_of(open_session, trace, rendered(events=3, phases={"X": 3}))
    assert (found["complete"], found["shown"]) == (False, 1)
    [complaint] = found["stats"]
    assert (complaint["name"], complaint["value"]) == ("slice_drop_overlapping_complete_event", 2)
    assert complaint["severity"] == "error"


async def test_ends_of_nothing_are_not_shown(open_session: OpenSession, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, {**HERE, "ts": 1, "dur": 1}, {**HERE, "ph": "E", "ts": 9})
    found = await account_of(open_session, trace, rendered(events=2, phases={"X": 1, "E": 1}))
    assert (found["complete"], found["shown"]) == (False, 1)
    assert {note["code"]: note["count"] for note in found["notes"]} == {"unbegun": 1}


async def test_arrows_to_where_no_slice_is_are_told(open_session: OpenSession, tmp_path: Path) -> None:
    arrow = {"pid": 1, "tid": 1, "id": 1, "cat": "c", "name": "f"}
    events = [{**HERE, "ts": 1, "dur": 2}, {**arrow, "ph": "s", "ts": 1}, {**arrow, "ph": "f", "ts": 9}]
    found = await account_of(
        open_session, trace_of(tmp_path, *events), rendered(events=3, phases={"X": 1, "s": 1, "f": 1})
    )
    assert not found["complete"]
    assert {note["code"]: note["count"] for note in found["notes"]} == {"undrawn_flows": 1}


async def test_what_is_shown_otherwise_is_noted(open_session: OpenSession, one_event: Path) -> None:
    counts = {"untimed": 2, "loose_ends": 3, "moved": 4, "negative": 5, "no_numbers": 6}
    told = rendered(events=6, phases={"X": 1}, as_instants=Counter({"N": 7, "": 1}), **counts)
    found = await account_of(open_session, one_event, told)
    notes = {note["code"]: note for note in found["notes"]}
    assert {code: note["count"] for code, note in notes.items()} == counts | {"as_instants": 8}
    assert all(note["detail"].endswith(".") for note in notes.values())
    assert "7 of phase 'N'" in notes["as_instants"]["detail"]
    assert (found["events"], found["shown"]) == (3, 1)


async def test_the_tracks_of_an_engine_are_told_as_the_trace_has_them(
    open_session: OpenSession, tmp_path: Path
) -> None:
    names = ["it's", "\0", '"; --', "π"]
    tracks = [shown(tid, own_tid=name, own_pid="a'b") for tid, name in enumerate(names, 2)]
    tracks += [shown(9, rank=3, device=1, stream=7, lane=2), shown(77)]
    trace = trace_of(tmp_path, *({**HERE, "tid": tid, "ts": 1, "dur": 1} for tid in (2, 3, 4, 5, 9)))
    async with open_session(trace) as session:
        await session.settled()
        found = await take_account(session, rendered(events=5, phases={"X": 5}, tracks=tracks, base_ns=-5))
        assert found["lanes"] == 1
        assert [row[1:] for row in await asked(session, TRACKS)] == [
            *(("a'b", name.replace("\0", "\N{REPLACEMENT CHARACTER}"), None, None, None, 1) for name in names),
            ("1", "9", 3, 1, 7, 2),
        ]
        assert await asked(session, "SELECT * FROM _torch_facts") == [(-5, "all", "unknown")]


async def test_the_process_groups_that_ranks_list_are_told(open_session: OpenSession, one_event: Path) -> None:
    named = GroupOfRank(3, "it's", ProcessGroup(2, "π", "[0, 1]"))
    listed = [named, GroupOfRank(None, None, ProcessGroup(8, assumed=True))]
    async with open_session(one_event) as session:
        await session.settled()
        await take_account(session, rendered(events=1, phases={"X": 1}, groups=listed))
        assert await asked(session, "SELECT * FROM _torch_group") == [
            (3, "it's", 2, "π", "[0, 1]", 0), (None, None, 8, None, None, 1)
        ]  # fmt: skip


async def test_thousands_of_tracks_are_told(open_session: OpenSession, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *({**HERE, "tid": tid, "ts": 1, "dur": 1} for tid in range(2, 3002)))
    async with open_session(trace) as session:
        await session.settled()
        told = rendered(events=3000, phases={"X": 3000}, tracks=[shown(tid) for tid in range(2, 3002)])
        assert (await take_account(session, told))["complete"]
        rows = await asked(session, "SELECT count(DISTINCT utid), min(CAST(tid AS INT)), sum(lane) FROM _torch_track")
        assert rows == [(3000, 2, 3000)]
        assert max(map(len, statements(told, "all"))) < 100_000

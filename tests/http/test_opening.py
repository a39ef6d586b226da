"""The Perfetto UI opens at the time of a selection or at a slice, on which columns and engine agree."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.server import Server

BASE_US = 4_458_676_416_000
STEPS = {3: (1000, 2000), 4: (2100, 2900)}
"""Starts and ends of the steps, in µs."""

ALIKE = """
    include perfetto module torch.trace;
    select extract_arg(s.arg_set_id, 'args.mark'), s.id from slice as s join torch_track as t using (track_id)
    where s.ts = {ts} and s.dur = {dur} and s.name = '{name}' and t.pid = '{pid}' and t.tid = '{tid}' order by s.id
"""


def event(
    name: str | None, ts: float, dur: float, tid: int | str = 10, pid: int | str = 10, **more: Any
) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {"ph": "X", "cat": "cpu_op", **named, "pid": pid, "tid": tid, "ts": BASE_US + ts, "dur": dur, **more}


def write_opening(path: Path) -> Path:
    """Write a trace of two steps inside one frame, with slices of equal track, name, start and duration.

    The argument `mark` of an event is its position in the document.
    """
    events = [event("frame", 0, 5000, cat="user_annotation")]
    events += [
        event(f"ProfilerStep#{number}", start, end - start, cat="user_annotation")
        for number, (start, end) in STEPS.items()
    ]
    for start in (900, 1200, 2200, 3500):
        events += [event("alike", start, 50, pid=pid, tid=tid) for pid, tid in ((10, 11), (10, 11), (12, 11), (10, 11))]
        events += [event("alike", start, 20, tid=11), event("it's: 50% \u00e9\n", start + 0.001, 0.5, tid="main")]
        events += [event(None, start, 3, tid=13), event("", start, 3, tid=13), event("zero", start + 3, 0, tid=13)]
        events += [event("zero", start + 3, 0, tid=13), event("nul\0\ud83d", start + 9, 1, tid=13)]
        events.append(event("kernel", start + 5, 70, pid=0, tid=7, cat="kernel"))
        events.append(event("kernel", start + 35, 70, pid=0, tid=7, cat="kernel"))  # overlaps the kernel before it
        events.append(event("[memory]", start + 2, 0) | {"ph": "i", "s": "t"})
    events.append(event("later", 4999.5, 20))
    for position, entry in enumerate(events):
        entry["args"] = {"mark": position}
        if entry["cat"] == "kernel":
            entry["args"] |= {"device": 0, "stream": 7}
    special = ({"ph": "C", "args": {"n": 1}}, {"ph": "s", "id": 1}, {"ph": "M", "args": {"name": "x"}}, {"ph": "B"})
    events += [{**event("other", 1500, 0), **fields} for fields in special]
    events.append({"ph": "X", "name": "timeless", "pid": 10, "tid": 10, "dur": 5})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.fixture(scope="module")
def opening_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_opening(tmp_path_factory.mktemp("opening") / "opening.pt.trace.json")


@pytest.fixture(scope="module")
def opening(server: Server, opening_path: Path) -> str:
    return str(server.upload(opening_path)["id"])


@pytest.fixture(scope="module")
def marked(opening_path: Path) -> list[dict[str, Any]]:
    """The events with a place on the timeline: those with a `mark`."""
    events: list[dict[str, Any]] = json.loads(opening_path.read_text())["traceEvents"]
    return [event for event in events if "mark" in event.get("args", {})]


def opened(server: Server, trace: str, **params: Any) -> httpx.Response:
    return server.api.get(f"/traces/{trace}/perfetto", params=params)


def place(answer: httpx.Response) -> dict[str, Any]:
    """Return the parameters in the UI's address: the time span and the slice to show."""
    assert answer.status_code == 307, answer.text
    address = urlsplit(answer.headers["location"])
    assert address.fragment == "!/viewer"
    query = {name: value for name, (value,) in parse_qs(address.query).items()}
    return {name: json.loads(value) for name, value in query.items()}


def refused(answer: httpx.Response, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (422, code), answer.text
    return problem


# -- selections ----------------------------------------------------------------------------------------------------


def test_trace_without_selection_opens_on_its_whole_timeline(server: Server, opening: str) -> None:
    assert place(opened(server, opening)) == {}
    for params in ({"names": "alike"}, {"phases": "s"}, {"selection": "{}"}):
        download = server.api.get(f"/traces/{opening}/download", params=params)
        assert (params, download.status_code) == (params, 200)
        assert place(opened(server, opening, **params)) == {}


@pytest.mark.parametrize(
    ("params", "start_us", "end_us"),
    [
        ({"steps": 3}, 1000, 2000),
        ({"steps": [3, 4]}, 1000, 2900),
        ({"start_ns": 1_100_000, "end_ns": 1_900_000, "relative": True}, 1100, 1900),
        ({"start_ns": BASE_US * 1000 + 1_100_000, "end_ns": BASE_US * 1000 + 1_100_001}, 1100, 1100.001),
        ({"selection": json.dumps({"window": {"from": "ProfilerStep#4", "to": "ProfilerStep#4"}})}, 2100, 2900),
        ({"steps": 3, "start_ns": 1_500_000, "relative": True}, 1500, 2000),
    ],
)
def test_a_selection_opens_at_its_time_with_a_margin(
    server: Server, opening: str, params: dict[str, Any], start_us: float, end_us: float
) -> None:
    shown = place(opened(server, opening, **params))
    start, end = round(start_us * 1000), round(end_us * 1000)
    margin = round(0.03 * (end - start))
    assert shown == {"visStart": start - margin, "visEnd": end + margin}


def test_window_beyond_the_trace_opens_at_the_part_within_it(server: Server, opening: str) -> None:
    assert place(opened(server, opening, start_ns=0)) == {"visStart": 0, "visEnd": 5_019_500}
    assert place(opened(server, opening, end_ns=1_000_000, relative=True)) == {"visStart": 0, "visEnd": 1_030_000}


@pytest.mark.parametrize(
    "params",
    [
        {"steps": 103}, {"streams": "0/9"}, {"threads": "nobody"}, {"names": "nothing"}, {"names": "re:("},
        {"start_ns": 5, "end_ns": 4}, {"start_ns": 0, "end_ns": 1}, {"selection": "{"}, {"min_dur_ns": 1 << 60},
        {"phases": "M"},
    ],
)  # fmt: skip
def test_invalid_selection_is_refused_like_that_of_a_download(
    server: Server, opening: str, params: dict[str, Any]
) -> None:
    answer, download = opened(server, opening, **params), server.api.get(f"/traces/{opening}/download", params=params)
    assert answer.status_code == download.status_code == 422
    assert answer.json() == download.json()
    assert answer.headers["content-type"] == "application/problem+json"


def test_unknown_step_is_refused_with_the_known_steps(server: Server, opening: str) -> None:
    assert refused(opened(server, opening, steps=103), "unknown_choice")["known_steps"] == [3, 4]


# -- slices --------------------------------------------------------------------------------------------------------


def engine_marks(server: Server, trace: str, wanted: dict[str, Any], **view: Any) -> list[Any]:
    """Return the marks of the engine's slices with the track, name and time of `wanted`, ordered by id."""
    name = wanted["name"].replace("'", "''")
    answer = server.query(trace, ALIKE.format(**wanted | {"name": name}), **view)
    assert answer.status_code == 200, answer.text
    return [mark for mark, _ in answer.json()["rows"]]


SELECTIONS: list[dict[str, Any]] = [
    {},
    {"steps": [3]},
    {"window": {"start_ns": 1_210_000, "end_ns": 2_230_000, "relative": True}, "straddle": "clip"},
    {"window": {"start_ns": 1_210_000, "end_ns": 2_230_000, "relative": True}, "straddle": "start"},
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=["all", "step", "clip", "start"])
def test_the_slice_at_a_position_is_that_slice_in_the_engine(
    server: Server, opening: str, marked: list[dict[str, Any]], selection: dict[str, Any]
) -> None:
    view = {"selection": selection} if selection else {}
    params = {"selection": json.dumps(selection)} if selection else {}
    kept = server.query(opening, "select extract_arg(arg_set_id, 'args.mark') from slice", **view).json()["rows"]
    there = {mark for (mark,) in kept if mark is not None}
    assert len(there) > 10
    for event in marked:
        position = event["args"]["mark"]
        answer = opened(server, opening, slice=f"position:{position}", **params)
        if position in there:
            shown = place(answer)
            wanted = shown["slice"]
            assert engine_marks(server, opening, wanted, **view)[wanted["nth"]] == position
            assert shown["visStart"] <= wanted["ts"] <= wanted["ts"] + wanted["dur"] <= shown["visEnd"]
        else:
            assert "not in the selection" in refused(answer, "unknown_slice")["detail"]


def test_slice_is_shown_with_a_margin_around_it(server: Server, opening: str, marked: list[dict[str, Any]]) -> None:
    kernel = next(
        event["args"]["mark"] for event in marked if event.get("name") == "kernel" and event["ts"] > BASE_US + 2000
    )
    shown = place(opened(server, opening, slice=f"position:{kernel}"))
    assert (shown["visStart"], shown["visEnd"]) == (2_205_000 - 105_000, 2_275_000 + 105_000)
    instant = next(event["args"]["mark"] for event in marked if event["ph"] == "i")
    shown = place(opened(server, opening, slice=f"position:{instant}"))
    assert (shown["visStart"], shown["visEnd"]) == (902_000 - 1000, 902_000 + 1000)


def test_name_and_time_select_the_matching_slice(server: Server, opening: str) -> None:
    time = BASE_US * 1000 + 1_200_001
    wanted = place(opened(server, opening, slice=f"at:{time}:it's: 50% \u00e9\n"))["slice"]
    assert wanted == {"ts": 1_200_001, "dur": 500, "name": "it's: 50% \u00e9\n", "pid": "10", "tid": "main", "nth": 0}


def test_time_without_a_slice_is_refused_with_the_nearest_slice_of_the_name(server: Server, opening: str) -> None:
    time = BASE_US * 1000 + 2_200_002
    problem = refused(opened(server, opening, slice=f"at:{time}:it's: 50% \u00e9\n"), "unknown_slice")
    assert problem["nearest"]["ts_ns"] == time - 1
    exact = f"position:{problem['nearest']['position']}"
    assert place(opened(server, opening, slice=exact))["slice"]["ts"] == 2_200_001
    assert (
        "no slice named 'nobody'"
        in refused(opened(server, opening, slice=f"at:{time}:nobody"), "unknown_slice")["detail"]
    )


def test_ambiguous_name_and_time_are_refused_with_the_positions(
    server: Server, opening: str, marked: list[dict[str, Any]]
) -> None:
    alike = [event["args"]["mark"] for event in marked if (event.get("name"), event["ts"]) == ("alike", BASE_US + 1200)]
    problem = refused(opened(server, opening, slice=f"at:{BASE_US * 1000 + 1_200_000}:alike"), "ambiguous_slice")
    assert (problem["matches"], sorted(problem["positions"])) == (5, alike)
    chosen = json.dumps({"processes": [12]})
    wanted = place(opened(server, opening, slice=f"at:{BASE_US * 1000 + 1_200_000}:alike", selection=chosen))["slice"]
    assert (wanted["pid"], wanted["tid"]) == ("12", "11")


def test_malformed_slice_is_refused(server: Server, opening: str, opening_path: Path) -> None:
    events = json.loads(opening_path.read_text())["traceEvents"]
    for position, entry in enumerate(events):
        if "mark" not in entry.get("args", {}):
            detail = refused(opened(server, opening, slice=f"position:{position}"), "unknown_slice")["detail"]
            assert ("no time" if entry["name"] == "timeless" else repr(entry["ph"])) in detail
    detail = refused(opened(server, opening, slice=f"position:{len(events)}"), "unknown_slice")["detail"]
    assert f"positions from 0 to {len(events) - 1}" in detail
    for text in ("", "5", "aten::mm"):
        assert refused(opened(server, opening, slice=text), "bad_slice")["forms"]


def test_sql_id_beyond_the_trace_is_refused(server: Server, opening: str) -> None:
    assert place(opened(server, opening, slice="id:7")) == {"slice": {"id": 7}}
    assert "ids count from 0" in refused(opened(server, opening, slice="id:70000"), "unknown_slice")["detail"]


def test_sql_ids_are_the_same_for_all_args(server: Server, opening: str) -> None:
    sql = "select id, ts, dur, name, track_id from slice order by id"
    ids = [server.query(opening, sql, args=args).json()["rows"] for args in ("all", "essential", "none")]
    assert ids[0] == ids[1] == ids[2] != []


def test_link_to_the_ui_starts_no_engine(server: Server, opening_path: Path) -> None:
    trace = str(server.upload(opening_path, "unasked.json")["id"])
    place(opened(server, trace, steps=3, slice="position:1"))
    assert trace not in {session["trace"] for session in server.api.get("/sessions").json()["sessions"]}

"""Tracks of a trace are distinct, named threads in the engine, and keep their own numbers in `_torch_track`."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.rendering.render_report import EngineTrack
from service.rendering.tracks import FIRST_ASSIGNED, TrackAssigner
from service.trace.summary import Summary
from tests.cutting.choices import text_of
from tests.cutting.test_cut import ingested
from tests.rendering.loads import LoadResult, load

PLACES = """
SELECT slice.name, place.pid, place.tid, place.rank, place.device, place.stream, place.lane, process.name, thread.name
FROM slice JOIN thread_track ON thread_track.id = track_id JOIN _torch_track AS place USING (utid)
JOIN thread USING (utid) JOIN process USING (upid) ORDER BY slice.name
"""


def op(name: str, pid: object, tid: object, ts: int = 1, dur: int = 5, **more: object) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more}


def kernel(name: str, pid: int, tid: int, ts: int = 1, dur: int = 5) -> dict[str, Any]:
    return op(name, pid, tid, ts, dur, cat="kernel", args={"device": pid, "stream": tid})


def name_event(kind: str, name: str, pid: object, tid: object = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name, "labels": name}}


def complete_load(tmp_path: Path, *events: dict[str, Any], **members: Any) -> LoadResult:
    """Load a trace of these events, with these other members of its document; nothing may be missing."""
    result = load(ingested(text_of(*events, **members), tmp_path / "trace"), PLACES)
    assert result.report.complete
    return result


def places(result: LoadResult) -> dict[str, tuple[Any, ...]]:
    """Return the columns of `PLACES` after the name of the slice, by that name."""
    return {str(name): tuple(place) for name, *place in result.answers[0]}


HARD_TRACKS = [  # pid and tid of each
    (-1, 0), (-1, 1), (0, 0), (0, 1), (1, 0), (1, 1), (1, -1), (7, 7), ("Spans", "Profiler"), ("Traces", "a"), ("", ""),
    ("7", 7), (7, "7"), (1 << 32, 1), ((1 << 32) + 1, 1), (1 << 53, (1 << 53) + 1), (1, 1 << 32),
    (999_999_999_999_999_999, 5), (FIRST_ASSIGNED, FIRST_ASSIGNED), (FIRST_ASSIGNED + 1, 3),
]  # fmt: skip


def test_tracks_have_distinct_threads_for_all_numbers(tmp_path: Path) -> None:
    events = [op(f"{number:02}", pid, tid) for number, (pid, tid) in enumerate(HARD_TRACKS)]
    result = complete_load(tmp_path, *events)
    assert result.report.lanes == 0
    rows = [(row[1], row[2]) for row in result.answers[0]]
    assert rows == [(str(pid), str(tid)) for pid, tid in HARD_TRACKS]
    threads = {(track.pid, track.tid) for track in result.rendered.tracks}
    assert len(threads) == len(HARD_TRACKS)
    assert all(0 <= track.pid < 1 << 32 and 0 < track.tid < 1 << 32 for track in result.rendered.tracks)
    assert len({track.pid for track in result.rendered.tracks}) == len({pid for pid, _ in HARD_TRACKS})


def test_numbers_that_the_engine_accepts_are_kept(tmp_path: Path) -> None:
    result = complete_load(tmp_path, op("a", 4194304, 17), op("b", 0, 1), op("c", 4194304, 1_999_999_999))
    tracks = {(track.pid, track.tid) for track in result.rendered.tracks}
    assert tracks == {(4194304, 17), (0, 1), (4194304, 1_999_999_999)}


def test_process_and_device_with_the_same_number_are_distinct(tmp_path: Path) -> None:
    result = places(
        complete_load(
            tmp_path, op("host", 7, 7), kernel("gpu", 7, 7), op("other", 7, 8), name_event("process_name", "python", 7)
        )
    )
    assert result["gpu"] == ("7", "7", None, 7, 7, 1, "GPU 7", "stream 7")
    assert result["host"] == ("7", "7", None, None, None, 1, "python", "thread 7")
    assert result["other"] == ("7", "8", None, None, None, 1, "python", "thread 8")


def test_device_keeps_its_number_if_no_process_has_it(tmp_path: Path) -> None:
    result = complete_load(tmp_path, kernel("gpu", 2, 20), op("host", 100, 100))
    assert {track.pid: track.device for track in result.rendered.tracks} == {2: 2, 100: None}


def test_threads_and_streams_have_names(tmp_path: Path) -> None:
    result = places(
        complete_load(
            tmp_path,
            kernel("a", 0, 7),
            kernel("b", 0, 20),
            op("c", 9, 9),
            op("d", "Spans", 1),
            name_event("thread_name", "stream 7 ", 0, 7),
            name_event("thread_name", "  ", 0, 20),
            name_event("thread_name", "main", 9, 9),
            name_event("process_labels", "GPU 0", 0),
        )
    )
    assert [place[-2:] for place in result.values()] == [
        ("GPU 0", "stream 7"),
        ("GPU 0", "stream 20"),
        ("process 9", "main"),
        ("Spans", "thread 1"),
    ]


def test_tracks_have_the_stream_of_their_work_also_if_the_tid_is_text(tmp_path: Path) -> None:
    events = [kernel("a", 0, 7) | {"tid": "stream 7 "}, kernel("b", 0, 8) | {"args": {"device": 0, "stream": 13}}]
    of_two = [kernel("c", 0, 9), kernel("d", 0, 9, 10) | {"args": {"device": 0, "stream": 14}}]
    result = places(complete_load(tmp_path, *events, *of_two))
    assert [(place[4], place[-1]) for place in result.values()] == [
        (7, "stream 7"),
        (13, "stream 13"),
        *[(9, "stream 9")] * 2,
    ]


def test_further_lanes_are_numbered_in_their_names(tmp_path: Path) -> None:
    events = [kernel(f"{ts}", 0, 7, ts, 10) for ts in (1, 2, 3)] + [op("4", 5, 6, 1, 5), op("5", 5, 6, 2, 5)]
    result = complete_load(tmp_path, *events, name_event("thread_name", "stream 7 ", 0, 7))
    assert result.report.lanes == 3
    rows = {name: (place[5], place[7]) for name, place in places(result).items()}
    assert rows == {
        "1": (1, "stream 7"),
        "2": (2, "stream 7 · lane 2"),
        "3": (3, "stream 7 · lane 3"),
        "4": (1, "thread 6"),
        "5": (2, "6 · lane 2"),
    }


def test_all_tracks_of_a_trace_have_its_rank(tmp_path: Path) -> None:
    events = [op("host", 9, 9), kernel("gpu", 0, 7), name_event("process_name", "python", 9)]
    result = places(complete_load(tmp_path, *events, distributedInfo={"rank": 3, "world_size": 8}))
    assert [result[name][2] for name in ("host", "gpu")] == [3, 3]
    assert [result[name][6] for name in ("host", "gpu")] == ["python · rank 3", "GPU 0 · rank 3"]


@pytest.mark.parametrize("name", ["a\\u0000b", "\\ud83d", "\\ud83d\\ude00", "'; DROP TABLE slice --", "x" * 100_000])
def test_harmful_names_are_sanitized(name: str, tmp_path: Path) -> None:
    events = [op("a", 1, 1), name_event("thread_name", "NAME", 1, 1), name_event("process_name", "NAME", 1)]
    text = text_of(*events, op("b", "NAME", "NAME")).replace("NAME", name)
    result = load(ingested(text, tmp_path / "trace"), PLACES)
    assert result.report.complete
    unescaped = json.loads(f'"{name}"')
    without_lone_surrogates = unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    sanitized = without_lone_surrogates.replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert places(result)["a"][-2:] == (sanitized, sanitized)
    assert places(result)["b"][:2] == (sanitized, sanitized)


def test_assigned_numbers_are_unique() -> None:
    tracks = TrackAssigner(Summary())
    assigned: list[EngineTrack] = [
        tracks.assign(pid, tid, lane, on_device=False)
        for pid in (-1, 0, 1, FIRST_ASSIGNED, "a", "")
        for tid in (-1, 0, 1, FIRST_ASSIGNED + 2, "a")
        for lane in (1, 2)
    ]
    assert len({(track.pid, track.tid) for track in assigned}) == len(assigned)

"""The overview of a trace, compared with a plain count of nanoseconds, in any window and number of bins."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.cutting.source import Source
from service.store.folder import TIMELINE
from service.trace.errors import BadAnalysisRequest, NotApplicable
from service.trace.selection import Closure, Selection
from tests.analysis.conftest import Ask, real
from tests.analysis.gpu import Event, call, step, work
from tests.conftest import DATA, needs_shared

REAL = sorted(DATA.glob("*.pt.trace.json.gz"))
NAMES = {"gemm": "compute_ns", "ncclDevKernel_AllReduce": "comm_ns", "Memcpy HtoD": "mem_ns"}


def op(start: float, dur: float, tid: int = 1) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": {}}


def copy(start: float, dur: float) -> Event:
    return work(start, dur, "gpu_memcpy", "Memcpy HtoD")


def test_bins_have_the_time_of_each_type(ask: Ask) -> None:
    events = [work(0, 4, correlation=1), work(2, 4, name="ncclDevKernel_AllReduce", correlation=2), copy(8, 1)]
    calls = [call(0, 1), call(1, 2)]
    answer = ask("overview", [*events, *calls, op(0, 10), step(3, 0, 10)], bins=2)

    assert answer["window"] == [{"rank": None, "start_ns": 0, "end_ns": 10_000, "steps": 1, "tracks": 2, "bins": 2}]
    stream, thread = answer["tracks"]
    assert (stream["kind"], stream["device"], stream["stream"]) == ("stream", 0, 7)
    assert (thread["kind"], thread["process"], thread["thread"]) == ("thread", "1", "1")
    assert (stream["busy_ns"], thread["busy_ns"]) == (7000, 10_000)
    types = ("busy_ns", "compute_ns", "comm_ns", "mem_ns")
    assert [tuple(row[name] for name in ("track", "bin", *types)) for row in answer["bins"]] == [
        (0, 0, 5000, 4000, 3000, 0),
        (0, 1, 2000, 0, 1000, 1000),
        (1, 0, 5000, None, None, None),
        (1, 1, 5000, None, None, None),
    ]
    assert [(row["step"], row["start_ns"], row["end_ns"]) for row in answer["steps"]] == [(3, 0, 10_000)]
    assert [(row["bin"], row["launches"]) for row in answer["launches"]] == [(0, 2)]


def test_busiest_tracks_of_the_window_are_shown(ask: Ask) -> None:
    events = [op(0, 9, tid=1), op(0, 2, tid=2), op(10, 2, tid=2), op(20, 1, tid=3)]
    assert [row["thread"] for row in ask("overview", events, tracks=1)["tracks"]] == ["1"]
    later = ask("overview", events, tracks=1, from_ns=9500, to_ns=21_000)
    assert [(row["thread"], row["busy_ns"]) for row in later["tracks"]] == [("2", 2000)]
    whole = ask("overview", events, tracks=1, from_ns=9500, to_ns=21_000, busiest="trace")
    assert [(row["thread"], row["busy_ns"]) for row in whole["tracks"]] == [("1", 0)]
    assert whole["window"][0]["tracks"] == 3


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (10**12, None), (None, -1)])
def test_empty_window_is_refused(ask: Ask, start: int | None, end: int | None) -> None:
    with pytest.raises(BadAnalysisRequest, match="not after its start"):
        ask("overview", [op(0, 9)], from_ns=start, to_ns=end)


def test_trace_without_slices_has_no_overview(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="no timed slices"):
        ask("overview", [{"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 1, "s": "t"}])


def covered(slices: list[tuple[int, int]], start: int, end: int) -> int:
    return len({moment for first, last in slices for moment in range(max(first, start), min(last, end))})


@given(
    slices=st.lists(
        st.tuples(st.sampled_from(sorted(NAMES)), st.integers(0, 40), st.integers(0, 15), st.integers(7, 8)), min_size=1
    ),
    window=st.just((None, None)) | st.tuples(st.integers(-5, 20), st.integers(21, 60)),
    bins=st.integers(1, 70),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bin_has_the_nanoseconds_that_a_plain_count_finds(
    ask: Ask, slices: list[Any], window: tuple[int | None, int | None], bins: int
) -> None:
    events = [
        work(start / 1000, dur / 1000, "gpu_memcpy" if NAMES[name] == "mem_ns" else "kernel", name, stream=stream)
        for name, start, dur, stream in slices
    ]
    answer = ask("overview", events, bins=bins, from_ns=window[0], to_ns=window[1])

    [bounds] = answer["window"]
    start, end = bounds["start_ns"], bounds["end_ns"]
    edges = [start + (end - start) * edge // bins for edge in range(bins + 1)]
    expected = {}
    for stream in (7, 8):
        for number, (first, last) in enumerate(pairwise(edges)):
            of_stream = [(name, at, at + dur) for name, at, dur, on in slices if on == stream]
            row = {
                column: covered([(a, b) for name, a, b in of_stream if NAMES[name] == column], first, last)
                for column in NAMES.values()
            }
            row["busy_ns"] = covered([(a, b) for _, a, b in of_stream], first, last)
            if row["busy_ns"]:
                expected[stream, number] = row
    streams = {row["track"]: row["stream"] for row in answer["tracks"]}
    found = {
        (streams[row["track"]], row["bin"]): {name: row[name] for name in ("busy_ns", *NAMES.values())}
        for row in answer["bins"]
    }
    assert found == expected
    for track in answer["tracks"]:
        rows = [row["busy_ns"] for row in answer["bins"] if row["track"] == track["track"]]
        assert sum(rows) == track["busy_ns"]


def allocation(at: float, total: int, device: int = 0) -> Event:
    args = {
        "Bytes": 1,
        "Total Allocated": total,
        "Device Type": 1 if device >= 0 else 0,
        "Device Id": device,
        "Addr": 1,
    }
    named = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]"}
    return {**named, "pid": 1, "tid": 1, "ts": at, "args": args}


@given(
    changes=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.sampled_from([-1, 0, 1])), min_size=1),
    window=st.tuples(st.integers(-5, 20), st.integers(21, 60)),
    bins=st.integers(1, 20),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_of_a_bin_is_the_most_of_its_nanoseconds(
    ask: Ask, changes: list[tuple[int, int, int]], window: tuple[int, int], bins: int
) -> None:
    events = [allocation(at / 1000, total, device) for at, total, device in changes]
    answer = ask("overview", [op(0, 0.05), *events], bins=bins, from_ns=window[0], to_ns=window[1])
    edges = [window[0] + (window[1] - window[0]) * edge // bins for edge in range(bins + 1)]
    expected = {}
    for device in (-1, 0, 1):
        total_at: dict[int, int] = {}
        for at, total, on in sorted(changes, key=lambda change: change[0]):
            if on == device:
                total_at |= dict.fromkeys(range(at, 61), total)
        for number, (first, last) in enumerate(pairwise(edges)):
            totals = [total_at[moment] for moment in range(first, last) if moment in total_at]
            if totals:
                expected["CPU" if device < 0 else "CUDA", device, number] = max(totals)
    found = {(row["device_type"], row["device"], row["bin"]): row["allocated_bytes"] for row in answer["memory"]}
    assert found == expected


@needs_shared
@pytest.mark.parametrize("name", ["a100_nccl_3_steps", "h100_bert_small", "gloo_cpu_rank34_of_300"])
def test_file_and_events_have_the_same_answer(read_once: Any, tmp_path: Path, name: str) -> None:
    source = read_once(real(name))
    columns = tmp_path / "columns"
    shutil.copytree(source.columns, columns)
    answers = []
    for has_file in (False, True):
        assert (columns / TIMELINE).exists() == has_file
        readings = ReadingCache(tmp_path / "spill")
        parameters = parameters_of(question_of("overview"), {"bins": 777})
        answer = answer_question(
            question_of("overview"), parameters, [AnalysisInput(columns, source.summary)], readings
        )
        answers.append({table: rows.to_pylist() for table, rows in answer.tables.items()})
        readings.close()
    assert answers[0]["bins"]
    assert answers[0] == answers[1]


def test_selection_has_an_overview_of_its_own(ask: Ask) -> None:
    events = [op(0, 9, tid=1), op(0, 2, tid=2), step(3, 0, 10), step(4, 10, 5)]
    tracks = ask("overview", events, selection=Selection(threads=["1/2"]))["tracks"]
    assert {track["thread"]: track["busy_ns"] for track in tracks} == {"1": 10_000, "2": 2000}  # its step is on 1
    closure = Closure(annotations=False)
    [thread] = ask("overview", events, selection=Selection(threads=["1/2"], closure=closure))["tracks"]
    assert (thread["thread"], thread["busy_ns"]) == ("2", 2000)
    selected = ask("overview", events, selection=Selection(steps=[3]))
    assert [(row["step"], row["start_ns"], row["end_ns"]) for row in selected["steps"]] == [(3, 0, 10_000)]


@needs_shared
@pytest.mark.parametrize("bins", [1, 999])
def test_overview_of_a_real_trace_adds_up_to_its_breakdown(ask: Ask, bins: int) -> None:
    trace = real("v100_resnet50_2021")
    streams = ask("overview", trace, bins=bins)
    [breakdown] = ask("temporal_breakdown", trace)["breakdown"]
    tracks = [row for row in streams["tracks"] if row["kind"] == "stream"]
    if len(tracks) == 1:
        sums = {name: sum(row[name] or 0 for row in streams["bins"]) for name in NAMES.values()}
        assert sums == {name: breakdown[name] for name in NAMES.values()}
    assert max(row["busy_ns"] for row in tracks) <= breakdown["busy_ns"] <= sum(row["busy_ns"] for row in tracks)


def test_window_has_the_last_change_of_memory(ask: Ask) -> None:
    changes = [
        {
            "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "pid": 1, "tid": 1, "s": "t",
            "args": {"Device Type": 1, "Device Id": 0, "Bytes": 10, "Addr": at, "Total Allocated": 10 * at},
        }
        for at in (1, 2, 3)
    ]  # fmt: skip
    answer = ask("overview", changes, bins=4)
    assert [(row["start_ns"], row["end_ns"]) for row in answer["window"]] == [(1000, 3001)]
    assert max(row["allocated_bytes"] for row in answer["memory"]) == 30


def test_window_is_that_of_the_trace(ask: Ask) -> None:
    """Its bounds are those of the page's header: with the profiler's own slice, without the mark behind all events."""
    trace = [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "P", "ts": 0, "dur": 40},
        op(5, 10),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 99},
    ]
    [row] = ask("overview", trace)["window"]
    assert (row["start_ns"], row["end_ns"]) == (0, 40_000)
    [row] = ask("overview", trace, selection=Selection(categories=["cpu_op"]))["window"]
    assert (row["start_ns"], row["end_ns"]) == (5_000, 15_000)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.partition(".")[0])
def test_window_of_a_real_trace_has_the_length_in_its_summary(
    ask: Ask, read_once: Callable[[Path | str], Source], path: Path
) -> None:
    bounds = read_once(path).summary.bounds
    assert bounds
    [row] = ask("overview", path)["window"]
    assert (row["start_ns"], row["end_ns"]) == (bounds["start_ns"], bounds["end_ns"])

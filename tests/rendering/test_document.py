"""The real engine has all slices, exact to the nanosecond, all arguments and all counters of a rendered trace."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from service.cutting.merge import merge
from service.cutting.source import Source
from service.rendering.document import render
from service.rendering.fuchsia.records import head
from service.rendering.render_report import RenderReport
from service.trace.errors import SelectionError
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from tests.conftest import DATA, SHARED
from tests.cutting.choices import text_of
from tests.cutting.test_cut import cut_text, ingested
from tests.rendering.loads import SLICES, LoadResult, Row, flat, load, nanoseconds, readable, slices_of
from tests.traces import TraceShape, trace_chunks

ARGS = """
SELECT slice.id, key, coalesce(string_value, int_value, real_value) FROM slice LEFT JOIN args USING (arg_set_id)
WHERE slice.ts = {} - (SELECT base_ns FROM _torch_facts) AND slice.dur = {} AND slice.name = {}
"""
SAMPLES = 12
PROCESSES = """
SELECT DISTINCT process.name, place.rank FROM _torch_track AS place JOIN thread USING (utid) JOIN process USING (upid)
"""
SHOWN = "Xi"
ESSENTIAL = {"correlation", "device", "stream", "bytes"}

Event = dict[str, Any]


def events_of(text: str | bytes) -> list[Event]:
    """Return the events of a document, read by the standard library."""
    document = json.loads(text, parse_float=Decimal, strict=False)
    events: list[Event] = document["traceEvents"] if isinstance(document, dict) else document
    return events


def plain(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def is_json(path: Path) -> bool:
    try:
        events_of(plain(path))
    except ValueError:
        return False
    return True


ALL = sorted([*DATA.glob("*.pt.trace.json.gz"), *SHARED.glob("*.gz"), *SHARED.glob("*/*.pt.trace.json*")])
SOUND = [path for path in ALL if path.parent.name != "malformed" or is_json(path)]
DAMAGED = [path for path in ALL if path not in SOUND]
FEW = [path for path in SOUND if path.name.startswith(("cpu_train", "cpu_stack", "h100_bert"))]


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


def trace_of(path: Path, folder: Path) -> Source:
    return ingested(path.read_bytes(), folder / name_of(path), path.name)


def check(result: LoadResult, events: list[Event]) -> None:
    """Check that the engine has all of these events, and that its importer has no issues."""
    report = result.report
    timed = [event for event in events if event["ph"] != "M"]
    assert report.complete
    assert report.stats == []
    assert report.events == len(events) - result.rendered.loose_ends
    assert report.shown == report.events
    assert report.slices.engine == sum(event["ph"] in SHOWN for event in timed)
    assert report.counters.engine == sum(len(event["args"]) for event in timed if event["ph"] == "C")
    slices, in_engine = slices_of(timed), Counter(result.answers[0])
    assert not slices - in_engine
    assert (in_engine - slices).total() <= sum(event["ph"] == "i" for event in timed)


def check_args(result: LoadResult, chosen: list[Event], args: Args = "all") -> None:
    """Check the arguments of slices: the answers to the queries of `args_of`, which follow the first query."""
    for event, rows in zip(chosen, result.answers[1:], strict=True):
        keeps = args == "all" or (args == "essential" and "Collective name" in event["args"])
        expected = event["args"] if keeps else {key: event["args"][key] for key in ESSENTIAL & event["args"].keys()}
        assert flat({} if args == "none" else expected) in args_by_slice(rows)


def sample(events: list[Event], name: str) -> list[Event]:
    """Return a random sample of the slices that have arguments."""
    chosen = [event for event in events if event["ph"] == "X" and event.get("args")]
    return Random(name).sample(chosen, min(SAMPLES, len(chosen)))


def args_of(events: list[Event]) -> list[str]:
    """Return queries for the arguments of slices with the same start, duration and name."""
    slices = [next(iter(slices_of([event]))) for event in events]
    return [ARGS.format(ts, dur, "'{}'".format(str(name).replace("'", "''"))) for _, _, ts, dur, name in slices]


def args_by_slice(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the arguments of each slice."""
    ids = {row[0] for row in rows}
    return [
        {str(key): readable(value) for row_id, key, value in rows if row_id == slice_id and key} for slice_id in ids
    ]


# -- whole traces ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOUND, ids=name_of)
def test_engine_has_all_events_and_arguments_of_a_real_trace(path: Path, tmp_path: Path) -> None:
    events = events_of(plain(path))
    chosen = sample(events, path.name)
    result = load(trace_of(path, tmp_path), SLICES, *args_of(chosen))
    check(result, events)
    check_args(result, chosen)


@pytest.mark.parametrize("path", DAMAGED, ids=name_of)
def test_engine_has_all_readable_events_of_a_damaged_trace(path: Path, tmp_path: Path) -> None:
    trace = trace_of(path, tmp_path)
    counts = Counter[str]()
    for key, count in trace.summary.counts.items():
        counts[key.split("|")[0]] += count
    result = load(trace)
    assert result.report.complete
    assert result.report.shown == trace.summary.events["kept"] - result.rendered.loose_ends
    assert result.report.slices.engine == sum(counts[phase] for phase in SHOWN) > 0


@pytest.mark.parametrize("args", ["essential", "none"])
@pytest.mark.parametrize("path", FEW, ids=name_of)
def test_fewer_arguments_keep_the_same_slices(path: Path, args: Args, tmp_path: Path) -> None:
    events = events_of(plain(path))
    chosen = sample(events, path.name)
    result = load(trace_of(path, tmp_path), SLICES, *args_of(chosen), args=args)
    check(result, events)
    check_args(result, chosen, args)


def test_essential_arguments_include_all_of_allocations_and_collectives(tmp_path: Path) -> None:
    fields = {"pid": 1, "tid": 1, "dur": 1, "ph": "X"}
    args = {"Addr": 5, "Total Allocated": 7, "note": "all"}
    events = [
        {**fields, "name": "[memory]", "ts": 1, "ph": "i", "s": "t", "args": args},
        {**fields, "name": "[memory]", "ts": Decimal("2.00001"), "ph": "i", "s": "t", "args": args},
        {**fields, "name": "nccl", "ts": 3, "args": {"Collective name": "allreduce", "dtype": "Float"}},
        {**fields, "name": "aten::add", "ts": 4, "args": {"correlation": 3, "Input Dims": [[1]]}},
        {**fields, "name": "aten::mul", "ts": 5, "args": {"Input Dims": [[1]]}},
    ]
    sql = "SELECT slice.id, key, coalesce(string_value, int_value) FROM slice LEFT JOIN args USING (arg_set_id)"
    result = load(ingested(text_of(*events), tmp_path / "trace"), sql, args="essential")
    expected = [flat(event["args"]) for event in events[:3]] + [{"args.correlation": 3}, {}]
    assert sorted(map(str, args_by_slice(result.answers[0]))) == sorted(map(str, expected))


# -- selections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("straddle", ["keep", "clip"])
@pytest.mark.parametrize("path", FEW, ids=name_of)
def test_engine_has_the_same_events_of_a_selection_as_its_download(path: Path, straddle: str, tmp_path: Path) -> None:
    trace = trace_of(path, tmp_path)
    steps = [step["number"] for step in trace.summary.steps[:1]]
    times = sorted(nanoseconds(event["ts"]) for event in events_of(plain(path)) if event["ph"] == "X")
    window = {"window": {"start_ns": times[len(times) // 3], "end_ns": times[len(times) // 2]}}
    for selection in ({"steps": steps}, window) if steps else (window,):
        chosen = selection | {"straddle": straddle}
        events = events_of(cut_text(trace, chosen))
        assert events
        check(load(trace, SLICES, selection=chosen), events)


def test_empty_selection_raises_before_the_first_piece(step_trace: Path, tmp_path: Path) -> None:
    trace = trace_of(step_trace, tmp_path)
    pieces = render(trace.columns, trace.summary, RenderReport(), selection=Selection(names=["there is none"]))
    with pytest.raises(SelectionError):
        next(pieces)


def test_trace_without_events_is_an_empty_document(tmp_path: Path) -> None:
    result = load(ingested('{"traceEvents": []}', tmp_path / "trace"))
    assert result.document == head()
    assert result.report.complete


# -- merged traces --------------------------------------------------------------------------------------------------


def merged(traces: list[Source], folder: Path) -> Source:
    child = merge(traces, folder / "merged", name="merged.json", align="none", on_written=lambda *_: None)
    return Source(folder / "merged", child.name, child.summary, child.id)


def test_devices_of_merged_traces_are_named_by_rank(tmp_path: Path) -> None:
    traces = [
        ingested(
            b"".join(trace_chunks(TraceShape(rank=rank, world_size=2, seed=rank))), tmp_path / str(rank), rank=rank
        )
        for rank in (0, 1)
    ]
    result = load(merged(traces, tmp_path), SLICES, PROCESSES)
    assert result.report.complete
    names = {str(name): rank for name, rank in result.answers[1]}
    assert {name: rank for name, rank in names.items() if name.startswith("GPU")} == {
        "GPU 0 · rank 0": 0,
        "GPU 0 · rank 1": 1,
    }
    assert all(f"rank {rank!r}" in name for name, rank in names.items() if rank is not None)


def test_merged_real_ranks_are_complete(tmp_path: Path) -> None:
    paths = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in (0, 1)]
    result = load(merged([trace_of(path, tmp_path) for path in paths], tmp_path), PROCESSES)
    expected = sum(event["ph"] in SHOWN for path in paths for event in events_of(plain(path)))
    assert result.report.complete
    assert result.report.slices.engine == expected
    assert {rank for _, rank in result.answers[0]} == {0, 1}

"""On the real engine nothing of a trace is lost: no slice and none of its nanoseconds, no argument, no counter."""

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
from service.rendering.account import Rendered
from service.rendering.document import rendering
from service.trace.errors import SelectionError
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from tests.conftest import DATA, SHARED
from tests.cutting.choices import text_of
from tests.cutting.test_cut import cut_text, ingested
from tests.rendering.loads import SLICES, Loaded, Row, flat, loaded, nanoseconds, slices_of
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
    """The events of a document, by a reader that is not ours."""
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


EVERY = sorted([*DATA.glob("*.pt.trace.json.gz"), *SHARED.glob("*.gz"), *SHARED.glob("*/*.pt.trace.json*")])
SOUND = [path for path in EVERY if path.parent.name != "malformed" or is_json(path)]
DAMAGED = [path for path in EVERY if path not in SOUND]
FEW = [path for path in SOUND if path.name.startswith(("cpu_train", "cpu_stack", "h100_bert"))]


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


def trace_of(path: Path, folder: Path) -> Source:
    return ingested(path.read_bytes(), folder / name_of(path), path.name)


def check(found: Loaded, events: list[Event]) -> None:
    """The engine has all of these events, and has nothing to complain of."""
    account = found.account
    timed = [event for event in events if event["ph"] != "M"]
    assert account["complete"]
    assert account["stats"] == []
    assert account["events"] == len(events) - found.rendered.loose_ends
    assert account["shown"] == account["events"]
    assert account["slices"]["engine"] == sum(event["ph"] in SHOWN for event in timed)
    assert account["counters"]["engine"] == sum(len(event["args"]) for event in timed if event["ph"] == "C")
    slices, there = slices_of(timed), Counter(found.answers[0])
    assert not slices - there
    assert (there - slices).total() <= sum(event["ph"] == "i" for event in timed)


def check_args(found: Loaded, chosen: list[Event], args: Args = "all") -> None:
    """Slices have their arguments; the answers from the second on are to `args_of`."""
    for one, rows in zip(chosen, found.answers[1:], strict=True):
        keeps = args == "all" or (args == "essential" and "Collective name" in one["args"])
        told = one["args"] if keeps else {key: one["args"][key] for key in ESSENTIAL & one["args"].keys()}
        assert flat({} if args == "none" else told) in sets(rows)


def sample(events: list[Event], name: str) -> list[Event]:
    """Some slices that have arguments."""
    chosen = [one for one in events if one["ph"] == "X" and one.get("args")]
    return Random(name).sample(chosen, min(SAMPLES, len(chosen)))


def args_of(events: list[Event]) -> list[str]:
    """Statements that ask for the arguments of slices like these."""
    slices = [next(iter(slices_of([one]))) for one in events]
    return [ARGS.format(at, lasts, "'{}'".format(str(name).replace("'", "''"))) for _, _, at, lasts, name in slices]


def sets(rows: list[Row]) -> list[dict[str, Any]]:
    """The arguments of each slice."""
    return [{str(key): value for at, key, value in rows if at == one and key} for one in {row[0] for row in rows}]


# -- whole traces ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOUND, ids=name_of)
def test_all_of_a_real_trace_arrives_to_the_nanosecond_with_its_arguments(path: Path, tmp_path: Path) -> None:
    events = events_of(plain(path))
    chosen = sample(events, path.name)
    found = loaded(trace_of(path, tmp_path), SLICES, *args_of(chosen))
    check(found, events)
    check_args(found, chosen)


@pytest.mark.parametrize("path", DAMAGED, ids=name_of)
def test_all_that_could_be_read_of_a_damaged_trace_arrives(path: Path, tmp_path: Path) -> None:
    trace = trace_of(path, tmp_path)
    counts = Counter[str]()
    for key, count in trace.summary["counts"].items():
        counts[key.split("|")[0]] += count
    found = loaded(trace)
    assert found.account["complete"]
    assert found.account["shown"] == trace.summary["events"]["kept"] - found.rendered.loose_ends
    assert found.account["slices"]["engine"] == sum(counts[phase] for phase in SHOWN) > 0


@pytest.mark.parametrize("args", ["essential", "none"])
@pytest.mark.parametrize("path", FEW, ids=name_of)
def test_with_fewer_arguments_it_is_the_same_slices(path: Path, args: Args, tmp_path: Path) -> None:
    events = events_of(plain(path))
    chosen = sample(events, path.name)
    found = loaded(trace_of(path, tmp_path), SLICES, *args_of(chosen), args=args)
    check(found, events)
    check_args(found, chosen, args)


def test_allocations_and_collectives_keep_all_their_arguments_among_the_essential_ones(tmp_path: Path) -> None:
    here = {"pid": 1, "tid": 1, "dur": 1, "ph": "X"}
    args = {"Addr": 5, "Total Allocated": 7, "note": "all"}
    events = [
        {**here, "name": "[memory]", "ts": 1, "ph": "i", "s": "t", "args": args},
        {**here, "name": "[memory]", "ts": Decimal("2.00001"), "ph": "i", "s": "t", "args": args},
        {**here, "name": "nccl", "ts": 3, "args": {"Collective name": "allreduce", "dtype": "Float"}},
        {**here, "name": "aten::add", "ts": 4, "args": {"correlation": 3, "Input Dims": [[1]]}},
        {**here, "name": "aten::mul", "ts": 5, "args": {"Input Dims": [[1]]}},
    ]
    sql = "SELECT slice.id, key, coalesce(string_value, int_value) FROM slice LEFT JOIN args USING (arg_set_id)"
    found = loaded(ingested(text_of(*events), tmp_path / "trace"), sql, args="essential")
    told = [flat(event["args"]) for event in events[:3]] + [{"args.correlation": 3}, {}]
    assert sorted(map(str, sets(found.answers[0]))) == sorted(map(str, told))


# -- selections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("straddle", ["keep", "clip"])
@pytest.mark.parametrize("path", FEW, ids=name_of)
def test_of_a_selection_the_engine_has_what_its_download_has(path: Path, straddle: str, tmp_path: Path) -> None:
    trace = trace_of(path, tmp_path)
    steps = [step["number"] for step in trace.summary["steps"][:1]]
    times = sorted(nanoseconds(event["ts"]) for event in events_of(plain(path)) if event["ph"] == "X")
    window = {"window": {"start_ns": times[len(times) // 3], "end_ns": times[len(times) // 2]}}
    for selection in ({"steps": steps}, window) if steps else (window,):
        chosen = selection | {"straddle": straddle}
        events = events_of(cut_text(trace, chosen))
        assert events
        check(loaded(trace, SLICES, selection=chosen), events)


def test_of_nothing_nothing_is_rendered(step_trace: Path, tmp_path: Path) -> None:
    trace = trace_of(step_trace, tmp_path)
    pieces = rendering(trace.columns, trace.summary, Rendered(), selection=Selection(names=["there is none"]))
    with pytest.raises(SelectionError):
        next(pieces)


def test_a_trace_without_events_is_an_empty_document(tmp_path: Path) -> None:
    found = loaded(ingested('{"traceEvents": []}', tmp_path / "trace"))
    assert json.loads(found.document) == {"traceEvents": []}
    assert found.account["complete"]


# -- merged traces --------------------------------------------------------------------------------------------------


def merged(traces: list[Source], folder: Path) -> Source:
    child = merge(traces, folder / "merged", name="merged.json", align="none", on_written=lambda *_: None)
    return Source(folder / "merged", child.name, child.summary, child.id)


def test_devices_of_merged_traces_are_told_apart_by_rank(tmp_path: Path) -> None:
    traces = [
        ingested(
            b"".join(trace_chunks(TraceShape(rank=rank, world_size=2, seed=rank))), tmp_path / str(rank), rank=rank
        )
        for rank in (0, 1)
    ]
    found = loaded(merged(traces, tmp_path), SLICES, PROCESSES)
    assert found.account["complete"]
    names = {str(name): rank for name, rank in found.answers[1]}
    assert {name: rank for name, rank in names.items() if name.startswith("GPU")} == {
        "GPU 0 · rank 0": 0,
        "GPU 0 · rank 1": 1,
    }
    assert all(f"rank {rank!r}" in name for name, rank in names.items() if rank is not None)


def test_real_ranks_that_are_merged_lose_nothing(tmp_path: Path) -> None:
    paths = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in (0, 1)]
    found = loaded(merged([trace_of(path, tmp_path) for path in paths], tmp_path), PROCESSES)
    shown = sum(event["ph"] in SHOWN for path in paths for event in events_of(plain(path)))
    assert found.account["complete"]
    assert found.account["slices"]["engine"] == shown
    assert {rank for _, rank in found.answers[0]} == {0, 1}

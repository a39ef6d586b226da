"""The claims of tests/traces.py about its traces, checked with json alone."""

import gzip
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.traces import (
    MEMBER_BYTES,
    Compression,
    Document,
    Era,
    Layout,
    TraceShape,
    examples,
    expected,
    sized,
    trace_chunks,
    write_trace,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}
Events = list[dict[str, Any]]


def content_of(shape: TraceShape) -> bytes:
    return b"".join(trace_chunks(shape))


def read(shape: TraceShape) -> tuple[dict[str, Any], Events]:
    """Return the envelope and the events, with times as integer ns."""
    document = json.loads(content_of(shape), parse_float=Decimal)
    envelope = document if isinstance(document, dict) else {}
    events: Events = envelope.get("traceEvents", document)
    for event in events:
        for key in event.keys() & {"ts", "dur"}:
            exact = Decimal(event[key]) * 1000
            assert exact == int(exact)
            event[key] = int(exact)
    return envelope, events


def spans_by_track(events: Events) -> dict[tuple[Any, Any], list[tuple[int, int]]]:
    """Return each track's spans as (start, -end), sorted: a parent precedes its children."""
    tracks: dict[tuple[Any, Any], list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            span = (event["ts"], -event["ts"] - event["dur"])
            tracks.setdefault((event["pid"], event["tid"]), []).append(span)
    return {track: sorted(spans) for track, spans in tracks.items()}


@pytest.mark.parametrize("document", get_args(Document))
@pytest.mark.parametrize("era", get_args(Era))
@pytest.mark.parametrize("layout", get_args(Layout))
def test_expected_results_equal_those_of_json(layout: Layout, era: Era, document: Document) -> None:
    shape = TraceShape(steps=6, layout=layout, era=era, document=document, devices=(0, 1), stacks=True)

    envelope, events = read(shape)

    totals = expected(shape)
    timed = [event for event in events if event["ph"] in "Xi" and event.get("name") != "Record Window End"]
    gpu = {(event["pid"], event["tid"]) for event in events if event.get("cat") in GPU_CATEGORIES}
    steps = [
        (int(event["name"].partition("#")[2]), event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    ]
    distributed = envelope.get("distributedInfo", {})
    assert totals.counts == Counter(f"{event['ph']}|{event.get('cat', '')}" for event in events)
    assert totals.events == len(events)
    assert totals.start_ns == min(event["ts"] for event in timed)
    assert totals.end_ns == max(event["ts"] + event.get("dur", 0) for event in timed)
    assert totals.base_ns == envelope.get("baseTimeNanoseconds")
    assert totals.streams == [f"{device}/{stream}" for device, stream in sorted(gpu)]
    assert totals.streams == ["0/7", "0/20", "1/7", "1/20"]
    assert totals.devices == [0, 1]
    assert [tuple(step) for step in totals.steps] == steps
    assert (totals.rank, totals.world_size) == (distributed.get("rank"), distributed.get("world_size"))
    assert totals.backend == distributed.get("backend")


@pytest.mark.parametrize("layout", get_args(Layout))
def test_every_layout_has_the_same_content(layout: Layout) -> None:
    def sorted_events(shape: TraceShape) -> list[str]:
        return sorted(json.dumps(event, sort_keys=True, default=str) for event in read(shape)[1])

    assert sorted_events(TraceShape(layout=layout)) == sorted_events(TraceShape(layout="one_line"))


@pytest.mark.parametrize(("era", "decimals"), [("us_int", 0), ("us_float", 1), ("us_decimal", 3), ("relative", 3)])
def test_each_profiler_version_writes_its_number_of_decimals(era: Era, decimals: int) -> None:
    events = json.loads(content_of(TraceShape(era=era, document="array")), parse_float=str, parse_int=str)

    lengths = {len(event["ts"].partition(".")[2]) for event in events}

    assert lengths == {decimals}


@pytest.mark.parametrize("position", ["before", "after", None])
def test_base_is_at_the_requested_position(position: Any) -> None:
    text = content_of(TraceShape(base_position=position))

    base, events = text.find(b'"baseTimeNanoseconds"'), text.index(b'"traceEvents"')

    assert {"before": 0 < base < events, "after": base > events, None: base == -1}[position]


def test_a_trace_without_rank_has_no_distributed_info_and_no_collectives() -> None:
    shape = TraceShape(rank=None)

    envelope, events = read(shape)

    assert "distributedInfo" not in envelope
    assert (expected(shape).rank, expected(shape).world_size) == (None, None)
    assert not [event for event in events if "nccl" in event["name"] or "comms" in event["name"]]


def test_step_has_the_requested_number_of_kernels() -> None:
    totals = expected(TraceShape(steps=5, kernels=40))

    assert totals.counts["X|kernel"] == 5 * 40
    assert len(totals.steps) == 5


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_trace_may_have_few_steps_or_none(steps: int) -> None:
    shape = TraceShape(steps=steps)

    assert len(read(shape)[1]) == expected(shape).events


def test_slices_nest_and_kernels_of_a_stream_do_not_overlap() -> None:
    for spans in spans_by_track(read(TraceShape(steps=5, kernels=60, stacks=True))[1]).values():
        open_ends: list[int] = []
        for start, minus_end in spans:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or -minus_end <= open_ends[-1]
            open_ends.append(-minus_end)


def test_every_kernel_has_one_launch_one_op_and_one_flow() -> None:
    events = read(TraceShape(steps=6))[1]

    def by(category: str, key: str) -> Counter[Any]:
        return Counter(event["args"][key] for event in events if event.get("cat") == category)

    work = Counter(event["args"]["correlation"] for event in events if event.get("cat") in GPU_CATEGORIES)
    flows = Counter((event["ph"], event["id"]) for event in events if event.get("cat") == "ac2g")
    assert max(work.values()) == 1
    assert max(by("cuda_runtime", "correlation").values()) == 1
    assert work.keys() <= by("cuda_runtime", "correlation").keys()
    assert by("kernel", "External id").keys() <= by("cpu_op", "External id").keys()
    assert max(by("cpu_op", "External id").values()) == 1
    assert flows == Counter(itertools.product("sf", work))


def test_each_backward_flow_end_has_one_forward_start() -> None:
    events = read(TraceShape(steps=6))[1]

    flows = Counter((event["ph"], event["id"]) for event in events if event.get("cat") == "fwdbwd")

    starts, ends = ({number for ph, number in flows if ph == phase} for phase in "sf")
    assert set(flows.values()) == {1}
    assert ends
    assert ends <= starts


def test_sixteen_gpus_are_declared_and_streams_are_named() -> None:
    events = read(TraceShape(stream_name="stream {}"))[1]

    names = {(event["pid"], event["tid"], *event["args"].values()) for event in events if event["ph"] == "M"}

    assert {(device, 0, f"GPU {device}") for device in range(16)} <= names
    assert {(0, 7, "stream 7"), (0, 20, "stream 20")} <= names


def test_equal_shapes_make_equal_bytes_and_other_seeds_make_other_bytes() -> None:
    assert content_of(TraceShape()) == content_of(TraceShape())
    assert content_of(TraceShape()) != content_of(TraceShape(seed=1))


def test_chunks_stay_small_for_any_length_of_trace_and_step() -> None:
    long, wide = TraceShape(steps=400), TraceShape(steps=2, kernels=3000)

    assert max(map(len, trace_chunks(long))) < 1 << 18
    assert max(map(len, trace_chunks(wide))) < 1 << 18


@pytest.mark.parametrize("compress", get_args(Compression))
def test_written_file_decompresses_to_the_generated_text(compress: Compression, tmp_path: Path) -> None:
    shape = TraceShape(steps=8)
    unpackers: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "zstd": zstd.decompress}

    path = write_trace(tmp_path / "trace", shape, compress=compress)

    assert unpackers.get(compress, gzip.decompress)(path.read_bytes()) == content_of(shape)


def test_multi_member_file_has_several_members_and_an_incomplete_last_one(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", TraceShape(), compress="multi-member-gzip")

    member_header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"  # gzip, deflate, no flags, no time

    assert path.read_bytes().count(member_header) > 1
    assert len(content_of(TraceShape())) % MEMBER_BYTES != 0


def test_sized_shape_has_the_requested_size() -> None:
    size = 3_000_000

    shape = sized(replace(TraceShape(), kernels=50), size)

    assert abs(len(content_of(shape)) - size) < 0.05 * size


def test_committed_examples_equal_generated_ones() -> None:
    texts = examples()

    assert {file.name for file in EXAMPLES.glob("*.json.gz")} == texts.keys()
    for name, text in texts.items():
        packed = EXAMPLES.joinpath(name).read_bytes()
        assert gzip.decompress(packed) == text, "regenerate them: python -m tests.traces --examples docs/examples"
        assert len(packed) < 100_000


def test_ranks_of_the_example_end_collectives_together() -> None:
    ends = []
    for text in examples().values():
        events = json.loads(text, parse_float=Decimal)["traceEvents"]
        kernels = [event for event in events if event["name"].startswith("ncclDevKernel")]
        ends.append({event["args"]["Seq"]: event["ts"] + event["dur"] for event in kernels})

    assert len(ends[0]) == 15
    assert ends[0] == ends[1]

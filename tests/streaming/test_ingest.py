"""The survey of a trace says what an independent reader of the whole document says, event for event."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

from service.streaming.ingest import Progress, survey
from service.trace.census import GPU_CATEGORIES, TIMELESS_PHASES, Summary
from service.trace.errors import IngestError, NotATrace, NotJson, Truncated
from tests.conftest import DATA, SHARED, needs_shared
from tests.traces import Compression, Document, Era, Layout, TraceShape, expected, write_trace

TRACES = sorted(
    path
    for path in [*DATA.glob("*.pt.trace.json*"), *SHARED.rglob("*.pt.trace.json*")]
    if path.parent.name != "malformed"
)
MALFORMED = sorted(SHARED.glob("malformed/*"))
GOLDEN = sorted(SHARED.glob("golden/exact/*.json"))


def surveyed(path: Path, name: str | None = None) -> tuple[Summary, bytes]:
    return survey(path, file_name=name or path.name, on_progress=lambda _: None)


def plain(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw


def spans(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Start and end in ns of what takes or marks time, by fractions."""
    return [
        (int(Fraction(e["ts"]) * 1000), int((Fraction(e["ts"]) + Fraction(e.get("dur", 0))) * 1000))
        for e in events
        if e["ph"] not in TIMELESS_PHASES
    ]


def bounds(of: list[tuple[int, int]]) -> dict[str, int]:
    return {"start_ns": min(start for start, _ in of), "end_ns": max(end for _, end in of)}


def device_of(event: dict[str, Any]) -> Any:
    return event.get("args", {}).get("device", event["pid"])


def golden_trace(name: str, rank: str) -> Path:
    if name == "dlrm_8_ranks":
        (path,) = SHARED.glob(f"dlrm_8_ranks/worker{rank}_*")
        return path
    return SHARED / f"{name}.pt.trace.json.gz"


# -- real traces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_a_real_trace_is_surveyed_as_json_reads_it(path: Path) -> None:
    document = json.loads(plain(path), parse_float=Decimal)
    events = document.pop("traceEvents")

    summary, envelope = surveyed(path)

    assert json.loads(envelope, parse_float=Decimal) == document | {"traceEvents": []}
    assert summary.events == {"in": len(events), "kept": len(events), "refused": 0}
    assert summary.counts == Counter(f"{e['ph']}|{e.get('cat', '')}" for e in events)
    assert summary.bounds == bounds(spans(events))
    assert summary.base_ns == document.get("baseTimeNanoseconds")
    assert summary.host == document.get("host_name")
    assert sum(one["events"] for one in summary.processes) == sum(e["ph"] != "M" for e in events)
    work = [e for e in events if e.get("cat") in GPU_CATEGORIES]
    assert {one["id"]: one["bounds"] for one in summary.devices if one["events"]} == {
        device: bounds(spans([e for e in work if device_of(e) == device])) for device in set(map(device_of, work))
    }
    assert [one["number"] for one in summary.steps] == sorted(
        int(e["name"].split("#")[1])
        for e in events
        if e["ph"] == "X" and e["name"].startswith("ProfilerStep#") and e["cat"] != "gpu_user_annotation"
    )


@pytest.mark.parametrize(
    ("golden", "rank"),
    [(path, rank) for path in GOLDEN for rank in json.loads(path.read_text())],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_counts_and_device_bounds_are_those_of_the_golden_tables(golden: Path, rank: str) -> None:
    told = json.loads(golden.read_text())[rank]

    summary, _ = surveyed(golden_trace(golden.stem, rank))

    busy = [one for one in summary.devices if one["events"]]
    assert summary.counts == {key.removesuffix("None"): n for key, n in told["cats"].items()}
    assert summary.events["in"] == told["n_events"]
    assert sum(one["events"] for one in busy) == told["gpu_events"]
    assert [one["bounds"] for one in busy] == [{"start_ns": told["first_ns"], "end_ns": told["last_ns"]}]
    assert sorted(summary.streams) == sorted(stream.replace("stream ", "") for stream in told["streams"])


@needs_shared
@pytest.mark.parametrize(
    ("name", "rank", "world_size", "backend"),
    [
        ("dlrm_8_ranks/worker3_step_12.1694128201557", 3, 8, "nccl"),
        ("a100_nccl_3_steps", 0, 2, "nccl"),
        ("gloo_cpu_rank34_of_300", 34, 300, "gloo"),
        ("v100_resnet50_2021", None, None, None),
        ("large_integers", None, None, None),
    ],
)
def test_a_real_trace_tells_its_rank_or_it_stays_unknown(
    name: str, rank: int | None, world_size: int | None, backend: str | None
) -> None:
    summary, _ = surveyed(SHARED / f"{name}.pt.trace.json.gz", name="trace.json")

    assert (summary.rank, summary.world_size, summary.backend) == (rank, world_size, backend)


@pytest.mark.parametrize("path", MALFORMED, ids=lambda path: path.name.partition(".")[0])
def test_what_torch_mangles_is_read_or_refused_at_the_byte(path: Path) -> None:
    text = path.read_text()
    try:
        events = json.loads(text)["traceEvents"]
    except json.JSONDecodeError as stumble:
        place = len(text[: stumble.pos].encode())
    else:
        assert surveyed(path)[0].events["kept"] == len(events)
        return

    with pytest.raises(NotJson) as caught:
        surveyed(path)

    assert caught.value.extra == {"offset": place}


@needs_shared
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("memory_timeline.json", NotATrace),
        ("memory_timeline.raw.json.gz", NotATrace),
        ("snapshot_from_cpu_profile.pickle", NotJson),
    ],
)
def test_what_else_torch_writes_is_no_trace(name: str, error: type[IngestError]) -> None:
    with pytest.raises(error):
        surveyed(SHARED / "torch213_cpu" / name)


# -- made traces ------------------------------------------------------------------------------------------------


def check_expected(path: Path, shape: TraceShape) -> None:
    told = expected(shape)

    summary, _ = surveyed(path, name="trace.json")

    assert summary.counts == told.counts
    assert summary.events == {"in": told.events, "kept": told.events, "refused": 0}
    assert summary.bounds == {"start_ns": told.start_ns, "end_ns": told.end_ns}
    assert summary.base_ns == told.base_ns
    assert summary.streams == told.streams
    assert [one["id"] for one in summary.devices if one["events"]] == told.devices
    assert [tuple(step.values()) for step in summary.steps] == [tuple(step) for step in told.steps]
    assert (summary.rank, summary.world_size, summary.backend) == (told.rank, told.world_size, told.backend)


@pytest.mark.parametrize("document", get_args(Document))
@pytest.mark.parametrize("era", get_args(Era))
@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_made_trace_of_any_era_and_layout_is_surveyed_as_planned(
    tmp_path: Path, layout: Layout, era: Era, document: Document
) -> None:
    shape = TraceShape(layout=layout, era=era, document=document, devices=(0, 1), stacks=True)

    check_expected(write_trace(tmp_path / "trace", shape), shape)


@pytest.mark.parametrize("compress", get_args(Compression))
def test_a_made_trace_in_any_packing_is_surveyed_as_planned(tmp_path: Path, compress: Compression) -> None:
    shape = TraceShape(steps=40, base_position="after")
    path = write_trace(tmp_path / "trace", shape, compress=compress)

    check_expected(path, shape)
    packed = {"none": "json", "gzip": "json.gz", "multi-member-gzip": "json.gz", "zstd": "json.zst"}
    assert surveyed(path)[0].format == packed[compress]


# -- the pass ---------------------------------------------------------------------------------------------------


def test_progress_only_grows_and_ends_with_all(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", TraceShape(steps=60))
    told: list[tuple[int, int]] = []

    def note(progress: Progress) -> None:
        told.append((progress.bytes, progress.events))

    summary, _ = survey(path, file_name="t", on_progress=note)

    assert told == sorted(told)
    assert len(told) > 3
    assert told[-1] == (path.stat().st_size, summary.events["in"])


@pytest.mark.parametrize("compress", get_args(Compression))
def test_a_trace_cut_anywhere_is_refused(tmp_path: Path, compress: Compression) -> None:
    whole = write_trace(tmp_path / "trace", TraceShape(steps=30), compress=compress).read_bytes()
    path = tmp_path / "cut"
    for part in range(1, 20):
        path.write_bytes(whole[: len(whole) * part // 20])

        with pytest.raises(Truncated) as caught:
            surveyed(path)

        assert caught.value.extra["offset"] > 0


@pytest.mark.parametrize("text", [b"[1, 2, null]", b'{"traceEvents": ["a"]}', b"[[]]"])
def test_an_array_of_anything_but_events_is_no_trace(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(text)

    with pytest.raises(NotATrace, match="None of the"):
        surveyed(path)


@pytest.mark.parametrize(
    "name",
    [rb'"\ud83d"', rb'"\udc00"', rb'"\ud83d\ud83d"', rb'"\ud83d\ude00"', rb'"\u0000"', '"é\u2028"'.encode(), b'"\x7f"'],
)
def test_an_odd_name_is_refused_or_can_be_stored(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(
        b'{"host_name": %b, "distributedInfo": {"backend": %b}, "deviceProperties": [{"id": 0, "name": %b}],'
        b'"traceEvents": [{"ph": "M", "name": "process_name", "pid": %b, "args": {"name": %b}},'
        b'{"ph": %b, "cat": %b, "pid": %b, "tid": %b, "ts": 1}]}' % ((name,) * 9)
    )
    try:
        summary, _ = surveyed(path)
    except NotJson:
        assert name == rb'"\udc00"'  # alone it is no character, and Python can't make one of it
    else:
        assert orjson.loads(orjson.dumps(summary)) == json.loads(orjson.dumps(summary))

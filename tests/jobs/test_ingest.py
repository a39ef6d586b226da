"""An ingest agrees with an independent reader, event for event, and leaves the whole result or nothing."""

import gzip
import json
import os
import resource
import zlib
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, get_args

import orjson
import pyarrow.parquet as pq
import pytest

from service.jobs.ingest import ingest
from service.store.export import document
from service.streaming.source import Progress
from service.trace.errors import BadCompression, DiskFull, IngestError, NotATrace, NotJson, Truncated
from service.trace.health import Kind
from service.trace.summary import GPU_CATEGORIES, TIMELESS_PHASES, HealthReport, Summary
from tests.conftest import DATA, SHARED, few_of, needs_shared
from tests.traces import Compression, Document, Era, Layout, TraceShape, expected, write_trace

TRACES = sorted(
    path
    for path in [*DATA.glob("*.pt.trace.json*"), *SHARED.rglob("*.pt.trace.json*")]
    if path.parent.name != "malformed"
)
MALFORMED = sorted(SHARED.glob("malformed/*"))
GOLDEN = sorted(SHARED.glob("golden/exact/*.json"))


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "original", TraceShape())


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    (tmp_path / "columns").mkdir()
    return tmp_path / "columns" / "9f2c41d07a3b"


def ingested(original: Path, columns: Path, name: str = "trace.json") -> Summary:
    with original.open("rb") as file:
        return ingest(file, columns, name, lambda _: None)


def is_sound(report: HealthReport) -> bool:
    """Return whether a file was read without refusing or repairing any of it."""
    return all(note["kind"] == Kind.ODDITY.value for note in report["notes"])


def plain(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw


def as_written(text: bytes | str) -> Any:
    """Return the value of a JSON text, with numbers as their text."""
    return json.loads(text, parse_float=str, parse_int=str)


def spans(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return start and end in ns of each recorded event with a time, computed exactly from fractions."""
    return [
        (int(Fraction(e["ts"]) * 1000), int((Fraction(e["ts"]) + Fraction(e.get("dur", 0))) * 1000))
        for e in events
        if e["ph"] not in TIMELESS_PHASES and e.get("name") != "Record Window End"
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


def codes(summary: Summary) -> dict[str, int]:
    """Return the counts of refused and repaired events, by code."""
    return {note["code"]: note["count"] for note in summary.health["notes"] if note["kind"] != "oddity"}


# -- real traces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", few_of(TRACES), ids=lambda path: path.name.partition(".")[0])
def test_summary_of_a_real_trace_is_what_json_reads(path: Path, columns: Path) -> None:
    document = json.loads(plain(path), parse_float=Decimal)
    events = document.pop("traceEvents")

    summary = ingested(path, columns)

    assert json.loads((columns / "envelope.json").read_bytes(), parse_float=Decimal) == document | {"traceEvents": []}
    assert summary.events == {"in": len(events), "kept": len(events), "refused": 0}
    assert summary.counts == Counter(f"{e['ph']}|{e.get('cat', '')}" for e in events)
    assert summary.bounds == bounds(spans(events))
    assert summary.base_ns == document.get("baseTimeNanoseconds")
    assert summary.host == document.get("host_name")
    assert sum(entry["events"] for entry in summary.processes) == sum(e["ph"] != "M" for e in events)
    work = [e for e in events if e.get("cat") in GPU_CATEGORIES]
    assert {entry["id"]: entry["bounds"] for entry in summary.devices if entry["events"]} == {
        device: bounds(spans([e for e in work if device_of(e) == device])) for device in set(map(device_of, work))
    }
    assert [entry["number"] for entry in summary.steps] == sorted(
        int(e["name"].split("#")[1])
        for e in events
        if e["ph"] == "X" and e["name"].startswith("ProfilerStep#") and e["cat"] != "gpu_user_annotation"
    )
    assert is_sound(summary.health)


@pytest.mark.parametrize("path", few_of(TRACES), ids=lambda path: path.name.partition(".")[0])
def test_columns_of_a_real_trace_export_it_digit_for_digit(path: Path, columns: Path) -> None:
    ingested(path, columns)

    assert as_written(b"".join(document(columns, order="original"))) == as_written(plain(path))


@pytest.mark.parametrize("path", few_of(TRACES), ids=lambda path: path.name.partition(".")[0])
def test_columns_of_a_real_trace_are_ordered_by_time(path: Path, columns: Path) -> None:
    summary = ingested(path, columns)

    table = pq.read_table(columns / "events.parquet", columns=["ts_ns", "position"])
    assert table.sort_by([("ts_ns", "ascending"), ("position", "ascending")]).equals(table)
    assert sorted(table["position"].to_pylist()) == list(range(summary.events["kept"]))


@pytest.mark.parametrize(
    ("golden", "rank"),
    [(path, rank) for path in GOLDEN for rank in json.loads(path.read_text())],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_counts_and_device_bounds_match_the_golden_tables(golden: Path, rank: str, columns: Path) -> None:
    table = json.loads(golden.read_text())[rank]

    summary = ingested(golden_trace(golden.stem, rank), columns)

    busy = [entry for entry in summary.devices if entry["events"]]
    assert summary.counts == {key.removesuffix("None"): n for key, n in table["cats"].items()}
    assert summary.events["in"] == table["n_events"]
    assert sum(entry["events"] for entry in busy) == table["gpu_events"]
    assert [entry["bounds"] for entry in busy] == [{"start_ns": table["first_ns"], "end_ns": table["last_ns"]}]
    assert sorted(summary.streams) == sorted(stream.replace("stream ", "") for stream in table["streams"])


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
def test_rank_of_a_real_trace_is_its_own_or_unknown(
    columns: Path, name: str, rank: int | None, world_size: int | None, backend: str | None
) -> None:
    summary = ingested(SHARED / f"{name}.pt.trace.json.gz", columns)

    assert (summary.rank, summary.world_size, summary.backend) == (rank, world_size, backend)


@needs_shared
@pytest.mark.parametrize(
    ("name", "work"), [("mi300_resnet_rank0_of_8", 968), ("a100_nccl_3_steps", 0), ("v100_ddp_epoch_us", 0)]
)
def test_real_trace_counts_work_without_its_launch(name: str, work: int, columns: Path) -> None:
    notes = ingested(SHARED / f"{name}.pt.trace.json.gz", columns).health["notes"]

    assert sum(note["count"] for note in notes if note["code"] == "unlinked_kernels") == work


@pytest.mark.parametrize("path", MALFORMED, ids=lambda path: path.name.partition(".")[0])
def test_text_that_torch_mangles_is_read_and_each_repair_has_its_byte(path: Path, columns: Path) -> None:
    text = path.read_text()
    try:
        stumble = None
        events = len(json.loads(text)["traceEvents"])
    except json.JSONDecodeError as error:
        stumble = error
        events = text.count('"ph": "')

    summary = ingested(path, columns)

    assert summary.events == {"in": events, "kept": events, "refused": 0}
    assert is_sound(summary.health) == (stumble is None)
    assert len(json.loads(b"".join(document(columns)))["traceEvents"]) == events
    for note in summary.health["notes"]:
        for example in note["examples"]:
            if example["offset"] is not None:
                at = example["offset"]
                assert (example["text"] or "") in text.encode()[max(at - 60, 0) : at + 120].decode()


@needs_shared
@pytest.mark.parametrize("name", ["memory_timeline.json", "memory_timeline.raw.json.gz"])
def test_memory_timeline_of_a_real_run_has_counters(name: str, columns: Path) -> None:
    summary = ingested(SHARED / "torch213_cpu" / name, columns)
    assert summary.counts["C|memory_timeline"] > 0
    assert summary.is_memory_history


# -- generated traces-------------------------------------------------------------------------------------------


def check_expected(summary: Summary, shape: TraceShape) -> None:
    plan = expected(shape)
    assert summary.counts == plan.counts
    assert summary.events == {"in": plan.events, "kept": plan.events, "refused": 0}
    assert summary.bounds == {"start_ns": plan.start_ns, "end_ns": plan.end_ns}
    assert summary.base_ns == plan.base_ns
    assert summary.streams == plan.streams
    assert [entry["id"] for entry in summary.devices if entry["events"]] == plan.devices
    steps = [(step["number"], step["name"], step["start_ns"], step["end_ns"]) for step in summary.steps]
    assert steps == [tuple(step) for step in plan.steps]
    assert (summary.rank, summary.world_size, summary.backend) == (plan.rank, plan.world_size, plan.backend)
    assert is_sound(summary.health)


@pytest.mark.parametrize("outer", get_args(Document))
@pytest.mark.parametrize("era", get_args(Era))
@pytest.mark.parametrize("layout", get_args(Layout))
def test_generated_trace_of_any_era_and_layout_is_read_and_exported(
    tmp_path: Path, columns: Path, layout: Layout, era: Era, outer: Document
) -> None:
    shape = TraceShape(layout=layout, era=era, document=outer, devices=(0, 1), stacks=True)
    path = write_trace(tmp_path / "trace", shape)

    check_expected(ingested(path, columns), shape)
    assert as_written(b"".join(document(columns, order="original"))) == as_written(path.read_bytes())


@pytest.mark.parametrize("compress", get_args(Compression))
def test_generated_trace_of_any_compression_is_read(tmp_path: Path, columns: Path, compress: Compression) -> None:
    shape = TraceShape(steps=40, base_position="after")
    path = write_trace(tmp_path / "trace", shape, compress=compress)

    summary = ingested(path, columns)

    check_expected(summary, shape)
    packed = {"none": "json", "gzip": "json.gz", "multi-member-gzip": "json.gz", "zstd": "json.zst"}
    assert summary.format == packed[compress]


# -- damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(1, 12))
def test_truncated_trace_keeps_all_events_before_its_end(tmp_path: Path, columns: Path, part: int) -> None:
    whole = write_trace(tmp_path / "trace", TraceShape(layout="one_line")).read_bytes()
    cut = len(whole) * part // 12
    (tmp_path / "cut").write_bytes(whole[:cut])
    before = len(json.loads(whole[: whole.rindex(b"}, {", 0, cut) + 1] + b"]}")["traceEvents"])

    summary = ingested(tmp_path / "cut", columns)

    assert summary.events["kept"] == before
    assert summary.events["in"] == before + summary.events["refused"]
    assert set(codes(summary)) == {"cut"}
    events = as_written(b"".join(document(columns, order="original")))["traceEvents"]
    assert events == as_written(whole)["traceEvents"][:before]


@pytest.mark.parametrize("compress", [name for name in get_args(Compression) if name != "none"])
def test_truncated_compressed_trace_keeps_what_can_be_decompressed(
    tmp_path: Path, columns: Path, compress: Compression
) -> None:
    shape = TraceShape(steps=30)
    whole = write_trace(tmp_path / "trace", shape, compress=compress).read_bytes()
    kept = 0
    for part in range(4, 20, 3):
        (tmp_path / "cut").write_bytes(whole[: len(whole) * part // 20])

        summary = ingested(tmp_path / "cut", columns)

        assert kept < summary.events["kept"] < expected(shape).events
        assert set(codes(summary)) == {"cut"}
        kept = summary.events["kept"]


def test_damaged_gzip_keeps_events_before_the_damage(tmp_path: Path, columns: Path) -> None:
    whole = bytearray(write_trace(tmp_path / "trace", TraceShape(steps=30), compress="gzip").read_bytes())
    whole[len(whole) // 2 :] = Random(1).randbytes(len(whole) - len(whole) // 2)
    (tmp_path / "damaged").write_bytes(whole)

    summary = ingested(tmp_path / "damaged", columns)

    assert summary.events["kept"] > 0
    assert "bad_compression" in codes(summary)
    (note,) = (note for note in summary.health["notes"] if note["code"] == "bad_compression")
    assert 0 < (note["examples"][0]["offset"] or 0) <= len(whole)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"traceEvents": [{"ph": "X", "na', Truncated),
        (b'{"schemaVersion": 1, "traceEv', Truncated),
        (gzip.compress(b'{"traceEvents": [' + b" " * 999, mtime=0)[:20], Truncated),
        (b"\x1f\x8b\x08\x00" + bytes(40), BadCompression),
        (b"[1, 2, null]", NotATrace),
        (b'{"traceEvents": ["a"]}', NotATrace),
        (b"[[]]", NotATrace),
        (b"no JSON", NotJson),
        (zlib.compress(b"{}"), NotJson),
    ],
)
def test_unreadable_file_is_refused_and_leaves_nothing(
    tmp_path: Path, columns: Path, content: bytes, error: type[IngestError]
) -> None:
    (tmp_path / "original").write_bytes(content)

    with pytest.raises(error):
        ingested(tmp_path / "original", columns)

    assert list(columns.parent.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [rb'"\ud83d"', rb'"\udc00"', rb'"\ud83d\ud83d"', rb'"\ud83d\ude00"', rb'"\u0000"', '"é\u2028"'.encode(), b'"\x7f"'],
)
def test_odd_name_can_be_stored(tmp_path: Path, columns: Path, name: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(
        b'{"host_name": %b, "distributedInfo": {"backend": %b}, "deviceProperties": [{"id": 0, "name": %b}],'
        b'"traceEvents": [{"ph": "M", "name": "process_name", "pid": %b, "args": {"name": %b}},'
        b'{"ph": %b, "cat": %b, "pid": %b, "tid": %b, "ts": 1}]}' % ((name,) * 9)
    )
    summary = ingested(path, columns)
    assert orjson.loads(orjson.dumps(summary)) == json.loads(orjson.dumps(summary))
    assert summary.events == {"in": 2, "kept": 2, "refused": 0}


# -- the result -------------------------------------------------------------------------------------------------


def test_progress_of_an_ingest_only_grows_and_ends_with_all(tmp_path: Path, columns: Path) -> None:
    path = write_trace(tmp_path / "trace", TraceShape(steps=60))
    reports: list[tuple[int, int]] = []

    def note(progress: Progress) -> None:
        reports.append((progress.bytes, progress.events))

    with path.open("rb") as file:
        summary = ingest(file, columns, "t", note)

    assert reports == sorted(reports)
    assert len(reports) > 3
    assert reports[-1] == (path.stat().st_size, summary.events["in"])


def test_ingest_leaves_nothing_but_its_result(original: Path, columns: Path) -> None:
    ingested(original, columns)

    assert os.listdir(columns.parent) == [columns.name]  # noqa: PTH208 - the test compares names
    files = ["attribution.parquet", "collectives.parquet", "envelope.json", "events.parquet", "memory.parquet"]
    assert sorted(os.listdir(columns)) == files  # noqa: PTH208


def test_ingest_replaces_what_a_killed_process_left(original: Path, columns: Path) -> None:
    for leftover in (columns, columns.with_name(f"{columns.name}.partial")):
        leftover.mkdir()
        (leftover / "stale").write_bytes(b"x")

    ingested(original, columns)

    assert [path.name for path in columns.parent.iterdir()] == [columns.name]
    assert not (columns / "stale").exists()


def test_ingest_without_room_fails_and_leaves_nothing(original: Path, columns: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # the kernel refuses to write more
    try:
        with pytest.raises(DiskFull):
            ingested(original, columns)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(columns.parent.iterdir()) == []

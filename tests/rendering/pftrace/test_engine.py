"""The engine alone, without Tracedock, has the slices, arrows, counters and arguments of a written Perfetto trace."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

from service.cutting.source import Source
from service.engine.trace_processor import provision
from service.settings import Settings
from tests.conftest import DATA, SHARED
from tests.cutting.test_cut import ingested, plain
from tests.rendering.pftrace.reading import rows_of, written
from tests.traces import TraceShape, trace_chunks

REAL = sorted([*DATA.glob("*.pt.trace.json.gz"), *SHARED.glob("*.pt.trace.json.gz")])
FROM_SLICES = """
FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)
"""


class Engine:
    """An engine that has loaded a file."""

    def __init__(self, content: bytes, folder: Path) -> None:
        path = folder / "trace.pftrace"
        path.write_bytes(content)
        config = TraceProcessorConfig(bin_path=str(provision.engine_path(Settings())))
        self._processor = TraceProcessor(trace=str(path), config=config)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        columns = [*self._processor.query(sql)]
        return [tuple(row.__dict__.values()) for row in columns]

    def close(self) -> None:
        self._processor.close()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Any]:
    engines: list[Engine] = []

    def load(trace: Source, **options: Any) -> Engine:
        engines.append(Engine(written(trace, **options), tmp_path))
        return engines[-1]

    yield load
    for engine in engines:
        engine.close()


def zero_of(trace: Source) -> int:
    return trace.summary.base_ns or 0


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.partition(".")[0])
def test_slices_and_instants_are_those_of_the_columns(path: Path, tmp_path: Path, load: Any) -> None:
    trace = ingested(plain(path), tmp_path / "trace")
    engine = load(trace)

    rows = [row for row in rows_of(trace.columns) if row["ph"] in "Xi" and "ts_ns" in row]
    shown = Counter(
        (row["ts_ns"] + zero_of(trace), row.get("dur_ns", 0), row["name"] or None, row.get("cat")) for row in rows
    )
    found = Counter(row[:4] for row in engine.rows("SELECT ts, dur, name, category FROM slice"))
    assert found == shown
    assert engine.rows("SELECT name FROM stats WHERE value > 0 AND severity = 'error' AND name NOT LIKE 'flow_%'") == []


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.partition(".")[0])
def test_arrows_are_as_many_as_in_the_document(path: Path, tmp_path: Path, load: Any) -> None:
    trace = ingested(plain(path), tmp_path / "trace")
    rows = rows_of(trace.columns)
    begun: set[tuple[Any, ...]] = set()
    arrows = 0
    for row in sorted(
        (row for row in rows if row["ph"] in "stf"), key=lambda row: (row["ts_ns"], "sf".index(row["ph"]))
    ):
        key = row["id"], row["cat"], row["name"]
        if row["ph"] == "s":
            begun.add(key)
        arrows += row["ph"] != "s" and key in begun

    engine = load(trace)

    missing = engine.rows("SELECT coalesce(sum(value), 0) FROM stats WHERE name LIKE 'flow_%'")[0][0]
    drawn = engine.rows("SELECT count(*) FROM flow")[0][0]
    assert drawn <= arrows
    assert drawn + missing >= arrows


def test_arguments_have_their_types_and_values(tmp_path: Path, load: Any) -> None:
    arguments = {
        "int": -5, "unsigned": (1 << 64) - 1, "large": 1 << 70, "double": 0.1, "text": "é\n", "yes": True,
        "list": [1, [2.5, "x"]], "object": {"a": {"b": False}},
    }  # fmt: skip
    event = {"ph": "X", "name": "one", "pid": 1, "tid": 1, "ts": 1.001, "dur": 2, "args": arguments}
    engine = load(ingested(json.dumps([event]), tmp_path / "trace"))

    rows = engine.rows("""
        SELECT key, value_type, coalesce(int_value, string_value, real_value)
        FROM slice JOIN args USING (arg_set_id) WHERE key LIKE 'debug.%'
    """)

    assert {key.removeprefix("debug."): (kind, value) for key, kind, value in rows} == {
        "int": ("int", -5),
        "unsigned": ("uint", -1),  # 2^64 - 1 in SQLite's signed integers
        "large": ("string", f"{1 << 70}"),
        "double": ("real", 0.1),
        "text": ("string", "é\n"),
        "yes": ("bool", 1),
        "list[0]": ("int", 1),
        "list[1][0]": ("real", 2.5),
        "list[1][1]": ("string", "x"),
        "object.a.b": ("bool", 0),
    }


def test_each_series_of_a_counter_has_its_values(tmp_path: Path, load: Any) -> None:
    samples = [
        {"ph": "C", "name": "memory", "pid": 1, "ts": at, "args": {"used": at * 10, "free": -0.5}} for at in (1, 2, 4)
    ]
    alone = {"ph": "C", "name": "power", "pid": 1, "ts": 3, "args": {"value": 7}}
    engine = load(ingested(json.dumps([*samples, alone]), tmp_path / "trace"))

    rows = engine.rows("SELECT track.name, ts, value FROM counter JOIN track ON track.id = track_id ORDER BY 1, 2")

    assert rows == [
        ("memory free", 1000, -0.5), ("memory free", 2000, -0.5), ("memory free", 4000, -0.5),
        ("memory used", 1000, 10.0), ("memory used", 2000, 20.0), ("memory used", 4000, 40.0),
        ("power", 3000, 7.0),
    ]  # fmt: skip


def test_overlapping_slices_are_whole_on_lanes_of_their_thread(tmp_path: Path, load: Any) -> None:
    spans = [(0, 10), (5, 10), (5, 0), (5, 5), (15, 0), (15, 3), (2, 3)]
    events = [{"ph": "X", "name": f"{at}", "pid": 4, "tid": 9, "ts": at, "dur": dur} for at, dur in spans]
    engine = load(ingested(json.dumps(events), tmp_path / "trace"))

    rows = engine.rows(f"SELECT slice.ts, slice.dur, process.pid {FROM_SLICES}")
    names = engine.rows(f"SELECT DISTINCT thread.name {FROM_SLICES}")

    assert Counter((ts // 1000, dur // 1000) for ts, dur, *_ in rows) == Counter(spans)
    assert {pid for *_, pid in rows} == {4}
    assert sorted(name or "" for (name,) in names) == ["", "9 · lane 2"]


def test_names_are_those_of_processes_streams_and_threads(tmp_path: Path, load: Any) -> None:
    engine = load(ingested(b"".join(trace_chunks(TraceShape(steps=2))), tmp_path / "trace"))

    processes = {name for (name,) in engine.rows(f"SELECT DISTINCT process.name {FROM_SLICES}")}
    streams = {name for (name,) in engine.rows("SELECT DISTINCT thread.name FROM thread WHERE name LIKE 'stream%'")}

    assert any((name or "").startswith("GPU 0") for name in processes)
    assert any(name.startswith("stream 7") for name in streams)


def test_members_of_the_document_and_counts_are_metadata(tmp_path: Path, load: Any) -> None:
    document = {
        "deviceProperties": [{"id": 0}], "distributedInfo": {"rank": 3},
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
            {"ph": "X", "name": "untimed", "pid": 1, "tid": 1},
            {"ph": "X", "name": "one", "pid": 1, "tid": 1, "ts": 1, "dur": 2},
            {"ph": "X", "name": "null", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"a": None}},
        ],
    }  # fmt: skip
    engine = load(ingested(json.dumps(document), tmp_path / "trace"))

    members = dict(engine.rows("SELECT name, str_value FROM metadata WHERE name LIKE 'cr-%'"))

    assert json.loads(members["cr-deviceProperties"]) == [{"id": 0}]
    assert json.loads(members["cr-distributedInfo"]) == {"rank": 3}
    assert json.loads(members["cr-2-tracedock.counts"]) == {"events": 4, "copied": 3, "metadata": 1, "untimed": 1}


def test_asynchronous_events_and_instants_are_slices(tmp_path: Path, load: Any) -> None:
    spans = [
        {"ph": phase, "cat": "a", "name": "span", "id": 3, "pid": 1, "tid": 1, "ts": at}
        for phase, at in (("b", 1), ("e", 5))
    ]
    pair = [{"ph": phase, "name": "pair", "pid": 1, "tid": 1, "ts": at} for phase, at in (("B", 2), ("E", 3))]
    engine = load(
        ingested(
            json.dumps([*spans, *pair, {"ph": "R", "name": "mark", "pid": 1, "tid": 1, "ts": 4}]), tmp_path / "trace"
        )
    )

    assert engine.rows("SELECT name, ts, dur FROM slice ORDER BY ts") == [
        ("span", 1000, 4000), ("pair", 2000, 1000), ("mark", 4000, 0),
    ]  # fmt: skip

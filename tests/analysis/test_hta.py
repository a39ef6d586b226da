"""HolisticTraceAnalysis (HTA) agrees with our answers on traces whose times are whole µs: HTA reads these exactly.

HTA orders several changes in one µs by an unstable sort. So the tests compare series at the end of each µs, and compare
their statistics only if no two changes share a µs.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import Ask, Rows
from tests.traces import TraceShape, write_trace

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".hta" / "bin" / "python"
SHAPES = {
    "as_usual": {},
    "many_kernels": {"kernels": 300, "steps": 4, "streams": (7, 20, 24), "seed": 1},
    "one_step": {"kernels": 60, "steps": 1, "seed": 2},
    "two_steps_of_two_devices": {"kernels": 90, "steps": 2, "devices": (0, 1), "streams": (7, 20, 24), "seed": 3},
    "one_rank": {"kernels": 120, "world_size": None, "rank": None, "streams": (7,), "seed": 4},
    "with_stacks": {"kernels": 40, "stacks": True, "streams": (7, 13), "steps": 5, "seed": 5},
}
TYPES = {"COMPUTATION": "COMP", "COMMUNICATION": "COMM", "MEMORY": "MEM"}
DEFAULTS = {"types": "hta", "last_step": "drop"}

Compared = tuple[Callable[..., dict[str, Rows]], dict[str, Any]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="HTA is not installed: run `make hta`"),
]


@pytest.fixture(scope="module", params=SHAPES)
def compared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ask: Ask) -> Compared:
    """Return a function that answers questions about a trace, and all answers of HTA."""
    shape = TraceShape(era="us_int", **SHAPES[request.param])  # type: ignore[arg-type]
    trace = write_trace(tmp_path_factory.mktemp("hta") / "trace.json", shape)
    answer = subprocess.run(
        [PYTHON, ROOT / "tests/data/ask_hta.py", trace], check=True, capture_output=True, cwd=trace.parent, timeout=120
    )
    return lambda name, **parameters: ask(name, trace, **DEFAULTS, **parameters), json.loads(answer.stdout)


def last(rows: Rows, *keys: str, value: str) -> dict[tuple[Any, ...], Any]:
    """Return, for each combination of the keys' values, the value in the last row that has it."""
    return {tuple(row[key] for key in keys): row[value] for row in rows}


def test_temporal_breakdown_equals_hta(compared: Compared) -> None:
    ours, hta = compared
    [row], [theirs] = ours("temporal_breakdown")["breakdown"], hta["temporal_breakdown"]
    for column, name in {"idle": "idle", "compute": "compute", "non_compute": "non_compute", "span": "kernel"}.items():
        assert row[f"{column}_ns"] == theirs[f"{name}_time(us)"] * 1000
    for column in ("idle", "compute", "non_compute"):
        assert row[f"{column}_pct"] == pytest.approx(theirs[f"{column}_time_pctg"], abs=0.00501)


def test_comm_overlap_equals_hta(compared: Compared) -> None:
    ours, hta = compared
    [theirs] = hta["comm_overlap"]
    if theirs["comp_comm_overlap_pctg"] is None:
        assert not any(row["type"] == "COMM" for row in ours("kernel_breakdown")["kernels"])
        return
    [row] = ours("comm_overlap")["overlap"]
    assert row["overlap_pct"] == pytest.approx(theirs["comp_comm_overlap_pctg"], abs=0.00501)


def test_idle_breakdown_equals_hta(compared: Compared) -> None:
    ours, hta = compared
    rows = {(row["stream"], row["category"]): row for row in ours("idle_breakdown")["breakdown"]}
    idle = {
        (entry["stream"], entry["idle_category"]): entry["idle_time"] * 1000
        for entry in hta["idle"]
        if entry["idle_time"]
    }
    assert {key: row["idle_ns"] for key, row in rows.items() if row["idle_ns"]} == idle
    intervals = {(entry["stream"], entry["idle_category"]): entry for entry in hta["intervals"] if entry["count"]}
    assert set(rows) == set(intervals)
    names = {"mean": "mean", "stddev": "std", "min": "min", "p25": "25%", "p50": "50%", "p75": "75%", "max": "max"}
    for key, row in rows.items():
        assert row["count"] == intervals[key]["count"]
        for column, name in names.items():
            assert row[f"{column}_ns"] / 1000 == pytest.approx(intervals[key][name] or 0, abs=0.00501), (key, column)


def test_kernel_breakdown_equals_hta(compared: Compared) -> None:
    ours, hta = compared
    rows = ours("kernel_breakdown", top=100_000)
    times = {row["types"]: row["time_ns"] for row in rows["types"]}
    expected: dict[str, int] = defaultdict(int)
    for entry in hta["types"]:
        names = {TYPES[name] for name in entry["kernel_type"].split(" overlapping ")}
        expected[" + ".join(name for name in TYPES.values() if name in names)] += entry["sum"] * 1000
    assert times == {types: time for types, time in expected.items() if time}
    kernels = {(row["type"], row["name"]): row for row in rows["kernels"] if row["type"] != "OTHER"}
    assert set(kernels) == {(TYPES[entry["kernel_type"]], entry["name"]) for entry in hta["kernels"]}
    for entry in hta["kernels"]:
        row = kernels[TYPES[entry["kernel_type"]], entry["name"]]
        assert [row[f"{name}_ns"] for name in ("sum", "min", "max")] == [
            entry[f"{name} (us)"] * 1000 for name in ("sum", "min", "max")
        ]
        assert row["mean_ns"] / 1000 == pytest.approx(entry["mean (us)"])
        assert row["stddev_ns"] / 1000 == pytest.approx(entry["stddev"], abs=1e-6)


def test_launch_stats_equal_hta(compared: Compared) -> None:
    ours, hta = compared
    rows = ours("launch_stats", top=1_000_000)
    names = ("cpu_duration", "gpu_duration", "launch_delay")
    assert {row["correlation"]: [row[f"{name}_ns"] for name in names] for row in rows["launches"]} == {
        entry["correlation"]: [entry[name] * 1000 for name in names] for entry in hta["launches"]
    }
    assert rows["counts"][0]["short_work"] == sum(
        entry["gpu_duration"] < entry["cpu_duration"] for entry in hta["launches"]
    )


def test_queue_length_equals_hta(compared: Compared) -> None:
    ours, hta = compared
    rows = ours("queue_length", points=1_000_000)
    theirs = [entry | {"at_ns": (int(entry["ts"]) + hta["start_us"]) * 1000} for entry in hta["queue_series"]]
    series = last(rows["series"], "stream", "at_ns", value="length")
    assert series == last(theirs, "stream", "at_ns", value="queue_length")
    assert len(rows["series"]) == len(theirs)
    summary = {entry["stream"]: entry for entry in hta["queue_summary"]}
    assert {row["stream"]: row["points"] for row in rows["summary"]} == {
        stream: statistics["queue_length/count"] for stream, statistics in summary.items()
    }
    for row in rows["summary"]:
        expected = summary[row["stream"]]
        if row["points"] == sum(stream == row["stream"] for stream, _ in series):
            for column, name in {"mean": "mean", "stddev": "std", "p50": "50%", "max": "max", "min": "min"}.items():
                assert row[column] == pytest.approx(expected[f"queue_length/{name}"]), column


def test_memory_bandwidth_equals_hta(compared: Compared) -> None:
    ours, hta = compared
    rows = ours("memory_bandwidth", points=1_000_000)
    theirs = [entry | {"at_ns": (int(entry["ts"]) + hta["start_us"]) * 1000} for entry in hta["bandwidth_series"]]
    series = last(rows["series"], "kind", "at_ns", value="bandwidth_gbps")
    assert series == pytest.approx(last(theirs, "name", "at_ns", value="memory_bw_gbps"))
    summary = {entry["name"]: entry for entry in hta["bandwidth_summary"]}
    assert {row["kind"] for row in rows["summary"]} == set(summary)
    for row in rows["summary"]:
        expected = summary[row["kind"]]
        if len(theirs) == len(series):
            for column, name in {"mean": "mean", "min": "min", "p50": "50%", "max": "max"}.items():
                assert row[f"{column}_gbps"] == pytest.approx(expected[f"memory_bw_gbps/{name}"]), column

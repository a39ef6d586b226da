"""Copies and memsets, compared with HTA under its filters, and with plain Python without filters."""

import statistics
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, golden, real
from tests.analysis.gpu import Event, work
from tests.conftest import SHARED, needs_shared, scaled

SINGLE = [
    *("a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer"),
    *("mi300_resnet_rank0_of_8", "v100_ddp_epoch_us"),
]
HTA = {"types": "hta", "last_step": "drop"}
STATISTICS = {
    "points": "count", "mean_gbps": "mean", "stddev_gbps": "std", "min_gbps": "min", "p25_gbps": "25%",
    "p50_gbps": "50%", "p75_gbps": "75%", "max_gbps": "max",
}  # fmt: skip


def check_rows(rows: Rows, expected: Rows) -> None:
    """Assert that rows equal HTA's bandwidths."""
    ours = {(row["rank"] or 0, row["kind"]): row for row in rows if row["points"]}
    assert set(ours) == {(row["rank"], row["name"]) for row in expected}
    for entry in expected:
        row = ours[entry["rank"], entry["name"]]
        for column, theirs in STATISTICS.items():
            value = entry[f"memory_bw_gbps/{theirs}"]
            assert row[column] == pytest.approx(value or 0, rel=1e-6, abs=1e-6), (entry["name"], column)


@needs_shared
@pytest.mark.parametrize("name", SINGLE)
def test_bandwidth_equals_hta_with_its_filters(name: str, ask: Ask) -> None:
    check_rows(ask("memory_bandwidth", real(name), **HTA)["summary"], golden("hta_ns", name)["memory_bw_summary"])


@needs_shared
def test_bandwidth_equals_hta_for_whole_times(ask: Ask) -> None:
    for name, traces in {
        "v100_resnet50_2021": [real("v100_resnet50_2021")],
        "dlrm_8_ranks": sorted(SHARED.glob("dlrm_8_ranks/*")),
    }.items():
        check_rows(ask("memory_bandwidth", *traces, **HTA)["summary"], golden("hta_default", name)["memory_bw_summary"])


def copy(start: float, dur: float, size: int, name: str = "Memcpy HtoD (Pinned -> Device)", **args: Any) -> Event:
    return work(start, dur, "gpu_memset" if name.startswith("Memset") else "gpu_memcpy", name, bytes=size, **args)


def test_simultaneous_bandwidths_add_up(ask: Ask) -> None:
    trace = [
        *(copy(0, 10, 20_000), copy(5, 10, 40_000, stream=8), copy(30, 4, 4_000)),
        *(copy(0, 4, 4_000, "Memcpy DtoH (Device -> Pageable)"), copy(50, 2, 8_000, "Memset (Device)")),
        work(60, 1, "gpu_memcpy", "CopyDeviceToHost", **{"memory bandwidth (GB/s)": 3.5}),
    ]
    answer = ask("memory_bandwidth", trace)
    rows = {row["kind"]: row for row in answer["summary"]}
    assert set(rows) == {"Memcpy HtoD", "Memcpy DtoH", "Memset", "Memcpy Unknown"}
    row = rows["Memcpy HtoD"]
    assert [row[name] for name in ("count", "bytes", "sum_ns", "busy_ns")] == [3, 64_000, 24_000, 19_000]
    assert row["bandwidth_gbps"] == pytest.approx(64 / 24)
    assert [row[f"{name}_gbps"] for name in ("min", "max", "mean")] == [1, 6, pytest.approx((2 + 6 + 4 + 1) / 4)]
    series = [(row["at_ns"] // 1000, row["bandwidth_gbps"]) for row in answer["series"] if row["kind"] == "Memcpy HtoD"]
    assert series == [(0, 2), (5, 6), (10, 4), (15, 0), (30, 1), (34, 0)]
    unknown = rows["Memcpy Unknown"]
    assert (unknown["bytes"], unknown["bandwidth_gbps"], unknown["max_gbps"]) == (None, None, 3.5)


def test_other_work_does_not_count(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No copies or memsets"):
        ask("memory_bandwidth", [work(0, 1)])


def test_hostile_values_yield_an_answer(ask: Ask) -> None:
    answer: list[dict[str, Any]] = [{"memory bandwidth (GB/s)": value} for value in ("NaN", [1], 1e308, -1)]
    trace = [
        *(copy(0, 0, 2**58), copy(0, 9e14, 2**58), copy(1, -5, -(2**58)), copy(4, 1, 5, name="Memcpy")),
        *(copy(at, at % 2, 5, **args) for at, args in enumerate([*answer, *answer])),
    ]
    for types in ("exact", "hta"):
        for row in ask("memory_bandwidth", trace, types=types)["summary"]:
            assert row["count"] >= 1


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=10))
def test_series_equal_plain_python(ask: Ask, parts: list[tuple[int, int, int]]) -> None:
    trace = [copy(at, dur, dur * rate * 1000) for at, dur, rate in parts]
    changes = sorted([(at, rate, 1) for at, _, rate in parts] + [(at + dur, -rate, -1) for at, dur, rate in parts])
    last = {}
    rates = 0
    for at, change, _ in changes:
        rates += change
        last[at * 1000] = rates
    answer = ask("memory_bandwidth", trace)
    rows = {row["at_ns"]: row["bandwidth_gbps"] for row in answer["series"]}
    assert rows == pytest.approx(last)
    [row] = answer["summary"]
    running = [row["bandwidth_gbps"] for row in answer["series"] if row["bandwidth_gbps"] > 0]
    assert row["points"] == len(running)
    assert row["mean_gbps"] == pytest.approx(statistics.mean(running))

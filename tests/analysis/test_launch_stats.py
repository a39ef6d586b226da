"""Launches, compared with HTA under its filters, and with plain Python without filters."""

import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, golden, real
from tests.analysis.gpu import call, work
from tests.conftest import DATA, SHARED, needs_shared, scaled

SINGLE = ["a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer", "v100_ddp_epoch_us"]
HTA = {"types": "hta", "last_step": "drop", "order": "time", "top": 100_000}
TIMES = ("cpu_duration", "gpu_duration", "launch_delay")
STATISTICS = {
    "mean_ns": "mean", "stddev_ns": "std", "min_ns": "min", "p25_ns": "25%", "p50_ns": "50%", "p75_ns": "75%",
    "max_ns": "max",
}  # fmt: skip
COUNTS = {
    "short_work": "short_gpu(gpu<cpu)",
    "slow_calls": "runtime_outliers(cpu>50)",
    "long_delays": "launch_delay_outliers(>100)",
}


def check_rows(answer: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    """Assert that rows equal HTA's launches, in µs."""
    [counts] = answer["counts"]
    assert counts["launches"] == expected["n"]
    assert {ours: counts[ours] for ours in COUNTS} == {ours: expected[theirs] for ours, theirs in COUNTS.items()}
    for row in answer["summary"]:
        theirs = expected["describe"][row["time"]]
        assert row["count"] == theirs["count"]
        assert row["sum_ns"] / 1000 == pytest.approx(expected["sum"][row["time"]], abs=tolerance * row["count"])
        for column, name in STATISTICS.items():
            assert row[column] / 1000 == pytest.approx(theirs[name], abs=tolerance), (row["time"], column)
    by_correlation = {row["correlation"]: row for row in answer["launches"]}
    for entry in expected["first10"]:
        row = by_correlation[entry["correlation"]]
        for time in TIMES:
            assert row[f"{time}_ns"] / 1000 == pytest.approx(entry[time], abs=tolerance)


@needs_shared
@pytest.mark.parametrize("name", SINGLE)
def test_launches_equal_hta_with_its_filters(name: str, ask: Ask) -> None:
    check_rows(ask("launch_stats", real(name), **HTA), golden("hta_ns", name)["cuda_kernel_launch_stats"]["0"], 0.5)


@needs_shared
def test_launches_equal_hta_for_whole_times(ask: Ask) -> None:
    expected = golden("hta_default", "v100_resnet50_2021")["cuda_kernel_launch_stats"]
    check_rows(ask("launch_stats", real("v100_resnet50_2021"), **HTA), expected["0"], 1e-6)
    expected = golden("hta_default", "dlrm_8_ranks")["cuda_kernel_launch_stats"]
    answer = ask("launch_stats", *sorted(SHARED.glob("dlrm_8_ranks/*")), **HTA)
    for rank, launches in expected.items():
        check_rows(
            {name: [row for row in rows if row["rank"] == int(rank)] for name, rows in answer.items()}, launches, 1e-6
        )


@needs_shared
def test_calls_of_all_runtimes_are_launches(ask: Ask) -> None:
    trace = real("mi300_resnet_rank0_of_8")  # a ROCm trace: HTA does not recognise its launches
    with pytest.raises(NotApplicable, match="this analysis counts is left"):
        ask("launch_stats", trace, types="hta")
    assert golden("hta_ns", "mi300_resnet_rank0_of_8")["cuda_kernel_launch_stats"]["0"]["n"] == 0
    exact = golden("exact", "mi300_resnet_rank0_of_8")["0"]
    answer = ask("launch_stats", trace)
    assert answer["counts"][0]["work"] == exact["gpu_events"] - exact["unlinked_gpu"]
    assert {"hipLaunchKernel", "hipExtModuleLaunchKernel"} <= {row["call"] for row in answer["calls"]}


def test_each_call_counts_once_with_all_its_work(ask: Ask) -> None:
    trace = [
        *(
            call(0, 1, dur=10),
            call(20, 2, "cudaGraphLaunch", dur=60),
            call(90, 3, "hipMemcpyAsync", dur=1),
            call(95, 4),
        ),
        *(work(5, 20, correlation=1), work(310, 40, correlation=2), work(300, 5, name="first", correlation=2)),
        *(work(400, 5, "gpu_memcpy", "Memcpy HtoD", correlation=3), work(500, 5, correlation=9), work(510, 5)),
    ]
    answer = ask("launch_stats", trace, order="time")
    assert [[row[f"{time}_ns"] // 1000 for time in TIMES] for row in answer["launches"]] == [
        [10, 20, 0],
        [60, 45, 220],
        [1, 5, 309],
    ]
    assert [row["work"] for row in answer["launches"]] == [1, 2, 1]
    assert [row["name"] for row in answer["launches"]][1:] == ["first", "Memcpy HtoD"]
    assert [row["count"] for row in answer["summary"]] == [3, 3, 3]
    [row] = answer["counts"]
    assert [row[name] for name in ("launches", "work", "short_work")] == [3, 4, 1]
    assert row["short_work_pct"] == pytest.approx(100 / 3)
    assert (row["slow_calls"], row["long_delays"]) == (1, 2)
    assert [row["call"] for row in answer["calls"]] == ["cudaGraphLaunch", "cudaLaunchKernel", "hipMemcpyAsync"]
    assert [(row["count"], row["work"]) for row in answer["calls"]] == [(1, 2), (1, 1), (1, 1)]
    assert answer["calls"][0]["mean_launch_delay_ns"] == 220_000
    [row] = ask("launch_stats", trace, memory=False, slow_call_ns=60_000, long_delay_ns=215_000)["counts"]
    assert (row["launches"], row["slow_calls"], row["long_delays"]) == (2, 0, 1)
    longest = ask("launch_stats", trace, top=2)["launches"]
    assert [row["launch_delay_ns"] for row in longest] == [309_000, 220_000]


def test_calls_that_launch_graphs_cost_what_operators_say(ask: Ask) -> None:
    trace = DATA / "cuda_graph_replays.pt.trace.json.gz"
    [launching] = [row for row in ask("launch_stats", trace)["calls"] if row["call"] == "cudaGraphLaunch"]
    [of_all] = [row for row in ask("operators", trace)["operators"] if row["name"] == "cudaGraphLaunch"]
    assert (launching["count"], launching["cpu_duration_ns"]) == (of_all["calls"], of_all["host_self_ns"])
    assert launching["work"] > launching["count"]


def test_trace_without_launches_has_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No calls that launch work"):
        ask("launch_stats", [work(0, 5, correlation=1)])
    with pytest.raises(NotApplicable, match="this analysis counts is left"):
        ask("launch_stats", [work(0, 5, correlation=1), call(1, 2)])
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("launch_stats", [call(1, 1)])


def test_hostile_values_yield_an_answer(ask: Ask) -> None:
    trace = [
        *(call(-9e14, 1, dur=9e14), call(5, 2, dur=-3), call(5, 2, dur=1)),
        *(work(9e14, 9e14, correlation=1), work(6, -1, correlation=2), work(6, 1, correlation="2")),
    ]
    for row in ask("launch_stats", trace)["launches"]:
        assert row["cpu_duration_ns"] >= 0 <= row["launch_delay_ns"]


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(*[st.integers(0, 90)] * 4), min_size=1, max_size=12))
def test_statistics_equal_plain_python(ask: Ask, parts: list[tuple[int, int, int, int]]) -> None:
    trace = []
    for number, (at, dur, start, lasting) in enumerate(parts, 1):
        trace += [call(at, number, dur=dur), work(start, lasting, correlation=number)]
    expected = {
        "cpu_duration": [dur * 1000 for _, dur, _, _ in parts],
        "gpu_duration": [lasting * 1000 for *_, lasting in parts],
        "launch_delay": [max(0, start - at - dur) * 1000 for at, dur, start, _ in parts],
    }
    for row in ask("launch_stats", trace)["summary"]:
        values = expected[row["time"]]
        assert [row[f"{name}_ns"] for name in ("sum", "min", "max")] == [sum(values), min(values), max(values)]
        assert row["mean_ns"] == pytest.approx(statistics.mean(values))
        assert row["stddev_ns"] == pytest.approx(statistics.stdev(values) if len(values) > 1 else 0)
        assert row["p50_ns"] == pytest.approx(statistics.median(values))


def test_correlations_may_be_far_apart(ask: Ask) -> None:
    numbers = [5, 0, -7, 10**15, 2**59, 6]
    calls = [call(at, number) for at, number in enumerate(numbers[:-1])]
    answer = ask("launch_stats", [*calls, call(9, 5), *(work(20, 1, correlation=number) for number in numbers)])
    rows = {row["correlation"]: row["call_start_ns"] // 1000 for row in answer["launches"]}
    assert rows == {5: 0, 10**15: 3, 2**59: 4}  # the first call of a correlation counts, and 0 or less means none


@pytest.mark.parametrize("trace", sorted(DATA.glob("cuda_*.json.gz")), ids=lambda path: path.name.partition(".")[0])
def test_launches_are_those_of_the_attribution(ask: Ask, trace: Path) -> None:
    launched = sum(row["work"] for row in ask("operators", trace)["attribution"] if row["rule"] != "no_launch")
    assert [row["work"] for row in ask("launch_stats", trace)["counts"]] == [launched]

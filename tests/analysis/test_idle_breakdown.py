"""Idle gaps of streams: with HTA's filters they equal those of HTA, without filters those of plain Python."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, golden, real
from tests.analysis.gpu import call, work
from tests.conftest import SHARED, needs_shared, scaled

SINGLE_TRACES = [
    *("a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer"),
    "mi300_resnet_rank0_of_8",
]
HTA_PARAMETERS = {"types": "hta", "last_step": "drop"}
HTA_STATISTICS = {
    "mean_ns": "mean", "stddev_ns": "std", "min_ns": "min", "p25_ns": "25%", "p50_ns": "50%", "p75_ns": "75%",
    "max_ns": "max",
}  # fmt: skip
"""HTA's names of the statistics, by our columns."""


def check_rows(rows: Rows, expected: dict[str, Rows], tolerance: float) -> None:
    """Assert that rows equal HTA's sums and statistics of gaps within a tolerance in µs."""
    ours = {(row["rank"] or 0, row["stream"], row["category"]): row for row in rows}

    def key(entry: dict[str, Any]) -> tuple[int, int, str]:
        return entry["rank"], entry["stream"], entry["idle_category"]

    assert set(ours) == {key(row) for row in expected["stats"] if row["count"]}
    for entry in expected["idle"]:
        row = ours.get(key(entry))
        assert (row["idle_ns"] / 1000 if row else 0) == pytest.approx(entry["idle_time"], abs=tolerance)
        if row and row["idle_pct"] is not None:
            assert row["idle_pct"] / 100 == pytest.approx(entry["idle_time_ratio"], abs=0.0051)
    for entry in expected["stats"]:
        if entry["count"]:
            row = ours[key(entry)]
            assert row["count"] == entry["count"]
            for column, statistic in HTA_STATISTICS.items():
                assert row[column] / 1000 == pytest.approx(entry[statistic] or 0, abs=tolerance), column


@needs_shared
@pytest.mark.parametrize("name", SINGLE_TRACES)
def test_gaps_equal_hta_with_its_filters(name: str, ask: Ask) -> None:
    rows = ask("idle_breakdown", real(name), **HTA_PARAMETERS)["breakdown"]
    check_rows(rows, golden("hta_ns", name)["idle_time_breakdown"], 0.5)


@needs_shared
def test_gaps_equal_hta_for_times_in_whole_microseconds(ask: Ask) -> None:
    actual = ask("idle_breakdown", real("v100_resnet50_2021"), **HTA_PARAMETERS)["breakdown"]
    check_rows(actual, golden("hta_default", "v100_resnet50_2021")["idle_time_breakdown"], 0.0051)
    actual = ask("idle_breakdown", *sorted(SHARED.glob("dlrm_8_ranks/*")), **HTA_PARAMETERS)["breakdown"]
    expected = golden("hta_default", "dlrm_8_ranks")["idle_time_breakdown"]
    exact = golden("exact", "dlrm_8_ranks")
    for rank, counts in exact.items():
        rank_rows = [row for row in actual if row["rank"] == int(rank)]
        rank_expected = {name: [row for row in rows if row["rank"] == int(rank)] for name, rows in expected.items()}
        if not counts["unlinked_gpu"]:
            check_rows(rank_rows, rank_expected, 0.0051)
        # HTA has a bug: for work without a launch in the trace, it uses the file's first event as the launch,
        # and so attributes the gap to the host; without a launch, the cause is unknown
        assert sum(row["idle_ns"] for row in rank_rows) == sum(row["idle_time"] * 1000 for row in rank_expected["idle"])
    assert {rank for rank, counts in exact.items() if not counts["unlinked_gpu"]} >= {"0", "2", "6", "7"}


@needs_shared
def test_launch_just_after_previous_work_is_host_wait(ask: Ask) -> None:
    rows = ask("idle_breakdown", real("v100_ddp_epoch_us"), **HTA_PARAMETERS)["breakdown"]
    expected = golden("hta_ns", "v100_ddp_epoch_us")["idle_time_breakdown"]
    # HTA's times are doubles of epoch µs, with a resolution of 0.25 µs: six launches seem earlier than they are
    assert [row["count"] for row in rows] == [47, 4828]
    assert [row["count"] for row in expected["stats"]] == [41, 4834, 0]
    assert sum(row["idle_ns"] for row in rows) / 1000 == pytest.approx(
        sum(row["idle_time"] for row in expected["idle"]), abs=0.5
    )


@needs_shared
@pytest.mark.parametrize("name", [*SINGLE_TRACES, "v100_ddp_epoch_us"])
def test_gaps_cover_all_time_without_work(name: str, ask: Ask) -> None:
    rows = ask("idle_breakdown", real(name))["breakdown"]
    streams = golden("exact", name)["0"]["streams"]
    assert {f"{row['device']}/{row['stream']}" for row in rows} <= set(streams)
    if len(streams) == 1:
        [stream] = streams.values()
        assert sum(row["idle_ns"] for row in rows) == golden("exact", name)["0"]["span_ns"] - stream["busy_ns"]


def test_gaps_are_classified_by_the_time_of_the_launch(ask: Ask) -> None:
    trace = [
        *(call(0, 1), call(1, 2), call(90, 3), call(2, 4), call(3, 5)),
        work(10, 30, correlation=1),
        work(20, 5, correlation=2),  # ends before its predecessor ends
        work(100, 10, correlation=3),
        work(115, 5, correlation=4),
        work(160, 5, correlation=5),
        work(170, 5),
    ]
    rows = ask("idle_breakdown", trace)["breakdown"]
    assert [(row["category"], row["count"], row["idle_ns"]) for row in rows] == [
        ("host_wait", 1, 60000),
        ("kernel_wait", 2, 10000),
        ("other", 1, 40000),
    ]
    assert rows[0]["idle_pct"] == pytest.approx(6000 / 110)
    hta_rows = ask("idle_breakdown", trace, types="hta")["breakdown"]
    assert [(row["category"], row["count"], row["idle_ns"]) for row in hta_rows] == [
        ("host_wait", 1, 75000),
        ("kernel_wait", 3, -10000),  # as in HTA, the overlapping work counts as a gap of negative length
        ("other", 1, 40000),
    ]
    rows = ask("idle_breakdown", trace, kernel_wait_ns=30)["breakdown"]
    assert [row["category"] for row in rows] == ["host_wait", "other"]


def test_calls_with_the_same_correlation_count_once(ask: Ask) -> None:
    trace = [call(0, 1), call(50, 2), call(60, 2, "cuLaunchKernel"), work(10, 45, correlation=1)]
    [row] = ask("idle_breakdown", [*trace, work(70, 5, correlation=2)])["breakdown"]
    assert (row["category"], row["count"], row["idle_ns"]) == ("kernel_wait", 1, 15000)


def test_idle_breakdown_does_not_apply_without_gaps_or_gpu_work(ask: Ask) -> None:
    with pytest.raises(NotApplicable):
        ask("idle_breakdown", [work(0, 5)])
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("idle_breakdown", [call(1, 1)])


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 9), st.integers(0, 90), st.integers(7, 8), st.booleans()),
        min_size=2,
        max_size=12,
    )
)
def test_gaps_equal_plain_python(ask: Ask, work_items: list[tuple[int, int, int, int, bool]]) -> None:
    trace: list[dict[str, Any]] = []
    expected: dict[tuple[int, str], list[int]] = {}
    for correlation, (start, dur, launch, stream, has_launch) in enumerate(work_items, 1):
        if has_launch:
            trace.append(call(launch, correlation))
        trace.append(work(start, dur, stream=stream, correlation=correlation))
    for stream in (7, 8):
        busy_until = None
        stream_items = [item for item in work_items if item[3] == stream]
        for start, dur, launch, _, has_launch in sorted(stream_items, key=lambda item: item[0]):
            if busy_until is not None and start > busy_until:
                if has_launch and launch > busy_until:
                    category = "host_wait"
                elif start - busy_until < 5:
                    category = "kernel_wait"
                else:
                    category = "other"
                expected.setdefault((stream, category), []).append((start - busy_until) * 1000)
            busy_until = max(busy_until or 0, start + dur)
    if not expected:
        with pytest.raises(NotApplicable):
            ask("idle_breakdown", trace, kernel_wait_ns=5000)
        return
    rows = ask("idle_breakdown", trace, kernel_wait_ns=5000)["breakdown"]
    assert {(row["stream"], row["category"]): [row["count"], row["idle_ns"], row["max_ns"]] for row in rows} == {
        key: [len(gaps), sum(gaps), max(gaps)] for key, gaps in expected.items()
    }

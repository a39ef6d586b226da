"""Idle gaps of streams, compared with HTA under its filters, and with plain Python without filters."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, golden, real
from tests.analysis.gpu import call, work
from tests.conftest import SHARED, needs_shared, scaled

SINGLE = [
    *("a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer"),
    "mi300_resnet_rank0_of_8",
]
HTA = {"types": "hta", "last_step": "drop"}
STATISTICS = {
    "mean_ns": "mean", "stddev_ns": "std", "min_ns": "min", "p25_ns": "25%", "p50_ns": "50%", "p75_ns": "75%",
    "max_ns": "max",
}  # fmt: skip


def check_rows(rows: Rows, expected: dict[str, Rows], tolerance: float) -> None:
    """Assert that rows equal HTA's intervals, in µs."""
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
            for column, theirs in STATISTICS.items():
                assert row[column] / 1000 == pytest.approx(entry[theirs] or 0, abs=tolerance), column


@needs_shared
@pytest.mark.parametrize("name", SINGLE)
def test_gaps_equal_hta_with_its_filters(name: str, ask: Ask) -> None:
    check_rows(
        ask("idle_breakdown", real(name), **HTA)["breakdown"], golden("hta_ns", name)["idle_time_breakdown"], 0.5
    )


@needs_shared
def test_gaps_equal_hta_for_whole_times(ask: Ask) -> None:
    actual = ask("idle_breakdown", real("v100_resnet50_2021"), **HTA)["breakdown"]
    check_rows(actual, golden("hta_default", "v100_resnet50_2021")["idle_time_breakdown"], 0.0051)
    actual = ask("idle_breakdown", *sorted(SHARED.glob("dlrm_8_ranks/*")), **HTA)["breakdown"]
    expected = golden("hta_default", "dlrm_8_ranks")["idle_time_breakdown"]
    exact = golden("exact", "dlrm_8_ranks")
    for rank, counts in exact.items():
        of_rank = [row for row in actual if row["rank"] == int(rank)]
        theirs = {name: [row for row in rows if row["rank"] == int(rank)] for name, rows in expected.items()}
        if not counts["unlinked_gpu"]:
            check_rows(of_rank, theirs, 0.0051)
        # HTA has a bug: for work without a launch in the trace, it uses the file's first event as the launch,
        # and so attributes the gap to the host; without a launch, the cause is unknown
        assert sum(row["idle_ns"] for row in of_rank) == sum(row["idle_time"] * 1000 for row in theirs["idle"])
    assert {rank for rank, counts in exact.items() if not counts["unlinked_gpu"]} >= {"0", "2", "6", "7"}


@needs_shared
def test_launch_just_after_previous_work_is_host_wait(ask: Ask) -> None:
    rows = ask("idle_breakdown", real("v100_ddp_epoch_us"), **HTA)["breakdown"]
    expected = golden("hta_ns", "v100_ddp_epoch_us")["idle_time_breakdown"]
    # HTA's times are doubles of epoch µs, with a resolution of 0.25 µs: six launches seem earlier than they are
    assert [row["count"] for row in rows] == [47, 4828]
    assert [row["count"] for row in expected["stats"]] == [41, 4834, 0]
    assert sum(row["idle_ns"] for row in rows) / 1000 == pytest.approx(
        sum(row["idle_time"] for row in expected["idle"]), abs=0.5
    )


@needs_shared
@pytest.mark.parametrize("name", [*SINGLE, "v100_ddp_epoch_us"])
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
    by_hta = ask("idle_breakdown", trace, types="hta")["breakdown"]
    assert [(row["category"], row["count"], row["idle_ns"]) for row in by_hta] == [
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


def test_trace_without_gaps_has_a_reason(ask: Ask) -> None:
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
def test_gaps_equal_plain_python(ask: Ask, parts: list[tuple[int, int, int, int, bool]]) -> None:
    trace: list[dict[str, Any]] = []
    expected: dict[tuple[int, str], list[int]] = {}
    for number, (at, dur, launch, stream, linked) in enumerate(parts):
        trace += [call(launch, number)] * linked + [work(at, dur, stream=stream, correlation=number)]
    for stream in (7, 8):
        over = None
        for at, dur, launch, _, linked in sorted((p for p in parts if p[3] == stream), key=lambda part: part[0]):
            if over is not None and at > over:
                late = "host_wait" if linked and launch > over else "kernel_wait" if at - over < 5 else "other"
                expected.setdefault((stream, late), []).append((at - over) * 1000)
            over = max(over or 0, at + dur)
    if not expected:
        with pytest.raises(NotApplicable):
            ask("idle_breakdown", trace, kernel_wait_ns=5000)
        return
    rows = ask("idle_breakdown", trace, kernel_wait_ns=5000)["breakdown"]
    assert {(row["stream"], row["category"]): [row["count"], row["idle_ns"], row["max_ns"]] for row in rows} == {
        key: [len(gaps), sum(gaps), max(gaps)] for key, gaps in expected.items()
    }

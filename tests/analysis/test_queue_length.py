"""Queue lengths, compared with HTA under its filters, and with plain Python without filters."""

import statistics
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, golden, real
from tests.analysis.gpu import call, work
from tests.conftest import SHARED, needs_shared, scaled

SINGLE = [
    "a100_nccl_3_steps",
    "b200_eager_rank0_of_8",
    "h100_bert_small",
    "h100_timesformer",
    "mi300_resnet_rank0_of_8",
]
HTA = {"types": "hta", "last_step": "drop"}
STATISTICS = {
    "points": "count", "mean": "mean", "stddev": "std", "min": "min", "p25": "25%", "p50": "50%", "p75": "75%",
    "max": "max",
}  # fmt: skip


def check_rows(rows: Rows, expected: Rows, tolerance: float) -> None:
    """Assert that rows equal HTA's queues.

    HTA sorts a launch and work of equal times in any order. Doubles of epoch µs can also make different times equal.
    Both change the means slightly.
    """
    ours = {(row["rank"] or 0, row["stream"]): row for row in rows}
    assert set(ours) == {(row["rank"], row["stream"]) for row in expected}
    for entry in expected:
        row = ours[entry["rank"], entry["stream"]]
        for column, theirs in STATISTICS.items():
            assert row[column] == pytest.approx(entry[f"queue_length/{theirs}"], abs=tolerance), column


@needs_shared
@pytest.mark.parametrize("name", [*SINGLE, "v100_ddp_epoch_us"])
def test_queues_equal_hta_with_its_filters(name: str, ask: Ask) -> None:
    expected = golden("hta_ns", name)
    rows = ask("queue_length", real(name), **HTA)["summary"]
    check_rows(rows, expected["queue_length_summary"], 0.001 if name == "v100_ddp_epoch_us" else 1e-6)
    full = {row["stream"]: row["full_ns"] / 1000 for row in rows if row["full_ns"]}
    theirs = {row["stream"]: row["duration_at_max_queue_length"] for row in expected["blocked_on_full_queue"]}
    assert full == pytest.approx(theirs, abs=0.5)


@needs_shared
def test_queues_equal_hta_for_whole_times(ask: Ask) -> None:
    for name, traces in {
        "v100_resnet50_2021": [real("v100_resnet50_2021")],
        "dlrm_8_ranks": sorted(SHARED.glob("dlrm_8_ranks/*")),
    }.items():
        check_rows(
            ask("queue_length", *traces, **HTA)["summary"], golden("hta_default", name)["queue_length_summary"], 0.05
        )


def test_queue_grows_with_launches_and_shrinks_with_work(ask: Ask) -> None:
    trace = [
        *(call(0, 1), call(10, 2, "cudaGraphLaunch"), call(20, 3), call(30, 4)),
        *(work(5, 5, correlation=1), work(20, 1, correlation=2), work(40, 1, correlation=2)),
        *(work(50, 1, correlation=3), work(60, 1, stream=9, correlation=4), work(70, 1, correlation=5), work(80, 1)),
    ]
    answer = ask("queue_length", trace, full=2)
    assert [(row["stream"], row["at_ns"] // 1000, row["length"]) for row in answer["series"]] == [
        *((7, 0, 1), (7, 5, 0), (7, 10, 1), (7, 10, 2), (7, 20, 3), (7, 20, 2), (7, 40, 1), (7, 50, 0)),
        *((9, 30, 1), (9, 60, 0)),
    ]
    first, second = answer["summary"]
    assert [first[name] for name in ("points", "min", "p50", "max", "full_ns", "full_pct")] == [8, 0, 1, 3, 30000, 60]
    assert first["mean_over_time"] == pytest.approx((5 + 2 * 30 + 10) / 50)
    assert [second[name] for name in ("points", "mean", "full_ns")] == [2, 0.5, 0]
    few = ask("queue_length", trace, points=3)["series"]
    assert [(row["at_ns"] // 1000, row["length"]) for row in few][:3] == [(5, 0), (20, 3), (50, 0)]
    with pytest.raises(NotApplicable, match="this analysis counts is left"):
        ask("queue_length", trace[1:2] + trace[5:7], types="hta")


def test_trace_without_launches_has_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No calls that launch work"):
        ask("queue_length", [work(0, 5, correlation=1)])
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("queue_length", [call(1, 1)])


def test_hostile_values_yield_an_answer(ask: Ask) -> None:
    trace = [
        *(call(-4e14, 1), call(5, 2, dur=-3), call(9, 3), call(9, 3)),
        *(work(4e14, 9e14, correlation=1), work(1, -1, stream=8, correlation=2), work(9, 1, stream="x", correlation=3)),
    ]
    rows = ask("queue_length", trace)["summary"]
    assert {row["stream"]: row["min"] for row in rows} == {7: 0, 8: -1}  # work may seem to start before its launch


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=12))
def test_lengths_equal_plain_python(ask: Ask, parts: list[tuple[int, int]]) -> None:
    trace: list[dict[str, Any]] = []
    changes = []
    for number, (launch, start) in enumerate(parts, 1):
        trace += [call(launch, number), work(start, 1, correlation=number)]
        changes += [(launch, 0, 1), (start, 1, -1)]
    length, series = 0, []
    for at, _, change in sorted(changes):
        length += change
        series.append((at * 1000, length))
    answer = ask("queue_length", trace)
    assert [(row["at_ns"], row["length"]) for row in answer["series"]] == series
    [row] = answer["summary"]
    assert row["mean"] == pytest.approx(statistics.mean(length for _, length in series))
    assert row["stddev"] == pytest.approx(statistics.stdev(length for _, length in series))
